//! Connecting over RDMA: both machines together and against their tables (lnet-wire 33 and 34).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_nid::Nid;
use lnet_proto::ProtoError;
use lnet_proto::ib::{
    AcceptRules, AfterRejection, Attempt, Body, ConnOffer, ConnParams, Connector, Destination, End,
    Established, Head, Known, Link, LocalInterface, Message, RETRIES_MAX, Reject, RejectReason, Rejection,
    RequestRefusal, Version,
};
use proptest::prelude::*;

fn end(text: &str, stamp: u64) -> End {
    End { nid: text.parse().unwrap(), stamp }
}

fn active() -> End {
    end("10.0.0.1@o2ib", 11)
}

fn passive() -> End {
    end("10.0.0.2@o2ib", 22)
}

fn attempt() -> Attempt {
    Attempt {
        local: active(),
        peer: End { stamp: 0, ..passive() },
        version: Version::V2,
        oldest: Version::V1,
        params: ConnParams::DEFAULT,
    }
}

fn listener(limits: ConnParams, oldest: Version) -> AcceptRules<impl Fn(Nid) -> Destination> {
    let destination = move |nid: Nid| match nid {
        nid if nid == passive().nid => Destination::Ready(LocalInterface { end: passive(), limits }),
        nid if nid == "10.0.0.3@o2ib".parse().unwrap() => Destination::NotReady,
        _ => Destination::Unknown,
    };
    AcceptRules { require_privileged: false, oldest, destination }
}

fn record_bytes(record: &Reject) -> Vec<u8> {
    let mut bytes = [0; 148];
    let length = record.emit(&mut bytes).unwrap();
    assert_eq!(Reject::parse(&bytes[..length]), Ok(*record));
    // The connection manager of InfiniBand always delivers this length.
    bytes.to_vec()
}

/// Tries until the connection is established or fails; returns the result and the number of
/// attempts.
fn connect(
    mut connector: Connector,
    listener: &AcceptRules<impl Fn(Nid) -> Destination>,
) -> (Result<Established, ProtoError>, u32) {
    for tries in 1.. {
        match listener.judge(1023, connector.request()) {
            Ok(offer) => {
                let established = connector.accepted(&offer.accept(offer.asked).unwrap()).unwrap();
                assert_eq!(offer.link.local, established.link.peer);
                return (Ok(established), tries);
            }
            Err(refusal) => match connector.rejected(Rejection::Record(&record_bytes(&refusal.record))) {
                AfterRejection::Now | AfterRejection::Later => {}
                AfterRejection::Fail(cause) => return (Err(cause), tries),
            },
        }
    }
    unreachable!("a connector gives up")
}

fn params(queue_depth: u16, max_fragments: u16) -> ConnParams {
    ConnParams { queue_depth, max_fragments, ..ConnParams::DEFAULT }
}

