//! A [`Conn`] with a peer that violates the rules, and with one that is late (lnet-wire 35.5, 36
//! and 38).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_api::Errno;
use lnet_nid::{MatchBits, ProcessId};
use lnet_o2iblnd::conn::{
    Conn, ConnError, EmitKind, EndedOp, Late, Limits, OpKey, Own, Receipt, ReceivedMessage,
};
use lnet_proto::ib::{
    Body, ConnParams, Cookie, End, Link, Message, MessageKind, RdmaDescriptor, RdmaFragment, TransferStatus,
    Version,
};
use lnet_proto::{Header, WireHandle};

const NEVER: u64 = u64::MAX;
const S: u64 = 1_000_000_000;
const LIMITS: Limits =
    Limits { depth: 4, high_water: 2, sends: 8, works: 16, messages: 16, keepalive_ns: 100 * S };
const THEIRS: Cookie = Cookie([7; 8]);

type Answer = Result<(Receipt, ReceivedMessage<u32>), ConnError>;

fn conn() -> Conn<u32> {
    Conn::new(&LIMITS, 0)
}

fn link() -> Link {
    let end = |nid: &str| End { nid: nid.parse().unwrap(), stamp: 1 };
    Link { version: Version::V2, local: end("10.0.0.1@o2ib"), peer: end("10.0.0.2@o2ib") }
}

fn header(payload_length: u32, get: bool) -> Header {
    let match_bits = MatchBits(1);
    let body = if get {
        lnet_proto::Body::Get {
            return_wmd: WireHandle::NONE,
            match_bits,
            portal: 4,
            src_offset: 0,
            sink_length: 100,
        }
    } else {
        lnet_proto::Body::Put { ack_wmd: WireHandle::NONE, match_bits, hdr_data: 0, portal: 4, offset: 0 }
    };
    let [dest, src] = [link().local, link().peer].map(|end| ProcessId::lnet(end.nid));
    Header { dest, src, payload_length, body }
}

fn receive(conn: &mut Conn<u32>, credits: u8, body: Body<'_>) -> Answer {
    conn.received(&Message { head: link().head(credits), body })
}

fn immediate() -> Body<'static> {
    Body::Immediate { header: header(0, false), payload: &[] }
}

fn put_req() -> Body<'static> {
    Body::PutReq { header: header(100, false), cookie: THEIRS }
}

fn done(cookie: Cookie, status: i32) -> TransferStatus {
    TransferStatus { cookie, status }
}

/// Returns the error of an answer, which must be a violation by the peer.
fn breach(answer: Answer) -> ConnError {
    let error = answer.map(|_| ()).unwrap_err();
    assert_eq!(error.errno(), Errno::EPROTO, "{error}");
    error
}

/// Emits the next message, whose send completes at once.
fn send_next(conn: &mut Conn<u32>) -> (EmitKind, Option<EndedOp<u32>>) {
    let emit = conn.next(0).unwrap();
    let (id, kind) = (emit.id, emit.kind);
    (kind, conn.completed(id.bits()).unwrap())
}

/// Queues and sends a PUT or GET of 100 bytes; returns its cookie.
fn asked(conn: &mut Conn<u32>, own: Own) -> Cookie {
    conn.queue(own, NEVER, 5).unwrap();
    match send_next(conn) {
        (EmitKind::PutReq { cookie } | EmitKind::GetReq { cookie }, None) => cookie,
        other => panic!("{other:?}"),
    }
}

fn put(conn: &mut Conn<u32>) -> Cookie {
    asked(conn, Own::Put { length: 100 })
}

/// Receives a PUT_REQ of 100 bytes.
fn takes(conn: &mut Conn<u32>) -> OpKey {
    let (receipt, ReceivedMessage::PutReq(key)) = receive(conn, 0, put_req()).unwrap() else {
        panic!("a PUT_REQ")
    };
    conn.reposted(receipt);
    key
}

#[test]
fn credits_that_never_were_are_a_breach() {
    let mut conn = conn();
    assert_eq!(
        breach(receive(&mut conn, 1, Body::Noop)),
        ConnError::Credits { returned: 1, held: 4, limit: 4 }
    );
    put(&mut conn);
    assert!(receive(&mut conn, 1, Body::Noop).is_ok());
    breach(receive(&mut conn, 255, Body::Noop));
}

