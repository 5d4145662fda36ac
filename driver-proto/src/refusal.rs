//! Refusals of requests, with their reasons.

use std::fmt;

use nlx_core::Errno;

use crate::PacketError;
use crate::layout::OutcomeLayout;

/// A refusal of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The error for the program.
    pub errno: Errno,
    /// The limit or rule that the request broke.
    pub reason: Reason,
    /// The number that caused it, if there is one.
    pub value: u64,
    /// The limit for it, or the expected number.
    pub limit: u64,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// The reason of a refusal.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Reason {
            $($(#[$doc])* $name = $value,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// Returns the text for a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// A reason that this version does not know.
    Other = 0, "refused";
    /// A system call failed.
    System = 1, "the system refused";
    /// The request is not permitted now: a hello must be first, and only once.
    Order = 2, "the request is not permitted now";
    /// The policy of the helper does not allow this user the portal.
    Portal = 3, "the helper's policy does not allow the portal";
    /// The policy of the helper does not allow this user the NID.
    Nid = 4, "the helper's policy does not allow the NID";
    /// The client has the largest permitted number of transfer machines.
    Tms = 5, "transfer machines";
    /// The client has the largest permitted number of buffers.
    Buffers = 6, "buffers";
    /// The client has the largest permitted number of arenas.
    Arenas = 7, "arenas";
    /// The client has the largest permitted amount of memory.
    Bytes = 8, "bytes of memory";
    /// The client has the largest permitted number of operations in flight.
    Operations = 9, "operations in flight";
    /// The arena does not exist.
    NoArena = 10, "no such arena";
    /// The buffer does not exist.
    NoBuffer = 11, "no such buffer";
    /// The transfer machine does not exist.
    NoTm = 12, "no such transfer machine";
    /// Buffers lie in the arena.
    ArenaBusy = 13, "buffers lie in the arena";
    /// Operations are in flight.
    TmBusy = 14, "operations of the transfer machine are in flight";
    /// The name of the buffer is in use.
    BufferExists = 15, "the name of the buffer is taken";
    /// A segment is not within its arena, or is too long.
    Segment = 16, "a segment that does not lie in its arena";
    /// The node does not have this NID with this PID.
    NotLocal = 17, "not an address of this node";
    /// A transfer machine with the address is running.
    AddressInUse = 18, "the address is taken";
    /// No id is free.
    NoFreeTmId = 19, "every transfer machine id is taken";
    /// Transfer machines may not use the portal.
    PortalRange = 20, "the portal is invalid";
    /// The client has not sealed the memory.
    Unsealed = 21, "the client has not sealed the memory";
    /// The helper is shutting down.
    Ending = 22, "the helper ends";
    /// LNet refused the request.
    Network = 23, "the network refused";
    /// The packet is invalid: its length, its kind or a field.
    Malformed = 24, "the packet is invalid";
    /// Client and helper have no version in common.
    Version = 25, "client and helper have no protocol version in common";
    /// The helper's policy does not let this user connect.
    User = 26, "the helper's policy does not admit the user";
    /// The helper, or one user, has the largest permitted number of clients.
    Clients = 27, "clients";
    /// The policy of the helper does not let this user make a portal lazy.
    Lazy = 28, "the helper's policy does not allow lazy portals";
    /// The share of the user over all its clients is used up: mappings, memory, transfer machines,
    /// buffers, operations.
    Share = 29, "the user's share of the helper is used up";
}

impl Reason {
    /// Returns the reason with this number; [`Reason::Other`] for one of a newer helper.
    #[must_use]
    pub fn from_value(value: u32) -> Reason {
        Reason::ALL.iter().copied().find(|reason| *reason as u32 == value).unwrap_or(Reason::Other)
    }
}

impl Refusal {
    /// Creates a refusal without a number.
    #[must_use]
    pub const fn new(errno: Errno, reason: Reason) -> Refusal {
        Refusal { errno, reason, value: 0, limit: 0 }
    }

    /// Creates a refusal caused by this number.
    #[must_use]
    pub const fn of(errno: Errno, reason: Reason, value: u64, limit: u64) -> Refusal {
        Refusal { errno, reason, value, limit }
    }
}

impl From<&PacketError> for Refusal {
    /// Returns the answer to a packet that cannot be read.
    fn from(error: &PacketError) -> Refusal {
        let (reason, value, limit) = match *error {
            PacketError::Length { bytes, expected, .. } => (Reason::Malformed, bytes as u64, expected as u64),
            PacketError::Kind { kind, .. } => (Reason::Malformed, kind.into(), 0),
            PacketError::Field { value, .. } => (Reason::Malformed, value, 0),
            PacketError::Version { max, own, .. } => (Reason::Version, max.into(), own.into()),
            PacketError::NoMemory { .. } => (Reason::System, 0, 0),
        };
        Refusal::of(error.errno(), reason, value, limit)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.limit) {
            (0, 0) => f.write_str(self.reason.text())?,
            (value, 0) => write!(f, "{}: {value}", self.reason.text())?,
            (value, limit) => write!(f, "{}: {value}, the limit is {limit}", self.reason.text())?,
        }
        write!(f, " ({:?})", self.errno)
    }
}

impl Refusal {
    pub(crate) fn layout(&self) -> OutcomeLayout {
        // An errno of 0 would mean success.
        let errno = if self.errno == Errno::UnknownErrno { Errno::EIO } else { self.errno };
        OutcomeLayout {
            status: (-(errno as i32)).into(),
            reason: (self.reason as u32).into(),
            value: self.value.into(),
            limit: self.limit.into(),
        }
    }

    /// Decodes an outcome with a negative status.
    pub(crate) fn read(layout: &OutcomeLayout) -> Refusal {
        let errno = match Errno::from_raw(layout.status.get().wrapping_neg()) {
            Errno::UnknownErrno => Errno::EIO,
            errno => errno,
        };
        let reason = Reason::from_value(layout.reason.get());
        Refusal { errno, reason, value: layout.value.get(), limit: layout.limit.get() }
    }
}