proptest! {
    /// lnet-wire 34, negotiation result: the sides agree on the smaller value of both, after one
    /// more attempt for each value that differs.
    #[test]
    fn both_sides_settle_for_the_smaller(
        mine in (1..=u16::MAX, 1..=257_u16), theirs in (1..=u16::MAX, 1..=257_u16)
    ) {
        let connector = Connector::new(Attempt { params: params(mine.0, mine.1), ..attempt() }).unwrap();
        let (established, tries) = connect(connector, &listener(params(theirs.0, theirs.1), Version::V2));
        let expected = params(mine.0.min(theirs.0), mine.1.min(theirs.1));
        prop_assert_eq!(established.unwrap().params, expected);
        prop_assert_eq!(tries, 1 + u32::from(mine.0 > theirs.0) + u32::from(mine.1 > theirs.1));
    }

    /// No sequence of rejections makes the active side retry without limit, or request more.
    #[test]
    fn no_sequence_of_rejections_is_endless(
        seed in proptest::collection::vec((any::<bool>(), 1..=9_u8, any::<u64>(), any::<(u16, u16)>()), 1..50)
    ) {
        let mut connector = Connector::new(Attempt { params: params(256, 257), ..attempt() }).unwrap();
        let mut rejections = 0;
        for (v1, reason, stamp, offered) in seed.iter().cycle() {
            let version = if *v1 { Version::V1 } else { Version::V2 };
            let offered = (!v1).then_some(params(offered.0, offered.1));
            let reason = RejectReason::try_from(*reason).unwrap();
            let before = *connector.attempt();
            let record = Reject { version, reason, stamp: *stamp, params: offered };
            rejections += 1;
            if let AfterRejection::Fail(_) = connector.rejected(Rejection::Record(&record_bytes(&record))) {
                prop_assert_eq!(connector.attempt(), &before, "a failure changes nothing");
                break;
            }
            let after = connector.attempt().params;
            prop_assert!(after.queue_depth <= before.params.queue_depth && after.queue_depth > 0);
            prop_assert!(after.max_fragments <= before.params.max_fragments && after.max_fragments > 0);
            let request = Message::parse(connector.request()).unwrap();
            prop_assert_eq!(request.body, Body::ConnReq(after));
        }
        prop_assert!(rejections <= RETRIES_MAX + 1);
    }

    #[test]
    fn private_data_of_any_kind_is_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200), port in any::<u16>()) {
        let refusal = listener(ConnParams::DEFAULT, Version::V1).judge(port, &bytes).unwrap_err();
        prop_assert_eq!(refusal.record.reason, RejectReason::Fatal);
        prop_assert!(Connector::new(attempt()).unwrap().accepted(&bytes).is_err());
        let next = Connector::new(attempt()).unwrap().rejected(Rejection::Record(&bytes));
        prop_assert!(matches!(next, AfterRejection::Fail(_)), "{:?}", next);
    }
}

/// lnet-measured: depth 256 is rejected in favour of 8, 300 fragments in favour of 257, and 4 with
/// 32 are accepted unchanged.
#[test]
fn what_was_measured() {
    let kernel = listener(ConnParams::DEFAULT, Version::V2);
    let request = |asked| emit(&request_head(), asked);
    for (asked, reason) in
        [(params(256, 257), RejectReason::MsgQueueSize), (params(8, 300), RejectReason::RdmaFrags)]
    {
        let record = kernel.judge(40000, &request(asked)).unwrap_err().record;
        let expected = Reject { version: Version::V2, reason, stamp: 22, params: Some(ConnParams::DEFAULT) };
        assert_eq!(record, expected);
    }
    let offer = kernel.judge(40000, &request(params(4, 32))).unwrap();
    let answer = offer.accept(offer.asked).unwrap();
    let answer = Message::parse(&answer).unwrap();
    assert_eq!((answer.body, answer.head.dst), (Body::ConnAck(params(4, 32)), active()));
}

fn request_head() -> Head {
    Link { version: Version::V2, local: active(), peer: End { stamp: 0, ..passive() } }.head(0)
}

fn emit(head: &Head, asked: ConnParams) -> Vec<u8> {
    let mut bytes = vec![0; 56];
    Message { head: *head, body: Body::ConnReq(asked) }.emit(&mut bytes).unwrap();
    bytes
}