#[test]
fn a_peer_without_credits_may_not_send() {
    let mut conn = conn();
    for _ in 0..4 {
        let (receipt, ReceivedMessage::Immediate) = receive(&mut conn, 0, immediate()).unwrap() else {
            panic!("IMMEDIATE")
        };
        // The credit is now owed, but not yet returned.
        conn.reposted(receipt);
    }
    let overrun = ConnError::Overrun { kind: MessageKind::Immediate, limit: 4 };
    assert_eq!(breach(receive(&mut conn, 0, immediate())), overrun);
    assert_eq!(conn.next(0).map(|emit| (emit.kind, emit.credits)), Some((EmitKind::Noop, 4)));
    assert!(receive(&mut conn, 0, immediate()).is_ok());
}

/// The credit of a GET_REQ returns before its answer: the peer's transfers have a separate limit.
#[test]
fn a_peer_may_not_have_more_transfers_than_the_depth() {
    let mut conn = conn();
    let pieces = [RdmaFragment { length: 100, address: 0 }];
    let descriptor = RdmaDescriptor::new(1, &pieces).unwrap();
    let get = Body::GetReq { header: header(0, true), cookie: THEIRS, descriptor };
    let mut keys = Vec::new();
    for _ in 0..4 {
        let (receipt, ReceivedMessage::GetReq(key)) = receive(&mut conn, 0, get).unwrap() else {
            panic!("GET_REQ")
        };
        conn.reposted(receipt);
        keys.push(key);
    }
    assert_eq!(send_next(&mut conn).0, EmitKind::Noop);
    let transfers = ConnError::Transfers { kind: MessageKind::GetReq, limit: 4 };
    assert_eq!(breach(receive(&mut conn, 0, get)), transfers);
    conn.done(keys[0], Err(Errno::ENODATA), 0, NEVER).unwrap();
    assert_eq!(send_next(&mut conn).0, EmitKind::GetDone(done(THEIRS, -61)));
    assert!(receive(&mut conn, 0, get).is_ok());
}

#[test]
fn cookies_that_name_nothing_are_a_breach() {
    let numbers = [0, 1, 1 << 16, 1 << 48, u64::MAX, 0xffff];
    let pieces = [RdmaFragment { length: 100, address: 0 }];
    let descriptor = RdmaDescriptor::new(1, &pieces).unwrap();
    for cookie in numbers.map(Cookie::new) {
        for body in [
            Body::PutAck { source: cookie, sink: THEIRS, descriptor },
            Body::PutNak(done(cookie, 0)),
            Body::PutDone(done(cookie, 0)),
            Body::GetDone(done(cookie, 0)),
        ] {
            let kind = body.kind();
            assert_eq!(breach(receive(&mut conn(), 0, body)), ConnError::Cookie { kind, cookie });
        }
    }
}

/// An answer of each kind to an operation of each kind that does not wait for it is a violation.
#[test]
fn answers_to_operations_that_do_not_wait_for_them_are_a_breach() {
    let pieces = [RdmaFragment { length: 100, address: 0 }];
    let descriptor = RdmaDescriptor::new(1, &pieces).unwrap();
    let ack = |source| Body::PutAck { source, sink: THEIRS, descriptor };

    let mut own = conn();
    let cookie = put(&mut own);
    breach(receive(&mut own, 0, Body::GetDone(done(cookie, 0))));
    breach(receive(&mut own, 0, Body::PutDone(done(cookie, 0))));
    let (_, ReceivedMessage::PutAck { put: key, length: 100 }) = receive(&mut own, 0, ack(cookie)).unwrap()
    else {
        panic!("it is wanted")
    };
    breach(receive(&mut own, 0, ack(cookie)));
    breach(receive(&mut own, 0, Body::PutNak(done(cookie, 0))));
    own.done(key, Ok(100), 1, NEVER).unwrap();
    breach(receive(&mut own, 0, ack(cookie)));
    assert_eq!(send_next(&mut own).1, Some(EndedOp { item: 5, outcome: Ok(100) }));
    breach(receive(&mut own, 0, Body::PutNak(done(cookie, 0))));

    let mut own = conn();
    let cookie = asked(&mut own, Own::Get { length: 100 });
    breach(receive(&mut own, 0, ack(cookie)));
    breach(receive(&mut own, 0, Body::PutNak(done(cookie, 0))));
    let ended = receive(&mut own, 0, Body::GetDone(done(cookie, 30))).unwrap();
    assert!(matches!(ended, (Receipt::Answer, ReceivedMessage::Ended(EndedOp { item: 5, outcome: Ok(30) }))));
    breach(receive(&mut own, 0, Body::GetDone(done(cookie, 30))));
}

