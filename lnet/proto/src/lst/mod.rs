//! The messages of LNet's self-test, `lst`: RPCs of 160 bytes between a console and test nodes, and
//! between test nodes (lst 2 to 8).
//!
//! A request is a PUT to the portal of its [`LstService`], with the service's number as match bits.
//! The reply is a PUT to [`REPLY_PORTAL`], with the match bits that the request names
//! ([`Request::reply_id`]). Bulk data go through the same portal, with the request's bulk id. Each
//! sender writes in its own byte order, which the magic number shows. This crate emits
//! little-endian only, because the reference swaps some fields incompletely (lst 2).
//!
//! Parsed forms keep numbers that a sender may have wrong, such as a direction or an opcode, as
//! they came: a test node answers them with an errno. Bytes behind the last field are zero in what
//! is emitted, and ignored in what is parsed: kernel nodes leave bytes of earlier replies there
//! (lst 3).
//!
//! ```
//! use lnet_proto::lst::{Features, LstService, Name, Request, RequestBody, SessionId};
//!
//! let sid = SessionId::new("10.77.0.2@tcp".parse()?, 344_984)?;
//! let body = RequestBody::MakeSession { sid, force: 0, name: Name::new("t391")? };
//! let request = Request::new(Features::BULK_LENGTH, 7, body);
//! let bytes = request.emit();
//! let (parsed, _) = Request::parse(LstService::MakeSession, &bytes)?;
//! assert_eq!(parsed, request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod reply;
mod request;
mod stat;

use std::fmt;
use std::mem::offset_of;
use std::ops::BitOr;

use lnet_nid::{MatchBits, Nid, Portal};
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::to_nid4;
use crate::{ByteOrder, ProtoError};

pub use reply::{Reply, ReplyBody};
pub use request::{BatchOp, Brw, BrwParameter, Check, Destinations, Direction, Request, RequestBody, Test};
pub use stat::{LnetCounters, Statistics};

/// Bytes of every request and every reply.
pub const MESSAGE_LEN: usize = 160;

/// Portal of requests to data services: BRW and PING.
pub const DATA_PORTAL: Portal = Portal::LST_DATA;

/// Portal of requests to framework services.
pub const FRAMEWORK_PORTAL: Portal = Portal::LST_FRAMEWORK;

/// Portal of replies and of bulk data.
pub const REPLY_PORTAL: Portal = Portal::LST_REPLY;

/// Version of the messages.
pub const VERSION: u32 = 1;

/// Most bytes of a BRW transfer.
pub const BULK_MAX: u32 = 1 << 20;

/// Most destinations of a TEST that a test node accepts (lst 6).
pub const DESTINATIONS_MAX: u32 = 87_296;

/// Most destinations of a TEST that a console sends: with more, and with 1,024 of them, kernel
/// nodes read a cut list or stop with an assertion (lst 13).
pub const DESTINATIONS_SAFE: u32 = 341;

/// Most RPCs that a test client has in flight to one destination.
pub const CONCURRENCY_MAX: u32 = 1024;

/// Bytes of a session's or group's name, with the NUL at its end.
pub const NAME_LEN: usize = 32;

const MAGIC: u32 = 0xeeb0_f00d;
const PING_MAGIC: u32 = 0xbabe_face;
const OBJECT: &str = "lst message";

/// A kind of RPC (lst 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum LstService {
    /// DEBUG: reports the session of a node, and keeps it alive.
    Debug = 0,
    /// MKSN: makes a session.
    MakeSession = 1,
    /// RMSN: removes a session.
    RemoveSession = 2,
    /// BATCH: runs, stops or queries a batch.
    Batch = 3,
    /// TEST: adds a test to a batch.
    Test = 4,
    /// STAT: reports counters.
    Stat = 5,
    /// JOIN: asks a console to take a node into a group.
    Join = 6,
    /// BRW: moves bulk data.
    Brw = 11,
    /// PING: a round trip.
    Ping = 12,
}

impl LstService {
    /// All services.
    pub const ALL: [LstService; 9] = [
        LstService::Debug,
        LstService::MakeSession,
        LstService::RemoveSession,
        LstService::Batch,
        LstService::Test,
        LstService::Stat,
        LstService::Join,
        LstService::Brw,
        LstService::Ping,
    ];

