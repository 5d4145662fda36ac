//! Handshakes: recorded ones and both machines together, whole and in pieces (S-207, lnet-wire 21
//! to 24).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Stream, connections};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::sock::{
    AcceptProgress, Acceptor, AcceptorRequest, Attempt, ConnOffer, ConnType, ConnectProgress, Connector,
    Established, Hello, InterfaceAddresses, LocalInterface, LocalNode, Retry, Version, WireBytes,
};
use lnet_proto::{ByteOrder, Decoded, ProtoError};

const SERVER: LocalInterface = LocalInterface { pid: Pid::LNET, incarnation: 0x1122_3344_5566_7788 };

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

fn only(mine: Nid, interface: LocalInterface) -> impl LocalNode + Clone {
    move |nid| (nid == mine).then_some(interface)
}

fn hello_of(bytes: &[u8]) -> Hello {
    match Hello::decode(bytes).unwrap() {
        Decoded::Done(length, (hello, _)) if length == bytes.len() => hello,
        other => panic!("{other:?}"),
    }
}

/// Returns an attempt over IPv4 from a client to a server.
fn attempt() -> Attempt {
    Attempt {
        local: ProcessId::lnet(nid("10.0.0.2@tcp")),
        incarnation: 77,
        peer: ProcessId::lnet(nid("10.0.0.1@tcp")),
        conn_type: ConnType::BulkIn,
        version: Version::V3,
        live_incarnation: None,
    }
}

/// Feeds an acceptor piece by piece; returns the number of bytes consumed, and all progress but
/// "need more".
fn run_acceptor(acceptor: &mut Acceptor<impl LocalNode>, pieces: &[&[u8]]) -> (usize, Vec<AcceptProgress>) {
    let (mut consumed, mut said) = (0, Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let (taken, progress) = acceptor.feed(rest);
            rest = &rest[taken..];
            consumed += taken;
            match progress {
                AcceptProgress::NeedMore => {
                    assert!(rest.is_empty(), "more is wanted with {} bytes left", rest.len());
                    break;
                }
                AcceptProgress::RequestOk { .. } => said.push(progress),
                over => {
                    said.push(over);
                    return (consumed, said);
                }
            }
        }
    }
    (consumed, said)
}

fn run_connector(connector: &mut Connector, pieces: &[&[u8]]) -> (usize, Option<ConnectProgress>) {
    let mut consumed = 0;
    for piece in pieces {
        let (taken, progress) = connector.feed(piece);
        consumed += taken;
        if progress != ConnectProgress::NeedMore {
            return (consumed, Some(progress));
        }
        assert_eq!(taken, piece.len());
    }
    (consumed, None)
}

/// Returns the bytes whole, cut in two at every position, and one at a time.
fn every_cut(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut cuts = vec![vec![bytes], bytes.chunks(1).collect()];
    cuts.extend((0..=bytes.len()).map(|at| vec![&bytes[..at], &bytes[at..]]));
    cuts
}

fn offer_of(said: &[AcceptProgress]) -> ConnOffer {
    match said {
        [AcceptProgress::RequestOk { nid }, AcceptProgress::Hello(offer)] => {
            assert_eq!(*nid, offer.local_nid());
            *offer
        }
        other => panic!("{other:?}"),
    }
}

/// Runs one handshake through both machines.
fn shake(attempt: Attempt, decide: impl Fn(&ConnOffer) -> WireBytes) -> ConnectProgress {
    let mut connector = Connector::new(attempt).unwrap();
    let mut acceptor = Acceptor::new(only(attempt.peer.nid, SERVER));
    let (consumed, said) = run_acceptor(&mut acceptor, &[connector.output()]);
    assert_eq!(consumed, connector.output().len());
    run_connector(&mut connector, &[&decide(&offer_of(&said))]).1.unwrap()
}

// Covers: S-207
#[test]
fn the_acceptor_answers_recorded_nodes_as_the_recorded_node_did() {
    for (active, passive) in connections() {
        let answer = hello_of(passive.hello());
        let interface = LocalInterface { pid: answer.src_pid, incarnation: answer.src_incarnation };
        let bytes = [active.request(), active.hello(), b"a message behind the hello"].concat();
        let handshake_len = active.request().len() + active.hello().len();
        for pieces in every_cut(&bytes) {
            let mut acceptor = Acceptor::new(only(answer.src_nid, interface));
            let (consumed, said) = run_acceptor(&mut acceptor, &pieces);
            assert_eq!(consumed, handshake_len, "{}", active.name);
            let offer = offer_of(&said);
            assert_eq!(offer.hello, hello_of(active.hello()));
            assert_eq!(&offer.accept(offer.claimed()).unwrap()[..], passive.hello(), "{}", active.name);
            assert_eq!(acceptor.feed(b"more"), (0, AcceptProgress::Hello(offer)), "the handshake is over");
        }
    }
}

