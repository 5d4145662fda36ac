//! Why a request was refused.

use std::fmt;

use nlx_core::Errno;

use crate::ProtoError;
use crate::layout::OutcomeLayout;

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The errno.
    pub errno: Errno,
    /// What was wrong.
    pub reason: Reason,
    /// The number that was wrong, if there is one.
    pub value: u64,
    /// What it may be at most, or what it should be.
    pub limit: u64,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// What was wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Reason {
            $($(#[$doc])* $name = $value,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// What a person reads.
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
    /// Something that this version does not know.
    Other = 0, "refused";
    /// The system refused.
    System = 1, "the system refused";
    /// Not the request's turn: a hello must be first, and only once.
    Order = 2, "not at this point";
    /// The policy of the helper does not let this user have the portal.
    Portal = 3, "the helper's policy does not allow the portal";
    /// Nor the NID.
    Nid = 4, "the helper's policy does not allow the NID";
    /// As many transfer machines as this client may have.
    Tms = 5, "transfer machines";
    /// As many buffers.
    Buffers = 6, "buffers";
    /// As many arenas.
    Arenas = 7, "arenas";
    /// As many bytes of memory.
    Bytes = 8, "bytes of memory";
    /// As many operations in flight.
    Operations = 9, "operations in flight";
    /// There is no such arena.
    NoArena = 10, "no such arena";
    /// There is no such buffer.
    NoBuffer = 11, "no such buffer";
    /// There is no such transfer machine.
    NoTm = 12, "no such transfer machine";
    /// Buffers lie in the arena.
    ArenaBusy = 13, "buffers lie in the arena";
    /// Operations are in flight.
    TmBusy = 14, "operations of the transfer machine are in flight";
    /// The name is taken.
    BufferExists = 15, "the name of the buffer is taken";
    /// A segment does not lie in its arena, or is too long.
    Segment = 16, "a segment that does not lie in its arena";
    /// The node has not this NID with this PID.
    NotLocal = 17, "not an address of this node";
    /// A transfer machine runs at the address.
    AddressInUse = 18, "the address is taken";
    /// No id is free.
    NoFreeTmId = 19, "every transfer machine id is taken";
    /// The portal is none that transfer machines have.
    PortalRange = 20, "a portal that is none";
    /// The client has not sealed the memory.
    Unsealed = 21, "memory that the client has not sealed";
    /// The helper is about to end.
    Ending = 22, "the helper ends";
    /// Below the helper, LNet refused.
    Network = 23, "the network refused";
    /// The packet is none: its length, its kind or a field.
    Malformed = 24, "a packet that says what none may say";
    /// The client speaks other versions.
    Version = 25, "no version of the protocol that both know";
    /// The helper's policy does not let this user connect.
    User = 26, "the helper's policy does not admit the user";
    /// As many clients as the helper, or one user, may have.
    Clients = 27, "clients";
    /// The policy of the helper does not let this user make a portal lazy.
    Lazy = 28, "the helper's policy does not allow lazy portals";
    /// The share of the user, over all its clients: of mappings, memory, transfer machines, buffers, operations.
    Share = 29, "the user's share of the helper is used up";
}

impl Reason {
    /// The one with this number; [`Reason::Other`] for one of a newer helper.
    #[must_use]
    pub fn from_value(value: u32) -> Reason {
        Reason::ALL.iter().copied().find(|reason| *reason as u32 == value).unwrap_or(Reason::Other)
    }
}

impl Refusal {
    /// Without a number.
    #[must_use]
    pub const fn new(errno: Errno, reason: Reason) -> Refusal {
        Refusal { errno, reason, value: 0, limit: 0 }
    }

    /// Because of this number.
    #[must_use]
    pub const fn of(errno: Errno, reason: Reason, value: u64, limit: u64) -> Refusal {
        Refusal { errno, reason, value, limit }
    }
}

impl From<&ProtoError> for Refusal {
    /// What to answer to a packet that cannot be read.
    fn from(error: &ProtoError) -> Refusal {
        let (reason, value, limit) = match *error {
            ProtoError::Length { bytes, expected, .. } => (Reason::Malformed, bytes as u64, expected as u64),
            ProtoError::Kind { kind, .. } => (Reason::Malformed, kind.into(), 0),
            ProtoError::Field { value, .. } => (Reason::Malformed, value, 0),
            ProtoError::Version { max, own, .. } => (Reason::Version, max.into(), own.into()),
            ProtoError::NoMemory { .. } => (Reason::System, 0, 0),
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
        // An errno of 0 would say that nothing was refused.
        let errno = if self.errno == Errno::UnknownErrno { Errno::EIO } else { self.errno };
        OutcomeLayout {
            status: (-(errno as i32)).into(),
            reason: (self.reason as u32).into(),
            value: self.value.into(),
            limit: self.limit.into(),
        }
    }

    /// What a negative status tells.
    pub(crate) fn read(layout: &OutcomeLayout) -> Refusal {
        let errno = match Errno::from_raw(layout.status.get().wrapping_neg()) {
            Errno::UnknownErrno => Errno::EIO,
            errno => errno,
        };
        let reason = Reason::from_value(layout.reason.get());
        Refusal { errno, reason, value: layout.value.get(), limit: layout.limit.get() }
    }
}
