//! Counters of the node, its NIs and its peers (lnet-semantics 13, 17 and 18), and distances of
//! nodes.

use lnet::{ByKind, Counters, EngineConfig, PeerStatistics, Traffic};
use lnet_api::{AckRequest, Distance, Errno, LNet, MdOptions, NiLimits};
use lnet_nid::{Nid, Pid, ProcessId};

use super::PARTITIONS;
use super::common::*;

fn peer(node: &Node, nid: Nid) -> PeerStatistics {
    node.engine.peer_statistics().into_iter().find(|peer| peer.nid == nid).unwrap()
}

/// Sends an acknowledged PUT, a GET, and a PUT without a buffer.
fn talk(network: &Network, from: &Node, to: &Node, target: ProcessId) {
    to.expect(1, &memory(100), MdOptions::OP_PUT);
    from.put(from.bind(&memory(100), 2), target, 1, AckRequest::Ack).unwrap();
    to.expect(2, &memory(50), MdOptions::OP_GET);
    from.get(from.bind(&memory(50), 2), target, 2).unwrap();
    from.put(from.bind(&memory(7), 1), target, 99, AckRequest::NoAck).unwrap();
    network.run();
}

#[test]
fn nis_and_peers_count_what_went_over_them() {
    let (network, a, b) = two_nodes();
    talk(&network, &a, &b, b.id());
    let asked = ByKind { put: 2, get: 1, ..ByKind::default() };
    let taken = ByKind { put: 1, get: 1, ..ByKind::default() };
    let answered = ByKind { ack: 1, reply: 1, ..ByKind::default() };
    let lost = ByKind { put: 1, ..ByKind::default() };
    let at_a = Traffic { sent: asked, received: answered, dropped: ByKind::default() };
    let at_b = Traffic { sent: answered, received: taken, dropped: lost };
    assert_eq!(a.engine.ni_statistics(a.nid).unwrap().traffic, at_a);
    assert_eq!(b.engine.ni_statistics(b.nid).unwrap().traffic, at_b);
    assert_eq!((asked.sum(), answered.sum()), (3, 2));
    assert_eq!((peer(&a, b.nid).traffic, peer(&b, a.nid).traffic), (at_a, at_b));
    assert_eq!(a.engine.ni_statistics(Nid::LOOPBACK).unwrap().traffic, Traffic::default());
    assert_eq!(a.engine.ni_statistics(nid(99)), None);
    let counters = a.engine.counters();
    let expected = Counters { send_count: 3, recv_count: 2, send_length: 107, recv_length: 50, ..counters };
    assert_eq!(counters, expected);
    let counters = b.engine.counters();
    let expected = Counters { send_count: 2, recv_count: 2, send_length: 50, recv_length: 100, ..counters };
    assert_eq!(counters, Counters { drop_count: 1, drop_length: 7, ..expected });
}

#[test]
fn loopback_counts_for_itself() {
    let (network, a) = one_node();
    talk(&network, &a, &a, ProcessId::lnet(Nid::LOOPBACK));
    let lo = a.engine.ni_statistics(Nid::LOOPBACK).unwrap();
    assert!(lo.up && lo.nid == Nid::LOOPBACK);
    let sent = ByKind { put: 2, get: 1, ack: 1, reply: 1 };
    let received = ByKind { put: 1, ..sent };
    let dropped = ByKind { put: 1, ..ByKind::default() };
    assert_eq!(lo.traffic, Traffic { sent, received, dropped });
    assert_eq!(a.engine.ni_statistics(a.nid).unwrap().traffic, Traffic::default());
    assert_eq!(a.engine.peer_statistics(), []);
}

#[test]
fn the_line_of_counters_is_that_of_lctl() {
    let counters = Counters {
        msgs_alloc: 1,
        msgs_max: 2,
        rst_alloc: 99,
        errors: 3,
        send_count: 4,
        recv_count: 5,
        drop_count: 6,
        response_timeout_count: 98,
        send_length: 7,
        recv_length: 8,
        drop_length: 9,
        pushes_ignored: 0,
    };
    assert_eq!(counters.to_string(), "1 2 3 4 5 0 6 7 8 0 9");
}

