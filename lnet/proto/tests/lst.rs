//! The messages of `lst`: as kernel nodes were recorded, from both byte orders, and from hostile
//! senders.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Item, all_streams, flip};
use lnet_nid::{MatchBits, Pid, Portal};
use lnet_proto::lst::{
    BULK_MAX, BatchOp, Brw, BrwParameter, Check, DATA_PORTAL, Destinations, Direction, FRAMEWORK_PORTAL,
    Features, LnetCounters, LstService, MESSAGE_LEN, Name, REPLY_PORTAL, Reply, ReplyBody, Request,
    RequestBody, SessionId, Statistics, Test, VERSION,
};
use lnet_proto::{Body, ByteOrder, Header, ProtoError};
use proptest::prelude::*;

/// A recorded PUT of 160 bytes to a portal of `lst`.
struct Recorded {
    connection: String,
    portal: Portal,
    bits: MatchBits,
    payload: Vec<u8>,
}

fn recorded() -> Vec<Recorded> {
    let mut found = Vec::new();
    for stream in all_streams() {
        let file = stream.name.split(' ').next().unwrap().to_string();
        for item in &stream.items {
            let Item::Lnet(lnet) = item else { continue };
            let header = match lnet.header.len() {
                Header::LEN => Header::parse(common::array(&lnet.header)),
                _ => Header::parse_large(common::array(&lnet.header)),
            };
            let Ok(Header { body: Body::Put { match_bits, portal, .. }, .. }) = header else { continue };
            let portal = Portal::new(portal).unwrap();
            let Some(payload) = lnet.payload.clone().filter(|payload| payload.len() == MESSAGE_LEN) else {
                continue;
            };
            if [DATA_PORTAL, FRAMEWORK_PORTAL, REPLY_PORTAL].contains(&portal) {
                found.push(Recorded { connection: file.clone(), portal, bits: match_bits, payload });
            }
        }
    }
    found
}

/// Each recorded request is emitted as the same bytes, each reply as far as its bytes have a
/// meaning; and a reply goes to the match bits that a request named.
#[test]
fn recorded_messages_are_read_and_written_back() {
    let mut seen = BTreeSet::new();
    let mut asked: BTreeMap<(String, u64), LstService> = BTreeMap::new();
    let all = recorded();
    for Recorded { connection, portal, bits, payload } in
        all.iter().filter(|found| found.portal != REPLY_PORTAL)
    {
        let service = LstService::of(*bits).unwrap();
        assert_eq!(service.portal(), *portal);
        let (request, order) = Request::parse(service, payload).unwrap();
        assert_eq!((request.service(), order, request.version), (service, ByteOrder::Little, VERSION));
        assert_eq!(request.emit()[..], payload[..], "{service} of {connection}");
        asked.insert((connection.clone(), request.reply_id), service);
        seen.insert((service, "request"));
    }
    for Recorded { connection, bits, payload, .. } in all.iter().filter(|found| found.portal == REPLY_PORTAL)
    {
        let service = asked[&(connection.clone(), bits.0)];
        let reply = Reply::parse(service, payload).unwrap();
        assert_eq!(reply.service(), service);
        let length = Reply::length(service);
        assert_eq!(reply.emit()[..length], payload[..length], "{service} of {connection}");
        seen.insert((service, "reply"));
    }
    let expected = LstService::ALL.into_iter().filter(|service| *service != LstService::Join);
    assert_eq!(seen, expected.flat_map(|service| [(service, "request"), (service, "reply")]).collect());
}