    /// Returns the service of a request with these match bits.
    #[must_use]
    pub fn of(bits: MatchBits) -> Option<LstService> {
        LstService::ALL.into_iter().find(|service| service.match_bits() == bits)
    }

    /// Returns the match bits of its requests: its number.
    #[must_use]
    pub const fn match_bits(self) -> MatchBits {
        MatchBits(self as u64)
    }

    /// Returns whether it is a data service, which PING and BRW are. The others are framework
    /// services.
    #[must_use]
    pub const fn is_data(self) -> bool {
        matches!(self, LstService::Brw | LstService::Ping)
    }

    /// Returns the portal of its requests.
    #[must_use]
    pub const fn portal(self) -> Portal {
        if self.is_data() { DATA_PORTAL } else { FRAMEWORK_PORTAL }
    }

    /// Returns the message type of its requests; that of its replies is one more.
    #[must_use]
    pub const fn request_type(self) -> u32 {
        match self {
            LstService::MakeSession => 0,
            LstService::RemoveSession => 2,
            LstService::Batch => 4,
            LstService::Stat => 6,
            LstService::Test => 8,
            LstService::Debug => 10,
            LstService::Brw => 12,
            LstService::Ping => 14,
            LstService::Join => 16,
        }
    }

    /// Returns the message type of its replies.
    #[must_use]
    pub const fn reply_type(self) -> u32 {
        self.request_type() + 1
    }

    /// Returns its short name in LNet.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LstService::Debug => "DEBUG",
            LstService::MakeSession => "MKSN",
            LstService::RemoveSession => "RMSN",
            LstService::Batch => "BATCH",
            LstService::Test => "TEST",
            LstService::Stat => "STAT",
            LstService::Join => "JOIN",
            LstService::Brw => "BRW",
            LstService::Ping => "PING",
        }
    }
}

impl fmt::Display for LstService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Features of a session, as a set of bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

impl Features {
    /// No feature.
    pub const NONE: Features = Features(0);
    /// TEST gives the length of BRW transfers in bytes; without this bit in pages. The only bit
    /// there is.
    pub const BULK_LENGTH: Features = Features(1);

    /// Returns whether all bits of `features` are set.
    #[must_use]
    pub const fn contains(self, features: Features) -> bool {
        self.0 & features.0 == features.0
    }

    /// Returns whether a bit is set that no release knows.
    #[must_use]
    pub const fn has_unknown(self) -> bool {
        self.0 & !Features::BULK_LENGTH.0 != 0
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Names a session: the console's NID and a stamp that the console chooses (lst 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// The console's NID in its 64-bit form, as it came; all ones in [`SessionId::NONE`].
    pub nid4: u64,
    /// Milliseconds of the console's clock; opaque to all others.
    pub stamp: i64,
}

impl SessionId {
    /// "No session".
    pub const NONE: SessionId = SessionId { nid4: u64::MAX, stamp: -1 };

    /// Creates the id of a session of this console.
    ///
    /// # Errors
    /// [`ProtoError::LargeNid`]: session ids have room for 4-byte addresses only (lst 14).
    pub fn new(nid: Nid, stamp: i64) -> Result<SessionId, ProtoError> {
        Ok(SessionId { nid4: to_nid4("console NID", nid)?, stamp })
    }

    /// Returns the console's NID, if it is one.
    #[must_use]
    pub fn nid(self) -> Option<Nid> {
        Nid::try_from_nid4(self.nid4).ok().filter(|nid| !nid.is_any())
    }

    /// Returns whether the NID is ANY, which no session has.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.nid4 == u64::MAX
    }
}

/// The name of a session or group: up to 31 bytes, without NUL.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; NAME_LEN]);

impl Name {
    /// No name.
    pub const EMPTY: Name = Name([0; NAME_LEN]);

