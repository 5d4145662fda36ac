//! The results of attempts and connections, case by case (lnet-wire 33, 34, 38; lnet-semantics 35).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_lnd::protocol::Links as _;
use lnet_o2iblnd::links::{AttemptOutcome, Bounds, ConnAnswer, LINKS_MAX, LinkId, Links, NextStep};
use lnet_proto::ProtoError;
use lnet_proto::ib::{
    AcceptRules, Attempt, Body, ConnOffer, ConnParams, Connector, Destination, End, Head, Known,
    LocalInterface, Message, RETRIES_MAX, Reject, RejectReason, Rejection, Version,
};

const S: u64 = 1_000_000_000;
const DEEP: ConnParams = ConnParams { queue_depth: 32, ..ConnParams::DEFAULT };
const LIFE: Known = Known { version: Version::V2, stamp: 2 };
const OTHER: Known = Known { version: Version::V2, stamp: 3 };

fn own() -> End {
    End { nid: "10.0.0.1@o2ib".parse().unwrap(), stamp: 1 }
}

fn peer(stamp: u64) -> End {
    End { nid: "10.0.0.2@o2ib".parse().unwrap(), stamp }
}

fn links(conns: u8) -> Links {
    Links::new(own(), peer(0).nid, DEEP, Bounds::new(conns, 50 * S))
}

/// Begins all attempts that may begin now; returns them.
fn begin(links: &mut Links, now_ns: u64) -> Vec<LinkId> {
    let mut begun = Vec::new();
    while links.next(now_ns, true) == NextStep::Connect {
        begun.push(links.begin(now_ns).0);
    }
    begun
}

/// Returns the receiver and the parameters in the CONNREQ of an attempt.
fn request(links: &mut Links, id: LinkId) -> (End, ConnParams) {
    let made = links.params();
    let message = Message::parse(links.request(id, made).unwrap()).unwrap();
    let Body::ConnReq(params) = message.body else { panic!("{message:?}") };
    (message.head.dst, params)
}

fn record(reason: RejectReason, stamp: u64, params: ConnParams) -> Vec<u8> {
    let mut bytes = vec![0; Reject::LEN];
    Reject { version: Version::V2, reason, stamp, params: Some(params) }.emit(&mut bytes).unwrap();
    bytes
}

/// Rejects an attempt in the peer's name, while a message waits.
fn reject(links: &mut Links, id: LinkId, reason: RejectReason, offered: ConnParams) -> AttemptOutcome {
    request(links, id);
    let record = record(reason, LIFE.stamp, offered);
    match links.rejected(id, Rejection::Record(&record), true, 0) {
        Ok(outcome) | Err((_, outcome)) => outcome,
    }
}

/// Returns the offer of a peer of this incarnation.
fn offer(stamp: u64) -> ConnOffer {
    let wanted = Attempt {
        local: peer(stamp),
        peer: End { stamp: 0, ..own() },
        version: Version::V2,
        oldest: Version::V2,
        params: ConnParams::DEFAULT,
    };
    let interface = LocalInterface { end: own(), limits: DEEP };
    let listener = AcceptRules {
        require_privileged: false,
        oldest: Version::V2,
        destination: |_| Destination::Ready(interface),
    };
    listener.judge(1023, Connector::new(wanted).unwrap().request()).unwrap()
}

fn accept(links: &mut Links, stamp: u64) -> LinkId {
    match links.offered(&offer(stamp), 0) {
        ConnAnswer::Accept { id, .. } => id,
        answer => panic!("{answer:?}"),
    }
}

/// lnet-wire 34: all connections are begun at once, with the first message; the passive side opens
/// none.
#[test]
fn all_connections_are_begun_at_once_on_first_use() {
    let mut active = links(4);
    assert_eq!(active.next(0, false), NextStep::Nothing);
    let begun = begin(&mut active, 0);
    assert_eq!(begun.len(), 4);
    assert_eq!(request(&mut active, begun[0]), (peer(0), DEEP));
    for id in begun {
        assert!(!active.established(id, LIFE, 0));
    }
    assert_eq!((active.next(0, true), active.connections().len()), (NextStep::Nothing, 4));

    let mut passive = links(4);
    let id = accept(&mut passive, 2);
    assert_eq!(passive.next(0, true), NextStep::Nothing, "it may serve");
    assert!(!passive.established(id, LIFE, 0));
    assert_eq!(passive.next(0, true), NextStep::Nothing);
}

