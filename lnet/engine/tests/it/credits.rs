//! Credits: the number of messages that are handed over at a time, and the queues of the others
//! (lnet-semantics 13).

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use lnet_api::EventKind::Send;
use lnet_api::{
    AckRequest, Arrival, Errno, LNet, Md, MdOptions, NiLimits, RxContext, Threshold, Unlink, Upcalls, Verdict,
};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use proptest::prelude::*;

use super::PARTITIONS;
use super::common::*;

const MANY: usize = 10_000;

fn limited(credits: u32, peer_credits: u32) -> std::sync::Arc<Network> {
    let network = Network::new();
    *network.limits.lock() = NiLimits { credits, peer_credits, ..LIMITS };
    network
}

fn endless(node: &Node) -> lnet_api::MdHandle {
    let md = Md { threshold: Threshold::Infinite, ..node.md(&pattern(16, 1), MdOptions::empty(), 0) };
    node.engine.md_bind(md, Unlink::Retain).unwrap()
}

#[test]
fn no_peer_gets_more_than_its_credits_and_all_messages_leave_in_order() {
    let network = limited(256, 3);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    // The messages use several regions, because some thousand are the limit for those that read one
    // region at a time.
    let mds = [(); 10].map(|()| endless(&a));
    for number in 0..MANY as u64 {
        a.put(mds[number as usize % mds.len()], b.id(), number, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), 3);
    assert_eq!(a.engine.counters().msgs_alloc, MANY as u64);
    for number in 0..MANY as u64 {
        let bits = match network.queue.lock()[0].header.body {
            lnet_proto::Body::Put { match_bits, .. } => match_bits.0,
            other => panic!("{other:?}"),
        };
        assert_eq!(bits, number);
        assert!(network.step());
    }
    assert_eq!(network.most_in_flight.load(Ordering::Relaxed), 3);
    assert_eq!(brief(&a.events()), vec![(Send, Ok(()), false); MANY]);
    assert!(a.is_quiet());
    // All credits are returned: of four messages, three leave at once.
    for _ in 0..4 {
        a.put(mds[0], b.id(), 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), 3);
}

#[test]
fn the_credits_of_an_ni_are_shared_by_its_peers() {
    let network = limited(4, 3);
    let a = Node::new(&network, 2);
    let md = endless(&a);
    let peers: Vec<ProcessId> = (0..10).map(|number| ProcessId::lnet(nid(neighbour(10, number)))).collect();
    for _ in 0..5 {
        for &peer in &peers {
            a.put(md, peer, 1, AckRequest::NoAck).unwrap();
        }
    }
    let mut sent = 0;
    while !network.queue.lock().is_empty() {
        assert!(network.queue.lock().len() <= 4);
        network.lose(0);
        sent += 1;
    }
    assert_eq!((sent, network.most_in_flight.load(Ordering::Relaxed)), (50, 4));
    assert_eq!(a.events().len(), 50);
    assert!(a.is_quiet());
    for &peer in &peers[..5] {
        a.put(md, peer, 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), 4);
}

#[test]
fn a_network_that_fails_at_once_ends_a_long_queue_without_recursion() {
    let network = limited(256, 8);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    let mds = [(); 10].map(|()| endless(&a));
    for number in 0..MANY {
        a.put(mds[number % mds.len()], b.id(), 1, AckRequest::NoAck).unwrap();
    }
    *network.sending.lock() = Sending::Fail(Errno::EHOSTUNREACH);
    network.fail(0, Errno::ECONNRESET);
    while !network.queue.lock().is_empty() {
        network.fail(0, Errno::ECONNRESET);
    }
    let events = a.events();
    let failed = |errno| events.iter().filter(|event| event.status == Err(errno)).count();
    assert_eq!((failed(Errno::ECONNRESET), failed(Errno::EHOSTUNREACH)), (8, MANY - 8));
    assert!(a.is_quiet());
    assert_eq!(a.engine.counters().errors, MANY as u64);
}

