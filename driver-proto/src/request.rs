//! Requests of a client on the socket.

use std::num::NonZeroU32;

use nlx_core::StartAddress;
use zerocopy::IntoBytes;

use crate::header::{Header, Kind};
use crate::hello::Hello;
use crate::layout::{
    AddressLayout, CreateArenaLayout, RegisterLayout, ReleaseArenaLayout, SegmentLayout, StartTmLayout,
    TmLayout,
};
use crate::object::Object;
use crate::{ARENA_BYTES_MAX, EVENTS_MAX, PacketError, SEGMENTS_MAX, Segment};

/// A request. The helper carries it out after all entries that were in the submission ring when it
/// was sent; each gets one reply.
///
/// | request | descriptors | reply | its descriptors |
/// | --- | --- | --- | --- |
/// | `Hello` | | [`crate::Reply::Welcome`] | ring, doorbell |
/// | `CreateArena` | | [`crate::Reply::Arena`] | the memory |
/// | `ReleaseArena`, `Register`, `StopTm`, `Sync` | | [`crate::Reply::Done`] | |
/// | `StartTm` | | [`crate::Reply::Started`] | its event queue |
/// | `TmDescriptor` | | [`crate::Reply::Done`] | a stream socket, to be read |
/// | `Nids` | | [`crate::Reply::Nids`] | |
///
/// [`Request::read`] checks the fields as described: ENOTTY for a packet of the wrong length or of
/// an unknown kind, EBADR for a field. Checks that need the client's state (quotas, policy, whether
/// an object exists) come later, with the errors listed here and a [`crate::Reason`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first request. Errors: EPROTO for a second one and for any other request before it,
    /// EPERM or EUSERS for a user that is not admitted, ENOMEM, EMFILE.
    Hello(Hello),
    /// Creates memory for buffers: zeroed, sealed against any change of its size. Errors: ENOMEM,
    /// also for more arenas or bytes than this client may have.
    CreateArena {
        /// Size in bytes: 1 to [`ARENA_BYTES_MAX`].
        bytes: u64,
        /// Use huge pages of 2 MiB, if there are any.
        huge: bool,
        /// Place the memory near a transfer machine, by the number in [`crate::Reply::Started`]. A
        /// number that the helper does not know has no effect.
        near: Option<NonZeroU32>,
    },
    /// Releases an arena in which no buffer lies. Errors: ENOENT, EBUSY.
    ReleaseArena {
        /// Number of the arena.
        arena: u32,
    },
    /// Registers a buffer. Errors: ENOMEM, EEXIST for a name that is in use, ENOENT for an arena,
    /// EINVAL for a segment that is not within its arena, EFBIG for a buffer that is too long.
    Register {
        /// The client's name for it: a [`crate::BufferName`].
        buffer: u64,
        /// The memory of the buffer, 1 to [`SEGMENTS_MAX`] segments, each of them
        /// [valid](Segment::is_valid).
        segments: Vec<Segment>,
    },
    /// Starts a transfer machine. Errors: those of [`nlx_core::Core::tm_start`], EPERM for an
    /// address or option that the helper's policy does not allow.
    StartTm(StartTm),
    /// Stops a transfer machine all of whose operations have ended. Errors: ENOENT, EBUSY.
    StopTm {
        /// The transfer machine.
        tm: u64,
    },
    /// Requests a socket that the helper also signals when an event loop has announced that it
    /// sleeps. Errors: ENOENT, EMFILE.
    TmDescriptor {
        /// The transfer machine.
        tm: u64,
    },
    /// Does nothing; its reply confirms that earlier entries of the ring have been processed.
    Sync,
    /// Requests the node's NIDs.
    Nids,
}

/// Parameters for the start of a transfer machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartTm {
    /// The address, of an interface; no wildcard NID.
    pub address: StartAddress,
    /// Largest number of events that its operations may need together: 1 to [`EVENTS_MAX`]. The
    /// helper grants no more than the welcome allows.
    pub events_max: u32,
    /// Makes its portal lazy ([`nlx_core::TmOptions::lazy`]).
    pub lazy: bool,
}