/// Each rejection has the effect that the table of lnet-wire 33 gives.
#[test]
fn each_rejection_has_its_reaction() {
    let less = ConnParams { queue_depth: 8, max_fragments: 256, ..ConnParams::DEFAULT };
    let again = || AttemptOutcome::Again { close_all: false };
    let cases = [
        (RejectReason::ConnRace, AttemptOutcome::GoOn, DEEP),
        (RejectReason::NoResources, AttemptOutcome::Failed, DEEP),
        (RejectReason::Fatal, AttemptOutcome::Failed, DEEP),
        (RejectReason::ConnStale, again(), DEEP),
        (RejectReason::RdmaFrags, again(), ConnParams { max_fragments: 256, ..DEEP }),
        (RejectReason::MsgQueueSize, again(), ConnParams { queue_depth: 8, ..DEEP }),
        (RejectReason::InvalidSrvId, AttemptOutcome::Failed, DEEP),
        (RejectReason::Early, AttemptOutcome::Failed, DEEP),
    ];
    for (reason, outcome, params) in cases {
        let mut links = links(1);
        let id = begin(&mut links, 0)[0];
        assert_eq!(reject(&mut links, id, reason, less), outcome, "{reason}");
        // The parameters are kept, and used by the next attempt.
        assert_eq!(links.params(), params, "{reason}");
        if outcome == again() {
            let stamp = if reason == RejectReason::ConnStale { LIFE.stamp } else { 0 };
            assert_eq!(request(&mut links, id), (peer(stamp), params), "{reason}");
            assert_eq!(links.next(0, true), NextStep::Nothing, "it is still the same attempt");
        }
        // The second offer is rejected, because it is not smaller.
        if [RejectReason::RdmaFrags, RejectReason::MsgQueueSize].contains(&reason) {
            assert_eq!(reject(&mut links, id, reason, DEEP), AttemptOutcome::Failed, "{reason}");
        }
    }
    for (rejection, errno) in [(Rejection::StaleConnection, None), (Rejection::NoListener, Some(113))] {
        let mut links = links(1);
        let id = begin(&mut links, 0)[0];
        request(&mut links, id);
        let answer = links.rejected(id, rejection, true, 0);
        assert_eq!(answer.as_ref().err().map(|(cause, _)| cause.errno()), errno);
        assert!(errno.is_some() || answer == Ok(again()));
    }
}

/// A rejected attempt is not repeated if it has no purpose: no message waits, or the peer's own
/// connection is being made.
#[test]
fn an_attempt_is_not_repeated_for_nothing() {
    let deep = record(RejectReason::MsgQueueSize, 2, ConnParams::DEFAULT);
    for incoming in [false, true] {
        let mut links = links(1);
        let id = begin(&mut links, 0)[0];
        request(&mut links, id);
        let theirs = incoming.then(|| accept(&mut links, 2));
        assert_eq!(links.rejected(id, Rejection::Record(&deep), incoming, 0), Ok(AttemptOutcome::GoOn));
        assert_eq!(links.next(0, incoming), NextStep::Nothing);
        // If the attempt of the peer fails, this side's next attempt has the new parameters.
        if let Some(theirs) = theirs {
            assert_eq!(links.failed(theirs, 0), AttemptOutcome::GoOn);
        }
        assert_eq!((links.next(0, true), links.params()), (NextStep::Connect, ConnParams::DEFAULT));
    }
}

/// If both nodes connect and the peer rejects this side's attempt, the peer's connection is used.
#[test]
fn after_a_lost_race_the_peers_connection_is_used() {
    let mut links = links(1);
    let id = begin(&mut links, 0)[0];
    let theirs = accept(&mut links, 2);
    assert_eq!(reject(&mut links, id, RejectReason::ConnRace, DEEP), AttemptOutcome::GoOn);
    assert_eq!(links.next(0, true), NextStep::Nothing);
    assert!(!links.established(theirs, LIFE, 0));
    assert_eq!((links.pick(|_| true), links.next(0, true)), (Some(theirs), NextStep::Nothing));

    // If the peer makes no connection, the attempt is repeated after a while, but not forever.
    let mut links = self::links(1);
    for race in 0..=RETRIES_MAX {
        let now_ns = u64::from(race) * S;
        assert_eq!(links.next(now_ns, true), NextStep::Connect);
        let (id, _) = links.begin(now_ns);
        request(&mut links, id);
        let record = record(RejectReason::ConnRace, 2, DEEP);
        let answer = links.rejected(id, Rejection::Record(&record), true, now_ns);
        if race < RETRIES_MAX {
            assert_eq!(
                (answer, links.next(now_ns, true)),
                (Ok(AttemptOutcome::GoOn), NextStep::Wait { until_ns: now_ns + S })
            );
        } else {
            assert!(matches!(answer, Err((ProtoError::RetriesExhausted { .. }, AttemptOutcome::Failed))));
        }
    }
}

