#[cfg(feature = "std")]
use nix::errno::Errno;

/// Why a queue cannot be made, attached, grown or shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No queue has so few or so many slots.
    #[error("a queue of {slots} slots: there must be between {min} and {max}")]
    SlotCount {
        /// The slots asked for.
        slots: u32,
        /// The fewest there can be.
        min: u32,
        /// The most there can be.
        max: u32,
    },
    /// The ring would outgrow its memory; nothing was changed.
    #[error("the ring has {slots} slots and cannot take {more} more: its memory holds {max}")]
    NoRoom {
        /// The slots in the ring.
        slots: u32,
        /// The slots that would have to be linked in.
        more: u32,
        /// The slots its memory holds.
        max: u32,
    },
    /// The ring cannot shrink while events wait or operations under way can still produce some; nothing was changed.
    #[error("the ring cannot shrink: {needed} events are provisioned, {waiting} wait")]
    InUse {
        /// The events provisioned.
        needed: u32,
        /// The events waiting.
        waiting: u32,
    },
    /// The ring leads out of its memory; it was left as it is.
    #[error("the event queue is corrupt: {0}")]
    Corrupt(#[from] Corruption),
    /// There is not so much memory.
    #[error("no memory for a queue of {slots} slots")]
    NoMemory {
        /// The slots asked for.
        slots: usize,
    },
    /// More events were released than had been provisioned; nothing was changed.
    #[error("cannot release {released} events: only {needed} are provisioned")]
    NotProvisioned {
        /// The events to release.
        released: u32,
        /// The events provisioned.
        needed: u32,
    },
    /// The queue has, or had, such a half already.
    #[error("the queue's {half} has been taken already")]
    Taken {
        /// Which half.
        half: &'static str,
    },
    /// The memory does not start as a queue does.
    #[error("not an event queue: it starts with {magic:#018x} in place of {expected:#018x}")]
    NotAQueue {
        /// The first word.
        magic: u64,
        /// What it should be.
        expected: u64,
    },
    /// The queue was made by another version of this crate.
    #[error("the event queue has layout version {version}, this program knows {expected}")]
    Version {
        /// The version found.
        version: u32,
        /// The version known.
        expected: u32,
    },
    /// The memory is not as large as a queue of its number of slots.
    #[error("the event queue's memory has {bytes} bytes in place of {expected}")]
    Size {
        /// The bytes found.
        bytes: i64,
        /// The bytes a queue needs.
        expected: usize,
    },
    /// The memory could change its size, so that touching it could kill this process.
    #[cfg(feature = "std")]
    #[error("the event queue's memory has seals {seals:#x}, it needs {required:#x}")]
    Unsealed {
        /// The seals found, `F_SEAL_*`.
        seals: i32,
        /// The seals it needs.
        required: i32,
    },
    /// The system refused.
    #[cfg(feature = "std")]
    #[error("{call} failed: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// The system's reason.
        errno: Errno,
    },
}

#[cfg(feature = "std")]
impl Error {
    /// The errno that a Motr or LNet user knows for this error.
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
        // The system call left a number; an error without one would be of the library's own making.
        move |error| Error::System { call, errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw) }
    }
}

/// Why an event was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The ring is full. Where room is provisioned before each operation this cannot happen, so it is the peer's fault
    /// (motr-transport 6.4).
    #[error("the event queue is full: {slots} slots, {capacity} events")]
    Full {
        /// The slots in the ring.
        slots: u32,
        /// The events it holds, all of them waiting.
        capacity: u32,
    },
    /// The peer has spoilt the ring. It stays so.
    #[error("the event queue is corrupt: {0}")]
    Corrupt(#[from] Corruption),
}

#[cfg(feature = "std")]
impl PushError {
    /// The errno that a Motr or LNet user knows for this error.
    pub fn errno(&self) -> Errno {
        match self {
            PushError::Full { .. } => Errno::ENOBUFS,
            PushError::Corrupt(corruption) => corruption.errno(),
        }
    }
}

/// Why there is no event to pop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PopError {
    /// No event is waiting.
    #[error("the event queue is empty")]
    Empty,
    /// The ring leads out of its memory. It stays so.
    #[error("the event queue is corrupt: {0}")]
    Corrupt(#[from] Corruption),
}

#[cfg(feature = "std")]
impl PopError {
    /// The errno that a Motr or LNet user knows for this error.
    pub fn errno(&self) -> Errno {
        match self {
            PopError::Empty => Errno::EAGAIN,
            PopError::Corrupt(corruption) => corruption.errno(),
        }
    }
}

/// What is wrong with words that the peer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// A link leads to a slot that is not there.
    #[error("a link leads to slot {index} of {slots}")]
    Link {
        /// Where it leads.
        index: u32,
        /// The slots there are.
        slots: u32,
    },
    /// More events were taken than were put in.
    #[error("{consumed} events were taken, {produced} put in")]
    ConsumedTooMany {
        /// The events taken, says the consumer.
        consumed: u64,
        /// The events put in.
        produced: u64,
    },
    /// The count of taken events went back.
    #[error("the count of taken events went back from {before} to {consumed}")]
    ConsumedFewer {
        /// The count now.
        consumed: u64,
        /// The count before.
        before: u64,
    },
    /// The ring lost slots, and nobody had told the producer ([`Producer::accept_shrink`](crate::Producer::accept_shrink)).
    #[error("the ring shrank from {before} slots to {slots}")]
    Shrunk {
        /// The count now.
        slots: u32,
        /// The count before.
        before: u32,
    },
    /// The ring lost slots while events were waiting in it.
    #[error("the ring shrank to {slots} slots while {waiting} events were waiting")]
    ShrunkInUse {
        /// The count of slots now.
        slots: u32,
        /// The events that nobody had taken.
        waiting: u64,
    },
    /// The ring has more slots than its memory.
    #[error("the ring has {slots} slots, its memory holds {max}")]
    Outgrown {
        /// The slots in the ring, says the consumer.
        slots: u32,
        /// The slots its memory holds.
        max: u32,
    },
}

#[cfg(feature = "std")]
impl Corruption {
    /// `EPROTO`: the peer broke the rules of the queue.
    pub fn errno(&self) -> Errno {
        Errno::EPROTO
    }
}