/// The recording of a ping test has the meaning that the specification gives it.
#[test]
fn a_recorded_ping_test_is_understood() {
    let session = SessionId::new("10.77.0.2@tcp".parse().unwrap(), 344_984).unwrap();
    let ping = recorded().into_iter().filter(|found| found.connection.contains("tcp-lst-ping"));
    let (replies, requests): (Vec<_>, Vec<_>) = ping.partition(|found| found.portal == REPLY_PORTAL);
    let requests =
        requests.iter().map(|found| Request::parse(LstService::of(found.bits).unwrap(), &found.payload));
    let requests: Vec<Request> = requests.map(|parsed| parsed.unwrap().0).collect();
    let services: Vec<LstService> = requests.iter().map(Request::service).collect();
    assert_eq!(
        services,
        [
            LstService::MakeSession,
            LstService::Test,
            LstService::Ping,
            LstService::Ping,
            LstService::Stat,
            LstService::RemoveSession
        ]
    );
    assert!(requests.iter().all(|request| request.features == Features::BULK_LENGTH));
    let RequestBody::MakeSession { sid, force: 0, name } = requests[0].body else {
        panic!("{:?}", requests[0])
    };
    assert_eq!((sid, name.to_string()), (session, "t391".to_string()));
    let RequestBody::Test(test) = requests[1].body else { panic!("{:?}", requests[1]) };
    assert_eq!((test.service, test.repeats, test.concurrency, test.destinations), (12, 1, 1, 0));
    assert_eq!((test.is_client, test.stop_on_error, test.bulk_id, test.batch), (false, true, 0, 2));
    for (number, request) in requests[2..4].iter().enumerate() {
        assert!(matches!(request.body, RequestBody::Ping { sequence, .. } if sequence as usize == number));
    }
    let replies: Vec<Reply> = requests
        .iter()
        .map(|request| {
            let to = |found: &&Recorded| found.bits.0 == request.reply_id;
            Reply::parse(request.service(), &replies.iter().find(to).unwrap().payload).unwrap()
        })
        .collect();
    assert!(replies.iter().all(|reply| reply.status == 0));
    assert!(matches!(replies[0].body, ReplyBody::MakeSession { timeout_s: 100, name: Name::EMPTY }));
    assert_eq!((replies[1].sid, replies[5].sid), (session, SessionId::NONE));
    assert!(matches!(replies[3].body, ReplyBody::Ping { sequence: 1 }));
}

#[test]
fn the_parameters_of_recorded_bulk_tests_are_understood() {
    let bulk = recorded().into_iter().filter(|found| found.bits == LstService::Brw.match_bits());
    let files = ["tcp-lst-read.json", "tcp-lst-write.json"];
    let bulk = bulk.filter(|found| found.portal == DATA_PORTAL && files.contains(&&found.connection[..]));
    let mut directions = BTreeMap::new();
    for found in bulk {
        let (request, _) = Request::parse(LstService::Brw, &found.payload).unwrap();
        let RequestBody::Brw(brw) = request.body else { panic!("{request:?}") };
        assert_eq!((brw.length, brw.check), (BULK_MAX, Check::SIMPLE));
        assert_eq!(brw.bulk_id, request.reply_id + 1, "the reply id is taken first");
        *directions.entry(brw.direction.0).or_insert(0) += 1;
    }
    assert_eq!(directions.keys().copied().collect::<Vec<_>>(), [Direction::READ.0, Direction::WRITE.0]);
}

const LITTLE: ByteOrder = ByteOrder::Little;

fn test() -> Test {
    Test {
        bulk_id: 2,
        sid: SessionId { nid4: 3, stamp: 4 },
        batch: 5,
        service: 11,
        repeats: 6,
        concurrency: 7,
        is_client: true,
        stop_on_error: false,
        destinations: 8,
        parameter: [0; 12],
    }
}

/// The lengths of the fields behind the 24 bytes of the head; single bytes and texts are below 0.
fn fields(service: LstService) -> &'static [isize] {
    match service {
        LstService::Debug | LstService::Stat => &[8, 8, 8, 4],
        LstService::MakeSession => &[8, 8, 8, 4, -32],
        LstService::RemoveSession => &[8, 8, 8],
        LstService::Batch => &[8, 8, 8, 8, 4, 4, 4],
        LstService::Test => &[8, 8, 8, 8, 8, 4, 4, 4, -1, -1, 4, 2, 2, 4, 4],
        LstService::Join => &[8, 8, 8, -32],
        LstService::Brw => &[8, 8, 4, 4, 4],
        LstService::Ping => &[8, 4, 4, 8, 8],
    }
}

/// The same message from a big-endian node.
fn flipped(mut message: [u8; MESSAGE_LEN], fields: &[isize]) -> [u8; MESSAGE_LEN] {
    let end = 24 + fields.iter().map(|length| length.unsigned_abs()).sum::<usize>();
    flip(&mut message[..end], &[&[4, 4, 4, 4, 4, 4], fields].concat());
    message
}

fn sids() -> impl Strategy<Value = SessionId> {
    (any::<u64>(), any::<i64>()).prop_map(|(nid4, stamp)| SessionId { nid4, stamp })
}

fn names() -> impl Strategy<Value = Name> {
    "[ -~]{0,31}".prop_map(|text| Name::new(&text).unwrap())
}