#[test]
fn a_peer_cannot_send_an_attempt_back_for_ever() {
    let mut links = links(1);
    let id = begin(&mut links, 0)[0];
    for _ in 0..RETRIES_MAX {
        assert_eq!(
            reject(&mut links, id, RejectReason::ConnStale, DEEP),
            AttemptOutcome::Again { close_all: false }
        );
    }
    assert_eq!(reject(&mut links, id, RejectReason::ConnStale, DEEP), AttemptOutcome::Failed);
}

/// A node requests only what its device can make; for the next attempt the device may be able to
/// make more.
// Covers: S-503
#[test]
fn a_small_device_asks_for_what_it_can() {
    let mut links = links(1);
    let id = begin(&mut links, 0)[0];
    let made = ConnParams { queue_depth: 5, ..DEEP };
    let message = Message::parse(links.request(id, made).unwrap()).unwrap();
    assert_eq!(message.body, Body::ConnReq(made));
    assert_eq!(links.params(), DEEP);
}

/// A restart of the peer shows in an offer, in a rejection, or in the answer to an attempt: all
/// connections to the old incarnation end.
#[test]
fn another_life_of_the_peer_ends_all_connections_to_the_old_one() {
    let connected = |conns| {
        let mut links = links(conns);
        let begun = begin(&mut links, 0);
        _ = reject(&mut links, begun[0], RejectReason::MsgQueueSize, ConnParams::DEFAULT);
        assert!(!links.established(begun[0], LIFE, 0));
        (links, begun)
    };
    let (mut links, begun) = connected(1);
    let ConnAnswer::Reject { refusal, close_all: true } = links.offered(&offer(3), 0) else {
        panic!("it is stale")
    };
    assert_eq!((refusal.record.reason, links.life()), (RejectReason::ConnStale, Some(LIFE)));
    links.lost(begun[0], 0);
    assert_eq!((links.is_connected(), links.life()), (false, None));
    accept(&mut links, 3);

    let (mut links, begun) = connected(2);
    request(&mut links, begun[1]);
    let stale = record(RejectReason::ConnStale, OTHER.stamp, DEEP);
    let answer = links.rejected(begun[1], Rejection::Record(&stale), false, 0);
    assert_eq!(answer, Ok(AttemptOutcome::Again { close_all: true }));
    assert_eq!(links.params(), DEEP, "what was learnt of the old life is forgotten");
    links.lost(begun[0], 0);
    assert!(!links.is_connected());
    assert_eq!(request(&mut links, begun[1]).0, peer(3));

    let (mut links, begun) = connected(2);
    assert!(links.established(begun[1], OTHER, 0));
    links.lost(begun[0], 0);
    assert_eq!((links.is_connected(), links.life()), (true, Some(OTHER)));
}

/// Attempts end at their deadlines (lnet-wire 34 and 38).
#[test]
fn attempts_end_in_time() {
    assert_eq!(Bounds::new(1, 50 * S).attempt_ns, 12_500_000_000);
    assert_eq!(Bounds::new(1, 16 * S).attempt_ns, 5 * S);
    assert_eq!(Bounds::new(1, 50 * S).message_deadline_ns(7), 22_500_000_007);
    let mut links = links(1);
    let (id, deadline_ns) = links.begin(S);
    assert_eq!((deadline_ns, links.deadline_ns()), (13_500_000_000, Some(13_500_000_000)));
    // A repeated try does not extend the deadline.
    assert_eq!(
        reject(&mut links, id, RejectReason::ConnStale, DEEP),
        AttemptOutcome::Again { close_all: false }
    );
    assert_eq!((links.overdue(deadline_ns - 1), links.overdue(deadline_ns)), (None, Some(id)));
    assert_eq!(links.failed(id, deadline_ns), AttemptOutcome::Failed);
    assert_eq!(links.failed(id, deadline_ns), AttemptOutcome::GoOn, "it is over");
    // An attempt of the peer has a deadline as well.
    let theirs = accept(&mut links, 2);
    assert_eq!(links.overdue(100 * S), Some(theirs));
}

#[test]
fn failures_make_pauses_that_grow_up_to_a_minute() {
    let mut links = links(2);
    let mut now_ns = 0;
    for expected_s in [1, 2, 4, 8, 16, 32, 60, 60] {
        let begun = begin(&mut links, now_ns);
        assert_eq!(begun.len(), 2);
        // The failure of both counts as one, and the messages stay until the second.
        assert_eq!(links.failed(begun[0], now_ns), AttemptOutcome::GoOn);
        assert_eq!(links.next(now_ns, true), NextStep::Wait { until_ns: now_ns + expected_s * S });
        assert_eq!(links.failed(begun[1], now_ns), AttemptOutcome::Failed);
        assert_eq!(
            (links.next(now_ns, true), links.next(now_ns, false)),
            (NextStep::Unreachable, NextStep::Nothing)
        );
        now_ns += expected_s * S;
        assert!(!links.is_forgettable(now_ns - 1) && links.is_forgettable(now_ns));
    }
    let begun = begin(&mut links, now_ns);
    assert!(!links.established(begun[0], LIFE, now_ns));
    links.lost(begun[0], now_ns + S);
    assert!(!links.is_connected());
    assert_eq!(links.failed(begun[1], now_ns + S), AttemptOutcome::Failed);
    assert_eq!(begin(&mut links, now_ns + 2 * S).len(), 2, "the success has made up for the failures");
}

