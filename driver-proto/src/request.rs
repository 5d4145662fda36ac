//! What a client asks for on the socket.

use nlx_core::{Nid, Pid, StartAddress, TmId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{Header, Kind};
use crate::hello::{Hello, HelloLayout};
use crate::{ProtoError, SEGMENTS_MAX};

/// A request. It is carried out after everything that stood in the submission ring when it was sent; each gets one reply.
///
/// | request | descriptors | reply | its descriptors |
/// | --- | --- | --- | --- |
/// | `Hello` | | [`crate::Reply::Welcome`] | ring, doorbell |
/// | `CreateArena` | | [`crate::Reply::Arena`] | the memory |
/// | `AdoptArena` | the memory | [`crate::Reply::Arena`] | |
/// | `ReleaseArena`, `Register`, `StopTm`, `Sync` | | [`crate::Reply::Done`] | |
/// | `StartTm` | | [`crate::Reply::Started`] | its event queue |
/// | `TmDescriptor` | | [`crate::Reply::Done`] | the end of a pipe, to be read |
/// | `Nids` | | [`crate::Reply::Nids`] | |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first request, and no other before it.
    Hello(Hello),
    /// Make memory for buffers: zeroed, sealed against any change of its size.
    CreateArena {
        /// Bytes.
        bytes: u64,
        /// On huge pages of 2 MiB, if there are any.
        huge: bool,
    },
    /// Use memory that an earlier helper made; its descriptor comes along.
    AdoptArena,
    /// Give an arena back: no buffer lies in it any more.
    ReleaseArena {
        /// Which one.
        arena: u32,
    },
    /// Make a buffer ready.
    Register {
        /// The client's name for it: a place below the limit of buffers, and above it a generation that is not 0.
        buffer: u64,
        /// Its memory, 1 to [`SEGMENTS_MAX`] segments.
        segments: Vec<Segment>,
    },
    /// Start a transfer machine.
    StartTm(StartTm),
    /// Stop a transfer machine whose operations are all over.
    StopTm {
        /// Which one.
        tm: u64,
    },
    /// From now on ring a pipe, too, when an event loop has announced that it sleeps.
    TmDescriptor {
        /// For which transfer machine.
        tm: u64,
    },
    /// Nothing.
    Sync,
    /// Tell the node's NIDs.
    Nids,
}

/// Memory in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Which arena.
    pub arena: u32,
    /// The first byte.
    pub offset: u64,
    /// Bytes, 1 or more.
    pub length: u64,
}

