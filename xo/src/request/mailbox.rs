//! What both ends have: a transfer machine, buffers to receive messages in, and buffers to send them from.

use std::time::Duration;

use nlx_core::{Errno, Queue};

use super::wire::{HEADER, Header};
use crate::{Buffer, EndPoint, Error, Event, Machine, Message, Op, TransferMachine};

/// Receive buffers that are posted: one is filled while the other's messages are let go of.
const RECEIVE_BUFFERS: usize = 2;

/// Receive buffers there may be: others are made while the program holds messages in all that there are, so that it can still be
/// reached. With the usual length of messages they are 4 MiB.
const RECEIVE_BUFFERS_MAX: usize = 16;

/// Messages that a receive buffer takes, if they all fit into what a buffer may be.
const MESSAGES: usize = 64;

/// Messages that may lie there when the time of a wait is over: so many are looked at still, and not all that a flood
/// brings.
pub(super) const THERE_MAX: usize = 2 * RECEIVE_BUFFERS * MESSAGES;

pub(super) struct Mailbox {
    pub(super) tm: TransferMachine,
    message_max: usize,
    /// Messages that a receive buffer takes.
    messages: usize,
    /// Receive buffers there are.
    made: usize,
    /// Receive buffers that are to be posted again, once their messages are gone.
    spent: Vec<Buffer>,
    /// Buffers of `message_max` bytes. Never more than were in use at a time.
    idle: Vec<Buffer>,
}

/// What has happened.
pub(super) enum Arrival {
    /// A message of ours, from somebody.
    Message { header: Header, message: Message, from: EndPoint },
    /// A message of somebody else's.
    Malformed,
    /// A buffer has been sent, or not: then why.
    Sent { tag: u64, buffer: Buffer, error: Option<Error> },
}

impl Mailbox {
    pub(super) fn new(tm: TransferMachine, message_max: usize) -> Result<Mailbox, Error> {
        if tm.has_callbacks() {
            return Err(Error::Delivery);
        }
        let limit = tm.domain().core().limits().buffer_bytes_max;
        let message_max = message_max.clamp(HEADER + 1, limit);
        let messages = (limit / message_max).min(MESSAGES);
        let (spent, idle) = (Vec::new(), Vec::new());
        let mut mailbox = Mailbox { tm, message_max, messages, made: RECEIVE_BUFFERS, spent, idle };
        for _ in 0..RECEIVE_BUFFERS {
            let buffer = mailbox.receive_buffer()?;
            mailbox.spent.push(buffer);
        }
        mailbox.post()?;
        Ok(mailbox)
    }

    /// Bytes that a client or server has in a message.
    pub(super) fn body_max(&self) -> usize {
        self.message_max - HEADER
    }

    fn receive_buffer(&self) -> Result<Buffer, Error> {
        self.allocate(self.message_max * self.messages)
    }

    fn receive(&self, buffer: Buffer) -> Op {
        Op::receive(buffer).max_messages(self.messages as u32)
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        self.tm.allocate(bytes)
    }

    /// A buffer with this behind its header.
    pub(super) fn filled(&mut self, body: &[u8]) -> Result<Buffer, Error> {
        let mut buffer = match self.idle.pop() {
            Some(buffer) => buffer,
            None => self.allocate(self.message_max)?,
        };
        buffer.write()?[HEADER..HEADER + body.len()].copy_from_slice(body);
        Ok(buffer)
    }

    /// Sends a buffer with this header before what it holds; [`Arrival::Sent`] brings it back under the tag. Refused, it is
    /// here again.
    pub(super) fn send(
        &self,
        mut buffer: Buffer,
        header: &Header,
        to: &EndPoint,
        tag: u64,
        timeout: Duration,
    ) -> Result<(), (Buffer, Error)> {
        match buffer.write() {
            Ok(mut bytes) => bytes[..HEADER].copy_from_slice(&header.emit()),
            Err(error) => return Err((buffer, error)),
        }
        buffer.set_tag(tag);
        let op = Op::send(buffer, to).length(HEADER + header.length as usize).timeout(timeout);
        self.tm.start(op).map(drop).map_err(|refused| (refused.buffer, refused.error))
    }

    /// Takes a buffer that is not needed any more.
    pub(super) fn put(&mut self, buffer: Buffer) {
        self.idle.push(buffer);
    }

    /// The next thing that happens, or `None` after this time.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Arrival>, Error> {
        self.post()?;
        let Some(event) = self.tm.wait(timeout)? else { return Ok(None) };
        Ok(self.arrival(event))
    }

    fn arrival(&mut self, event: Event) -> Option<Arrival> {
        let Event { queue, status, message, sender, buffer, tag, .. } = event;
        if queue != Queue::MessageReceive {
            let error = status.err().map(|errno| Error::Operation { queue, errno });
            return buffer.map(|buffer| Arrival::Sent { tag, buffer, error });
        }
        // One that was cut off by a timeout or a cancel of the client's is posted again too.
        self.spent.extend(buffer);
        let message = message?;
        Some(match (Header::parse(&message), sender) {
            (Some(header), Some(from)) => Arrival::Message { header, message, from },
            _ => Arrival::Malformed,
        })
    }

    /// Posts the receive buffers whose messages are gone. One that there is no room for now is posted when something else that
    /// is in flight has ended: strangers who take no answers must not end the wait for others.
    fn post(&mut self) -> Result<(), Error> {
        if self.spent.is_empty() {
            return Ok(());
        }
        for _ in 0..self.spent.len() {
            let Some(buffer) = self.spent.pop() else { break };
            if buffer.check_unlent(true, 0..buffer.len()).is_err() {
                self.spent.insert(0, buffer);
                continue;
            }
            if let Err(refused) = self.tm.start(self.receive(buffer)) {
                self.spent.push(refused.buffer);
                let later = refused.error.errno() == Errno::ENOMEM && self.tm.in_flight() > 0;
                return if later { Ok(()) } else { Err(refused.error) };
            }
        }
        if self.made < RECEIVE_BUFFERS_MAX && self.tm.posted(Queue::MessageReceive) == 0 {
            // What cannot be had is done without.
            if let Ok(buffer) = self.receive_buffer()
                && self.tm.start(self.receive(buffer)).is_ok()
            {
                self.made += 1;
            }
        }
        Ok(())
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.tm
    }
}