fn tests() -> impl Strategy<Value = Test> {
    let numbers = (any::<u64>(), any::<u64>(), any::<[u32; 4]>(), any::<[bool; 2]>(), any::<[u8; 12]>());
    (sids(), numbers).prop_map(
        |(sid, (bulk_id, batch, [service, repeats, concurrency, destinations], flags, parameter))| {
            let [is_client, stop_on_error] = flags;
            Test {
                bulk_id,
                sid,
                batch,
                service,
                repeats,
                concurrency,
                is_client,
                stop_on_error,
                destinations,
                parameter,
            }
        },
    )
}

fn bodies() -> impl Strategy<Value = RequestBody> {
    prop_oneof![
        (sids(), any::<u32>()).prop_map(|(sid, flags)| RequestBody::Debug { sid, flags }),
        (sids(), any::<u32>(), names()).prop_map(|(sid, force, name)| RequestBody::MakeSession {
            sid,
            force,
            name
        }),
        sids().prop_map(|sid| RequestBody::RemoveSession { sid }),
        (sids(), any::<u64>(), any::<[u32; 3]>()).prop_map(|(sid, batch, [op, test, argument])| {
            RequestBody::Batch { sid, batch, op: BatchOp(op), test, argument }
        }),
        tests().prop_map(RequestBody::Test),
        (sids(), any::<u32>()).prop_map(|(sid, kind)| RequestBody::Stat { sid, kind }),
        (sids(), names()).prop_map(|(sid, group)| RequestBody::Join { sid, group }),
        (any::<u64>(), any::<[u32; 3]>()).prop_map(|(bulk_id, [direction, length, check])| {
            RequestBody::Brw(Brw { bulk_id, direction: Direction(direction), length, check: Check(check) })
        }),
        (any::<u32>(), any::<[u64; 2]>()).prop_map(|(sequence, [seconds, nanoseconds])| {
            RequestBody::Ping { sequence, seconds, nanoseconds }
        }),
    ]
}

fn statistics() -> impl Strategy<Value = Statistics> {
    (any::<[u32; 10]>(), any::<[u64; 2]>(), any::<[u32; 7]>(), any::<[u64; 4]>()).prop_map(|(a, b, c, d)| {
        Statistics {
            session_ms: a[0],
            active_batches: a[1],
            zombie_sessions: a[2],
            brw_errors: a[3],
            ping_errors: a[4],
            rpc_errors: a[5],
            rpcs_sent: a[6],
            rpcs_received: a[7],
            rpcs_dropped: a[8],
            rpcs_expired: a[9],
            bulk_got: b[0],
            bulk_put: b[1],
            lnet: LnetCounters {
                messages: c[0],
                messages_max: c[1],
                errors: c[2],
                sent: c[3],
                received: c[4],
                routed: c[5],
                dropped: c[6],
                bytes_sent: d[0],
                bytes_received: d[1],
                bytes_routed: d[2],
                bytes_dropped: d[3],
            },
        }
    })
}

