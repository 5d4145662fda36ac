//! What the helper answers.

use std::fmt;

use nlx_core::{Address, Errno, Nid, Pid, TmId};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{Header, Kind};
use crate::hello::{Welcome, WelcomeLayout};
use crate::request::whole;
use crate::{NIDS_MAX, ProtoError};

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It was refused.
    Refused(Refusal),
    /// It was done, and there is nothing to tell.
    Done,
    /// To [`crate::Request::Hello`].
    Welcome(Welcome),
    /// An arena is there.
    Arena {
        /// Its number.
        arena: u32,
        /// Bytes of it: those asked for, or some more.
        bytes: u64,
        /// It lies on huge pages.
        huge: bool,
    },
    /// A transfer machine runs.
    Started {
        /// The helper's name for it.
        tm: u64,
        /// Its address, with its id.
        address: Address,
    },
    /// The node's NIDs, `0@lo` as the last.
    Nids(Vec<Nid>),
}

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
    /// The descriptor is not memory that a helper made.
    NotArena = 21, "a descriptor that is not sealed memory of a helper";
    /// The helper is about to end.
    Ending = 22, "the helper ends";
    /// Below the helper, LNet refused.
    Network = 23, "the network refused";
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

/// What follows the header of every reply.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct OutcomeLayout {
    /// 0, or a negative errno.
    status: I32,
    reason: U32,
    value: U64,
    limit: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ArenaLayout {
    arena: U32,
    huge: U32,
    bytes: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StartedLayout {
    tm: U64,
    nid: [u8; Nid::WIRE_LEN],
    pid: U32,
    portal: U32,
    tmid: U32,
}

static_assertions::const_assert_eq!(size_of::<OutcomeLayout>(), 24);
static_assertions::const_assert_eq!(size_of::<ArenaLayout>(), 16);
static_assertions::const_assert_eq!(size_of::<StartedLayout>(), 40);

impl Reply {
    /// Writes the reply to the request of this kind and number: `packet` is emptied first. `kind` is that of the request's
    /// header, whatever it says.
    pub fn write(&self, kind: u16, id: u64, packet: &mut Vec<u8>) {
        packet.clear();
        packet.resize(Header::LEN, 0);
        let outcome = match self {
            Reply::Refused(Refusal { errno, reason, value, limit }) => OutcomeLayout {
                status: (-(*errno as i32)).into(),
                reason: (*reason as u32).into(),
                value: (*value).into(),
                limit: (*limit).into(),
            },
            _ => OutcomeLayout { status: 0.into(), reason: 0.into(), value: 0.into(), limit: 0.into() },
        };
        packet.extend_from_slice(outcome.as_bytes());
        match self {
            Reply::Refused(_) | Reply::Done => {}
            Reply::Welcome(welcome) => packet.extend_from_slice(welcome.layout().as_bytes()),
            Reply::Arena { arena, bytes, huge } => {
                let huge = u32::from(*huge).into();
                let layout = ArenaLayout { arena: (*arena).into(), huge, bytes: (*bytes).into() };
                packet.extend_from_slice(layout.as_bytes());
            }
            Reply::Started { tm, address } => {
                let layout = StartedLayout {
                    tm: (*tm).into(),
                    nid: address.nid.to_wire(),
                    pid: address.pid.0.into(),
                    portal: address.portal.into(),
                    tmid: address.tmid.get().into(),
                };
                packet.extend_from_slice(layout.as_bytes());
            }
            Reply::Nids(nids) => {
                debug_assert!(nids.len() <= NIDS_MAX);
                nids.iter().take(NIDS_MAX).for_each(|nid| packet.extend_from_slice(&nid.to_wire()));
            }
        }
        let header = Header::new(kind | Header::REPLY, id, packet.len());
        packet[..Header::LEN].copy_from_slice(header.as_bytes());
    }

    /// The reply that a packet is, and the number of its request.
    ///
    /// # Errors
    /// [`ProtoError`]: what the packet says wrong.
    pub fn read(packet: &[u8]) -> Result<(u64, Reply), ProtoError> {
        let (header, body) = Header::read(packet)?;
        let told = header.kind.get();
        let unknown = ProtoError::Kind { object: "a reply", kind: told.into() };
        let kind = Kind::from_value(told & !Header::REPLY).filter(|_| told & Header::REPLY != 0);
        let wrong =
            ProtoError::Length { object: "a reply", bytes: body.len(), expected: size_of::<OutcomeLayout>() };
        let (outcome, body) = OutcomeLayout::ref_from_prefix(body).map_err(|_| wrong)?;
        if outcome.status.get() != 0 {
            // Of a request that the helper does not know, too.
            let refusal = Refusal {
                errno: match Errno::from_raw(outcome.status.get().wrapping_neg()) {
                    Errno::UnknownErrno => Errno::EIO,
                    errno => errno,
                },
                reason: Reason::from_value(outcome.reason.get()),
                value: outcome.value.get(),
                limit: outcome.limit.get(),
            };
            return Ok((header.id.get(), Reply::Refused(refusal)));
        }
        let reply = match kind.ok_or(unknown)? {
            Kind::Hello => Reply::Welcome(Welcome::read(whole::<WelcomeLayout>("a welcome", body)?)?),
            Kind::CreateArena | Kind::AdoptArena => {
                let layout = whole::<ArenaLayout>("an arena", body)?;
                let huge = layout.huge.get() != 0;
                Reply::Arena { arena: layout.arena.get(), bytes: layout.bytes.get(), huge }
            }
            Kind::StartTm => read_started(whole("a started transfer machine", body)?)?,
            Kind::Nids => read_nids(body)?,
            Kind::ReleaseArena | Kind::Register | Kind::StopTm | Kind::TmDescriptor | Kind::Sync => {
                Reply::Done
            }
        };
        Ok((header.id.get(), reply))
    }
}

fn read_started(layout: &StartedLayout) -> Result<Reply, ProtoError> {
    let tmid = layout.tmid.get();
    let nid = Nid::from_wire(&layout.nid).map_err(|_| field("the NID", layout.nid[0].into()))?;
    let address = Address {
        nid,
        pid: Pid(layout.pid.get()),
        portal: layout.portal.get(),
        tmid: TmId::new(tmid).map_err(|_| field("the id", tmid.into()))?,
    };
    Ok(Reply::Started { tm: layout.tm.get(), address })
}

fn read_nids(body: &[u8]) -> Result<Reply, ProtoError> {
    let (nids, rest) = body.as_chunks::<{ Nid::WIRE_LEN }>();
    if !rest.is_empty() || nids.len() > NIDS_MAX {
        let expected = nids.len().min(NIDS_MAX) * Nid::WIRE_LEN;
        return Err(ProtoError::Length { object: "a list of NIDs", bytes: body.len(), expected });
    }
    let nids = nids.iter().map(|nid| Nid::from_wire(nid).map_err(|_| field("a NID", nid[0].into())));
    Ok(Reply::Nids(nids.collect::<Result<_, _>>()?))
}

fn field(field: &'static str, value: u64) -> ProtoError {
    ProtoError::Field { object: "a reply", field, value, rule: "one that can be" }
}