/// An answer to a message that has not been sent is refused: its cookie may be right, but the peer
/// cannot have written to memory whose address it does not know.
#[test]
fn a_peer_cannot_answer_what_has_not_been_sent() {
    let mut own = conn();
    own.queue(Own::Get { length: 100 }, NEVER, 5).unwrap();
    breach(receive(&mut own, 0, Body::GetDone(done(Cookie::new(0), 100))));
    let mut own = conn();
    let key = takes(&mut own);
    own.ack(key, 100, NEVER).unwrap();
    breach(receive(&mut own, 0, Body::PutDone(done(Cookie::new(key.bits()), 100))));
    assert!(matches!(send_next(&mut own).0, EmitKind::PutAck { source: THEIRS, .. }));
    assert!(receive(&mut own, 0, Body::PutDone(done(Cookie::new(key.bits()), 100))).is_ok());
}

/// The permitted values of an answer's status, and their meanings.
#[test]
fn a_status_is_at_most_what_was_asked_for() {
    let cases = [
        (MessageKind::PutNak, 0, Some(Ok(0))),
        (MessageKind::PutNak, 1, None),
        (MessageKind::PutNak, -12, Some(Err(Errno::ENOMEM))),
        (MessageKind::GetDone, 0, Some(Ok(0))),
        (MessageKind::GetDone, 100, Some(Ok(100))),
        (MessageKind::GetDone, 101, None),
        (MessageKind::GetDone, i32::MAX, None),
        (MessageKind::GetDone, -61, Some(Err(Errno::ENODATA))),
        (MessageKind::GetDone, -100_000, Some(Err(Errno::EIO))),
        (MessageKind::GetDone, i32::MIN, Some(Err(Errno::EIO))),
        (MessageKind::PutDone, 100, Some(Ok(100))),
        // The status is the number of all requested bytes, as in the table of lnet-wire 32.
        (MessageKind::PutDone, 0, Some(Ok(100))),
        (MessageKind::PutDone, 99, None),
        (MessageKind::PutDone, 101, None),
        (MessageKind::PutDone, -90, Some(Err(Errno::EMSGSIZE))),
        (MessageKind::PutDone, i32::MIN, Some(Err(Errno::EIO))),
    ];
    for (kind, status, expected) in cases {
        let mut conn = conn();
        let body = match kind {
            MessageKind::PutNak => Body::PutNak(done(put(&mut conn), status)),
            MessageKind::GetDone => Body::GetDone(done(asked(&mut conn, Own::Get { length: 100 }), status)),
            _ => {
                let key = takes(&mut conn);
                conn.attach(key, 5).unwrap();
                conn.ack(key, 100, NEVER).unwrap();
                send_next(&mut conn);
                Body::PutDone(done(Cookie::new(key.bits()), status))
            }
        };
        match (receive(&mut conn, 0, body), expected) {
            (Ok((_, ReceivedMessage::Ended(ended))), Some(outcome)) => {
                assert_eq!(ended, EndedOp { item: 5, outcome })
            }
            (answer, None) => assert!(matches!(breach(answer), ConnError::Status { .. })),
            (answer, expected) => panic!("{kind} {status}: {answer:?} in place of {expected:?}"),
        }
    }
}

/// lnet-wire 35.2: if the peer's descriptor has more bytes than the payload, the source reports an
/// error and writes nothing.
#[test]
fn a_descriptor_of_more_than_there_is_gets_nothing() {
    let mut conn = conn();
    let cookie = put(&mut conn);
    let pieces = [RdmaFragment { length: u32::MAX, address: 0 }; 257];
    let descriptor = RdmaDescriptor::new(1, &pieces).unwrap();
    let answer = receive(&mut conn, 0, Body::PutAck { source: cookie, sink: THEIRS, descriptor });
    assert!(matches!(answer, Ok((Receipt::Answer, ReceivedMessage::Nothing))));
    let (kind, ended) = send_next(&mut conn);
    assert_eq!(kind, EmitKind::PutDone(done(THEIRS, -71)));
    assert_eq!(ended, Some(EndedOp { item: 5, outcome: Err(Errno::EPROTO) }));
}

