//! The part that requester and responder share: a transfer machine, its receive buffers, and
//! buffers for sending.

use std::time::Duration;

use nlx_core::{Errno, Queue};
use nlx_service::rpc::{HEADER, Header};

use crate::{Buffer, EndPoint, Error, Event, Machine, Message, Op, TransferMachine};

/// The number of posted receive buffers: one fills while the messages of the other are handled.
const RECEIVE_BUFFERS: usize = 2;

/// Maximum number of receive buffers: further ones are allocated while the program holds messages
/// in all of them, so that it still receives. With the default length of messages they take 4 MiB.
const RECEIVE_BUFFERS_MAX: usize = 16;

/// Maximum number of messages of a receive buffer, if they fit into the largest buffer.
const MESSAGES: usize = 64;

/// Maximum number of messages handled after the timeout of a wait: enough for those that may have
/// arrived before it, without an unbounded delay under a flood of messages.
pub(super) const LATE_MAX: usize = 2 * RECEIVE_BUFFERS * MESSAGES;

pub(super) struct Mailbox {
    pub(super) tm: TransferMachine,
    message_max: usize,
    /// The number of messages of a receive buffer.
    messages: usize,
    /// The number of receive buffers allocated.
    made: usize,
    /// Receive buffers to post again, once their messages are dropped.
    spent: Vec<Buffer>,
    /// Free buffers of `message_max` bytes for sending. Their number is at most the peak of buffers
    /// in use.
    idle: Vec<Buffer>,
}

/// The result of a wait.
pub(super) enum MailboxEvent {
    /// A message.
    Message { message: Message, from: EndPoint },
    /// A buffer was sent, or failed with an error.
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

    /// Returns the maximum number of bytes of a message after the header.
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

    /// Returns a buffer with `body` after the space for the header.
    pub(super) fn filled(&mut self, body: &[u8]) -> Result<Buffer, Error> {
        let mut buffer = match self.idle.pop() {
            Some(buffer) => buffer,
            None => self.allocate(self.message_max)?,
        };
        buffer.write()?[HEADER..HEADER + body.len()].copy_from_slice(body);
        Ok(buffer)
    }

    /// Sends a buffer, with this header; [`MailboxEvent::Sent`] returns it with the tag. If the
    /// send is refused, the error returns it.
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

    /// Takes back a buffer that is no longer needed.
    pub(super) fn put(&mut self, buffer: Buffer) {
        self.idle.push(buffer);
    }

    /// Waits for the next event; `None` after the timeout.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<MailboxEvent>, Error> {
        self.post()?;
        let Some(event) = self.tm.wait(timeout)? else { return Ok(None) };
        Ok(self.mailbox_event(event))
    }

    fn mailbox_event(&mut self, event: Event) -> Option<MailboxEvent> {
        let Event { queue, status, message, sender, buffer, tag, .. } = event;
        if queue != Queue::MessageReceive {
            let error = status.err().map(|errno| Error::Operation { queue, errno });
            return buffer.map(|buffer| MailboxEvent::Sent { tag, buffer, error });
        }
        // A buffer that ended by a timeout or a cancel of the program is posted again too.
        self.spent.extend(buffer);
        Some(MailboxEvent::Message { message: message?, from: sender? })
    }

    /// Posts the receive buffers whose messages are dropped. If there is no room for one now
    /// (ENOMEM), it is posted after another operation has ended: answers to peers that do not
    /// receive them must not end the wait for others.
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
            // If it cannot be allocated, the mailbox continues without it.
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