fn replies() -> impl Strategy<Value = Reply> {
    let bodies = prop_oneof![
        (any::<[u32; 2]>(), names()).prop_map(|([timeout_s, batches], name)| ReplyBody::Debug {
            timeout_s,
            batches,
            name
        }),
        (any::<u32>(), names()).prop_map(|(timeout_s, name)| ReplyBody::MakeSession { timeout_s, name }),
        Just(ReplyBody::RemoveSession),
        any::<[u32; 2]>().prop_map(|[active, time]| ReplyBody::Batch { active, time }),
        Just(ReplyBody::Test),
        statistics().prop_map(ReplyBody::Stat),
        (any::<u32>(), names()).prop_map(|(timeout_s, name)| ReplyBody::Join { timeout_s, name }),
        Just(ReplyBody::Brw),
        any::<u32>().prop_map(|sequence| ReplyBody::Ping { sequence }),
    ];
    (any::<u32>(), any::<u32>(), sids(), bodies).prop_map(|(features, status, sid, body)| {
        let reply = Reply { features: Features(features), status, sid, body };
        if reply.service().is_data() { Reply { sid: SessionId::NONE, ..reply } } else { reply }
    })
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(
        version in any::<u32>(), features in any::<u32>(), reply_id in any::<u64>(), body in bodies()
    ) {
        let request = Request { version, features: Features(features), reply_id, body };
        let bytes = request.emit();
        prop_assert_eq!(Request::parse(request.service(), &bytes), Ok((request, LITTLE)));
        // The parameters of a test have three fields without the feature.
        if !matches!(body, RequestBody::Test(_)) || request.features.contains(Features::BULK_LENGTH) {
            let big = flipped(bytes, fields(request.service()));
            prop_assert_eq!(Request::parse(request.service(), &big), Ok((request, ByteOrder::Big)));
        }
    }

    #[test]
    fn replies_are_read_as_they_were_written(reply in replies()) {
        prop_assert_eq!(Reply::parse(reply.service(), &reply.emit()), Ok(reply));
    }

    #[test]
    fn bytes_of_any_kind_are_read_or_refused(
        service in 0..LstService::ALL.len(), kind in 0u32..20, swap in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), MESSAGE_LEN - 2..MESSAGE_LEN + 2), good in any::<bool>()
    ) {
        let service = LstService::ALL[service];
        let mut bytes = bytes;
        if good {
            let number = |value: u32| if swap { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes[..4].copy_from_slice(&number(0xeeb0_f00d));
            bytes[8..12].copy_from_slice(&number(kind));
        }
        let request = Request::parse(service, &bytes);
        let of_service = |of| good && bytes.len() == MESSAGE_LEN && kind == of;
        if service != LstService::Ping {
            prop_assert_eq!(request.is_ok(), of_service(service.request_type()));
        }
        if let Ok((request, _)) = request {
            prop_assert_eq!(Request::parse(service, &request.emit()), Ok((request, LITTLE)));
        }
        let _ = Reply::parse(service, &bytes);
    }

    #[test]
    fn parameters_of_bulk_tests_have_two_layouts(
        direction in 0u32..65_536, check in 0u32..65_536, length in any::<u32>(), offset in any::<u32>()
    ) {
        let brw = BrwParameter { direction: Direction(direction), check: Check(check), length, offset };
        let told = test().with_brw(&brw, Features::BULK_LENGTH).unwrap();
        prop_assert_eq!(told.brw(Features::BULK_LENGTH), brw);
        let old = test().with_brw(&brw, Features::NONE).unwrap();
        prop_assert_eq!(old.brw(Features::NONE), BrwParameter { offset: 0, ..brw });
    }
}

#[test]
fn parameters_that_have_no_room_are_refused() {
    let brw = BrwParameter { direction: Direction(1 << 16), check: Check::NONE, length: 8, offset: 0 };
    let refused = test().with_brw(&brw, Features::BULK_LENGTH).unwrap_err();
    assert_eq!(refused.to_string(), "direction of a BRW test is 65536, not 0 to 65535");
}

#[test]
fn destinations_are_read_in_the_order_of_the_console() {
    let nids = ["10.77.0.11@tcp", "10.77.0.12@tcp1"].map(|nid| nid.parse().unwrap());
    let list = nids.map(|nid| Destinations::emit(nid, Pid::LNET).unwrap()).concat();
    let read = |bytes: &[u8], order| {
        Destinations::new(bytes, order).iter().map(|to| to.map(|to| (to.nid, to.pid))).collect::<Vec<_>>()
    };
    let expected = nids.map(|nid| Ok((nid, Pid::LNET)));
    assert_eq!(read(&list, LITTLE), expected);
    assert_eq!(read(&[&list[..], &[1, 2, 3]].concat(), LITTLE), expected, "what is left over is no entry");
    let mut big = list;
    flip(&mut big, &[8, 4, 8, 4]);
    assert_eq!(read(&big, ByteOrder::Big), expected);
    assert!(matches!(read(&[0xff; 12], LITTLE)[..], [Err(ProtoError::NotInterface { .. })]));
    let large = "2001:db8::1@tcp".parse().unwrap();
    assert!(matches!(Destinations::emit(large, Pid::LNET), Err(ProtoError::LargeNid { .. })));
}

#[test]
fn names_end_at_their_nul() {
    assert_eq!(Name::new(&"x".repeat(31)).unwrap().as_bytes().len(), 31);
    let long = Name::new(&"x".repeat(32)).unwrap_err();
    assert_eq!(long.to_string(), "length of an lst name is 32, not 0 to 31");
    assert!(Name::new("a\0b").is_err());
    // A peer's name without an end, and one with control characters.
    let sid = SessionId::NONE;
    let mut bytes = Request::new(Features::NONE, 0, RequestBody::Join { sid, group: Name::EMPTY }).emit();
    bytes[48..80].fill(b'x');
    bytes[50] = 0x1b;
    let (Request { body: RequestBody::Join { group, .. }, .. }, _) =
        Request::parse(LstService::Join, &bytes).unwrap()
    else {
        panic!("it is a JOIN")
    };
    assert_eq!((group.as_bytes().len(), &group.to_string()[..6]), (31, "xx\\x1b"));
}
