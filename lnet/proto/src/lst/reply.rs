//! Replies (lst 5.2).

use static_assertions::const_assert_eq;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::stat::RawStatistics;
use super::{Features, Head, LstService, MESSAGE_LEN, Name, PING_MAGIC, RawHead, RawSid, SessionId};
use super::{Statistics, VERSION, body, emit};
use crate::{ByteOrder, ProtoError};

/// The answer to a [`super::Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Features of the node's session; of a data service, those of the request.
    pub features: Features,
    /// 0, or a positive errno.
    pub status: u32,
    /// The session that the node holds now; [`SessionId::NONE`] in replies of data services, which
    /// do not have it.
    pub sid: SessionId,
    /// The rest, by service.
    pub body: ReplyBody,
}

/// The part of a reply that depends on its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// To DEBUG: the session that the node is in.
    Debug {
        /// Seconds after which the session ends without an RPC.
        timeout_s: u32,
        /// 0; kernel nodes do not set it.
        batches: u32,
        /// The session's name.
        name: Name,
    },
    /// MKSN.
    MakeSession {
        /// Seconds after which the session ends without an RPC.
        timeout_s: u32,
        /// With EBUSY, the name of the session that is in the way.
        name: Name,
    },
    /// RMSN.
    RemoveSession,
    /// To BATCH: what a query found.
    Batch {
        /// Of a query, the number that still runs: test clients of the batch, or units of the test.
        active: u32,
        /// 0; kernel nodes do not set it.
        time: u32,
    },
    /// To TEST: only a status.
    Test,
    /// To STAT: the node's counters.
    Stat(Statistics),
    /// To JOIN: the session of the console.
    Join {
        /// Seconds after which the console ends the session without a command.
        timeout_s: u32,
        /// The session's name.
        name: Name,
    },
    /// To BRW: only a status.
    Brw,
    /// To PING: the number of the request.
    Ping {
        /// The number of the request.
        sequence: u32,
    },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFramework {
    status: U32,
    sid: RawSid,
}

