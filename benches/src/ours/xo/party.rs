//! One side of a measurement: a domain with a transfer machine and its buffers.

use std::time::{Duration, Instant};

use nlx::{Batch, Buffer, Domain, EndPoint, Event, Offer, Op, Queue, TmOptions, TransferMachine};

use crate::error::{BenchError, Result};
use crate::ours::lnet::rate::WINDOW;
use crate::server::STEP_TIMEOUT;

/// The longest message.
pub(super) const MESSAGE: usize = 256;

/// Messages that a receive buffer holds before it comes back.
const MESSAGES_PER_BUFFER: usize = 256;

/// Receive buffers: while one comes back, the other receives messages.
pub(super) const RECEIVE_BUFFERS: usize = 2;

/// The size of a receive buffer.
pub(super) const RECEIVE_BYTES: usize = MESSAGE * MESSAGES_PER_BUFFER;

/// Returns the operation that receives messages into a buffer.
pub(super) fn receive(buffer: Buffer) -> Op {
    Op::receive(buffer).max_messages(MESSAGES_PER_BUFFER as u32)
}

/// Largest number of sent messages whose event has not been taken: two windows of the busiest row.
const SEND_BUFFERS_MAX: usize = 2 * WINDOW as usize;

/// Events that are handled before messages are sent.
const EVENTS_AT_ONCE: usize = 32;

/// A domain with one transfer machine, and its peer.
pub(super) struct Party {
    domain: Domain,
    tm: TransferMachine,
    peer: EndPoint,
    batch: Batch,
    /// Send buffers that are not in use.
    idle: Vec<Buffer>,
    /// Number of send buffers, with those in flight.
    send_buffers: usize,
}

impl Party {
    /// Starts a transfer machine at `own`, which sends to `peer`.
    pub(super) fn start(domain: Domain, own: &str, peer: &str) -> Result<Party> {
        let tm = domain
            .transfer_machine(own, TmOptions::default())
            .map_err(BenchError::nlx("start a transfer machine"))?;
        let peer = tm.end_point(peer).map_err(BenchError::nlx("name the peer"))?;
        let party = Party {
            domain,
            tm,
            peer,
            batch: Batch::new(),
            idle: Vec::with_capacity(SEND_BUFFERS_MAX),
            send_buffers: 0,
        };
        for _ in 0..RECEIVE_BUFFERS {
            party.listen(party.buffer(RECEIVE_BYTES)?)?;
        }
        Ok(party)
    }

    /// Returns a buffer, every byte of which is written: memory that was never written is faster
    /// than any other.
    pub(super) fn buffer(&self, length: usize) -> Result<Buffer> {
        let mut buffer = self.domain.allocate(length).map_err(BenchError::nlx("allocate a buffer"))?;
        buffer.write().map_err(BenchError::nlx("fill a buffer"))?.fill(0x5a);
        Ok(buffer)
    }

    /// Sends a message with this content.
    pub(super) fn send_content(&mut self, content: &[u8]) -> Result<()> {
        let mut buffer = self.send_buffer()?;
        buffer.write().map_err(BenchError::nlx("write a message"))?[..content.len()].copy_from_slice(content);
        self.send(buffer, content.len())
    }

    /// Sends `count` messages of this length with any content, as `lnet` does in the rows that this
    /// is compared with.
    pub(super) fn send_messages(&mut self, count: u64, length: usize) -> Result<()> {
        if count == 1 {
            let buffer = self.send_buffer()?;
            return self.send(buffer, length);
        }
        for _ in 0..count {
            let buffer = self.send_buffer()?;
            self.batch.push(Op::send(buffer, &self.peer).length(length));
        }
        let mut outcomes = self.tm.submit(&mut self.batch);
        outcomes.try_for_each(|outcome| outcome.map(drop).map_err(BenchError::nlx("send a message")))
    }

    fn send(&self, buffer: Buffer, length: usize) -> Result<()> {
        self.tm
            .start(Op::send(buffer, &self.peer).length(length))
            .map(drop)
            .map_err(BenchError::nlx("send a message"))
    }

    /// Waits for an event, and handles those that are available then, as [`Party::next`] does; none
    /// may be of a bulk operation. It stops at a limit, so that the peer gets messages to work on
    /// meanwhile.
    pub(super) fn next_some(&mut self, mut on_message: impl FnMut(&[u8])) -> Result<()> {
        self.next(&mut on_message)?;
        for _ in 1..EVENTS_AT_ONCE {
            let Some(event) = self.tm.take().map_err(BenchError::nlx("take an event"))? else { break };
            self.handle(event, &mut on_message)?;
        }
        Ok(())
    }