#[test]
fn messages_that_waited_too_long_end_with_etimedout_when_their_turn_comes() {
    let network = limited(256, 2);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    let md = endless(&a);
    let start = 5_000_000_000;
    a.engine.advance(start);
    for _ in 0..10 {
        a.put(md, b.id(), 1, AckRequest::NoAck).unwrap();
    }
    let deadline = network.queue.lock()[0].tx.as_ref().unwrap().deadline_ns;
    assert_eq!(deadline, start + LIMITS.timeout_ns + 1_000_000_000);
    a.engine.advance(deadline - 1);
    network.step();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    a.engine.advance(deadline);
    network.step();
    let expected: Vec<_> =
        std::iter::once((Send, Ok(()), false)).chain([(Send, Err(Errno::ETIMEDOUT), false); 7]).collect();
    assert_eq!(brief(&a.events()), expected);
    network.run();
    assert!(a.is_quiet());
}

#[test]
fn both_queues_let_go_what_is_cancelled() {
    // The NI has one credit: one message waits for it with its peer's credit, and others wait for
    // that peer's credits.
    let network = limited(1, 1);
    let a = Node::new(&network, 2);
    let peers = [0, 1, 2].map(|number| ProcessId::lnet(nid(neighbour(10, number))));
    let mds: Vec<_> = (0..9).map(|_| a.bind(&memory(8), 1)).collect();
    for (number, &md) in mds.iter().enumerate() {
        a.put(md, peers[number % 3], number as u64, AckRequest::NoAck).unwrap();
    }
    // All messages but the first and the last are cancelled, from the middle of each queue
    // outwards.
    let order = [4, 1, 7, 2, 5, 3, 6];
    for &number in &order {
        a.engine.md_unlink(mds[number]).unwrap();
        a.engine.audit().unwrap();
    }
    let events = a.events();
    assert_eq!(brief(&events), [(Send, Err(Errno::ECANCELED), true); 7]);
    assert_eq!(events.iter().map(|event| event.md).collect::<Vec<_>>(), order.map(|number| mds[number]));
    assert_eq!(network.queue.lock().len(), 1);
    // The remaining messages are sent.
    for md in [mds[0], mds[8]] {
        network.lose(0);
        let events = a.events();
        assert_eq!((brief(&events), events[0].md), (vec![(Send, Ok(()), true)], md));
    }
    assert!(network.queue.lock().is_empty() && a.is_quiet());
}

#[test]
fn answers_wait_for_credits_like_everything_else() {
    let network = limited(256, 2);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    let md = endless(&b);
    for _ in 0..4 {
        b.put(md, a.id(), 1, AckRequest::NoAck).unwrap();
    }
    b.expect(1, &pattern(4, 1), MdOptions::OP_GET);
    let sink = memory(4);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    assert_eq!(network.queue.lock().len(), 3);
    network.run();
    assert_eq!(content(&sink), pattern_bytes(4, 1));
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn idle_peers_make_room_for_new_ones() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1);
    config.limits.peers = 4;
    let a = Node::with_config(&network, 2, config);
    let md = endless(&a);
    let put = |number| {
        a.put(md, ProcessId::lnet(nid(neighbour(10, number))), 1, AckRequest::NoAck).unwrap();
        a.events().pop().map_or(Ok(()), |event| event.status)
    };
    for number in 0..4 {
        put(number).unwrap();
    }
    // All four MDs have messages in flight.
    assert_eq!(put(4), Err(Errno::ENOMEM));
    network.lose(2);
    put(4).unwrap();
    assert_eq!(put(5), Err(Errno::ENOMEM));
    put(3).unwrap();
    network.lose_all();
    a.events();
    for number in 0..60 {
        put(number).unwrap();
        network.lose(0);
        a.events();
    }
    assert!(a.is_quiet());
}

/// Delivers a GET of the node's ping info in the name of a NID, over a connection from an address.
fn ask(node: &Node, source: Nid, host: IpAddr) {
    let header = Header {
        dest: node.id(),
        src: ProcessId::lnet(source),
        payload_length: 0,
        body: Body::Get {
            return_wmd: WireHandle::new(1, 1),
            match_bits: MatchBits::PING,
            portal: lnet_proto::PING_PORTAL.get(),
            src_offset: 0,
            sink_length: 16,
        },
    };
    let from = ProcessId::lnet(source);
    let arrival = Arrival { ni: node.nid, from, header: &header, host: Some(host), rx: RxContext(1) };
    assert!(matches!(node.engine.parse(&arrival), Verdict::Done));
}

/// Returns one of the NIDs of a host, of which there may be any number.
fn claimed(host: u8, number: u8) -> Nid {
    format!("10.{host}.0.{number}@tcp").parse().unwrap()
}