/// The passive side's checks have the order of lnet-wire 34: each row violates its rule and all
/// that come later.
#[test]
fn the_passive_side_follows_its_table() {
    let strict = AcceptRules { require_privileged: true, ..listener(ConnParams::DEFAULT, Version::V2) };
    let good = request_head();
    let asked = ConnParams::DEFAULT;
    let bad = ConnParams { queue_depth: 9, max_fragments: 258, max_message: 4097 };
    let to = |text: &str, stamp| Head { dst: end(text, stamp), ..good };
    let mut ack = vec![0; 56];
    Message { head: good, body: Body::ConnAck(bad) }.emit(&mut ack).unwrap();
    let stale_ack = {
        let mut bytes = ack.clone();
        bytes[40] = 23;
        bytes
    };
    let mut unified = emit(&good, asked);
    unified[..4].copy_from_slice(&0x4572_6963_u32.to_le_bytes());
    let mut newer = emit(&good, asked);
    newer[4] = 0x13;
    let (fatal, known) = (RejectReason::Fatal, true);
    let table = [
        ("privileged port", 1024, unified.clone(), fatal, !known),
        ("six bytes", 1023, unified[..5].to_vec(), fatal, !known),
        ("another magic", 1023, unified, fatal, !known),
        ("version 0x13", 1023, newer, fatal, !known),
        ("version 0x11", 1023, emit(&Head { version: Version::V1, ..good }, asked), fatal, !known),
        ("cut short", 1023, emit(&good, asked)[..55].to_vec(), fatal, !known),
        ("not ready", 1023, emit(&to("10.0.0.3@o2ib", 1), bad), RejectReason::Early, !known),
        ("another node", 1023, emit(&to("10.0.0.4@o2ib", 1), bad), fatal, !known),
        ("wildcard", 1023, emit(&Head { dst: End { nid: Nid::ANY, stamp: 1 }, ..good }, bad), fatal, !known),
        ("another life", 1023, stale_ack, RejectReason::ConnStale, known),
        ("no request", 1023, ack, fatal, known),
        ("too deep", 1023, emit(&good, bad), RejectReason::MsgQueueSize, known),
        ("no depth", 1023, emit(&good, ConnParams { queue_depth: 0, ..bad }), fatal, known),
        (
            "fragments",
            1023,
            emit(&good, ConnParams { queue_depth: 8, ..bad }),
            RejectReason::RdmaFrags,
            known,
        ),
        ("no fragments", 1023, emit(&good, ConnParams { max_fragments: 0, ..asked }), fatal, known),
        ("message size", 1023, emit(&good, ConnParams { max_message: 4097, ..asked }), fatal, known),
    ];
    for (what, port, bytes, reason, known) in table {
        let RequestRefusal { record, cause } = strict.judge(port, &bytes).unwrap_err();
        assert_eq!(record.reason, reason, "{what}: {cause}");
        let (stamp, offered) = if known { (22, ConnParams::DEFAULT) } else { (0, params(0, 0)) };
        assert_eq!(
            (record.version, record.stamp, record.params),
            (Version::V2, stamp, Some(offered)),
            "{what}"
        );
    }
    assert!(strict.judge(1023, &emit(&good, asked)).is_ok());
    assert!(strict.judge(1023, &emit(&to("10.0.0.2@o2ib", 22), asked)).is_ok(), "the life it is in");
}

#[test]
fn a_peer_that_has_restarted_must_connect_again() {
    let offer = listener(ConnParams::DEFAULT, Version::V1)
        .judge(1023, &emit(&request_head(), params(8, 256)))
        .unwrap();
    let known = |version, stamp| Some(Known { version, stamp });
    assert_eq!(offer.check_known(None), Ok(()));
    assert_eq!(offer.check_known(known(Version::V2, 11)), Ok(()));
    for (old, errno) in [(known(Version::V2, 10), 116), (known(Version::V1, 11), 71)] {
        let RequestRefusal { record, cause } = offer.check_known(old).unwrap_err();
        assert_eq!((record.reason, cause.errno()), (RejectReason::ConnStale, errno));
        let mut connector = Connector::new(attempt()).unwrap();
        assert_eq!(connector.rejected(Rejection::Record(&record_bytes(&record))), AfterRejection::Now);
        assert_eq!(connector.attempt().peer, passive(), "it uses the incarnation of the answer");
    }
}

/// A queue pair may be smaller than requested, never larger.
#[test]
fn only_what_was_asked_for_is_granted() {
    let offer: ConnOffer = listener(ConnParams::DEFAULT, Version::V2)
        .judge(1023, &emit(&request_head(), params(8, 100)))
        .unwrap();
    let connector = Connector::new(Attempt { params: params(8, 100), ..attempt() }).unwrap();
    let answer = offer.accept(params(3, 99)).unwrap();
    assert_eq!(connector.accepted(&answer).unwrap().params, params(3, 99));
    for bad in [params(9, 100), params(0, 100), params(8, 101), params(8, 0)] {
        assert!(matches!(offer.accept(bad), Err(ProtoError::Parameter { .. })), "{bad:?}");
    }
}