// Covers: S-207
#[test]
fn the_connector_says_what_the_recorded_node_said_and_understands_the_answer() {
    for (active, passive) in connections() {
        let attempt = recorded_attempt(&active, &passive);
        let answer = hello_of(passive.hello());
        let bytes = [passive.hello(), b"a message behind the hello"].concat();
        for pieces in every_cut(&bytes) {
            let mut connector = Connector::new(attempt).unwrap();
            assert_eq!(connector.output(), [active.request(), active.hello()].concat(), "{}", active.name);
            let (consumed, progress) = run_connector(&mut connector, &pieces);
            let established = ConnectProgress::Established(Established {
                hello: answer,
                byte_order: ByteOrder::Little,
                known_as_nid: attempt.local.nid,
                known_as_pid: None,
            });
            assert_eq!((consumed, progress), (passive.hello().len(), Some(established.clone())));
            assert_eq!(connector.feed(b"more"), (0, established));
        }
    }
}

fn recorded_attempt(active: &Stream, passive: &Stream) -> Attempt {
    let (hello, answer) = (hello_of(active.hello()), hello_of(passive.hello()));
    Attempt {
        local: ProcessId::new(hello.src_nid, hello.src_pid),
        incarnation: hello.src_incarnation,
        peer: ProcessId::new(answer.src_nid, answer.src_pid),
        conn_type: hello.conn_type,
        version: hello.version,
        live_incarnation: Some(answer.src_incarnation),
    }
}

#[test]
fn both_machines_agree_for_every_type_and_version() {
    for conn_type in [ConnType::Any, ConnType::Control, ConnType::BulkIn, ConnType::BulkOut] {
        for version in [Version::V2, Version::V3, Version::V4] {
            let attempt = Attempt { conn_type, version, ..attempt() };
            let progress = shake(attempt, |offer| {
                assert_eq!((offer.claimed(), offer.conn_type()), (attempt.local, conn_type.inverse()));
                offer.accept(offer.claimed()).unwrap()
            });
            let ConnectProgress::Established(established) = progress else { panic!("{progress:?}") };
            assert_eq!(established.hello.version, version);
            assert_eq!(established.hello.src_incarnation, SERVER.incarnation);
            assert_eq!(established.hello.conn_type, conn_type.inverse());
            assert_eq!(established.known_as_nid, attempt.local.nid);
        }
    }
}

#[test]
fn large_nids_shake_hands_in_version_four_only() {
    let (local, peer) = (ProcessId::lnet(nid("fd00::2@tcp")), ProcessId::lnet(nid("fd00::1@tcp")));
    let large = Attempt { local, peer, version: Version::preferred_for(peer.nid), ..attempt() };
    let progress = shake(large, |offer| offer.accept(offer.claimed()).unwrap());
    assert!(matches!(progress, ConnectProgress::Established(_)), "{progress:?}");
    let error = Connector::new(Attempt { version: Version::V3, ..large }).unwrap_err();
    assert_eq!(error, ProtoError::LargeNid { field: "hello src_nid", nid: local.nid });

    // The answer to a version 3 hello after a request for a large NID has the version that is
    // needed.
    let mut request = [0; AcceptorRequest::LARGE_LEN];
    AcceptorRequest::new(peer.nid).emit(&mut request).unwrap();
    let small = Connector::new(attempt()).unwrap();
    let bytes = [&request[..], &small.output()[AcceptorRequest::LEN..]].concat();
    let (_, said) = run_acceptor(&mut Acceptor::new(only(peer.nid, SERVER)), &[&bytes]);
    let Some(AcceptProgress::Reject { reply, .. }) = said.last() else { panic!("{said:?}") };
    let refusal = hello_of(reply);
    assert_eq!((refusal.version, refusal.conn_type), (Version::V4, ConnType::None));
}

