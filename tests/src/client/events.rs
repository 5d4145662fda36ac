//! The client's side of an event queue.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use super::points::Points;
use super::ring::{Queue, place};
use super::wire::{u32_at, u64_at};

/// The size of an event in bytes.
const EVENT: usize = 88;
/// The maximum length of a sleep without a wake-up.
const NAP: Duration = Duration::from_millis(200);

/// An event of the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of this name")]
pub struct Event {
    pub buffer: u64,
    pub cookie: u64,
    pub length: u64,
    pub offset: u64,
    pub status: i32,
    /// Set on the operation's last event.
    pub last: bool,
    /// NID, portal, id.
    pub sender: Option<([u8; 20], u32, u32)>,
    pub released: u32,
}

impl Event {
    fn read(bytes: &[u8]) -> Event {
        let flags = u32_at(bytes, 44);
        let mut nid = [0; 20];
        nid.copy_from_slice(&bytes[48..68]);
        Event {
            buffer: u64_at(bytes, 0),
            cookie: u64_at(bytes, 8),
            length: u64_at(bytes, 24),
            offset: u64_at(bytes, 32),
            status: u32_at(bytes, 40) as i32,
            last: flags & 1 != 0,
            sender: (flags & 2 != 0).then(|| (nid, u32_at(bytes, 72), u32_at(bytes, 76))),
            released: u32_at(bytes, 80),
        }
    }
}

/// The event queue of a transfer machine.
#[derive(Debug)]
pub struct Events {
    /// The queue's memory.
    pub queue: Queue,
    divider: u32,
    front: u32,
    taken: u64,
    slots: u32,
    needed: u32,
}

impl Events {
    /// Creates the consumer of a queue from which no event has been taken.
    pub fn new(queue: Queue) -> Events {
        Events { queue, divider: 1, front: 0, taken: 0, slots: 2, needed: 0 }
    }

    /// Provisions room for `events` more events.
    pub fn provision(&mut self, events: u32, points: &mut Points) {
        self.needed += events;
        let missing = (self.needed + 1).saturating_sub(self.slots);
        if missing == 0 {
            return;
        }
        let (first, last) = (self.slots, self.slots + missing - 1);
        assert!(
            last < self.queue.max_slots,
            "{} slots have no room for {} events",
            self.queue.max_slots,
            self.needed
        );
        let link = |slot: u32, next: u32| self.queue.memory.half(place::link(slot)).store(next, Relaxed);
        (first..last).for_each(|slot| link(slot, slot + 1));
        link(last, self.front);
        points.pass("grow strung");
        link(self.divider, first);
        points.pass("grow linked");
        (self.divider, self.slots) = (last, self.slots + missing);
        self.queue.memory.half(place::SLOTS).store(self.slots, Release);
        points.pass("grow published");
    }

    /// Returns the number of events that may still come.
    pub fn needed(&self) -> u32 {
        self.needed
    }

    /// Removes and returns the next event, if there is one.
    pub fn take(&mut self, points: &mut Points) -> Option<Event> {
        let stamp = self.stamp()?;
        points.pass("event seen");
        let slot = self.queue.slot(self.front);
        let event = Event::read(&self.queue.memory.read(slot + place::STAMP - EVENT, EVENT));
        self.divider = self.front;
        // The helper is trusted: the number is a valid slot index.
        self.front = stamp as u32;
        self.taken += 1;
        points.pass("event taken");
        self.queue.memory.word(place::CONSUMED).store(self.taken, Release);
        points.pass("event given back");
        self.needed = self.needed.saturating_sub(event.released);
        Some(event)
    }

    /// Waits for an event; returns whether there is one. Ends after `patience`, or once `is_over`
    /// returns true.
    pub fn wait(&self, patience: Duration, points: &mut Points, mut is_over: impl FnMut() -> bool) -> bool {
        let until = Instant::now() + patience;
        while self.stamp().is_none() {
            if is_over() || Instant::now() >= until {
                return false;
            }
            let sleeping = self.queue.memory.half(place::SLEEPING);
            sleeping.swap(1, Relaxed);
            fence(SeqCst);
            points.pass("sleep announced");
            if self.stamp().is_none() {
                self.queue.memory.sleep(place::SLEEPING, 1, NAP);
            }
            points.pass("sleep over");
            sleeping.swap(0, Relaxed);
        }
        true
    }

    /// Returns the stamp of the next event, if the event is present.
    fn stamp(&self) -> Option<u64> {
        let stamp = self.queue.memory.word(self.queue.slot(self.front) + place::STAMP).load(Acquire);
        ((stamp >> 32) as u32 == (self.taken + 1) as u32).then_some(stamp)
    }
}
