//! Replies of the helper.

use std::num::NonZeroU32;

use nlx_core::{Address, Nid};
use zerocopy::IntoBytes;

use crate::header::{Header, Kind};
use crate::layout::{AddressLayout, ArenaLayout, OutcomeLayout, StartedLayout};
use crate::object::Object;
use crate::{ARENA_BYTES_MAX, NIDS_MAX, PacketError, Refusal, Welcome};

const REPLY: Object = Object("a reply");

/// A reply. See [`crate::Request`] for the reply to each request.
///
/// A client checks it as strictly as the helper checks a request: [`Reply::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The request was refused, and nothing has changed.
    Refused(Refusal),
    /// The request succeeded, without a result.
    Done,
    /// To [`crate::Request::Hello`].
    Welcome(Welcome),
    /// An arena was created.
    Arena {
        /// The number of the new arena.
        arena: u32,
        /// Size of the arena in bytes: at least the requested size.
        bytes: u64,
        /// Set if the arena is on huge pages.
        huge: bool,
    },
    /// A transfer machine was started.
    Started {
        /// The helper's number of the transfer machine.
        tm: u64,
        /// The address of the machine, with its id.
        address: Address,
        /// Number that places memory near the machine ([`crate::Request::CreateArena`]); `None` if
        /// the helper leaves the placement to the system.
        near: Option<NonZeroU32>,
    },
    /// The node's NIDs, `0@lo` last.
    Nids(Vec<Nid>),
}

impl Reply {
    /// Writes the reply to the request with this kind and number; `packet` is emptied first. `kind`
    /// is copied from the request's header, even if it is invalid. The caller must not pass more
    /// than [`NIDS_MAX`] NIDs.
    pub fn write(&self, kind: u16, id: u64, packet: &mut Vec<u8>) {
        packet.clear();
        packet.resize(Header::LEN, 0);
        let outcome = match self {
            Reply::Refused(refusal) => refusal.layout(),
            _ => OutcomeLayout { status: 0.into(), reason: 0.into(), value: 0.into(), limit: 0.into() },
        };
        packet.extend_from_slice(outcome.as_bytes());
        match self {
            Reply::Refused(_) | Reply::Done => {}
            Reply::Welcome(welcome) => packet.extend_from_slice(welcome.layout().as_bytes()),
            &Reply::Arena { arena, bytes, huge } => {
                let huge = u32::from(huge).into();
                let layout = ArenaLayout { arena: arena.into(), huge, bytes: bytes.into() };
                packet.extend_from_slice(layout.as_bytes());
            }
            Reply::Started { tm, address, near } => {
                let layout = StartedLayout {
                    tm: (*tm).into(),
                    address: AddressLayout::from(address),
                    near: near.map_or(0, NonZeroU32::get).into(),
                    reserved: 0.into(),
                };
                packet.extend_from_slice(layout.as_bytes());
            }
            Reply::Nids(nids) => {
                debug_assert!(nids.len() <= NIDS_MAX);
                nids.iter().take(NIDS_MAX).for_each(|nid| packet.extend_from_slice(&nid.to_wire()));
            }
        }
        Header::seal(kind | Header::REPLY, id, packet);
    }

    /// Decodes a reply; returns it with the number of its request.
    ///
    /// # Errors
    /// [`PacketError`]. Encoding the result gives the same packet, except for features, limits,
    /// reasons and errnos that this side does not know.
    pub fn read(packet: &[u8]) -> Result<(u64, Reply), PacketError> {
        let (header, body) = Header::read(packet)?;
        let (id, kind) = (header.id.get(), header.kind.get());
        let unknown = PacketError::Kind { object: "a reply", kind: kind.into() };
        if kind & Header::REPLY == 0 {
            return Err(unknown);
        }
        let (outcome, body): (&OutcomeLayout, _) = REPLY.prefix(body)?;
        let status = outcome.status.get();
        if status < 0 {
            // Also the refusal of a request that the helper does not know.
            return REPLY.empty(body).map(|()| (id, Reply::Refused(Refusal::read(outcome))));
        }
        REPLY.zero(status.unsigned_abs())?;
        REPLY.zero(outcome.reason.get())?;
        REPLY.zero(outcome.value.get())?;
        REPLY.zero(outcome.limit.get())?;
        Ok((id, read_body(Kind::from_value(kind & !Header::REPLY).ok_or(unknown)?, body)?))
    }
}

fn read_body(kind: Kind, body: &[u8]) -> Result<Reply, PacketError> {
    match kind {
        Kind::Hello => Ok(Reply::Welcome(Welcome::read(body)?)),
        Kind::CreateArena => read_arena(body),
        Kind::StartTm => read_started(body),
        Kind::Nids => read_nids(body),
        Kind::ReleaseArena | Kind::Register | Kind::StopTm | Kind::TmDescriptor | Kind::Sync => {
            REPLY.empty(body).map(|()| Reply::Done)
        }
    }
}

fn read_arena(body: &[u8]) -> Result<Reply, PacketError> {
    const ARENA: Object = Object("an arena");
    let layout: &ArenaLayout = ARENA.whole(body)?;
    let bytes = layout.bytes.get();
    if !(1..=ARENA_BYTES_MAX).contains(&bytes) {
        return Err(ARENA.field("the bytes", bytes, "1 to 2^40"));
    }
    Ok(Reply::Arena { arena: layout.arena.get(), bytes, huge: ARENA.flag("huge", layout.huge.get())? })
}

fn read_started(body: &[u8]) -> Result<Reply, PacketError> {
    const STARTED: Object = Object("a started transfer machine");
    let layout: &StartedLayout = STARTED.whole(body)?;
    STARTED.zero(layout.reserved.get())?;
    let address = STARTED.address(&layout.address)?;
    Ok(Reply::Started { tm: layout.tm.get(), address, near: NonZeroU32::new(layout.near.get()) })
}

fn read_nids(body: &[u8]) -> Result<Reply, PacketError> {
    const NIDS: Object = Object("a list of NIDs");
    let (nids, rest) = body.as_chunks::<{ Nid::WIRE_LEN }>();
    if !rest.is_empty() || nids.len() > NIDS_MAX {
        return Err(NIDS.length(body.len(), nids.len().min(NIDS_MAX) * Nid::WIRE_LEN));
    }
    Ok(Reply::Nids(nids.iter().map(|nid| NIDS.nid(nid)).collect::<Result<_, _>>()?))
}