/// A peer from an unprivileged port gets its identity in the answer (lnet-wire 27, lnet-measured
/// "Connection set-up").
#[test]
fn a_peer_from_an_unprivileged_port_learns_its_identity() {
    let given = ProcessId::new(nid("192.168.1.9@tcp"), Pid::of_unprivileged_port(40000));
    for given in [given, attempt().local] {
        let progress = shake(attempt(), |offer| offer.accept_unprivileged(given).unwrap());
        let ConnectProgress::Established(established) = progress else { panic!("{progress:?}") };
        assert_eq!(established.known_as_nid, given.nid);
        assert_eq!(established.known_as_pid, Some(given.pid));
    }
}

/// The active side's results for refusals are those of the table in lnet-wire 24.
#[test]
fn the_active_side_reads_refusals_as_the_table_says() {
    let refused = shake(attempt(), ConnOffer::refuse);
    assert_eq!(refused, ConnectProgress::Retry(Retry::Race));

    let stale = Attempt { live_incarnation: Some(SERVER.incarnation - 1), ..attempt() };
    let incarnation = SERVER.incarnation;
    let expected = Retry::Stale { version: Version::V3, incarnation };
    assert_eq!(
        shake(stale, |offer| offer.accept(offer.claimed()).unwrap()),
        ConnectProgress::Retry(expected)
    );
    assert_eq!(shake(stale, ConnOffer::refuse), ConnectProgress::Retry(Retry::Race), "a refusal comes first");
}

/// The active side's result for an answer that differs in one field from the right one.
#[test]
fn the_active_side_checks_every_field_of_the_answer() {
    let attempt = attempt();
    let right = Hello {
        version: Version::V3,
        src_nid: attempt.peer.nid,
        dst_nid: attempt.local.nid,
        src_pid: Pid::LNET,
        dst_pid: Pid(0),
        src_incarnation: 9,
        dst_incarnation: 0,
        conn_type: ConnType::BulkOut,
        addresses: InterfaceAddresses::NONE,
    };
    let answered = |hello: Hello| {
        let mut connector = Connector::new(attempt).unwrap();
        run_connector(&mut connector, &[&hello.to_bytes().unwrap()]).1.unwrap()
    };
    assert!(matches!(answered(right), ConnectProgress::Established(_)));
    let other = nid("10.0.0.1@tcp1");
    let table = [
        (
            Hello { src_nid: other, ..right },
            ConnectProgress::Failed(ProtoError::WrongNid { got: other, wanted: attempt.peer.nid }),
        ),
        (
            Hello { src_pid: Pid(1), ..right },
            ConnectProgress::Failed(ProtoError::WrongPid { got: Pid(1), wanted: Pid::LNET }),
        ),
        (
            Hello { conn_type: ConnType::BulkIn, ..right },
            ConnectProgress::Failed(ProtoError::ConnTypeMismatch {
                got: ConnType::BulkIn,
                wanted: ConnType::BulkOut,
            }),
        ),
        (Hello { conn_type: ConnType::None, ..right }, ConnectProgress::Retry(Retry::Race)),
        (
            Hello { conn_type: ConnType::None, version: Version::V2, ..right },
            ConnectProgress::Retry(Retry::Version { version: Version::V2, incarnation: 9 }),
        ),
        (
            Hello { version: Version::V4, ..right },
            ConnectProgress::Retry(Retry::Stale { version: Version::V4, incarnation: 9 }),
        ),
    ];
    for (hello, expected) in table {
        assert_eq!(answered(hello), expected, "{hello:?}");
    }
}

#[test]
fn the_active_side_understands_a_refused_request() {
    for pieces in every_cut(&AcceptorRequest::REPLY) {
        let mut connector = Connector::new(attempt()).unwrap();
        let (consumed, progress) = run_connector(&mut connector, &pieces);
        let failed = ConnectProgress::Failed(ProtoError::RequestRefused { version: 1 });
        assert_eq!((consumed, progress), (16, Some(failed)));
    }
}

#[test]
fn attempts_that_make_no_sense_are_refused() {
    let good = attempt();
    for bad in [
        Attempt { conn_type: ConnType::None, ..good },
        Attempt { peer: ProcessId::lnet(Nid::ANY), ..good },
        Attempt { peer: ProcessId::lnet(Nid::LOOPBACK), ..good },
        Attempt { local: ProcessId::lnet(Nid::ANY), ..good },
    ] {
        let error = Connector::new(bad).unwrap_err();
        assert!(matches!(error, ProtoError::Attempt { .. }), "{error}");
        assert_eq!(error.errno(), 22);
    }
}