fn address(host: u8) -> IpAddr {
    format!("10.200.0.{host}").parse().unwrap()
}

/// Returns the credits of an NI in one partition.
fn share_of(credits: u32, peer_credits: u32) -> u32 {
    let partitions = PARTITIONS as u32;
    if partitions == 1 { credits } else { (credits / partitions).max(peer_credits * 8).min(credits) }
}

/// The share of one address: 40 NIDs of the address send requests and do not take the answers.
/// Other peers still get theirs at once, and the waiting messages of the address are sent when its
/// credits are returned.
#[test]
fn one_address_with_many_nids_leaves_credits_to_others() {
    const NIDS: u8 = 40;
    let network = limited(256, 8);
    let node = Node::new(&network, 2);
    for number in 1..=NIDS {
        for _ in 0..8 {
            ask(&node, claimed(9, number), address(9));
        }
    }
    let all = usize::from(NIDS) * 8;
    let held = network.queue.lock().len();
    let most = PARTITIONS * (share_of(256, 8) as usize).div_ceil(2);
    assert!(held <= most && held < all, "{held} of at most {most}");
    assert!(node.engine.is_short(node.nid));
    assert_eq!(node.engine.ni_statistics(node.nid).unwrap().held_back, all - held);
    // Each honest peer has its own address, and therefore its full number of credits.
    for number in 1..=4 {
        for _ in 0..8 {
            ask(&node, claimed(7, number), format!("10.7.0.{number}").parse().unwrap());
        }
    }
    assert_eq!(network.queue.lock().len(), held + 32);
    node.engine.audit().unwrap();
    let mut sent = 0;
    while !network.queue.lock().is_empty() {
        network.lose(0);
        node.engine.audit().unwrap();
        sent += 1;
    }
    assert_eq!(sent, all + 32, "nothing that waited is forgotten");
    assert!(node.is_quiet() && !node.engine.is_short(node.nid));
}

/// A NID that another address has used belongs to its own address as soon as this node sends to the
/// NID.
#[test]
fn a_nid_that_was_claimed_elsewhere_is_not_held_back_with_the_thief() {
    let network = limited(16, 8);
    let node = Node::new(&network, 2);
    let victim = claimed(7, 1);
    ask(&node, victim, address(9));
    network.lose(0);
    // The other NIDs of the thief use up the share of its address in each partition, as the victim
    // may be in any.
    let thieves: Vec<Nid> = (1..=200).map(|number| claimed(9, number)).collect();
    for &thief in &thieves {
        ask(&node, thief, address(9));
    }
    let before = network.queue.lock().len();
    node.put(endless(&node), ProcessId::lnet(victim), 1, AckRequest::NoAck).unwrap();
    assert_eq!(network.queue.lock().len(), before + 1);
    network.lose_all();
    assert!(node.is_quiet());
}

proptest! {
    /// After any requests, answers and withdrawals, the tables agree, no address has more than its
    /// share, and all messages leave in the end.
    #[test]
    fn hosts_share_the_credits(
        steps in proptest::collection::vec((0_u8..4, 1_u8..20, any::<u8>(), any::<bool>()), 1..300),
        credits in 1_u32..64,
        peer_credits in 1_u32..9,
    ) {
        let network = limited(credits, peer_credits);
        let node = Node::new(&network, 2);
        let share = share_of(credits, peer_credits);
        let most = (peer_credits.max(share.div_ceil(2) + 1) as usize) * PARTITIONS;
        let mut asked = 0;
        for (host, number, which, ask_more) in steps {
            if ask_more {
                ask(&node, claimed(host, number), address(host));
                asked += 1;
            } else if !network.queue.lock().is_empty() {
                let length = network.queue.lock().len();
                network.lose(usize::from(which) % length);
                asked -= 1;
            }
            node.engine.audit().unwrap();
            for host in 0..4 {
                let of_host = |packet: &Packet| packet.to.nid.to_string().starts_with(&format!("10.{host}."));
                let held = network.queue.lock().iter().filter(|packet| of_host(packet)).count();
                prop_assert!(held <= most, "{held} of {most}");
            }
        }
        while !network.queue.lock().is_empty() {
            network.lose(0);
            asked -= 1;
        }
        prop_assert_eq!(asked, 0);
        prop_assert!(node.is_quiet());
    }
}