/// MKSN and JOIN.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNamed {
    start: RawFramework,
    timeout_s: U32,
    name: [u8; 32],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDebug {
    start: RawFramework,
    timeout_s: U32,
    batches: U32,
    name: [u8; 32],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBatch {
    start: RawFramework,
    active: U32,
    time: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawStat {
    start: RawFramework,
    statistics: RawStatistics,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPing {
    status: U32,
    magic: U32,
    sequence: U32,
}

// The ends of the table in lst 5.2.
const HEAD: usize = size_of::<RawHead>();
const_assert_eq!(HEAD + size_of::<RawFramework>(), 44);
const_assert_eq!(HEAD + size_of::<RawNamed>(), 80);
const_assert_eq!(HEAD + size_of::<RawDebug>(), 84);
const_assert_eq!(HEAD + size_of::<RawBatch>(), 52);
const_assert_eq!(HEAD + size_of::<RawStat>(), MESSAGE_LEN);
const_assert_eq!(HEAD + size_of::<RawPing>(), 36);

impl Reply {
    /// Returns the service that it comes from.
    #[must_use]
    pub const fn service(&self) -> LstService {
        match self.body {
            ReplyBody::Debug { .. } => LstService::Debug,
            ReplyBody::MakeSession { .. } => LstService::MakeSession,
            ReplyBody::RemoveSession => LstService::RemoveSession,
            ReplyBody::Batch { .. } => LstService::Batch,
            ReplyBody::Test => LstService::Test,
            ReplyBody::Stat(_) => LstService::Stat,
            ReplyBody::Join { .. } => LstService::Join,
            ReplyBody::Brw => LstService::Brw,
            ReplyBody::Ping { .. } => LstService::Ping,
        }
    }

    /// Returns the number of bytes of the reply that have a meaning. Kernel nodes leave bytes of
    /// earlier replies behind.
    #[must_use]
    pub const fn length(service: LstService) -> usize {
        HEAD + match service {
            LstService::Debug => size_of::<RawDebug>(),
            LstService::MakeSession | LstService::Join => size_of::<RawNamed>(),
            LstService::RemoveSession | LstService::Test => size_of::<RawFramework>(),
            LstService::Batch => size_of::<RawBatch>(),
            LstService::Stat => size_of::<RawStat>(),
            LstService::Brw => size_of::<U32>(),
            LstService::Ping => size_of::<RawPing>(),
        }
    }

    /// Reads a reply of `service`.
    ///
    /// # Errors
    /// A length other than [`MESSAGE_LEN`] ([`ProtoError::Truncated`]), another magic number, also
    /// inside of a PING ([`ProtoError::Magic`]), another type than the service's
    /// ([`ProtoError::LstType`]), another version than [`VERSION`] ([`ProtoError::Version`]).
    pub fn parse(service: LstService, bytes: &[u8]) -> Result<Reply, ProtoError> {
        let (Head { order, version, features }, rest) = Head::parse(service.reply_type(), bytes)?;
        if version != VERSION {
            let object = super::OBJECT;
            return Err(ProtoError::Version { object, value: version, min: VERSION, max: VERSION });
        }
        let u32 = |raw: U32| order.u32(raw.get());
        let read = |start: &RawFramework, body| Reply::read(features, order, start, body);
        Ok(match service {
            LstService::Debug => {
                let raw: &RawDebug = body(rest)?;
                let (timeout_s, batches) = (u32(raw.timeout_s), u32(raw.batches));
                read(&raw.start, ReplyBody::Debug { timeout_s, batches, name: Name::received(raw.name) })
            }
            LstService::MakeSession => {
                let raw: &RawNamed = body(rest)?;
                let (timeout_s, name) = (u32(raw.timeout_s), Name::received(raw.name));
                read(&raw.start, ReplyBody::MakeSession { timeout_s, name })
            }
            LstService::Join => {
                let raw: &RawNamed = body(rest)?;
                let (timeout_s, name) = (u32(raw.timeout_s), Name::received(raw.name));
                read(&raw.start, ReplyBody::Join { timeout_s, name })
            }
            LstService::RemoveSession => read(body(rest)?, ReplyBody::RemoveSession),
            LstService::Test => read(body(rest)?, ReplyBody::Test),
            LstService::Batch => {
                let raw: &RawBatch = body(rest)?;
                read(&raw.start, ReplyBody::Batch { active: u32(raw.active), time: u32(raw.time) })
            }
            LstService::Stat => {
                let raw: &RawStat = body(rest)?;
                read(&raw.start, ReplyBody::Stat(raw.statistics.parse(order)))
            }
            LstService::Brw => {
                let status = u32(*body::<U32>(rest)?);
                Reply { features, status, sid: SessionId::NONE, body: ReplyBody::Brw }
            }
            LstService::Ping => {
                let raw: &RawPing = body(rest)?;
                let magic = u32(raw.magic);
                if magic != PING_MAGIC {
                    let object = "lst PING reply";
                    return Err(ProtoError::Magic { object, value: magic, expected: PING_MAGIC });
                }
                let body = ReplyBody::Ping { sequence: u32(raw.sequence) };
                Reply { features, status: u32(raw.status), sid: SessionId::NONE, body }
            }
        })
    }

    fn read(features: Features, order: ByteOrder, start: &RawFramework, body: ReplyBody) -> Reply {
        Reply { features, status: order.u32(start.status.get()), sid: start.sid.parse(order), body }
    }

    /// Returns the bytes of the reply, little-endian.
    #[must_use]
    pub fn emit(&self) -> [u8; MESSAGE_LEN] {
        let kind = self.service().reply_type();
        let status = U32::new(self.status);
        let start = RawFramework { status, sid: RawSid::new(self.sid) };
        let features = self.features;
        match self.body {
            ReplyBody::Debug { timeout_s, batches, name } => {
                let (timeout_s, batches) = (U32::new(timeout_s), U32::new(batches));
                emit(kind, VERSION, features, &RawDebug { start, timeout_s, batches, name: name.0 })
            }
            ReplyBody::MakeSession { timeout_s, name } | ReplyBody::Join { timeout_s, name } => {
                let raw = RawNamed { start, timeout_s: U32::new(timeout_s), name: name.0 };
                emit(kind, VERSION, features, &raw)
            }
            ReplyBody::RemoveSession | ReplyBody::Test => emit(kind, VERSION, features, &start),
            ReplyBody::Batch { active, time } => {
                let raw = RawBatch { start, active: U32::new(active), time: U32::new(time) };
                emit(kind, VERSION, features, &raw)
            }
            ReplyBody::Stat(statistics) => {
                let raw = RawStat { start, statistics: RawStatistics::new(&statistics) };
                emit(kind, VERSION, features, &raw)
            }
            ReplyBody::Brw => emit(kind, VERSION, features, &status),
            ReplyBody::Ping { sequence } => {
                let (magic, sequence) = (U32::new(PING_MAGIC), U32::new(sequence));
                emit(kind, VERSION, features, &RawPing { status, magic, sequence })
            }
        }
    }
}
