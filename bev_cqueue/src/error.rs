#[cfg(feature = "std")]
use nix::errno::Errno;

/// The reason why a queue cannot be created, attached, grown or shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The number of slots is outside of the limits of a queue.
    #[error("invalid number of event queue slots: {slots}; it must be between {min} and {max}")]
    SlotCount {
        /// The requested number of slots.
        slots: u32,
        /// The minimum number of slots.
        min: u32,
        /// The maximum number of slots.
        max: u32,
    },
    /// The ring would exceed its memory; nothing was changed.
    #[error("the event queue has {slots} slots and cannot grow by {more}: its memory holds {max}")]
    NoRoom {
        /// The number of slots in the ring.
        slots: u32,
        /// The number of slots that would have to be linked in.
        more: u32,
        /// The number of slots that its memory holds.
        max: u32,
    },
    /// The ring cannot shrink while events wait or operations under way can still produce some;
    /// nothing was changed.
    #[error("the event queue cannot shrink: {needed} events are provisioned, {waiting} wait")]
    InUse {
        /// The number of provisioned events.
        needed: u32,
        /// The number of waiting events.
        waiting: u32,
    },
    /// The ring leads out of its memory; nothing was changed.
    #[error("the event queue is corrupt: {0}")]
    Corrupt(#[from] Corruption),
    /// The allocation failed.
    #[error("out of memory for an event queue of {slots} slots")]
    NoMemory {
        /// The requested number of slots.
        slots: usize,
    },
    /// More events were released than had been provisioned; nothing was changed.
    #[error("cannot release {released} events: only {needed} are provisioned")]
    NotProvisioned {
        /// The number of events to release.
        released: u32,
        /// The number of provisioned events.
        needed: u32,
    },
    /// The queue has, or had, a producer or consumer already.
    #[error("the event queue already has, or had, a {half}")]
    Taken {
        /// The half that exists: `producer` or `consumer`.
        half: &'static str,
    },
    /// The memory does not begin with the magic word of a queue.
    #[error("not an event queue: it begins with {magic:#018x} instead of {expected:#018x}")]
    NotAQueue {
        /// The first word found.
        magic: u64,
        /// The expected first word.
        expected: u64,
    },
    /// The queue was made by another version of this crate.
    #[error(
        "the event queue has layout version {version}, this program supports only {expected}; both processes need the same version"
    )]
    Version {
        /// The version in the memory.
        version: u32,
        /// The version of this program.
        expected: u32,
    },
    /// The size of the memory does not match its number of slots.
    #[error("the event queue's memory has {bytes} bytes instead of {expected}")]
    Size {
        /// The size found, in bytes.
        bytes: i64,
        /// The size expected, in bytes.
        expected: usize,
    },
    /// The memory could change its size, so that accessing it could kill this process.
    #[cfg(feature = "std")]
    #[error("the event queue's memory has seals {seals:#x}, but needs {required:#x}")]
    Unsealed {
        /// The seals found, `F_SEAL_*`.
        seals: i32,
        /// The seals required.
        required: i32,
    },
    /// A system call failed.
    #[cfg(feature = "std")]
    #[error("{call} failed: {errno}")]
    System {
        /// The name of the system call.
        call: &'static str,
        /// The errno that it returned.
        errno: Errno,
    },
}

#[cfg(feature = "std")]
impl Error {
    /// Returns the errno that Motr or LNet use for this error.
    pub fn errno(&self) -> Errno {
        match self {
            Error::SlotCount { .. } | Error::NotProvisioned { .. } => Errno::EINVAL,
            Error::NoRoom { .. } | Error::NoMemory { .. } => Errno::ENOMEM,
            Error::Taken { .. } | Error::InUse { .. } => Errno::EBUSY,
            Error::Corrupt(corruption) => corruption.errno(),
            Error::NotAQueue { .. } | Error::Size { .. } => Errno::EBADMSG,
            Error::Version { .. } => Errno::EPROTONOSUPPORT,
            Error::Unsealed { .. } => Errno::EPERM,
            Error::System { errno, .. } => *errno,
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> Error {
        move |errno| Error::System { call, errno }
    }

    #[cfg(not(loom))]
    pub(crate) fn io(call: &'static str) -> impl Fn(std::io::Error) -> Error {
        // A failed system call has an errno. An error without one could only come from the library,
        // and becomes EIO.
        move |error| Error::System { call, errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw) }
    }
}

/// The reason why an event was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The ring is full. If room is provisioned before each operation this cannot happen, so the
    /// peer is at fault (motr-transport 6.4).
    #[error("the event queue is full: {slots} slots, {capacity} events")]
    Full {
        /// The number of slots in the ring.
        slots: u32,
        /// The number of events it holds, all of them waiting.
        capacity: u32,
    },
    /// The peer has corrupted the ring; the error is permanent.
    #[error("the event queue is corrupt: {0}")]
    Corrupt(#[from] Corruption),
}

#[cfg(feature = "std")]
impl PushError {
    /// Returns the errno that Motr or LNet use for this error.
    pub fn errno(&self) -> Errno {
        match self {
            PushError::Full { .. } => Errno::ENOBUFS,
            PushError::Corrupt(corruption) => corruption.errno(),
        }
    }
}

/// The reason why no event was popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PopError {
    /// No event waits.
    #[error("the event queue is empty")]
    Empty,
    /// The ring leads out of its memory; the error is permanent.
    #[error("the event queue is corrupt: {0}")]
    Corrupt(#[from] Corruption),
}

#[cfg(feature = "std")]
impl PopError {
    /// Returns the errno that Motr or LNet use for this error.
    pub fn errno(&self) -> Errno {
        match self {
            PopError::Empty => Errno::EAGAIN,
            PopError::Corrupt(corruption) => corruption.errno(),
        }
    }
}

/// The contradiction found in words that the peer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// A link leads to a slot that does not exist.
    #[error("a link leads to slot {index}, but there are {slots} slots")]
    Link {
        /// The index in the link.
        index: u32,
        /// The number of slots.
        slots: u32,
    },
    /// More events were taken than were pushed.
    #[error("{consumed} events were taken, but only {produced} pushed")]
    ConsumedTooMany {
        /// The number of taken events, according to the consumer.
        consumed: u64,
        /// The number of pushed events.
        produced: u64,
    },
    /// The count of taken events decreased.
    #[error("the count of taken events decreased from {before} to {consumed}")]
    ConsumedFewer {
        /// The present count.
        consumed: u64,
        /// The previous count.
        before: u64,
    },
    /// The ring lost slots, and the producer had not been notified
    /// ([`Producer::accept_shrink`](crate::Producer::accept_shrink)).
    #[error("the ring shrank from {before} slots to {slots}")]
    Shrunk {
        /// The present number of slots.
        slots: u32,
        /// The previous number of slots.
        before: u32,
    },
    /// The ring lost slots while events waited in it.
    #[error("the ring shrank to {slots} slots while {waiting} events were waiting")]
    ShrunkInUse {
        /// The present number of slots.
        slots: u32,
        /// The number of events not taken.
        waiting: u64,
    },
    /// The ring has more slots than its memory.
    #[error("the ring has {slots} slots, but its memory holds only {max}")]
    Outgrown {
        /// The number of slots in the ring, according to the consumer.
        slots: u32,
        /// The number of slots that its memory holds.
        max: u32,
    },
}

#[cfg(feature = "std")]
impl Corruption {
    /// Returns `EPROTO`: the peer violated the protocol of the queue.
    pub fn errno(&self) -> Errno {
        Errno::EPROTO
    }
}