/// lnet-wire 22.5 step 2, lnet-measured: an unknown version is answered by a hello of type NONE.
#[test]
fn unknown_hello_versions_are_answered_with_ours() {
    let connector = Connector::new(attempt()).unwrap();
    let (request, hello) = connector.output().split_at(AcceptorRequest::LEN);
    let mut unknown = hello.to_vec();
    unknown[4..8].copy_from_slice(&5_u32.to_le_bytes());
    let old = [0xed, 0x0d, 0xbc, 0xee, 1, 0, 0, 0];
    let mut flipped = unknown.clone();
    flipped[..4].reverse();
    flipped[4..8].reverse();
    for hello in [&unknown[..], &old, &flipped] {
        let bytes = [request, hello].concat();
        for pieces in every_cut(&bytes) {
            let mut acceptor = Acceptor::new(only(attempt().peer.nid, SERVER));
            let (consumed, said) = run_acceptor(&mut acceptor, &pieces);
            assert_eq!(consumed, request.len() + 8, "nothing behind the version is believed");
            let [_, AcceptProgress::Reject { reply, reason }] = &said[..] else { panic!("{said:?}") };
            assert!(matches!(reason, ProtoError::Version { object: "hello", .. }), "{reason}");
            let reply = hello_of(reply);
            assert_eq!((reply.version, reply.conn_type), (Version::V3, ConnType::None));
            assert_eq!((reply.src_nid, reply.src_incarnation), (attempt().peer.nid, SERVER.incarnation));
        }
    }
}

/// A node that supports version 2 answers with it, and the active side tries again with it.
#[test]
fn a_version_in_a_refusal_is_used() {
    let first = attempt();
    let refusal = Hello {
        version: Version::V2,
        conn_type: ConnType::None,
        src_nid: first.peer.nid,
        dst_nid: Nid::ANY,
        src_pid: Pid::LNET,
        dst_pid: Pid(0),
        src_incarnation: 3,
        dst_incarnation: 0,
        addresses: InterfaceAddresses::NONE,
    };
    let mut connector = Connector::new(first).unwrap();
    let (_, progress) = connector.feed(&refusal.to_bytes().unwrap());
    let ConnectProgress::Retry(Retry::Version { version, .. }) = progress else { panic!("{progress:?}") };
    let second = shake(Attempt { version, ..first }, |offer| offer.accept(offer.claimed()).unwrap());
    assert!(matches!(second, ConnectProgress::Established(_)));
}

#[test]
fn what_the_acceptor_does_not_want_is_closed_in_silence() {
    let connector = Connector::new(attempt()).unwrap();
    let (request, hello) = connector.output().split_at(AcceptorRequest::LEN);
    let with = |offset: usize, bytes: &[u8]| {
        let mut hello = hello.to_vec();
        hello[offset..offset + bytes.len()].copy_from_slice(bytes);
        [request, &hello].concat()
    };
    let mut elsewhere = connector.output().to_vec();
    elsewhere[8] ^= 1;
    for (what, bytes) in [
        ("another node's NID", elsewhere),
        ("no LNet at all", b"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n".to_vec()),
        ("hello magic", with(0, b"GET ")),
        ("wildcard sender", with(8, &[0xff; 8])),
        ("loopback sender", with(8, &0x0009_0000_0000_0000_u64.to_le_bytes())),
        ("sender that is no NID", with(8, &0x0102_0000_0a00_0001_u64.to_le_bytes())),
        ("type NONE", with(48, &(-1_i32).to_le_bytes())),
        ("type 4", with(48, &4_i32.to_le_bytes())),
        ("type -2", with(48, &(-2_i32).to_le_bytes())),
        ("17 addresses", with(52, &17_u32.to_le_bytes())),
        ("2^32 - 1 addresses", with(52, &u32::MAX.to_le_bytes())),
    ] {
        for pieces in every_cut(&bytes) {
            let mut acceptor = Acceptor::new(only(attempt().peer.nid, SERVER));
            let (_, said) = run_acceptor(&mut acceptor, &pieces);
            let Some(AcceptProgress::Reject { reply, reason }) = said.last() else {
                panic!("{what}: {said:?}")
            };
            assert!(reply.is_empty(), "{what}");
            assert_eq!(reason.errno(), 71, "{what}: {reason}");
        }
    }
}

