//! The layout of every message on the socket: the tables of `docs/driver-protocol.md`, in the same
//! order. The compiler checks sizes and offsets (MT-220).

use std::mem::offset_of;

use nlx_core::Nid;
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::NAME_MAX;

/// Defines structs of `size` bytes; the offset of each field is before its name.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($offset:literal $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const_assert_eq!(size_of::<$name>(), $size);
        $(const_assert_eq!(offset_of!($name, $field), $offset);)*
    )*};
}

layouts! {
    /// The body of a hello.
    HelloLayout: 56 {
        0 magic: [u8; 8],
        8 version_min: U16,
        10 version_max: U16,
        12 reserved: U32,
        16 features: U64,
        24 name: [u8; NAME_MAX],
    }

    /// The body of the reply to a hello.
    WelcomeLayout: 96 {
        0 version: U16,
        2 reserved: [U16; 3],
        8 features: U64,
        16 client: U64,
        24 buffer_bytes_max: U64,
        32 segment_bytes_max: U64,
        40 segments_max: U32,
        44 descriptor_bytes_max: U32,
        48 messages_max: U32,
        52 buffers_max: U32,
        56 tms_max: U32,
        60 operations_max: U32,
        64 events_max: U32,
        68 arenas_max: U32,
        72 bytes_max: U64,
        80 now_ns: U64,
        88 arena_bytes_max: U64,
    }

    /// The body of a request for an arena.
    CreateArenaLayout: 16 {
        0 bytes: U64,
        8 huge: U32,
        12 near: U32,
    }

    /// The body of a request to release an arena.
    ReleaseArenaLayout: 8 {
        0 arena: U32,
        4 reserved: U32,
    }

    /// The body of a registration, before its segments.
    RegisterLayout: 16 {
        0 buffer: U64,
        8 count: U32,
        12 reserved: U32,
    }

    /// A segment of a registration.
    SegmentLayout: 24 {
        0 arena: U32,
        4 reserved: U32,
        8 offset: U64,
        16 length: U64,
    }

    /// An address; in a start request its id is 0 for any.
    AddressLayout: 32 {
        0 nid: [u8; Nid::WIRE_LEN],
        20 pid: U32,
        24 portal: U32,
        28 tmid: U32,
    }

    /// The body of a start request.
    StartTmLayout: 40 {
        0 address: AddressLayout,
        32 events_max: U32,
        36 lazy: U32,
    }

    /// The body of a request whose only field is a transfer machine.
    TmLayout: 8 {
        0 tm: U64,
    }

    /// The outcome, which follows the header of every reply.
    OutcomeLayout: 24 {
        0 status: I32,
        4 reason: U32,
        8 value: U64,
        16 limit: U64,
    }

    /// The body of the reply with an arena.
    ArenaLayout: 16 {
        0 arena: U32,
        4 huge: U32,
        8 bytes: U64,
    }

    /// The body of the reply with a started transfer machine.
    StartedLayout: 48 {
        0 tm: U64,
        8 address: AddressLayout,
        40 near: U32,
        44 reserved: U32,
    }
}
