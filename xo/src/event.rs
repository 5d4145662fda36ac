//! What became of an operation.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lnet_region::{ReadVec, RegionError};
use nlx_core::{Errno, Queue};

use crate::pool::Guest;
use crate::{Buffer, EndPoint, OpId};

/// One event of an operation. Every operation has a last one, which brings its buffer back; only a receive buffer has
/// events before that, one for each message.
#[non_exhaustive]
pub struct Event {
    /// The operation.
    pub op: OpId,
    /// What kind of operation it is.
    pub queue: Queue,
    /// How it went: ECANCELED if it was cancelled, ETIMEDOUT if its timeout passed, else LNet's errno.
    pub status: Result<(), Errno>,
    /// Bytes moved; 0 after a failure.
    pub length: usize,
    /// Where in the buffer they start, in bytes; other than 0 only for messages.
    pub offset: usize,
    /// Who sent the message; `None` for other operations, and for a message that does not say (MT-245).
    pub sender: Option<EndPoint>,
    /// The message that came into a receive buffer.
    pub message: Option<Message>,
    /// The buffer, if this is the operation's last event. A message that came with it still lends some of its bytes out.
    pub buffer: Option<Buffer>,
    /// The buffer's tag ([`Buffer::set_tag`]).
    pub tag: u64,
    /// From the start of the operation to this event.
    pub after: Duration,
    /// Who gets it instead of the client. In here, so that an event moves but once from where it is made to where the
    /// client takes it.
    pub(crate) owner: Option<Arc<dyn Owner>>,
}

/// Has started an operation on the client's behalf, and gets its events instead.
pub(crate) trait Owner: Send + Sync {
    /// Takes an event; what it gives goes to the client. Called without any lock, by whoever takes events.
    fn event(&self, event: Event) -> Option<Event>;

    /// What it gave is where the client gets it: on the way out of a wait, or among what waits to be given. Until then the machine
    /// must not end.
    fn given(&self) {}
}

impl Event {
    /// Whether this is the operation's last event.
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

/// A message that was received: bytes lent out of the receive buffer. They stay alive and unchanged as long as this does,
/// whatever becomes of the buffer. A buffer of a [`crate::BufferPool`] is got there again when its messages are gone.
#[derive(Debug)]
pub struct Message {
    // Let go of first: a pool gives a buffer out only if nobody lends its bytes.
    bytes: Bytes,
    _guest: Option<Guest>,
}

#[derive(Debug)]
enum Bytes {
    Lent(ReadVec),
    /// The message crosses from one segment of its buffer into the next.
    Copied(Box<[u8]>),
}

impl Message {
    pub(crate) fn lend(buffer: &Buffer, offset: usize, length: usize) -> Result<Message, RegionError> {
        let end = offset.saturating_add(length);
        let lease = buffer.memory().read(offset..end)?;
        Ok(match lease.as_slice() {
            Some(_) => Message { bytes: Bytes::Lent(lease), _guest: buffer.member().map(Guest::of) },
            None => Message { bytes: Bytes::Copied(lease.to_vec().into()), _guest: None },
        })
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            // In one piece, as `lend` made sure.
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