// Covers: S-207
#[test]
fn old_nodes_list_their_addresses_and_are_understood() {
    let connector = Connector::new(attempt()).unwrap();
    let (request, hello) = connector.output().split_at(AcceptorRequest::LEN);
    let addresses: Vec<_> = (1..=16).map(|host| std::net::Ipv4Addr::new(10, 0, 0, host)).collect();
    for count in 0..=16 {
        let addresses = InterfaceAddresses::new(&addresses[..count]).unwrap();
        let hello = Hello { addresses, ..hello_of(hello) };
        let bytes = [request, &hello.to_bytes().unwrap()[..]].concat();
        for pieces in every_cut(&bytes) {
            let mut acceptor = Acceptor::new(only(attempt().peer.nid, SERVER));
            let (consumed, said) = run_acceptor(&mut acceptor, &pieces);
            assert_eq!((consumed, offer_of(&said).hello), (bytes.len(), hello));
        }
        if count > 0 {
            let mut zeroed = bytes.clone();
            let last = zeroed.len() - 4;
            zeroed[last..].fill(0);
            let (_, said) = run_acceptor(&mut Acceptor::new(only(attempt().peer.nid, SERVER)), &[&zeroed]);
            let Some(AcceptProgress::Reject { reason, .. }) = said.last() else { panic!("{said:?}") };
            assert_eq!(*reason, ProtoError::ZeroAddress { index: count - 1 });
        }
    }
}

#[test]
fn a_big_endian_peer_is_understood_and_remembered() {
    let connector = Connector::new(attempt()).unwrap();
    let mut bytes = connector.output().to_vec();
    let fields =
        [0..4, 4..8, 8..16, 16..20, 20..24, 24..32, 32..40, 40..44, 44..48, 48..56, 56..64, 64..68, 68..72];
    for field in fields {
        bytes[field].reverse();
    }
    for pieces in every_cut(&bytes) {
        let mut acceptor = Acceptor::new(only(attempt().peer.nid, SERVER));
        let offer = offer_of(&run_acceptor(&mut acceptor, &pieces).1);
        assert_eq!(offer.byte_order, ByteOrder::Big);
        assert_eq!(offer.hello, hello_of(&connector.output()[AcceptorRequest::LEN..]));
    }
}

#[test]
fn a_connection_closed_early_says_how_far_it_came() {
    let mut connector = Connector::new(attempt()).unwrap();
    assert_eq!(connector.closed(), ProtoError::Closed { object: "hello", length: 0 });
    assert_eq!(connector.closed().errno(), 104);
    let mut acceptor = Acceptor::new(only(attempt().peer.nid, SERVER));
    acceptor.feed(&connector.output()[..10]);
    assert_eq!(acceptor.closed(), ProtoError::Closed { object: "connection request", length: 10 });
    assert_eq!(acceptor.closed().errno(), 71);
    acceptor.feed(&connector.output()[10..16]);
    acceptor.feed(&connector.output()[16..36]);
    assert_eq!(acceptor.closed(), ProtoError::Closed { object: "hello", length: 20 });
    connector.feed(&[0x63]);
    assert_eq!(connector.closed(), ProtoError::Closed { object: "hello", length: 1 });
}

/// lnet-wire 24, row 1: both nodes connect at once. The node with the higher NID refuses the
/// other's connection, so its own one stays.
#[test]
fn a_race_leaves_one_connection() {
    let low = ProcessId::lnet(nid("10.0.0.1@tcp"));
    let high = ProcessId::lnet(nid("10.0.0.2@tcp"));
    let attempt_of = |local, peer| Attempt { local, peer, conn_type: ConnType::Control, ..attempt() };
    let attempts = [attempt_of(low, high), attempt_of(high, low)];
    // Both attempts begin before either is answered.
    let mut connectors = attempts.map(|attempt| Connector::new(attempt).unwrap());
    let answers = [0, 1].map(|index| {
        let mut acceptor = Acceptor::new(only(attempts[index].peer.nid, SERVER));
        let offer = offer_of(&run_acceptor(&mut acceptor, &[connectors[index].output()]).1);
        let own_wins = offer.hello.src_nid.to_wire() < offer.local_nid().to_wire();
        if own_wins { offer.refuse() } else { offer.accept(offer.claimed()).unwrap() }
    });
    let [lost, won] = [0, 1].map(|index| connectors[index].feed(&answers[index]).1);
    assert_eq!(lost, ConnectProgress::Retry(Retry::Race));
    let ConnectProgress::Established(established) = won else { panic!("{won:?}") };
    assert_eq!(established.hello.src_nid, low.nid);
}
