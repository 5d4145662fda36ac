//! Events of operations, and received messages.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lnet_region::{ReadVec, RegionError};
use nlx_core::{Errno, Queue};

use crate::pool::BufferHold;
use crate::{Buffer, EndPoint, OpId};

/// An event of an operation. Every operation has a last event, which returns its buffer. Only a
/// receive buffer has events before that: one for each message.
#[non_exhaustive]
pub struct Event {
    /// The operation.
    pub op: OpId,
    /// The kind of operation.
    pub queue: Queue,
    /// The result: ECANCELED if the operation was cancelled, ETIMEDOUT if its timeout passed, else
    /// LNet's errno.
    pub status: Result<(), Errno>,
    /// Bytes transferred; 0 after a failure.
    pub length: usize,
    /// The offset of these bytes in the buffer; other than 0 only for messages.
    pub offset: usize,
    /// The sender of a message; `None` for other operations, and for a message that does not name
    /// its sender (MT-245).
    pub sender: Option<EndPoint>,
    /// The message that arrived in a receive buffer.
    pub message: Option<Message>,
    /// The buffer, if this is the operation's last event. The event's message may still lend some
    /// of its bytes out.
    pub buffer: Option<Buffer>,
    /// The buffer's tag ([`Buffer::set_tag`]).
    pub tag: u64,
    /// The time from the start of the operation to this event.
    pub after: Duration,
    /// The owner that receives this event instead of the client. It is a field of the event, so
    /// that an event is moved only once between the place that builds it and the client.
    pub(crate) owner: Option<Arc<dyn OpOwner>>,
}

/// An object that starts operations on the client's behalf and receives their events.
pub(crate) trait OpOwner: Send + Sync {
    /// Handles an event; a returned event is passed on to the client. The thread that takes events
    /// calls this, without any lock.
    fn event(&self, event: Event) -> Option<Event>;

    /// Called once the client is certain to get the event that [`OpOwner::event`] returned: a wait is
    /// about to return the event, or it is queued. Until then the machine must not stop.
    fn delivered(&self) {}
}

impl Event {
    /// Returns whether this is the operation's last event.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.buffer.is_some()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { op, queue, status, length, offset, sender, message, buffer, tag, after, owner: _ } = self;
        f.debug_struct("Event")
            .field("op", op)
            .field("queue", queue)
            .field("status", status)
            .field("length", length)
            .field("offset", offset)
            .field("sender", sender)
            .field("message", message)
            .field("buffer", buffer)
            .field("tag", tag)
            .field("after", after)
            .finish()
    }
}

/// A received message: bytes lent out of the receive buffer. They stay alive and unchanged while
/// this value lives, even if the buffer is dropped. A buffer of a [`crate::BufferPool`] becomes
/// free once all its messages are dropped.
#[derive(Debug)]
pub struct Message {
    // Dropped first: a pool gives a buffer out only if none of its bytes are lent.
    bytes: Bytes,
    _hold: Option<BufferHold>,
}

#[derive(Debug)]
enum Bytes {
    Lent(ReadVec),
    /// A copy, of a message that crosses from one segment of its buffer into the next.
    Copied(Box<[u8]>),
}

impl Message {
    pub(crate) fn lend(buffer: &Buffer, offset: usize, length: usize) -> Result<Message, RegionError> {
        let end = offset.saturating_add(length);
        let lease = buffer.memory().read(offset..end)?;
        Ok(match lease.as_slice() {
            Some(_) => Message { bytes: Bytes::Lent(lease), _hold: buffer.member().map(BufferHold::of) },
            None => Message { bytes: Bytes::Copied(lease.to_vec().into()), _hold: None },
        })
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            // One contiguous slice: `lend` has checked this.
            Bytes::Lent(lease) => lease.as_slice().unwrap_or(&[]),
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
