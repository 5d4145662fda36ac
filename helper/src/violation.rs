//! Why a client is cut off.

use lnet_api::Errno;
use nlx_bev_cqueue::Corruption;
use nlx_core::Address;
use nlx_driver_proto::ProtoError;

/// What no client does that keeps to the protocol, whatever limits and races it meets: the client is cut off. What a correct
/// client can cause is refused instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A packet is too short to have a number that could be answered.
    #[error("a packet of {bytes} bytes, which has no header")]
    Packet {
        /// Bytes of it.
        bytes: usize,
    },
    /// It breaks no rule, but there is no memory for an answer that would say so.
    #[error("there is no memory for an answer")]
    NoMemory,
    /// The submission ring leads out of its memory.
    #[error("the submission ring is corrupt: {0}")]
    Ring(Corruption),
    /// An entry of the submission ring is none.
    #[error("the submission ring: {0}")]
    Entry(ProtoError),
    /// There was no room for an event, or the words of the queue contradict themselves: the client has not provisioned it as
    /// it must, or has spoilt it.
    #[error("the event queue of {address} is full or corrupt")]
    EventQueue {
        /// The transfer machine.
        address: Address,
    },
    /// Memory that the client shares with the helper was taken away beneath it.
    #[error("a fault in shared memory: {what}")]
    Fault {
        /// Arena, ring or event queue.
        what: &'static str,
    },
    /// The system failed where only a client's doing makes it fail.
    #[error("{call}: {errno}")]
    System {
        /// What was tried.
        call: &'static str,
        /// What the system said.
        errno: Errno,
    },
}

impl Violation {
    /// The errno that stands for it in logs: EPROTO for broken rules, EFAULT for memory.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Violation::Packet { .. } | Violation::Ring(_) | Violation::EventQueue { .. } => Errno::EPROTO,
            Violation::Entry(error) => error.errno(),
            Violation::Fault { .. } => Errno::EFAULT,
            Violation::NoMemory => Errno::ENOMEM,
            Violation::System { errno, .. } => *errno,
        }
    }
}