/// The active side makes the checks of the CONNACK of lnet-wire 34.
#[test]
fn the_active_side_checks_every_field_of_the_answer() {
    let connector = Connector::new(Attempt { params: params(8, 100), ..attempt() }).unwrap();
    let good = Link { version: Version::V2, local: passive(), peer: active() }.head(0);
    let judged = |head: Head, body| {
        let mut bytes = vec![0; 196];
        Message { head, body }.emit(&mut bytes).unwrap();
        connector.accepted(&bytes).map_err(|error| (error.errno(), error.to_string()))
    };
    let ack = Body::ConnAck(params(8, 100));
    assert!(judged(good, ack).is_ok());
    let stale = End { stamp: 12, ..active() };
    for (head, body, errno, names) in [
        (good, Body::ConnReq(params(8, 100)), 71, "CONNREQ"),
        (Head { version: Version::V1, ..good }, ack, 71, "CONNACK"),
        (good, Body::ConnAck(params(9, 100)), 71, "queue depth is 9, not 1 to 8"),
        (good, Body::ConnAck(params(0, 100)), 71, "queue depth is 0"),
        (good, Body::ConnAck(params(8, 101)), 71, "RDMA fragments is 101, not 1 to 100"),
        (good, Body::ConnAck(ConnParams { max_message: 4097, ..params(8, 100) }), 71, "message size is 4097"),
        (Head { src: end("10.0.0.9@o2ib", 22), ..good }, ack, 71, "srcnid"),
        (Head { dst: end("10.0.0.9@o2ib", 11), ..good }, ack, 71, "dstnid"),
        (Head { dst: stale, ..good }, ack, 116, "dststamp"),
    ] {
        let (got, text) = judged(head, body).unwrap_err();
        assert!(got == errno && text.contains(names), "{text} should name {names}");
    }
}

/// The active side's reactions to rejections are those of lnet-wire 33.
#[test]
fn the_active_side_follows_its_table() {
    let first = Attempt { params: params(64, 257), ..attempt() };
    let failed = |reason| Err(ProtoError::Rejected { reason });
    let v1 = Attempt { version: Version::V1, params: params(8, 257), ..first };
    let stale = |version, attempt: Attempt| {
        Ok((AfterRejection::Now, Attempt { version, peer: End { stamp: 99, ..first.peer }, ..attempt }))
    };
    let now =
        |depth, fragments| Ok((AfterRejection::Now, Attempt { params: params(depth, fragments), ..first }));
    let offer = Some(params(8, 256));
    let table = [
        (RejectReason::ConnRace, Version::V2, offer, Ok((AfterRejection::Later, first))),
        (RejectReason::NoResources, Version::V2, offer, failed(RejectReason::NoResources)),
        (RejectReason::Fatal, Version::V2, offer, failed(RejectReason::Fatal)),
        (RejectReason::Fatal, Version::V1, None, Ok((AfterRejection::Now, v1))),
        (RejectReason::ConnUncompat, Version::V1, None, Ok((AfterRejection::Now, v1))),
        (RejectReason::ConnUncompat, Version::V2, offer, failed(RejectReason::ConnUncompat)),
        (RejectReason::ConnStale, Version::V2, offer, stale(Version::V2, first)),
        (RejectReason::ConnStale, Version::V1, None, stale(Version::V1, v1)),
        (RejectReason::RdmaFrags, Version::V2, offer, now(64, 256)),
        (RejectReason::RdmaFrags, Version::V2, Some(params(8, 257)), failed(RejectReason::RdmaFrags)),
        (RejectReason::RdmaFrags, Version::V2, Some(params(8, 0)), failed(RejectReason::RdmaFrags)),
        (RejectReason::MsgQueueSize, Version::V2, offer, now(8, 257)),
        (RejectReason::MsgQueueSize, Version::V2, Some(params(64, 2)), failed(RejectReason::MsgQueueSize)),
        (RejectReason::MsgQueueSize, Version::V2, Some(params(0, 2)), failed(RejectReason::MsgQueueSize)),
        (RejectReason::MsgQueueSize, Version::V1, None, failed(RejectReason::MsgQueueSize)),
        (RejectReason::InvalidSrvId, Version::V2, offer, failed(RejectReason::InvalidSrvId)),
        (RejectReason::Early, Version::V2, offer, failed(RejectReason::Early)),
    ];
    for (reason, version, params, expected) in table {
        let record = Reject { version, reason, stamp: 99, params };
        let mut connector = Connector::new(first).unwrap();
        let next = connector.rejected(Rejection::Record(&record_bytes(&record)));
        match expected {
            Ok((now_or_later, attempt)) => {
                assert_eq!((next, *connector.attempt()), (now_or_later, attempt), "{record:?}")
            }
            Err(cause) => {
                assert_eq!((cause.errno(), next), (111, AfterRejection::Fail(cause)), "{record:?}");
                assert_eq!(*connector.attempt(), first);
            }
        }
    }
    let mut connector = Connector::new(first).unwrap();
    assert_eq!(connector.rejected(Rejection::StaleConnection), AfterRejection::Now);
    let AfterRejection::Fail(nobody) = connector.rejected(Rejection::NoListener) else {
        panic!("nobody listens")
    };
    assert_eq!(nobody.errno(), 113);
    let modern = Attempt { oldest: Version::V2, ..first };
    let record = Reject { version: Version::V1, reason: RejectReason::Fatal, stamp: 0, params: None };
    let next = Connector::new(modern).unwrap().rejected(Rejection::Record(&record_bytes(&record)));
    assert_eq!(
        next,
        AfterRejection::Fail(ProtoError::Rejected { reason: RejectReason::Fatal }),
        "no version 1 for the modern"
    );
}