/// How a transfer machine is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartTm {
    /// Where.
    pub address: StartAddress,
    /// The most events that its operations may need together.
    pub events_max: u32,
    /// Its portal is to be lazy ([`nlx_core::TmOptions::lazy`]).
    pub lazy: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ArenaLayout {
    bytes: U64,
    huge: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IndexLayout {
    index: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RegisterLayout {
    buffer: U64,
    count: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct SegmentLayout {
    arena: U32,
    reserved: U32,
    offset: U64,
    length: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StartLayout {
    nid: [u8; Nid::WIRE_LEN],
    pid: U32,
    portal: U32,
    /// 0 for the highest that is free.
    tmid: U32,
    events_max: U32,
    lazy: U32,
}

static_assertions::const_assert_eq!(size_of::<ArenaLayout>(), 16);
static_assertions::const_assert_eq!(size_of::<IndexLayout>(), 8);
static_assertions::const_assert_eq!(size_of::<RegisterLayout>(), 16);
static_assertions::const_assert_eq!(size_of::<SegmentLayout>(), 24);
static_assertions::const_assert_eq!(size_of::<StartLayout>(), 40);

impl Request {
    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Request::Hello(_) => Kind::Hello,
            Request::CreateArena { .. } => Kind::CreateArena,
            Request::AdoptArena => Kind::AdoptArena,
            Request::ReleaseArena { .. } => Kind::ReleaseArena,
            Request::Register { .. } => Kind::Register,
            Request::StartTm(_) => Kind::StartTm,
            Request::StopTm { .. } => Kind::StopTm,
            Request::TmDescriptor { .. } => Kind::TmDescriptor,
            Request::Sync => Kind::Sync,
            Request::Nids => Kind::Nids,
        }
    }

    /// Descriptors that come with it.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        match self {
            Request::AdoptArena => 1,
            _ => 0,
        }
    }

    /// Writes the packet: `packet` is emptied first.
    pub fn write(&self, id: u64, packet: &mut Vec<u8>) {
        packet.clear();
        packet.resize(Header::LEN, 0);
        match self {
            Request::Hello(hello) => packet.extend_from_slice(hello.layout().as_bytes()),
            Request::CreateArena { bytes, huge } => {
                let layout =
                    ArenaLayout { bytes: (*bytes).into(), huge: u32::from(*huge).into(), reserved: 0.into() };
                packet.extend_from_slice(layout.as_bytes());
            }
            Request::ReleaseArena { arena } => {
                let layout = IndexLayout { index: (*arena).into(), reserved: 0.into() };
                packet.extend_from_slice(layout.as_bytes());
            }
            Request::Register { buffer, segments } => {
                debug_assert!(segments.len() <= SEGMENTS_MAX);
                let layout = RegisterLayout {
                    buffer: (*buffer).into(),
                    count: (segments.len() as u32).into(),
                    reserved: 0.into(),
                };
                packet.extend_from_slice(layout.as_bytes());
                for Segment { arena, offset, length } in segments {
                    let layout = SegmentLayout {
                        arena: (*arena).into(),
                        reserved: 0.into(),
                        offset: (*offset).into(),
                        length: (*length).into(),
                    };
                    packet.extend_from_slice(layout.as_bytes());
                }
            }
            Request::StartTm(StartTm { address, events_max, lazy }) => {
                let layout = StartLayout {
                    nid: address.nid.to_wire(),
                    pid: address.pid.0.into(),
                    portal: address.portal.into(),
                    tmid: address.tmid.map_or(0, TmId::get).into(),
                    events_max: (*events_max).into(),
                    lazy: u32::from(*lazy).into(),
                };
                packet.extend_from_slice(layout.as_bytes());
            }
            Request::StopTm { tm } | Request::TmDescriptor { tm } => {
                packet.extend_from_slice(U64::from(*tm).as_bytes());
            }
            Request::AdoptArena | Request::Sync | Request::Nids => {}
        }
        let header = Header::new(self.kind() as u16, id, packet.len());
        packet[..Header::LEN].copy_from_slice(header.as_bytes());
    }

    /// The request that a packet is, and its number.
    ///
    /// # Errors
    /// [`ProtoError`]: what the packet says wrong.
    pub fn read(packet: &[u8]) -> Result<(u64, Request), ProtoError> {
        let (header, body) = Header::read(packet)?;
        let unknown = ProtoError::Kind { object: "a request", kind: header.kind.get().into() };
        let kind = Kind::from_value(header.kind.get()).ok_or(unknown)?;
        Ok((header.id.get(), Request::read_body(kind, body)?))
    }

    fn read_body(kind: Kind, body: &[u8]) -> Result<Request, ProtoError> {
        Ok(match kind {
            Kind::Hello => Request::Hello(Hello::read(whole::<HelloLayout>("a hello", body)?)?),
            Kind::CreateArena => {
                let layout = whole::<ArenaLayout>("a request for an arena", body)?;
                let huge = flag("a request for an arena", "huge", layout.huge.get())?;
                zero("a request for an arena", layout.reserved.get())?;
                Request::CreateArena { bytes: layout.bytes.get(), huge }
            }
            Kind::AdoptArena => none("an arena to adopt", body, Request::AdoptArena)?,
            Kind::ReleaseArena => {
                let layout = whole::<IndexLayout>("an arena to release", body)?;
                zero("an arena to release", layout.reserved.get())?;
                Request::ReleaseArena { arena: layout.index.get() }
            }
            Kind::Register => read_register(body)?,
            Kind::StartTm => Request::StartTm(read_start(body)?),
            Kind::StopTm => Request::StopTm { tm: whole::<U64>("a stop", body)?.get() },
            Kind::TmDescriptor => {
                Request::TmDescriptor { tm: whole::<U64>("a request for a descriptor", body)?.get() }
            }
            Kind::Sync => none("a sync", body, Request::Sync)?,
            Kind::Nids => none("a request for NIDs", body, Request::Nids)?,
        })
    }
}