    /// Creates a name.
    ///
    /// # Errors
    /// [`ProtoError::Parameter`] for more than 31 bytes, and for a NUL, which would end the name.
    pub fn new(text: &str) -> Result<Name, ProtoError> {
        let limit = NAME_LEN as u32 - 1;
        let (field, value) = match text.find('\0') {
            None => ("length of an lst name", text.len()),
            Some(at) => ("place of a NUL in an lst name", NAME_LEN + at),
        };
        if value > limit as usize {
            return Err(ProtoError::Parameter { field, value: value as u32, min: 0, limit });
        }
        let mut name = [0; NAME_LEN];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Name(name))
    }

    /// Returns the bytes of the name, up to the first NUL. They come from a peer, and may be no
    /// UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN - 1);
        &self.0[..end]
    }

    /// Returns the name in these received bytes, with zeros behind its end; its last byte is always
    /// NUL.
    fn received(mut bytes: [u8; NAME_LEN]) -> Name {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN - 1);
        bytes[end..].fill(0);
        Name(bytes)
    }
}

/// The name, with everything escaped that is no printable ASCII.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The first 24 bytes of every message.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: U32,
    version: U32,
    kind: U32,
    reserved: [U32; 2],
    features: U32,
}

const_assert_eq!(size_of::<RawHead>(), 24);
const_assert_eq!(offset_of!(RawHead, kind), 8);
const_assert_eq!(offset_of!(RawHead, features), 20);

/// The start of every message, decoded.
struct Head {
    order: ByteOrder,
    version: u32,
    features: Features,
}

impl Head {
    /// Reads the head of a message of this type; also returns the bytes behind it.
    fn parse(kind: u32, bytes: &[u8]) -> Result<(Head, &[u8]), ProtoError> {
        if bytes.len() != MESSAGE_LEN {
            let (length, needed) = (bytes.len(), MESSAGE_LEN);
            return Err(ProtoError::Truncated { object: OBJECT, length, needed });
        }
        let (raw, body) = RawHead::ref_from_prefix(bytes).map_err(|_| ProtoError::Truncated {
            object: OBJECT,
            length: bytes.len(),
            needed: size_of::<RawHead>(),
        })?;
        let magic = raw.magic.get();
        let order = ByteOrder::of_magic(magic.to_le_bytes(), MAGIC).ok_or(ProtoError::Magic {
            object: OBJECT,
            value: magic,
            expected: MAGIC,
        })?;
        let found = order.u32(raw.kind.get());
        if found != kind {
            return Err(ProtoError::LstType { value: found, wanted: kind });
        }
        let version = order.u32(raw.version.get());
        Ok((Head { order, version, features: Features(order.u32(raw.features.get())) }, body))
    }
}

/// Returns a message of this type with this body and zeros behind it.
fn emit(
    kind: u32,
    version: u32,
    features: Features,
    body: &(impl IntoBytes + Immutable),
) -> [u8; MESSAGE_LEN] {
    let head = RawHead {
        magic: U32::new(MAGIC),
        version: U32::new(version),
        kind: U32::new(kind),
        reserved: [U32::ZERO; 2],
        features: U32::new(features.0),
    };
    let mut message = [0; MESSAGE_LEN];
    let (first, rest) = message.split_at_mut(size_of::<RawHead>());
    first.copy_from_slice(head.as_bytes());
    rest[..body.as_bytes().len()].copy_from_slice(body.as_bytes());
    message
}

/// Returns the body at the start of `bytes`, which are the 136 bytes behind a head.
fn body<T: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> Result<&T, ProtoError> {
    let truncated = || ProtoError::Truncated { object: OBJECT, length: bytes.len(), needed: size_of::<T>() };
    Ok(T::ref_from_prefix(bytes).map_err(|_| truncated())?.0)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSid {
    nid: U64,
    stamp: I64,
}

const_assert_eq!(size_of::<RawSid>(), 16);

impl RawSid {
    fn new(sid: SessionId) -> RawSid {
        RawSid { nid: U64::new(sid.nid4), stamp: I64::new(sid.stamp) }
    }

    fn parse(self, order: ByteOrder) -> SessionId {
        let stamp = order.u64(self.stamp.get() as u64) as i64;
        SessionId { nid4: order.u64(self.nid.get()), stamp }
    }
}
