//! The crate's error type.

use lnet_region::RegionError;
use nlx_core::{CoreError, Errno, Queue};

use crate::TmState;

/// An error of this crate: the reason why a call was refused or an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transport refused the call, for example because of an address, a descriptor or a number.
    #[error(transparent)]
    Core(CoreError),
    /// Memory cannot be allocated, or is lent out.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// A service, a client or their pool failed.
    #[error(transparent)]
    Service(#[from] nlx_service::ServiceError),
    /// The node failed to start.
    #[cfg(feature = "in-process")]
    #[error(transparent)]
    Node(#[from] lnet_node::NodeError),
    /// This is a forked child of the process that opened the domain.
    #[error("the domain belongs to process {process}, of which this is a forked child")]
    Forked {
        /// The process that opened the domain.
        process: u32,
    },
    /// The domain's limit for this kind of object is reached ([`crate::Quotas`]).
    #[error("the domain's limit of {limit} {object} is reached")]
    Quota {
        /// The kind of object.
        object: &'static str,
        /// The domain's limit.
        limit: u64,
    },
    /// The buffer is registered with another domain.
    #[error("the buffer belongs to another domain")]
    OtherDomain,
    /// The buffer has several segments: it cannot be read or written as one slice.
    #[error("a buffer of {segments} segments cannot be read or written as one slice")]
    Segments {
        /// The number of segments.
        segments: usize,
    },
    /// The buffer is large: only bulk operations accept it, which split it.
    #[error(
        "a buffer of {bytes} bytes is large: an operation that does not split it takes at most {limit} bytes"
    )]
    Large {
        /// The length of the buffer in bytes.
        bytes: usize,
        /// Maximum number of bytes that one operation accepts.
        limit: usize,
    },
    /// The bytes are not an offer of a large buffer, or the offer does not fit the buffer.
    #[error("an offer's {field} is {value}: it must be {rule}")]
    Offer {
        /// The wrong field.
        field: &'static str,
        /// The value in the offer.
        value: u64,
        /// The values that are allowed.
        rule: &'static str,
    },
    /// An active operation uses [`Offer::NONE`](crate::Offer::NONE): no passive operation has
    /// returned it.
    #[error("the offer is NONE, which names no buffer")]
    NoOffer,
    /// The operation's timeout is 0: it would pass before the operation starts.
    #[error("the operation's timeout of 0 has passed already")]
    TimeoutPassed,
    /// The operation was given a setting that belongs to another kind of operation ([`crate::Op`]).
    #[error("the {queue} operation does not take `{setting}`")]
    Setting {
        /// The name of the method that sets it.
        setting: &'static str,
        /// The kind of operation.
        queue: Queue,
    },
    /// The node below the transfer machine has been shut down: operations in flight end only when
    /// the machine is stopped. Over a helper, the connection to the helper is lost: operations in
    /// flight have ended with ENOTCONN, and new ones are refused with it
    /// ([`CoreError::Disconnected`]). To start another transfer machine, open the domain anew, or
    /// use a domain that reconnects (`HelperOptions::reconnect`).
    #[error("the node of the transfer machine has been shut down, or the connection to its helper is lost")]
    Ended,
    /// The transfer machine does not accept operations, or has no more events.
    #[error("the transfer machine is {state}")]
    NotStarted {
        /// The machine's state.
        state: TmState,
    },
    /// The operation of a future ended with an error.
    #[error("the {queue} operation has ended: {errno}")]
    Operation {
        /// The kind of operation.
        queue: Queue,
        /// ECANCELED if it was cancelled, ETIMEDOUT if its timeout passed, else LNet's errno.
        errno: Errno,
    },
    /// The system returned no random number.
    #[error("the system returned no random number")]
    Random,
    /// The transfer machine delivers its events to a callback: no thread can wait for them.
    #[error("the events of the transfer machine go to its callback: no thread can wait for them")]
    Delivery,
    /// A receive may take many messages, so it has no future.
    #[error(
        "a receive has no future: AsyncMachine::post starts it, AsyncMachine::next_message gives its messages"
    )]
    NoFuture,
    /// Processors were named for a transfer machine that has no event thread.
    #[error("a transfer machine without callbacks has no event thread to confine")]
    ConfineWithoutThread,
    /// The event thread cannot run on these processors.
    #[error("the event thread cannot be confined to the processors {processors:?}: {errno}")]
    Confine {
        /// The numbers of the processors.
        processors: Vec<usize>,
        /// The system's error.
        errno: Errno,
    },
    /// The event thread cannot be started.
    #[error("the event thread cannot be started: {errno}")]
    Thread {
        /// The system's error.
        errno: Errno,
    },
    /// The buffer belongs to no pool, or to another pool.
    #[error("the buffer does not belong to this pool")]
    OtherPool,
    /// The pool does not have this colour.
    #[error("the pool has {colours} colours, counted from 0: there is no colour {colour}")]
    Colour {
        /// The refused colour.
        colour: u32,
        /// The number of colours; they count from 0.
        colours: u32,
    },
    /// An option of a pool, or of provisioning from one, is out of bounds.
    #[error("{what} is {value}: it must be {least} to {most}")]
    PoolOption {
        /// The name of the option.
        what: &'static str,
        /// The refused value.
        value: usize,
        /// The smallest allowed value.
        least: usize,
        /// The largest allowed value.
        most: usize,
    },
    /// The transfer machine was started without a pool.
    #[error("the transfer machine was started without a pool")]
    NoPool,
    /// The transfer machine did not stop within the timeout. It goes on stopping, and `stop` can be
    /// called again.
    #[error(
        "the transfer machine has not stopped in time: {in_flight} {} in flight",
        if *in_flight == 1 { "operation is" } else { "operations are" }
    )]
    StopTimedOut {
        /// The number of operations that have not ended.
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
    /// Returns the errno that Motr reports for this error (motr-transport 2.13).
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Error::Core(error) => error.errno(),
            Error::Memory(error) => error.errno(),
            Error::Service(error) => error.errno(),
            #[cfg(feature = "in-process")]
            Error::Node(error) => error.errno(),
            Error::Large { .. } => Errno::EFBIG,
            Error::Forked { .. } => Errno::ESTALE,
            Error::Quota { .. } => Errno::ENOMEM,
            Error::OtherDomain
            | Error::Segments { .. }
            | Error::Offer { .. }
            | Error::NoOffer
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
