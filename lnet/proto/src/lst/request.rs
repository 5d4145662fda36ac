//! Requests (lst 5.1).

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use lnet_nid::{Nid, Pid, ProcessId};

use super::{Features, Head, LstService, MESSAGE_LEN, Name, PING_MAGIC, RawHead, RawSid, SessionId, VERSION};
use super::{body, emit};
use crate::error::{nid4, to_nid4};
use crate::{ByteOrder, ProtoError};

/// A request of LNet's self-test, from a console or from a test client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Version of the message; a node answers another one than [`VERSION`] with EPROTO.
    pub version: u32,
    /// Features of the session; of a MKSN, those asked for.
    pub features: Features,
    /// Match bits of the reply.
    pub reply_id: u64,
    /// The rest, by service.
    pub body: RequestBody,
}

/// The part of a request that depends on its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// DEBUG: asks for the node's session.
    Debug {
        /// The sender's session; nodes ignore it.
        sid: SessionId,
        /// Always 0.
        flags: u32,
    },
    /// MKSN.
    MakeSession {
        /// The session to be made.
        sid: SessionId,
        /// 1 to end another console's session first, else 0.
        force: u32,
        /// The name of the session to be made.
        name: Name,
    },
    /// RMSN.
    RemoveSession {
        /// The session to be ended.
        sid: SessionId,
    },
    /// BATCH: runs, stops or queries a batch.
    Batch {
        /// The session that has the batch.
        sid: SessionId,
        /// The batch, by the console's number.
        batch: u64,
        /// Run, stop, or query.
        op: BatchOp,
        /// Of a query, the node's test counted from 1; 0 is the whole batch.
        test: u32,
        /// Of RUN the console's timeout, of STOP 1 to abort RPCs in flight, of QUERY 0.
        argument: u32,
    },
    /// TEST: adds a server or a client to a batch.
    Test(Test),
    /// STAT: asks for the node's counters.
    Stat {
        /// The session that the node is in.
        sid: SessionId,
        /// Always 0.
        kind: u32,
    },
    /// JOIN: asks a console to take the sender into a group.
    Join {
        /// The console's session, or [`SessionId::NONE`] for whichever it holds.
        sid: SessionId,
        /// The group to join.
        group: Name,
    },
    /// BRW: a transfer of a test, in bulk.
    Brw(Brw),
    /// PING: a round trip of a test.
    Ping {
        /// A number that the reply repeats.
        sequence: u32,
        /// The sender's wall clock, for its log.
        seconds: u64,
        /// The rest of it.
        nanoseconds: u64,
    },
}

/// The operation of a BATCH request; other numbers than the three are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchOp(pub u32);

impl BatchOp {
    /// Starts the node's test clients.
    pub const RUN: BatchOp = BatchOp(1);
    /// Stops them.
    pub const STOP: BatchOp = BatchOp(2);
    /// Asks how many still run.
    pub const QUERY: BatchOp = BatchOp(3);
}

/// The direction of a BRW transfer; other numbers than the two are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction(pub u32);

impl Direction {
    /// From server to client.
    pub const READ: Direction = Direction(1);
    /// From client to server.
    pub const WRITE: Direction = Direction(2);
}

/// The check of bulk data; other numbers than the four are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Check(pub u32);

impl Check {
    /// Not at all.
    pub const NONE: Check = Check(1);
    /// The first and last eight bytes of each page.
    pub const SIMPLE: Check = Check(2);
    /// Every byte.
    pub const FULL: Check = Check(3);
    /// Not at all, and the receiver may discard the data (since after 2.17.57; lst 13).
    pub const DISCARD: Check = Check(4);
}

