//! The crate's one error.

use lnet_region::RegionError;
use nlx_core::{CoreError, Errno, Queue};

use crate::TmState;

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address, a descriptor, a number or the transport is the reason.
    #[error(transparent)]
    Core(CoreError),
    /// Memory cannot be had, or is lent out.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// The node cannot be started.
    #[cfg(feature = "in-process")]
    #[error(transparent)]
    Node(#[from] lnet_node::NodeError),
    /// This is a forked child of the process that opened the domain.
    #[error("the domain belongs to process {process}, of which this is a forked child")]
    Forked {
        /// The id of that process.
        process: u32,
    },
    /// The domain has a limit for this, and it is reached ([`crate::Quotas`]).
    #[error("there are {limit} {object} already: the domain allows no more")]
    Quota {
        /// What there would be too much of.
        object: &'static str,
        /// How much the domain allows.
        limit: u64,
    },
    /// The buffer is registered with another domain.
    #[error("the buffer belongs to another domain")]
    OtherDomain,
    /// The buffer has several segments: it cannot be seen as one slice.
    #[error("a buffer of {segments} segments cannot be seen as one slice")]
    Segments {
        /// How many.
        segments: usize,
    },
    /// The buffer is large: only bulk operations take it, which split it.
    #[error("a buffer of {bytes} bytes is large: an operation that does not split it takes at most {limit}")]
    Large {
        /// Bytes of the buffer.
        bytes: usize,
        /// The most that one operation takes.
        limit: usize,
    },
    /// Bytes that are no offer of a large buffer, or one that does not go with the buffer.
    #[error("an offer's {field} is {value}: it must be {rule}")]
    Offer {
        /// What is wrong.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        rule: &'static str,
    },
    /// The operation would have timed out before it began.
    #[error("the operation's timeout of 0 has passed already")]
    TimeoutPassed,
    /// The operation was given a setting of another kind of operation ([`crate::Op`]).
    #[error("the {queue} operation does not take `{setting}`")]
    Setting {
        /// The setting, as the method that sets it is called.
        setting: &'static str,
        /// What kind of operation.
        queue: Queue,
    },
    /// The node has been shut down below the transfer machine: what is in flight ends only if the machine is stopped. Over a
    /// helper, the helper is gone: what was in flight has ended with ENOTCONN, and new operations are refused with it
    /// ([`CoreError::Disconnected`]). A transfer machine that is started then needs a domain that is opened anew, or one that
    /// connects again by itself.
    #[error("the node of the transfer machine has been shut down, or its helper has gone")]
    Ended,
    /// The transfer machine does not take operations, or has no more events to give.
    #[error("the transfer machine is {state}")]
    NotStarted {
        /// What it is instead of started.
        state: TmState,
    },
    /// A future's operation has ended otherwise than well.
    #[error("the {queue} operation has ended: {errno}")]
    Operation {
        /// What kind of operation.
        queue: Queue,
        /// ECANCELED if it was cancelled, ETIMEDOUT if its timeout passed, else LNet's errno.
        errno: Errno,
    },
    /// The system gives no random number.
    #[error("the system gives no random number")]
    Random,
    /// The transfer machine calls back: nobody else can wait for its events.
    #[error("the events of the transfer machine go to its callback")]
    Delivery,
    /// A receive may take many messages, and has no future.
    #[error(
        "a receive has no future: AsyncMachine::post starts it, AsyncMachine::next_message gives its messages"
    )]
    NoFuture,
    /// Only an event thread can be confined to processors.
    #[error("a transfer machine without callbacks has no event thread to be confined")]
    ConfineWithoutThread,
    /// The event thread cannot run on these processors.
    #[error("the event thread cannot be confined to the processors {processors:?}: {errno}")]
    Confine {
        /// Their numbers.
        processors: Vec<usize>,
        /// What the system says.
        errno: Errno,
    },
    /// The event thread cannot be started.
    #[error("the event thread cannot be started: {errno}")]
    Thread {
        /// What the system says.
        errno: Errno,
    },
    /// The buffer belongs to no pool, or to another one.
    #[error("the buffer does not belong to this pool")]
    OtherPool,
    /// The pool does not have this colour.
    #[error("colour {colour} of a pool that has {colours} colours")]
    Colour {
        /// The colour.
        colour: u32,
        /// How many there are; they count from 0.
        colours: u32,
    },
    /// An option of a pool, or of provisioning from it, is out of bounds.
    #[error("{what} is {value}, and must be {least} to {most}")]
    PoolOption {
        /// What.
        what: &'static str,
        /// What it was given.
        value: usize,
        /// The least it may be.
        least: usize,
        /// The most it may be.
        most: usize,
    },
    /// The transfer machine was started without a pool.
    #[error("the transfer machine takes its receive buffers from no pool")]
    NoPool,
    /// The transfer machine was not stopped in time. It goes on stopping, and can be stopped again.
    #[error("the transfer machine has not stopped in time: {in_flight} operations are in flight")]
    StopTimedOut {
        /// Operations that have not ended.
        in_flight: usize,
    },
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Error {
        match error {
            CoreError::Memory { source } => Error::Memory(source),
            error => Error::Core(error),
        }
    }
}

impl Error {
    /// The errno that a Motr user knows (motr-transport 2.13).
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Error::Core(error) => error.errno(),
            Error::Memory(error) => error.errno(),
            #[cfg(feature = "in-process")]
            Error::Node(error) => error.errno(),
            Error::Large { .. } => Errno::EFBIG,
            Error::Forked { .. } => Errno::ESTALE,
            Error::Quota { .. } => Errno::ENOMEM,
            Error::OtherDomain
            | Error::Segments { .. }
            | Error::Offer { .. }
            | Error::Setting { .. }
            | Error::Delivery
            | Error::NoFuture
            | Error::ConfineWithoutThread => Errno::EINVAL,
            Error::Operation { errno, .. } | Error::Confine { errno, .. } | Error::Thread { errno } => *errno,
            Error::Random => Errno::EIO,
            Error::TimeoutPassed => Errno::ETIME,
            Error::NotStarted { .. } | Error::Ended => Errno::ESHUTDOWN,
            Error::OtherPool | Error::Colour { .. } | Error::PoolOption { .. } | Error::NoPool => {
                Errno::EINVAL
            }
            Error::StopTimedOut { .. } => Errno::ETIMEDOUT,
        }
    }
}