#[test]
fn a_queue_shows_in_the_credits_of_its_peer() {
    let (network, a) = one_node();
    let more = 5;
    for _ in 0..LIMITS.peer_credits + more {
        a.put(a.bind(&memory(28), 1), ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    }
    let (most, queued) = (i64::from(LIMITS.peer_credits), -i64::from(more));
    let to = peer(&a, nid(3));
    assert_eq!((to.max_ni_tx_credits, to.available_tx_credits, to.min_tx_credits), (most, queued, queued));
    assert_eq!(to.tx_q_num_of_buf, u64::from(LIMITS.peer_credits + more) * (28 + 72));
    network.run();
    let to = peer(&a, nid(3));
    assert_eq!((to.available_tx_credits, to.min_tx_credits, to.tx_q_num_of_buf), (most, queued, 0));
}

/// lnet-semantics 13: the NI's credit is returned first, so that the message that the peer's credit
/// starts finds it.
#[test]
fn the_credit_of_the_ni_comes_back_before_that_of_the_peer() {
    let network = Network::new();
    *network.limits.lock() = NiLimits { credits: 1, peer_credits: 1, ..LIMITS };
    let a = Node::new(&network, 2);
    for _ in 0..3 {
        a.put(a.bind(&memory(8), 1), ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    }
    network.lose_all();
    let ni = a.engine.ni_statistics(a.nid).unwrap();
    let idle = PARTITIONS as i64;
    assert_eq!((ni.credits, ni.available_tx_credits, ni.min_tx_credits), (idle, idle, idle - 1));
}

/// The credits of peers, and of NIs whose peers belong to some partitions only (lnet-semantics 13,
/// S-315).
// Covers: S-209, S-307
#[test]
fn the_credits_of_an_ni_are_split_over_its_partitions() {
    let subsets = (1..=PARTITIONS).map(|count| (PARTITIONS - count..PARTITIONS).collect::<Vec<_>>());
    for cpts in subsets.chain([vec![]]) {
        let partitions = if cpts.is_empty() { PARTITIONS as u32 } else { cpts.len() as u32 };
        for (credits, peer_credits) in [(256, 8), (256, 1), (256, 100), (5, 2), (1, 1), (1000, 8)] {
            let network = Network::new();
            *network.limits.lock() = NiLimits { credits, peer_credits, ..LIMITS };
            let engine = lnet::Engine::new(partitioned(EngineConfig::new(Pid::LNET, 1)));
            engine.add_ni_on(ProcessId::lnet(nid(2)), network.clone(), &cpts).unwrap();
            let each = match partitions {
                1 => credits,
                many => credits.min((credits / many).max(8 * peer_credits)),
            };
            let all = i64::from(each * partitions);
            let ni = engine.ni_statistics(nid(2)).unwrap();
            assert_eq!((ni.credits, ni.available_tx_credits, ni.min_tx_credits), (all, all, all));
        }
    }
}

// Covers: S-315
#[test]
fn partitions_that_an_ni_cannot_have_are_refused() {
    let (network, a) = one_node();
    let add = |cpts: &[usize]| a.engine.add_ni_on(ProcessId::lnet(nid(5)), network.clone(), cpts);
    for cpts in [&[PARTITIONS][..], &[usize::MAX], &[0, 0], &[0, PARTITIONS]] {
        assert_eq!(errno(add(cpts)), Errno::EINVAL);
    }
    assert_eq!(a.engine.local_ids().len(), 2);
    for cpt in (0..PARTITIONS).rev() {
        add(&[cpt]).unwrap();
        for last in 10..20 {
            assert_eq!(lnet_api::Upcalls::partition_of(&*a.engine, nid(5), nid(last)), cpt);
        }
        // Messages of the NI are sent and received in its partitions as in any other.
        let buffer = memory(4);
        a.expect(1, &buffer, MdOptions::OP_PUT);
        let mut packet = put_from(&a, nid(10), 1, vec![cpt as u8; 4]);
        (packet.to, packet.header.dest) = (ProcessId::lnet(nid(5)), ProcessId::lnet(nid(5)));
        network.arrive(packet);
        assert_eq!(content(&buffer), [cpt as u8; 4]);
        a.engine.remove_ni(nid(5)).unwrap();
    }
    assert!(a.is_quiet());
}

#[test]
fn distances_tell_hops_and_the_nid_to_send_from() {
    for zero in [true, false] {
        let network = Network::new();
        let config = EngineConfig { local_nid_dist_zero: zero, ..EngineConfig::new(Pid::LNET, 1) };
        let a = Node::with_config(&network, 2, config);
        let second: Nid = "10.88.0.2@tcp1".parse().unwrap();
        a.engine.add_ni(ProcessId::lnet(second), network.clone()).unwrap();
        let distance = |nid: &str| a.engine.distance(nid.parse().unwrap());
        let here = u32::from(!zero);
        let own = |order, source| Ok(Distance { hops: here, order, source });
        assert_eq!(distance("0@lo"), own(0, Nid::LOOPBACK));
        assert_eq!(distance("10.77.0.2@tcp"), own(1, a.nid));
        assert_eq!(distance("10.88.0.2@tcp1"), own(2, second));
        assert_eq!(distance("10.77.0.9@tcp"), Ok(Distance { hops: 1, order: 1, source: a.nid }));
        assert_eq!(distance("10.1.2.3@tcp1"), Ok(Distance { hops: 1, order: 2, source: second }));
        assert_eq!(errno(distance("10.1.2.3@o2ib")), Errno::EHOSTUNREACH);
        a.engine.remove_ni(a.nid).unwrap();
        assert_eq!(errno(distance("10.77.0.9@tcp")), Errno::EHOSTUNREACH);
        assert_eq!(distance("10.88.0.2@tcp1"), own(1, second));
    }
}