/// Version 1 has queues of 8 (lnet-wire 36), and its rejections carry no parameters.
#[test]
fn old_nodes_are_talked_to_where_the_driver_can() {
    let old = |asked: ConnParams| emit(&Head { version: Version::V1, ..request_head() }, asked);
    let able = listener(params(64, 257), Version::V1);
    let offer = able.judge(1023, &old(params(8, 256))).unwrap();
    assert_eq!((offer.link.version, offer.asked), (Version::V1, params(8, 256)));
    let RequestRefusal { record, .. } = able.judge(1023, &old(params(9, 256))).unwrap_err();
    assert_eq!(record, Reject { version: Version::V1, reason: RejectReason::Fatal, stamp: 22, params: None });

    // A node that supports only version 1 rejects version 2 in version 1.
    let mut connector = Connector::new(Attempt { params: params(64, 257), ..attempt() }).unwrap();
    assert_eq!(connector.rejected(Rejection::Record(&record_bytes(&record))), AfterRejection::Now);
    let (established, tries) = connect(connector, &able);
    assert_eq!((established.unwrap().link.version, tries), (Version::V1, 1));
}

/// Both connect at once; each accepts while its own attempt is pending, or refuses and is then
/// connected to.
#[test]
fn a_race_leaves_a_connection_in_any_case() {
    let listener = listener(ConnParams::DEFAULT, Version::V2);
    let mut connector = Connector::new(attempt()).unwrap();
    let offer = listener.judge(1023, connector.request()).unwrap();
    let refused = record_bytes(&offer.refuse(RejectReason::ConnRace));
    for _ in 0..RETRIES_MAX {
        let request = connector.request().to_vec();
        assert_eq!(connector.rejected(Rejection::Record(&refused)), AfterRejection::Later);
        assert_eq!(connector.request(), request);
    }
    let AfterRejection::Fail(cause) = connector.clone().rejected(Rejection::Record(&refused)) else {
        panic!("endless")
    };
    assert_eq!(cause, ProtoError::RetriesExhausted { nid: passive().nid, limit: RETRIES_MAX });
    assert!(connect(connector, &listener).0.is_ok(), "the peer has given way");
}

#[test]
fn attempts_that_make_no_sense_are_refused() {
    let large = "fd00::1@o2ib".parse().unwrap();
    for bad in [
        Attempt { peer: End { nid: Nid::ANY, stamp: 0 }, ..attempt() },
        Attempt { peer: End { nid: Nid::LOOPBACK, stamp: 0 }, ..attempt() },
        Attempt { peer: End { nid: large, stamp: 0 }, ..attempt() },
        Attempt { local: End { nid: large, stamp: 1 }, ..attempt() },
        Attempt { local: End { nid: Nid::ANY, stamp: 1 }, ..attempt() },
        Attempt { params: params(0, 257), ..attempt() },
        Attempt { params: params(8, 258), ..attempt() },
        Attempt { version: Version::V1, oldest: Version::V2, ..attempt() },
        Attempt { version: Version::V1, params: params(9, 256), ..attempt() },
    ] {
        assert_eq!(Connector::new(bad).unwrap_err().errno(), 22, "{bad:?}");
    }
}
