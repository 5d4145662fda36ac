//! The reasons why a client is cut off.

use lnet_api::Errno;
use nlx_bev_cqueue::Corruption;
use nlx_core::Address;
use nlx_driver_proto::PacketError;

/// A fault for which a client is cut off. A client that keeps to the protocol never causes one,
/// whatever limits and races it meets; faults that a correct client can cause are refused instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A packet is too short to have a number that could be answered.
    #[error("a packet of {bytes} bytes is too short for a header")]
    Packet {
        /// The packet's length.
        bytes: usize,
    },
    /// The client breaks no rule, but there is no memory for an answer that would report that.
    #[error("there is no memory for an answer")]
    NoMemory,
    /// The submission ring points outside its memory.
    #[error("the submission ring is corrupt: {0}")]
    Ring(Corruption),
    /// An entry of the submission ring is invalid.
    #[error("an invalid entry in the submission ring: {0}")]
    Entry(PacketError),
    /// There was no room for an event, or the words of the queue contradict each other: the client
    /// has not provisioned it as it must, or has corrupted it.
    #[error("the event queue of {address} is full or corrupt")]
    EventQueue {
        /// The address of its transfer machine.
        address: Address,
    },
    /// Memory that the client shares with the helper was removed.
    #[error("a fault in shared memory: {what}")]
    Fault {
        /// Arena, ring or event queue.
        what: &'static str,
    },
    /// A system call failed that can only fail because of the client.
    #[error("{call} failed: {errno}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// The errno of the call.
        errno: Errno,
    },
}

impl Violation {
    /// Returns the errno for logs: EPROTO for broken rules, EFAULT for memory.
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