#[test]
fn a_handshake_has_no_place_on_a_connection() {
    for body in [Body::ConnReq(ConnParams::DEFAULT), Body::ConnAck(ConnParams::DEFAULT)] {
        assert_eq!(breach(receive(&mut conn(), 0, body)), ConnError::Unexpected { kind: body.kind() });
    }
}

/// lnet-wire 36: a NOOP after 100 s; and at most two NOOPs are posted, even if their sends do not
/// complete.
#[test]
fn a_connection_that_is_idle_says_that_it_lives() {
    let mut conn = conn();
    assert_eq!(conn.deadline_ns(), 100 * S);
    assert!(conn.next(100 * S - 1).is_none());
    let first = conn.next(100 * S).unwrap();
    assert_eq!((first.kind, first.credits), (EmitKind::Noop, 0));
    let id = first.id;
    assert!(conn.next(200 * S).is_none(), "the peer may have stopped, and has no buffers for more");
    assert_eq!(conn.deadline_ns(), u64::MAX);
    let _ = receive(&mut conn, 0, Body::Noop).unwrap();
    assert_eq!(conn.deadline_ns(), 200 * S);
    assert!(conn.next(200 * S).is_some());
    let _ = receive(&mut conn, 0, Body::Noop).unwrap();
    assert!(conn.next(300 * S).is_none(), "two are posted");
    conn.completed(id.bits()).unwrap();
    assert!(conn.next(300 * S).is_some());
    assert!(matches!(conn.completed(id.bits()), Err(ConnError::UnknownSend { .. })), "it has completed");
}

/// The peer has buffers for two NOOPs: one shows that this side lives, and the other one is for
/// credits.
#[test]
fn a_silent_peer_gets_credits_after_a_sign_of_life() {
    let mut conn = conn();
    let mut held: Vec<_> = (0..LIMITS.depth).map(|_| receive(&mut conn, 0, immediate()).unwrap().0).collect();
    conn.send_sign_of_life();
    let sign = conn.next(0).unwrap();
    assert_eq!((sign.kind, sign.credits), (EmitKind::Noop, 0));
    let id = sign.id;
    conn.completed(id.bits()).unwrap();
    conn.send_sign_of_life();
    assert!(conn.next(0).is_none());
    let half = usize::from(LIMITS.depth) / 2;
    held.drain(..half).for_each(|receipt| conn.reposted(receipt));
    assert_eq!(conn.next(0).map(|emit| usize::from(emit.credits)), Some(half));
    held.drain(..half).for_each(|receipt| conn.reposted(receipt));
    assert!(conn.next(0).is_none(), "the peer can use the credits that it has");
    let _ = receive(&mut conn, 0, immediate()).unwrap();
    assert_eq!(conn.next(0).map(|emit| usize::from(emit.credits)), Some(half));
}

#[test]
fn lateness_is_reported_with_its_length() {
    // First state: the request was never posted.
    let mut conn = Conn::new(&Limits { sends: 1, ..LIMITS }, 0);
    conn.queue(Own::Put { length: 100 }, 9, 1).unwrap();
    conn.queue(Own::Immediate, 5, 2).unwrap();
    assert_eq!((conn.deadline_ns(), conn.late(4), conn.late(5)), (5, None, Some(Late::Queued)));
    assert_eq!(conn.withdraw(|item| *item == 2), Some(2));
    assert_eq!((conn.late(8), conn.deadline_ns()), (None, 9));
    // Second state: the request is posted; then its send is complete, and it is not answered.
    let emit = conn.next(0).unwrap();
    let (id, EmitKind::PutReq { cookie }) = (emit.id, emit.kind) else { panic!("it is a PUT") };
    assert_eq!(conn.late(9), Some(Late::Posted));
    conn.completed(id.bits()).unwrap();
    assert_eq!(conn.late(9), Some(Late::Unanswered));
    // Third state: the peer requests the payload, and the writes are not prepared.
    let pieces = [RdmaFragment { length: 100, address: 0 }];
    let descriptor = RdmaDescriptor::new(1, &pieces).unwrap();
    let answer = receive(&mut conn, 0, Body::PutAck { source: cookie, sink: THEIRS, descriptor });
    let (_, ReceivedMessage::PutAck { put, .. }) = answer.unwrap() else { panic!("it is wanted") };
    assert_eq!(conn.late(9), Some(Late::Unprepared));
    conn.done(put, Ok(100), 1, 20).unwrap();
    assert_eq!((conn.late(9), conn.late(20)), (None, Some(Late::Queued)));
    // A request that a lazy portal holds is never late.
    let mut conn = self::conn();
    takes(&mut conn);
    assert_eq!((conn.late(NEVER - 1), conn.deadline_ns()), (None, 100 * S));
}