/// A TEST request: adds a server or a client to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Match bits of the list of destinations, which a client fetches; 0 for a server.
    pub bulk_id: u64,
    /// The session that has the batch.
    pub sid: SessionId,
    /// The batch; a number that is new to the node makes one.
    pub batch: u64,
    /// The number of the tested service: BRW or PING.
    pub service: u32,
    /// RPCs of each unit, without end if it is `u32::MAX`; for a server the RPCs to expect at once.
    pub repeats: u32,
    /// Units for each destination.
    pub concurrency: u32,
    /// True to add a client, false to add the server.
    pub is_client: bool,
    /// True if a unit stops after an error.
    pub stop_on_error: bool,
    /// Number of destinations; 0 for a server.
    pub destinations: u32,
    /// Parameters of the tested service, in the order of [`Test::brw`].
    pub parameter: [u8; PARAMETER_LEN],
}

/// Bytes of a test's parameters.
const PARAMETER_LEN: usize = 12;

/// Parameters of a BRW test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrwParameter {
    /// Which way the data move.
    pub direction: Direction,
    /// The check of the bulk data.
    pub check: Check,
    /// Bytes of each transfer; without [`Features::BULK_LENGTH`] in pages.
    pub length: u32,
    /// Where the client's buffer begins in its first page; 0 without [`Features::BULK_LENGTH`].
    pub offset: u32,
}