    /// Returns a send buffer that is not in use.
    fn send_buffer(&mut self) -> Result<Buffer> {
        if let Some(buffer) = self.idle.pop() {
            return Ok(buffer);
        }
        self.send_buffers += 1;
        if self.send_buffers > SEND_BUFFERS_MAX {
            let (value, expected) = (self.send_buffers as u64, SEND_BUFFERS_MAX as u64);
            return Err(BenchError::Wrong { subject: "the number of messages in flight", value, expected });
        }
        self.buffer(MESSAGE)
    }

    /// Waits for one event. `on_message` gets each message; the buffers of messages are reused.
    /// Returns the buffer of a bulk operation that has ended.
    pub(super) fn next(&mut self, on_message: impl FnMut(&[u8])) -> Result<Option<Buffer>> {
        match self.tm.wait(Some(STEP_TIMEOUT)).map_err(BenchError::nlx("wait for an event"))? {
            Some(event) => self.handle(event, on_message),
            None => Err(BenchError::TimedOut { event: "an event", seconds: STEP_TIMEOUT.as_secs() }),
        }
    }

    /// Handles events, which must not be messages, until this time; sleeps while there are none.
    pub(super) fn rest_until(&mut self, time: Instant) -> Result<()> {
        loop {
            let left = time.saturating_duration_since(Instant::now());
            match self.tm.wait(Some(left)).map_err(BenchError::nlx("wait for an event"))? {
                Some(event) => drop(self.handle(event, |_| ())?),
                None => return Ok(()),
            }
        }
    }

    /// Takes available events, up to the capacity of the list.
    pub(super) fn take(&self, events: &mut Vec<Event>) -> Result<()> {
        while events.len() < events.capacity() {
            let Some(event) = self.tm.take().map_err(BenchError::nlx("take an event"))? else { break };
            events.push(event);
        }
        Ok(())
    }

    /// Handles an event, as [`Party::next`] does.
    pub(super) fn handle(
        &mut self,
        event: Event,
        mut on_message: impl FnMut(&[u8]),
    ) -> Result<Option<Buffer>> {
        event.status.map_err(BenchError::nlx("an operation"))?;
        if let Some(message) = event.message {
            on_message(&message);
        }
        match (event.queue, event.buffer) {
            (Queue::MessageReceive, Some(buffer)) => self.listen(buffer).map(|()| None),
            (Queue::MessageSend, Some(buffer)) => {
                self.idle.push(buffer);
                Ok(None)
            }
            (_, buffer) => Ok(buffer),
        }
    }

    /// Lets the peer read a buffer, once.
    pub(super) fn offer(&self, buffer: Buffer) -> Result<Offer> {
        let staged = self.tm.start(Op::passive_send(buffer)).map_err(BenchError::nlx("stage a buffer"))?;
        Ok(staged.offer)
    }

    /// Lets the peer read each of these buffers once; they are staged together.
    pub(super) fn offer_all(&mut self, buffers: impl IntoIterator<Item = Buffer>) -> Result<Vec<Offer>> {
        buffers.into_iter().for_each(|buffer| self.batch.push(Op::passive_send(buffer)));
        let outcomes = self.tm.submit(&mut self.batch);
        outcomes.map(|outcome| Ok(outcome.map_err(BenchError::nlx("stage a buffer"))?.offer)).collect()
    }

    /// Lets the peer write into a buffer, once.
    pub(super) fn ask_for(&self, buffer: Buffer) -> Result<Offer> {
        let staged = self.tm.start(Op::passive_receive(buffer)).map_err(BenchError::nlx("stage a buffer"))?;
        Ok(staged.offer)
    }

    /// Reads the peer's buffer.
    pub(super) fn fetch(&self, buffer: Buffer, from: &Offer) -> Result<()> {
        self.tm
            .start(Op::active_receive(buffer, from).timeout(TIMEOUT))
            .map(drop)
            .map_err(BenchError::nlx("start an active receive"))
    }

    /// Writes into the peer's buffer.
    pub(super) fn deliver(&self, buffer: Buffer, to: &Offer) -> Result<()> {
        let begun = self.tm.start(Op::active_send(buffer, to).timeout(TIMEOUT));
        begun.map(drop).map_err(BenchError::nlx("start an active send"))
    }

    fn listen(&self, buffer: Buffer) -> Result<()> {
        self.tm.start(receive(buffer)).map(drop).map_err(BenchError::nlx("post a receive buffer"))
    }
}

/// Timeout of operations that the other side completes; storage clients have one, too.
const TIMEOUT: Option<Duration> = Some(STEP_TIMEOUT);
