//! Received messages, as futures.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::completion::Failed;
use super::inbox::{Inbox, Ticket};
use crate::{Buffer, EndPoint, Error, Event, Machine, Message};

/// A received message.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// The bytes, lent out of the receive buffer.
    pub message: Message,
    /// The sender; `None` for a message that does not name its sender (MT-245).
    pub sender: Option<EndPoint>,
    /// The receive buffer, if this was its last message. It can be posted again once its messages
    /// are dropped, this one included.
    pub buffer: Option<Buffer>,
    /// The time from the start of the receive to this message.
    pub after: Duration,
}

/// A machine's next message, as a future ([`crate::AsyncMachine::next_message`]). Several futures
/// may wait; each message goes to one of them. Dropping it loses no message.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct NextMessage<'a> {
    machine: &'a Machine,
    inbox: &'a Inbox<Event>,
    ticket: Ticket,
}

impl<'a> NextMessage<'a> {
    pub(crate) fn new(machine: &'a Machine, inbox: &'a Inbox<Event>) -> NextMessage<'a> {
        NextMessage { machine, inbox, ticket: Ticket::default() }
    }
}

impl Future for NextMessage<'_> {
    type Output = Result<Received, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Received, Failed>> {
        let Self { machine, inbox, ticket } = &mut *self;
        inbox.poll(ticket, context.waker()).map(|event| match event {
            Some(event) => received(event),
            None => Err(Failed { buffer: None, error: Error::NotStarted { state: machine.state() } }),
        })
    }
}

impl Drop for NextMessage<'_> {
    fn drop(&mut self) {
        self.inbox.leave(&mut self.ticket);
    }
}

fn received(event: Event) -> Result<Received, Failed> {
    let Event { queue, status, message, sender, buffer, after, .. } = event;
    match (status, message) {
        (Ok(()), Some(message)) => Ok(Received { message, sender, buffer, after }),
        (status, _) => {
            let errno = status.err().unwrap_or(nlx_core::Errno::EIO);
            Err(Failed { buffer, error: Error::Operation { queue, errno } })
        }
    }
}