impl Request {
    /// Returns the request's kind, as in the packet's header.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Request::Hello(_) => Kind::Hello,
            Request::CreateArena { .. } => Kind::CreateArena,
            Request::ReleaseArena { .. } => Kind::ReleaseArena,
            Request::Register { .. } => Kind::Register,
            Request::StartTm(_) => Kind::StartTm,
            Request::StopTm { .. } => Kind::StopTm,
            Request::TmDescriptor { .. } => Kind::TmDescriptor,
            Request::Sync => Kind::Sync,
            Request::Nids => Kind::Nids,
        }
    }

    /// Encodes the packet; `packet` is emptied first. The caller must not pass more than
    /// [`SEGMENTS_MAX`] segments.
    pub fn write(&self, id: u64, packet: &mut Vec<u8>) {
        packet.clear();
        packet.resize(Header::LEN, 0);
        match self {
            Request::Hello(hello) => packet.extend_from_slice(hello.layout().as_bytes()),
            &Request::CreateArena { bytes, huge, near } => {
                let (huge, near) = (u32::from(huge).into(), near.map_or(0, NonZeroU32::get).into());
                let layout = CreateArenaLayout { bytes: bytes.into(), huge, near };
                packet.extend_from_slice(layout.as_bytes());
            }
            &Request::ReleaseArena { arena } => {
                let layout = ReleaseArenaLayout { arena: arena.into(), reserved: 0.into() };
                packet.extend_from_slice(layout.as_bytes());
            }
            Request::Register { buffer, segments } => write_register(*buffer, segments, packet),
            Request::StartTm(start) => packet.extend_from_slice(start.layout().as_bytes()),
            &Request::StopTm { tm } | &Request::TmDescriptor { tm } => {
                packet.extend_from_slice(TmLayout { tm: tm.into() }.as_bytes());
            }
            Request::Sync | Request::Nids => {}
        }
        Header::seal(self.kind() as u16, id, packet);
    }

    /// Decodes a request; returns it with its number.
    ///
    /// # Errors
    /// [`PacketError`]. Encoding the result gives the same packet, except for features and versions
    /// that this side does not know.
    pub fn read(packet: &[u8]) -> Result<(u64, Request), PacketError> {
        let (header, body) = Header::read(packet)?;
        let kind = header.kind.get();
        let unknown = PacketError::Kind { object: "a request", kind: kind.into() };
        let request = Request::read_body(Kind::from_value(kind).ok_or(unknown)?, body)?;
        Ok((header.id.get(), request))
    }

    fn read_body(kind: Kind, body: &[u8]) -> Result<Request, PacketError> {
        match kind {
            Kind::Hello => Ok(Request::Hello(Hello::read(body)?)),
            Kind::CreateArena => read_create(body),
            Kind::ReleaseArena => read_release(body),
            Kind::Register => read_register(body),
            Kind::StartTm => Ok(Request::StartTm(StartTm::read(body)?)),
            Kind::StopTm => Ok(Request::StopTm { tm: read_tm(Object("a stop"), body)? }),
            Kind::TmDescriptor => {
                Ok(Request::TmDescriptor { tm: read_tm(Object("a request for a descriptor"), body)? })
            }
            Kind::Sync => Object("a sync").empty(body).map(|()| Request::Sync),
            Kind::Nids => Object("a request for NIDs").empty(body).map(|()| Request::Nids),
        }
    }
}

impl StartTm {
    fn layout(&self) -> StartTmLayout {
        StartTmLayout {
            address: AddressLayout::from(&self.address),
            events_max: self.events_max.into(),
            lazy: u32::from(self.lazy).into(),
        }
    }

    fn read(body: &[u8]) -> Result<StartTm, PacketError> {
        const START: Object = Object("a start");
        let layout: &StartTmLayout = START.whole(body)?;
        let events_max = layout.events_max.get();
        if !(1..=EVENTS_MAX).contains(&events_max) {
            return Err(START.field("the events", events_max, "1 to 2^20-1"));
        }
        Ok(StartTm {
            address: START.start_address(&layout.address)?,
            events_max,
            lazy: START.flag("lazy", layout.lazy.get())?,
        })
    }
}

fn read_create(body: &[u8]) -> Result<Request, PacketError> {
    const CREATE: Object = Object("a request for an arena");
    let layout: &CreateArenaLayout = CREATE.whole(body)?;
    let bytes = layout.bytes.get();
    if !(1..=ARENA_BYTES_MAX).contains(&bytes) {
        return Err(CREATE.field("the bytes", bytes, "1 to 2^40"));
    }
    let huge = CREATE.flag("huge", layout.huge.get())?;
    Ok(Request::CreateArena { bytes, huge, near: NonZeroU32::new(layout.near.get()) })
}

fn read_release(body: &[u8]) -> Result<Request, PacketError> {
    const RELEASE: Object = Object("an arena to release");
    let layout: &ReleaseArenaLayout = RELEASE.whole(body)?;
    RELEASE.zero(layout.reserved.get())?;
    Ok(Request::ReleaseArena { arena: layout.arena.get() })
}

fn read_tm(object: Object, body: &[u8]) -> Result<u64, PacketError> {
    let layout: &TmLayout = object.whole(body)?;
    Ok(layout.tm.get())
}

fn write_register(buffer: u64, segments: &[Segment], packet: &mut Vec<u8>) {
    debug_assert!(segments.len() <= SEGMENTS_MAX);
    let count = (segments.len() as u32).into();
    let layout = RegisterLayout { buffer: buffer.into(), count, reserved: 0.into() };
    packet.extend_from_slice(layout.as_bytes());
    for segment in segments {
        packet.extend_from_slice(segment.layout().as_bytes());
    }
}

fn read_register(body: &[u8]) -> Result<Request, PacketError> {
    const REGISTER: Object = Object("a registration");
    let (layout, rest): (&RegisterLayout, _) = REGISTER.prefix(body)?;
    REGISTER.zero(layout.reserved.get())?;
    REGISTER.buffer_name(layout.buffer.get())?;
    let count = layout.count.get() as usize;
    if !(1..=SEGMENTS_MAX).contains(&count) {
        return Err(REGISTER.field("the segments", layout.count.get(), "1 to 256"));
    }
    let expected = size_of::<RegisterLayout>() + count * size_of::<SegmentLayout>();
    if body.len() != expected {
        return Err(REGISTER.length(body.len(), expected));
    }
    // The allocation can fail: a client must not end the helper with a long list.
    let mut segments = Vec::new();
    segments.try_reserve_exact(count).map_err(|_| PacketError::NoMemory { object: REGISTER.0 })?;
    for bytes in rest.chunks_exact(size_of::<SegmentLayout>()) {
        segments.push(read_segment(bytes)?);
    }
    Ok(Request::Register { buffer: layout.buffer.get(), segments })
}

fn read_segment(bytes: &[u8]) -> Result<Segment, PacketError> {
    const SEGMENT: Object = Object("a segment");
    let layout: &SegmentLayout = SEGMENT.whole(bytes)?;
    SEGMENT.zero(layout.reserved.get())?;
    let (arena, offset, length) = (layout.arena.get(), layout.offset.get(), layout.length.get());
    SEGMENT.segment(Segment { arena, offset, length })
}