/// A chain is posted whole or waits; a chain that never fits is refused.
// Covers: S-504
#[test]
fn chains_wait_for_room_and_are_never_split() {
    let mut conn = conn();
    let keys = [(); 3].map(|()| takes(&mut conn));
    assert_eq!(conn.nak(keys[2], Ok(()), NEVER), Ok(None));
    assert_eq!(send_next(&mut conn).0, EmitKind::PutNak(done(THEIRS, 0)));
    assert_eq!(conn.done(keys[0], Ok(1), 1, NEVER), Err(ConnError::Gone { key: keys[0].bits() }), "no GET");

    let pieces = [RdmaFragment { length: 100, address: 0 }];
    let descriptor = RdmaDescriptor::new(1, &pieces).unwrap();
    let puts = [(); 2].map(|()| put(&mut conn)).map(|source| {
        match receive(&mut conn, 0, Body::PutAck { source, sink: THEIRS, descriptor }) {
            Ok((_, ReceivedMessage::PutAck { put, .. })) => put,
            other => panic!("{other:?}"),
        }
    });
    let too_long = conn.done(puts[0], Ok(100), 16, NEVER).unwrap_err();
    assert_eq!((too_long, too_long.errno()), (ConnError::Chain { works: 17, limit: 16 }, Errno::EMSGSIZE));
    assert!(conn.done(puts[0], Ok(101), 1, NEVER).is_err(), "more than was asked for");
    conn.done(puts[0], Ok(100), 9, NEVER).unwrap();
    conn.done(puts[1], Ok(100), 6, NEVER).unwrap();
    conn.queue(Own::Immediate, NEVER, 6).unwrap();
    let first = conn.next(0).unwrap().id;
    assert!(
        conn.next(0).is_none(),
        "10 of 16 are taken, and 7 are needed; what needs less does not overtake"
    );
    assert_eq!(conn.completed(first.bits()).unwrap(), Some(EndedOp { item: 5, outcome: Ok(100) }));
    assert!(matches!(send_next(&mut conn), (EmitKind::PutDone(_), Some(_))));
    assert_eq!(send_next(&mut conn).0, EmitKind::Immediate);
}

/// The keys of ended operations are invalid, even when their slot is in use again.
#[test]
fn a_key_is_never_valid_twice() {
    let mut conn = conn();
    let old = takes(&mut conn);
    conn.nak(old, Err(Errno::ENOMEM), NEVER).unwrap();
    assert_eq!(conn.attach(old, 1), Err(1), "nobody would give it back");
    assert_eq!(send_next(&mut conn).0, EmitKind::PutNak(done(THEIRS, -12)));
    let new = takes(&mut conn);
    assert_ne!(old, new);
    assert_eq!((OpKey::from_bits(new.bits()), OpKey::from_bits(u64::MAX)), (Some(new), None));
    assert!(conn.ack(old, 1, NEVER).is_err() && conn.nak(old, Ok(()), NEVER).is_err());
    assert_eq!((conn.attach(old, 1), conn.item(old).copied(), conn.detach(old)), (Err(1), None, None));
    assert_eq!((conn.attach(new, 1), conn.attach(new, 2), conn.detach(new)), (Ok(()), Err(2), Some(1)));
    conn.ack(new, 1, NEVER).unwrap();
    assert!(conn.ack(new, 1, NEVER).is_err() && conn.attach(new, 1).is_err() && conn.detach(new).is_none());
}