/// A peer that does not accept the whole set of connections: the node uses those it has.
#[test]
fn a_set_that_cannot_be_completed_is_taken_as_it_is() {
    let mut links = links(2);
    let begun = begin(&mut links, 0);
    assert!(!links.established(begun[0], LIFE, 0));
    let mut id = begun[1];
    let mut now_ns = 0;
    for pause_s in [1, 2, 4] {
        assert_eq!(links.failed(id, now_ns), AttemptOutcome::GoOn);
        assert_eq!(links.next(now_ns, true), NextStep::Wait { until_ns: now_ns + pause_s * S });
        now_ns += pause_s * S;
        assert_eq!(links.next(now_ns, false), NextStep::Connect);
        id = links.begin(now_ns).0;
    }
    assert_eq!(links.failed(id, now_ns), AttemptOutcome::GoOn);
    assert_eq!(links.next(1000 * S, true), NextStep::Nothing);
    // When the number is set again, the node requests the missing connections again.
    links.set_conns(3);
    assert_eq!(begin(&mut links, 1000 * S).len(), 2);
}

#[test]
fn a_lost_connection_is_opened_again_by_the_side_that_opened_it() {
    let mut active = links(2);
    let begun = begin(&mut active, 0);
    begun.iter().for_each(|id| assert!(!active.established(*id, LIFE, 0)));
    active.lost(begun[1], 10 * S);
    assert_eq!((active.is_connected(), active.next(10 * S, false)), (true, NextStep::Connect));
    let mut passive = links(2);
    let theirs = [(); 2].map(|()| accept(&mut passive, 2));
    theirs.iter().for_each(|id| assert!(!passive.established(*id, LIFE, 0)));
    passive.lost(theirs[1], 10 * S);
    assert_eq!((passive.is_connected(), passive.next(10 * S, true)), (true, NextStep::Nothing));
    // The second call has no effect: the connection is gone.
    for _ in 0..2 {
        passive.lost(theirs[0], 10 * S);
        assert_eq!((passive.is_connected(), passive.next(10 * S, false)), (false, NextStep::Nothing));
    }
}

#[test]
fn a_peer_may_open_many_connections_and_no_more() {
    let mut links = links(1);
    for _ in 0..LINKS_MAX {
        let id = accept(&mut links, 2);
        assert!(!links.established(id, LIFE, 0));
    }
    let ConnAnswer::Reject { refusal, close_all: false } = links.offered(&offer(2), 0) else {
        panic!("one too many")
    };
    assert_eq!(refusal.record.reason, RejectReason::NoResources);
}

#[test]
fn messages_take_turns() {
    let mut links = links(3);
    assert_eq!(links.pick(|_| true), None);
    let begun = begin(&mut links, 0);
    begun.iter().for_each(|id| assert!(!links.established(*id, LIFE, 0)));
    let picked: Vec<_> = (0..6).map(|_| links.pick(|_| true).unwrap()).collect();
    let mut sorted = picked[..3].to_vec();
    sorted.sort_unstable();
    assert_eq!((&sorted, &picked[3..]), (&begun, &picked[..3]));
    // A connection with a full queue is skipped.
    let full = picked[0];
    assert!((0..6).all(|_| links.pick(|id| id != full).unwrap() != full));
    assert_eq!(links.pick(|_| false), None);
}

/// An acceptance without an attempt, or with wrong parameters, is refused.
#[test]
fn an_acceptance_is_checked() {
    let mut links = links(1);
    let id = begin(&mut links, 0)[0];
    request(&mut links, id);
    let head = Head { version: Version::V2, credits: 0, checksum: 0, src: peer(2), dst: own() };
    let accept = |params| {
        let mut bytes = [0; 56];
        Message { head, body: Body::ConnAck(params) }.emit(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(links.granted(id, &accept(ConnParams::DEFAULT)).unwrap().params, ConnParams::DEFAULT);
    let deeper = ConnParams { queue_depth: 33, ..DEEP };
    assert!(matches!(links.granted(id, &accept(deeper)), Err(ProtoError::Parameter { .. })));
    assert!(matches!(links.granted(LinkId(77), &accept(DEEP)), Err(ProtoError::Attempt { .. })));
    assert!(matches!(links.request(LinkId(77), DEEP), Err(ProtoError::Attempt { .. })));
}
