//! The first request, and what it agrees on.

use nlx_core::Limits;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{NAME_MAX, ProtoError, VERSION};

bitflags::bitflags! {
    /// What one side can beyond the first version. Unknown bits are ignored; what both have holds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        /// The helper takes memory that an earlier helper made ([`crate::Kind::AdoptArena`]).
        const ADOPT = 1;
        /// The helper has huge pages to give.
        const HUGE_PAGES = 2;
    }
}

/// "nlx:nlxd" in ASCII: what is not a client is told so at once.
const MAGIC: [u8; 8] = *b"nlx:nlxd";

/// Who the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// What it can.
    pub features: Features,
    /// Its name, for an operator; what is not ASCII and printable is shown as `?`. Padded with 0.
    pub name: [u8; NAME_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HelloLayout {
    magic: [u8; 8],
    version_min: U16,
    version_max: U16,
    reserved: U32,
    features: U64,
    name: [u8; NAME_MAX],
}

static_assertions::const_assert_eq!(size_of::<HelloLayout>(), 56);

/// What the helper gives: with it come the descriptors of the submission ring and of its doorbell, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version to be spoken.
    pub version: u16,
    /// What both sides can.
    pub features: Features,
    /// The helper's name for this client, as the operator sees it.
    pub client: u64,
    /// The limits of the Core interface; [`Limits::buffers_max`] is this client's.
    pub limits: Limits,
    /// Transfer machines at a time.
    pub tms_max: u32,
    /// Operations in flight at a time, over all transfer machines.
    pub operations_max: u32,
    /// Events that the operations of one transfer machine may need together.
    pub events_max: u32,
    /// Arenas at a time.
    pub arenas_max: u32,
    /// Bytes of all arenas together.
    pub arena_bytes_max: u64,
    /// What the helper's clock says when it writes this: the monotonic clock of the host, in nanoseconds.
    pub now_ns: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct WelcomeLayout {
    version: U16,
    reserved: [u8; 6],
    features: U64,
    client: U64,
    buffer_bytes_max: U64,
    segment_bytes_max: U64,
    segments_max: U32,
    descriptor_bytes_max: U32,
    messages_max: U32,
    buffers_max: U32,
    tms_max: U32,
    operations_max: U32,
    events_max: U32,
    arenas_max: U32,
    arena_bytes_max: U64,
    now_ns: U64,
}

static_assertions::const_assert_eq!(size_of::<WelcomeLayout>(), 88);

impl Hello {
    /// A client with this name, cut to what there is room for.
    #[must_use]
    pub fn new(name: &str) -> Hello {
        let mut bytes = [0; NAME_MAX];
        let length = name.len().min(NAME_MAX);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        Hello { features: Features::all(), name: bytes }
    }

    /// The name as text that a terminal can be given.
    #[must_use]
    pub fn name(&self) -> String {
        let named = self.name.iter().take_while(|&&byte| byte != 0);
        named.map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '?' }).collect()
    }

    pub(crate) fn layout(&self) -> HelloLayout {
        HelloLayout {
            magic: MAGIC,
            version_min: VERSION.into(),
            version_max: VERSION.into(),
            reserved: 0.into(),
            features: self.features.bits().into(),
            name: self.name,
        }
    }

    pub(crate) fn read(layout: &HelloLayout) -> Result<Hello, ProtoError> {
        if layout.magic != MAGIC {
            let value = u64::from_le_bytes(layout.magic);
            return Err(ProtoError::Field {
                object: "a hello",
                field: "the magic",
                value,
                rule: "\"nlx:nlxd\"",
            });
        }
        let (min, max) = (layout.version_min.get(), layout.version_max.get());
        if !(min..=max).contains(&VERSION) {
            return Err(ProtoError::Version { min, max, own: VERSION });
        }
        Ok(Hello { features: Features::from_bits_truncate(layout.features.get()), name: layout.name })
    }
}

impl Welcome {
    pub(crate) fn layout(&self) -> WelcomeLayout {
        // Sizes that fit: `Limits` are those of LNet or less.
        WelcomeLayout {
            version: self.version.into(),
            reserved: [0; 6],
            features: self.features.bits().into(),
            client: self.client.into(),
            buffer_bytes_max: (self.limits.buffer_bytes_max as u64).into(),
            segment_bytes_max: (self.limits.segment_bytes_max as u64).into(),
            segments_max: (self.limits.segments_max as u32).into(),
            descriptor_bytes_max: (self.limits.descriptor_bytes_max as u32).into(),
            messages_max: self.limits.messages_max.into(),
            buffers_max: (self.limits.buffers_max as u32).into(),
            tms_max: self.tms_max.into(),
            operations_max: self.operations_max.into(),
            events_max: self.events_max.into(),
            arenas_max: self.arenas_max.into(),
            arena_bytes_max: self.arena_bytes_max.into(),
            now_ns: self.now_ns.into(),
        }
    }

    pub(crate) fn read(layout: &WelcomeLayout) -> Result<Welcome, ProtoError> {
        let version = layout.version.get();
        if version != VERSION {
            return Err(ProtoError::Version { min: version, max: version, own: VERSION });
        }
        let mut limits = Limits::LNET;
        limits.buffer_bytes_max = limits.buffer_bytes_max.min(layout.buffer_bytes_max.get() as usize);
        limits.segment_bytes_max = limits.segment_bytes_max.min(layout.segment_bytes_max.get() as usize);
        limits.segments_max = limits.segments_max.min(layout.segments_max.get() as usize);
        limits.messages_max = limits.messages_max.min(layout.messages_max.get());
        limits.buffers_max = limits.buffers_max.min(layout.buffers_max.get() as usize);
        Ok(Welcome {
            version,
            features: Features::from_bits_truncate(layout.features.get()),
            client: layout.client.get(),
            limits,
            tms_max: layout.tms_max.get(),
            operations_max: layout.operations_max.get(),
            events_max: layout.events_max.get(),
            arenas_max: layout.arenas_max.get(),
            arena_bytes_max: layout.arena_bytes_max.get(),
            now_ns: layout.now_ns.get(),
        })
    }
}
