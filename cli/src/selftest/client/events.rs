//! Handles a client's events, and ends its operations.

use std::time::Duration;

use nlx::{Buffer, Errno, Event, Machine, Queue};

use super::super::pattern;
use super::super::protocol::{Direction, Head, Kind};
use super::lane::Outcome;
use super::{Client, LOST_REMEMBERED};
use crate::failure::Failure;

/// After this number of timeouts a lane that has not ended never will: an event is missing.
const MISSING_TIMEOUTS: u32 = 3;

/// Result of a part of a try.
enum Ended {
    Right,
    Lost,
    Wrong(String),
}

impl Client {
    /// Handles one event.
    pub(super) fn handle(&mut self, machine: &Machine, event: Event) -> Result<(), Failure> {
        let lane = event.tag as usize;
        let ended = match (event.queue, event.status) {
            (Queue::MessageReceive, _) => return self.message(machine, event),
            (_, Err(Errno::ETIMEDOUT)) => Ended::Lost,
            (queue, Err(errno)) => Ended::Wrong(format!("{queue:?} ended with {errno}")),
            (Queue::PassiveBulkReceive, Ok(())) => {
                self.received(lane, event.length, event.buffer.as_ref())?
            }
            (_, Ok(())) => Ended::Right,
        };
        let slot = &mut self.lanes[lane];
        match event.queue {
            Queue::MessageSend => slot.request = event.buffer,
            Queue::PassiveBulkReceive => slot.sink = event.buffer,
            _ => slot.source = event.buffer,
        }
        self.part_ended(lane, ended)
    }

    /// Compares the bytes that the server wrote.
    fn received(&mut self, lane: usize, length: usize, buffer: Option<&Buffer>) -> Result<Ended, Failure> {
        let slot = &self.lanes[lane];
        let direction =
            if slot.kind == Kind::Exchange { Direction::FromClient } else { Direction::FromServer };
        let sequence = slot.stamp.sequence;
        let right = length == slot.length
            && buffer.is_some_and(|buffer| {
                buffer.read().is_ok_and(|bytes| {
                    pattern::check(direction.stream(self.plan.seed), sequence, &bytes[..length])
                })
            });
        if !right {
            return Ok(Ended::Wrong(format!("bulk {sequence:#x} brought wrong bytes")));
        }
        self.counters.verified_bytes += length as u64;
        Ok(Ended::Right)
    }

    /// Handles a message from a server.
    fn message(&mut self, machine: &Machine, mut event: Event) -> Result<(), Failure> {
        let buffer = event.buffer.take();
        match (event.message.take(), event.status) {
            (Some(message), _) => self.answer(&message)?,
            (None, status) => self.counters.fail(|| format!("a receive buffer ended with {status:?}")),
        }
        self.receives.repost(machine, buffer)
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let (head, body) = match Head::split(bytes) {
            Ok(split) => split,
            Err(error) => {
                self.counters.fail(|| format!("an invalid answer: {error}"));
                return Ok(());
            }
        };
        let (lane, sequence) = (head.lane as usize, head.stamp.sequence);
        let expected =
            self.lanes.get(lane).is_some_and(|slot| slot.awaits_answer && slot.stamp == head.stamp);
        if !expected {
            if head.kind == Kind::Bad && self.refused(lane, &head) {
                return Ok(());
            }
            if self.lost.remove(&sequence) {
                self.counters.late += 1;
            } else {
                self.counters
                    .fail(|| format!("an answer to operation {sequence:#x}, which is not in flight"));
            }
            return Ok(());
        }
        let slot = &mut self.lanes[lane];
        slot.awaits_answer = false;
        let right = head.length == slot.length as u64
            && match (slot.kind, head.kind) {
                (Kind::Echo, Kind::Echo) => {
                    head.is_echo_of(Direction::FromServer.stream(self.plan.seed), body)
                }
                // The server has compared each byte of the write.
                (Kind::Write, Kind::Good) => body.is_empty(),
                _ => false,
            };
        self.counters.verified_bytes += if right { head.length } else { 0 };
        let wrong = || format!("operation {sequence:#x} brought wrong bytes, or the server refused it");
        self.part_ended(lane, if right { Ended::Right } else { Ended::Wrong(wrong()) })
    }

    /// Handles a server's refusal of bulk that is in flight: its transfers can only end by their
    /// timeouts.
    fn refused(&mut self, lane: usize, head: &Head) -> bool {
        let Some(slot) = self.lanes.get_mut(lane).filter(|slot| slot.parts > 0 && slot.stamp == head.stamp)
        else {
            return false;
        };
        slot.outcome = Outcome::Wrong;
        self.counters.note(|| format!("the server refused operation {:#x}", head.stamp.sequence));
        true
    }

    fn part_ended(&mut self, lane: usize, ended: Ended) -> Result<(), Failure> {
        let slot = &mut self.lanes[lane];
        match ended {
            Ended::Right => {}
            Ended::Lost if slot.outcome == Outcome::Right => slot.outcome = Outcome::Lost,
            Ended::Lost => {}
            Ended::Wrong(text) => {
                slot.outcome = Outcome::Wrong;
                self.counters.note(|| text);
            }
        }
        // The lane of a missing event has no parts left; a late event changes nothing.
        match slot.parts.checked_sub(1) {
            None => return Ok(()),
            Some(parts) => slot.parts = parts,
        }
        if slot.parts == 0 { self.ended(lane) } else { Ok(()) }
    }

    /// Ends a try when its last part has ended.
    fn ended(&mut self, lane: usize) -> Result<(), Failure> {
        let now = self.now();
        let over = self.is_time_up(now);
        let slot = &self.lanes[lane];
        match slot.outcome {
            Outcome::Right => self.counters.done(now.saturating_sub(slot.began), slot.length as u64),
            Outcome::Wrong => self.counters.fail(|| "an operation failed".into()),
            Outcome::Lost => {
                self.counters.lost += 1;
                let (sequence, kind, tries) = (slot.stamp.sequence, slot.kind, slot.tries);
                if self.lost.len() < LOST_REMEMBERED {
                    self.lost.insert(sequence);
                }
                if tries < self.plan.tries && !over {
                    // Intervals grow with each try, so that slow nodes get time.
                    self.again.push((now + self.plan.timeout * tries / 4, lane));
                    return Ok(());
                }
                tracing::debug!(sequence, ?kind, tries, "an operation was lost");
            }
        }
        if self.idle.len() >= self.lanes.len() {
            return Err(Failure::new("a lane is idle twice"));
        }
        self.idle.push_back(lane);
        Ok(())
    }

    pub(super) fn retry(&mut self, machine: &Machine, lane: usize) -> Result<(), Failure> {
        self.counters.retries += 1;
        self.attempt(machine, lane)
    }

    /// Handles timeouts: an answer that has not come in time is lost; a lane that has not ended
    /// long after its timeout misses an event.
    pub(super) fn check_timeouts(&mut self, lane: usize, now: Duration) -> Result<(), Failure> {
        let slot = &mut self.lanes[lane];
        let taken = now.saturating_sub(slot.stamp.time);
        if slot.parts == 0 || taken < self.plan.timeout {
            return Ok(());
        }
        if slot.awaits_answer {
            slot.awaits_answer = false;
            self.part_ended(lane, Ended::Lost)?;
        } else if taken > self.plan.timeout * MISSING_TIMEOUTS {
            let sequence = slot.stamp.sequence;
            slot.parts = 0;
            self.missing += 1;
            self.counters.fail(|| format!("operation {sequence:#x} has not ended"));
        }
        Ok(())
    }
}