/// A BRW request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brw {
    /// Match bits of the data.
    pub bulk_id: u64,
    /// Which way they move.
    pub direction: Direction,
    /// Their bytes.
    pub length: u32,
    /// The check of the bulk data.
    pub check: Check,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDebug {
    reply_id: U64,
    sid: RawSid,
    word: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMakeSession {
    reply_id: U64,
    sid: RawSid,
    force: U32,
    name: [u8; 32],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRemoveSession {
    reply_id: U64,
    sid: RawSid,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawJoin {
    reply_id: U64,
    sid: RawSid,
    group: [u8; 32],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBatch {
    reply_id: U64,
    sid: RawSid,
    batch: U64,
    op: U32,
    test: U32,
    argument: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTest {
    reply_id: U64,
    bulk_id: U64,
    sid: RawSid,
    batch: U64,
    service: U32,
    repeats: U32,
    concurrency: U32,
    is_client: u8,
    stop_on_error: u8,
    destinations: U32,
    parameter: [u8; PARAMETER_LEN],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBrw {
    reply_id: U64,
    bulk_id: U64,
    direction: U32,
    length: U32,
    check: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPing {
    reply_id: U64,
    magic: U32,
    sequence: U32,
    seconds: U64,
    nanoseconds: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBrwParameter {
    direction: U16,
    check: U16,
    length: U32,
    offset: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPagesParameter {
    direction: U32,
    pages: U32,
    check: U32,
}

// The ends of the table in lst 5.1.
const HEAD: usize = size_of::<RawHead>();
const_assert_eq!(HEAD + size_of::<RawMakeSession>(), 84);
const_assert_eq!(HEAD + size_of::<RawRemoveSession>(), 48);
const_assert_eq!(HEAD + size_of::<RawDebug>(), 52);
const_assert_eq!(HEAD + size_of::<RawJoin>(), 80);
const_assert_eq!(HEAD + size_of::<RawBatch>(), 68);
const_assert_eq!(HEAD + size_of::<RawTest>(), 94);
const_assert_eq!(HEAD + size_of::<RawBrw>(), 52);
const_assert_eq!(HEAD + size_of::<RawPing>(), 56);
const_assert_eq!(HEAD + std::mem::offset_of!(RawTest, destinations), 78);
const_assert_eq!(size_of::<RawBrwParameter>(), PARAMETER_LEN);
const_assert_eq!(size_of::<RawPagesParameter>(), PARAMETER_LEN);

impl Request {
    /// Creates a request of the version that all nodes speak.
    #[must_use]
    pub const fn new(features: Features, reply_id: u64, body: RequestBody) -> Request {
        Request { version: VERSION, features, reply_id, body }
    }

    /// Returns the service that it goes to.
    #[must_use]
    pub const fn service(&self) -> LstService {
        match self.body {
            RequestBody::Debug { .. } => LstService::Debug,
            RequestBody::MakeSession { .. } => LstService::MakeSession,
            RequestBody::RemoveSession { .. } => LstService::RemoveSession,
            RequestBody::Batch { .. } => LstService::Batch,
            RequestBody::Test(_) => LstService::Test,
            RequestBody::Stat { .. } => LstService::Stat,
            RequestBody::Join { .. } => LstService::Join,
            RequestBody::Brw(_) => LstService::Brw,
            RequestBody::Ping { .. } => LstService::Ping,
        }
    }

    /// Reads a request that came to `service`, and the byte order of its sender: lists of
    /// destinations and bulk data have the same.
    ///
    /// # Errors
    /// The cases that a node does not answer (lst 6, row 1; lst 7.1): a length other than
    /// [`MESSAGE_LEN`] ([`ProtoError::Truncated`]), another magic number ([`ProtoError::Magic`]),
    /// another type than the service's ([`ProtoError::LstType`]).
    pub fn parse(service: LstService, bytes: &[u8]) -> Result<(Request, ByteOrder), ProtoError> {
        let (Head { order, version, features }, rest) = Head::parse(service.request_type(), bytes)?;
        let (u32, u64) = (|raw: U32| order.u32(raw.get()), |raw: U64| order.u64(raw.get()));
        let (reply_id, body) = match service {
            LstService::Debug => {
                let raw: &RawDebug = body(rest)?;
                (raw.reply_id, RequestBody::Debug { sid: raw.sid.parse(order), flags: u32(raw.word) })
            }
            LstService::Stat => {
                let raw: &RawDebug = body(rest)?;
                (raw.reply_id, RequestBody::Stat { sid: raw.sid.parse(order), kind: u32(raw.word) })
            }
            LstService::MakeSession => {
                let raw: &RawMakeSession = body(rest)?;
                let (sid, force, name) = (raw.sid.parse(order), u32(raw.force), Name::received(raw.name));
                (raw.reply_id, RequestBody::MakeSession { sid, force, name })
            }
            LstService::RemoveSession => {
                let raw: &RawRemoveSession = body(rest)?;
                (raw.reply_id, RequestBody::RemoveSession { sid: raw.sid.parse(order) })
            }
            LstService::Join => {
                let raw: &RawJoin = body(rest)?;
                let (sid, group) = (raw.sid.parse(order), Name::received(raw.group));
                (raw.reply_id, RequestBody::Join { sid, group })
            }
            LstService::Batch => {
                let raw: &RawBatch = body(rest)?;
                let (sid, batch, op) = (raw.sid.parse(order), u64(raw.batch), BatchOp(u32(raw.op)));
                let (test, argument) = (u32(raw.test), u32(raw.argument));
                (raw.reply_id, RequestBody::Batch { sid, batch, op, test, argument })
            }
            LstService::Test => {
                let raw: &RawTest = body(rest)?;
                (raw.reply_id, RequestBody::Test(raw.parse(order, features)))
            }
            LstService::Brw => {
                let raw: &RawBrw = body(rest)?;
                let brw = Brw {
                    bulk_id: u64(raw.bulk_id),
                    direction: Direction(u32(raw.direction)),
                    length: u32(raw.length),
                    check: Check(u32(raw.check)),
                };
                (raw.reply_id, RequestBody::Brw(brw))
            }
            LstService::Ping => {
                let raw: &RawPing = body(rest)?;
                let magic = u32(raw.magic);
                if magic != PING_MAGIC {
                    let object = "lst PING";
                    return Err(ProtoError::Magic { object, value: magic, expected: PING_MAGIC });
                }
                let sequence = u32(raw.sequence);
                let (seconds, nanoseconds) = (u64(raw.seconds), u64(raw.nanoseconds));
                (raw.reply_id, RequestBody::Ping { sequence, seconds, nanoseconds })
            }
        };
        Ok((Request { version, features, reply_id: u64(reply_id), body }, order))
    }

    /// Returns the bytes of the request, little-endian.
    #[must_use]
    pub fn emit(&self) -> [u8; MESSAGE_LEN] {
        let kind = self.service().request_type();
        let reply_id = U64::new(self.reply_id);
        let (version, features) = (self.version, self.features);
        match self.body {
            RequestBody::Debug { sid, flags: word } | RequestBody::Stat { sid, kind: word } => {
                let raw = RawDebug { reply_id, sid: RawSid::new(sid), word: U32::new(word) };
                emit(kind, version, features, &raw)
            }
            RequestBody::MakeSession { sid, force, name } => {
                let (sid, force) = (RawSid::new(sid), U32::new(force));
                emit(kind, version, features, &RawMakeSession { reply_id, sid, force, name: name.0 })
            }
            RequestBody::RemoveSession { sid } => {
                emit(kind, version, features, &RawRemoveSession { reply_id, sid: RawSid::new(sid) })
            }
            RequestBody::Join { sid, group } => {
                let raw = RawJoin { reply_id, sid: RawSid::new(sid), group: group.0 };
                emit(kind, version, features, &raw)
            }
            RequestBody::Batch { sid, batch, op, test, argument } => {
                let (sid, batch, op) = (RawSid::new(sid), U64::new(batch), U32::new(op.0));
                let (test, argument) = (U32::new(test), U32::new(argument));
                emit(kind, version, features, &RawBatch { reply_id, sid, batch, op, test, argument })
            }
            RequestBody::Test(test) => emit(kind, version, features, &RawTest::new(reply_id, &test)),
            RequestBody::Brw(brw) => {
                let raw = RawBrw {
                    reply_id,
                    bulk_id: U64::new(brw.bulk_id),
                    direction: U32::new(brw.direction.0),
                    length: U32::new(brw.length),
                    check: U32::new(brw.check.0),
                };
                emit(kind, version, features, &raw)
            }
            RequestBody::Ping { sequence, seconds, nanoseconds } => {
                let (magic, sequence) = (U32::new(PING_MAGIC), U32::new(sequence));
                let (seconds, nanoseconds) = (U64::new(seconds), U64::new(nanoseconds));
                let raw = RawPing { reply_id, magic, sequence, seconds, nanoseconds };
                emit(kind, version, features, &raw)
            }
        }
    }
}

impl RawTest {
    fn new(reply_id: U64, test: &Test) -> RawTest {
        RawTest {
            reply_id,
            bulk_id: U64::new(test.bulk_id),
            sid: RawSid::new(test.sid),
            batch: U64::new(test.batch),
            service: U32::new(test.service),
            repeats: U32::new(test.repeats),
            concurrency: U32::new(test.concurrency),
            is_client: test.is_client.into(),
            stop_on_error: test.stop_on_error.into(),
            destinations: U32::new(test.destinations),
            parameter: test.parameter,
        }
    }

    /// The parameters become little-endian, too: their layout depends on the features.
    fn parse(&self, order: ByteOrder, features: Features) -> Test {
        Test {
            bulk_id: order.u64(self.bulk_id.get()),
            sid: self.sid.parse(order),
            batch: order.u64(self.batch.get()),
            service: order.u32(self.service.get()),
            repeats: order.u32(self.repeats.get()),
            concurrency: order.u32(self.concurrency.get()),
            is_client: self.is_client != 0,
            stop_on_error: self.stop_on_error != 0,
            destinations: order.u32(self.destinations.get()),
            parameter: match order {
                ByteOrder::Little => self.parameter,
                ByteOrder::Big => swapped(self.parameter, features),
            },
        }
    }
}

/// Returns the parameters with the bytes of each field reversed.
fn swapped(mut parameter: [u8; PARAMETER_LEN], features: Features) -> [u8; PARAMETER_LEN] {
    let fields: &[usize] = if features.contains(Features::BULK_LENGTH) { &[2, 2, 4, 4] } else { &[4, 4, 4] };
    let mut rest = &mut parameter[..];
    for &length in fields {
        let (field, behind) = rest.split_at_mut(length);
        field.reverse();
        rest = behind;
    }
    parameter
}

impl Test {
    /// Returns the parameters of a BRW test in a session of these features.
    #[must_use]
    pub fn brw(&self, features: Features) -> BrwParameter {
        if features.contains(Features::BULK_LENGTH) {
            let raw: RawBrwParameter = zerocopy::transmute!(self.parameter);
            let direction = Direction(raw.direction.get().into());
            let check = Check(raw.check.get().into());
            BrwParameter { direction, check, length: raw.length.get(), offset: raw.offset.get() }
        } else {
            let raw: RawPagesParameter = zerocopy::transmute!(self.parameter);
            let (direction, check) = (Direction(raw.direction.get()), Check(raw.check.get()));
            BrwParameter { direction, check, length: raw.pages.get(), offset: 0 }
        }
    }

    /// Returns the same test with these parameters of BRW, in a session of these features.
    ///
    /// # Errors
    /// [`ProtoError::Parameter`]: a direction or check above 65,535 has no room beside
    /// [`Features::BULK_LENGTH`].
    pub fn with_brw(mut self, brw: &BrwParameter, features: Features) -> Result<Test, ProtoError> {
        self.parameter = if features.contains(Features::BULK_LENGTH) {
            let narrow = |field, value: u32| {
                let limit = u16::MAX;
                let short = u16::try_from(value).ok();
                short.ok_or(ProtoError::Parameter { field, value, min: 0, limit: limit.into() })
            };
            let raw = RawBrwParameter {
                direction: U16::new(narrow("direction of a BRW test", brw.direction.0)?),
                check: U16::new(narrow("check of a BRW test", brw.check.0)?),
                length: U32::new(brw.length),
                offset: U32::new(brw.offset),
            };
            zerocopy::transmute!(raw)
        } else {
            let raw = RawPagesParameter {
                direction: U32::new(brw.direction.0),
                pages: U32::new(brw.length),
                check: U32::new(brw.check.0),
            };
            zerocopy::transmute!(raw)
        };
        Ok(self)
    }
}

/// The list of a test client's destinations: 12 bytes for each, in the console's byte order (lst
/// 6).
#[derive(Clone, Copy, Debug)]
pub struct Destinations<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDestination {
    nid: U64,
    pid: U32,
}

const_assert_eq!(size_of::<RawDestination>(), Destinations::LEN);

impl<'a> Destinations<'a> {
    /// Bytes of one destination.
    pub const LEN: usize = 12;

    /// Creates a list from the bytes fetched from a console of this byte order. Bytes behind the
    /// last whole entry are ignored.
    #[must_use]
    pub const fn new(bytes: &'a [u8], order: ByteOrder) -> Destinations<'a> {
        Destinations { bytes, order }
    }

    /// Returns the destinations.
    ///
    /// # Errors
    /// Each entry: [`ProtoError::Nid`] for a number that is no NID, [`ProtoError::NotInterface`]
    /// for ANY, which no message can be sent to.
    pub fn iter(&self) -> impl Iterator<Item = Result<ProcessId, ProtoError>> + use<'a> {
        let order = self.order;
        self.bytes.chunks_exact(Destinations::LEN).map(move |bytes| {
            let raw: &RawDestination = body(bytes)?;
            let nid = nid4("destination", order.u64(raw.nid.get()))?;
            if nid.is_any() {
                return Err(ProtoError::NotInterface { field: "destination", nid });
            }
            Ok(ProcessId::new(nid, Pid(order.u32(raw.pid.get()))))
        })
    }

    /// Returns the entry of a destination.
    ///
    /// # Errors
    /// [`ProtoError::LargeNid`]: the list has room for 4-byte addresses only (lst 14).
    pub fn emit(nid: Nid, pid: Pid) -> Result<[u8; Destinations::LEN], ProtoError> {
        let raw = RawDestination { nid: U64::new(to_nid4("destination", nid)?), pid: U32::new(pid.0) };
        Ok(zerocopy::transmute!(raw))
    }
}