fn read_register(body: &[u8]) -> Result<Request, ProtoError> {
    const OBJECT: &str = "a registration";
    let wrong = |expected| ProtoError::Length { object: OBJECT, bytes: body.len(), expected };
    let (layout, rest) =
        RegisterLayout::ref_from_prefix(body).map_err(|_| wrong(size_of::<RegisterLayout>()))?;
    zero(OBJECT, layout.reserved.get())?;
    let count = layout.count.get() as usize;
    if count == 0 || count > SEGMENTS_MAX {
        let value = count as u64;
        return Err(ProtoError::Field { object: OBJECT, field: "segments", value, rule: "1 to 256" });
    }
    let expected = count * size_of::<SegmentLayout>();
    if rest.len() != expected {
        return Err(wrong(size_of::<RegisterLayout>() + expected));
    }
    let mut segments = Vec::with_capacity(count);
    for bytes in rest.chunks_exact(size_of::<SegmentLayout>()) {
        let layout = whole::<SegmentLayout>("a segment", bytes)?;
        zero("a segment", layout.reserved.get())?;
        let (arena, offset, length) = (layout.arena.get(), layout.offset.get(), layout.length.get());
        segments.push(Segment { arena, offset, length });
    }
    Ok(Request::Register { buffer: layout.buffer.get(), segments })
}

fn read_start(body: &[u8]) -> Result<StartTm, ProtoError> {
    const OBJECT: &str = "a start";
    let layout = whole::<StartLayout>(OBJECT, body)?;
    let field =
        |field, value: u32, rule| ProtoError::Field { object: OBJECT, field, value: value.into(), rule };
    let nid = Nid::from_wire(&layout.nid)
        .map_err(|_| field("the NID", layout.nid[0].into(), "that of an interface"))?;
    let tmid = match layout.tmid.get() {
        0 => None,
        value => Some(TmId::new(value).map_err(|_| field("the id", value, "1 to 4095, or 0 for any"))?),
    };
    Ok(StartTm {
        address: StartAddress { nid, pid: Pid(layout.pid.get()), portal: layout.portal.get(), tmid },
        events_max: layout.events_max.get(),
        lazy: flag(OBJECT, "lazy", layout.lazy.get())?,
    })
}

/// All of the bytes as this layout.
pub(crate) fn whole<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    object: &'static str,
    bytes: &'a [u8],
) -> Result<&'a T, ProtoError> {
    let expected = size_of::<T>();
    T::ref_from_bytes(bytes).map_err(|_| ProtoError::Length { object, bytes: bytes.len(), expected })
}

/// No bytes.
fn none<T>(object: &'static str, bytes: &[u8], value: T) -> Result<T, ProtoError> {
    if bytes.is_empty() {
        Ok(value)
    } else {
        Err(ProtoError::Length { object, bytes: bytes.len(), expected: 0 })
    }
}

fn flag(object: &'static str, field: &'static str, value: u32) -> Result<bool, ProtoError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ProtoError::Field { object, field, value: value.into(), rule: "0 or 1" }),
    }
}

fn zero(object: &'static str, value: u32) -> Result<(), ProtoError> {
    if value == 0 {
        Ok(())
    } else {
        Err(ProtoError::Field { object, field: "reserved", value: value.into(), rule: "0" })
    }
}
