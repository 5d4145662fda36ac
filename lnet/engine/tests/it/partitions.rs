//! The partitions of entries, the partitions that messages search, and the queue in which they wait
//! (S-308 to S-310).

use std::sync::Arc;

use lnet::{EngineConfig, Rotor, Stealing};
use lnet_api::EventKind::Put;
use lnet_api::{LNet, Md, MdHandle, MdOptions, MeSpec, Position, Threshold, Unlink};
use lnet_cpt::with_partition;
use lnet_nid::{MatchBits, Pid};

use super::PARTITIONS;
use super::common::*;

/// Creates a node whose messages search the partition in which they arrive and, with
/// [`Stealing::LazyPuts`], no other one if that has buffers.
fn node(stealing: Stealing) -> (Arc<Network>, Node) {
    let network = Network::new();
    let config = EngineConfig { portal_rotor: Rotor::Off, stealing, ..EngineConfig::new(Pid::LNET, 1) };
    let node = Node::with_config(&network, 2, config);
    (network, node)
}

/// Posts a buffer for some messages from a thread of a partition.
fn post(node: &Node, here: usize, position: Position, bits: u64, messages: u32) -> MdHandle {
    post_as(node, here, &MeSpec { position, ..spec(bits) }, messages)
}

fn post_as(node: &Node, here: usize, spec: &MeSpec, messages: u32) -> MdHandle {
    with_partition(here, || {
        let me = node.engine.me_attach(spec).unwrap();
        let md = node.md(&memory(64), MdOptions::OP_PUT, messages);
        node.engine.md_attach(me, md, Unlink::Auto).unwrap()
    })
}

/// Sends an empty message; returns the MD that took it, if any.
fn send(network: &Network, node: &Node, from: usize, bits: u64) -> Option<MdHandle> {
    network.arrive(put_from(node, peer_of(from), bits, vec![]));
    node.events().pop().map(|event| {
        assert_eq!(event.kind, Put);
        event.md
    })
}

/// `LNET_INS_AFTER_CPU`: entries in the partition of the calling thread.
// Covers: S-308
#[test]
fn a_local_entry_is_in_the_partition_of_its_poster() {
    let (network, node) = node(Stealing::LazyPuts);
    let mds: Vec<_> =
        (0..PARTITIONS).map(|here| post(&node, here, Position::Local, here as u64, 1000)).collect();
    for from in 0..PARTITIONS {
        for (bits, &md) in mds.iter().enumerate() {
            assert_eq!(send(&network, &node, from, bits as u64), (from == bits).then_some(md));
        }
    }
}

/// `LNET_INS_AFTER` and `LNET_INS_BEFORE`: other entries are in the partition of their transfer
/// machine.
// Covers: S-308
#[test]
fn other_entries_are_in_the_partition_of_their_machine() {
    let (network, node) = node(Stealing::LazyPuts);
    // With an entry in each partition, messages search all of them.
    for here in 0..PARTITIONS {
        post(&node, here, Position::Local, 99, 1);
    }
    let expect = |spec: &MeSpec, here: usize, bits: u64, home: usize| {
        let md = post_as(&node, here, spec, 1);
        for from in (0..PARTITIONS).filter(|&from| from != home) {
            assert_eq!(send(&network, &node, from, bits), None);
        }
        assert_eq!(send(&network, &node, home, bits), Some(md));
    };
    let portal = portal().index();
    for here in 0..PARTITIONS {
        for position in [Position::Before, Position::After] {
            for machine in [0, 1, 2, 3, 4, 4095] {
                let bits = (machine as u64) << 52 | 1;
                let spec = MeSpec { position, ..spec(bits) };
                expect(&spec, here, bits, (portal + machine) % PARTITIONS);
                let masked = MeSpec { ignore_bits: MatchBits(2), ..spec };
                expect(&masked, here, bits, portal % PARTITIONS);
                // As long as there is an entry with ignore bits, all are in one partition.
                let masked = node.engine.me_attach(&masked).unwrap();
                expect(&spec, here, bits, portal % PARTITIONS);
                node.engine.me_unlink(masked).unwrap();
                expect(&spec, here, bits, (portal + machine) % PARTITIONS);
            }
        }
    }
}

// Covers: S-309
#[test]
fn a_message_takes_buffers_of_other_partitions_from_its_own_upwards() {
    for from in 0..PARTITIONS {
        let (network, node) = node(Stealing::All);
        let mds: Vec<_> = (0..PARTITIONS).map(|here| post(&node, here, Position::Local, 1, 1)).collect();
        let expected: Vec<_> = (from..PARTITIONS).chain(0..from).map(|at| mds[at]).collect();
        let taken: Vec<_> = (0..PARTITIONS).filter_map(|_| send(&network, &node, from, 1)).collect();
        assert_eq!(taken, expected);
        assert_eq!(send(&network, &node, from, 1), None);
    }
}

/// Current LNet steals for PUTs on lazy portals only.
// Covers: S-309
#[test]
fn lazy_portals_steal_in_any_case() {
    let (network, node) = node(Stealing::LazyPuts);
    node.engine.set_lazy(portal(), true);
    for here in 0..PARTITIONS {
        post(&node, here, Position::Local, 99, 1);
        let md = post(&node, here, Position::Local, 1, PARTITIONS as u32);
        let taken: Vec<_> = (0..PARTITIONS).filter_map(|from| send(&network, &node, from, 1)).collect();
        assert_eq!(taken, vec![md; PARTITIONS]);
    }
}

/// A skipped partition shows in the first one that is searched instead, and only there.
// Covers: S-309
#[test]
fn a_partition_without_buffers_is_skipped_after_a_while_until_one_is_posted() {
    let (network, node) = node(Stealing::LazyPuts);
    let last = PARTITIONS - 1;
    let other = post(&node, 0, Position::Local, 1, 1000);
    let own = post(&node, last, Position::Local, 2, 1);
    assert_eq!(send(&network, &node, last, 2), Some(own));
    // The partition has been empty only for a short time: messages search it, and miss the buffer
    // in the other partition, if there is one.
    let missed = if PARTITIONS == 1 { Some(other) } else { None };
    assert_eq!(send(&network, &node, last, 1), missed);
    node.engine.advance(lnet::ADVANCE_INTERVAL_NS - 1);
    assert_eq!(send(&network, &node, last, 1), missed);
    node.engine.advance(lnet::ADVANCE_INTERVAL_NS);
    // This message is the last to search the empty partition.
    assert_eq!(send(&network, &node, last, 1), missed);
    assert_eq!(send(&network, &node, last, 1), Some(other));
    let own = post(&node, last, Position::Local, 2, 1);
    assert_eq!(send(&network, &node, last, 2), Some(own));
    assert_eq!(send(&network, &node, last, 1), missed);
}

/// A buffer that is used up counts as a buffer while it exists.
// Covers: S-309
#[test]
fn a_partition_with_an_exhausted_buffer_does_not_rest() {
    let (network, node) = node(Stealing::LazyPuts);
    let last = PARTITIONS - 1;
    let other = post(&node, 0, Position::Local, 1, 1000);
    with_partition(last, || {
        let me = node.engine.me_attach(&MeSpec { position: Position::Local, ..spec(2) }).unwrap();
        node.engine.md_attach(me, node.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Retain).unwrap()
    });
    assert!(send(&network, &node, last, 2).is_some());
    node.engine.advance(10 * lnet::ADVANCE_INTERVAL_NS);
    for _ in 0..3 {
        assert_eq!(send(&network, &node, last, 1), if PARTITIONS == 1 { Some(other) } else { None });
    }
}

/// All partitions share one queue; events are delivered in its order too.
// Covers: S-109, S-310
#[test]
fn messages_of_all_partitions_wait_in_one_queue() {
    for here in 0..PARTITIONS {
        let (network, node) = node(Stealing::All);
        node.engine.set_lazy(portal(), true);
        // The messages arrive in partitions in no particular order.
        let from: Vec<usize> = (0..12).map(|number| number * 7 % 5 % PARTITIONS).collect();
        for (number, &from) in from.iter().enumerate() {
            network.arrive(put_from(&node, peer_of(from), 1, vec![number as u8; 2]));
        }
        assert_eq!((network.verdicts().delayed, node.events()), (12, vec![]));
        assert_eq!(node.engine.counters().msgs_alloc, 12);
        let buffer = memory(24);
        with_partition(here, || {
            let me = node.engine.me_attach(&MeSpec { position: Position::Local, ..spec(1) }).unwrap();
            let md = Md { threshold: Threshold::Infinite, ..node.md(&buffer, MdOptions::OP_PUT, 0) };
            node.engine.md_attach(me, md, Unlink::Auto).unwrap()
        });
        let events = node.events();
        let sources: Vec<_> = events.iter().map(|event| event.sender).collect();
        assert_eq!(sources, from.iter().map(|&from| peer_of(from)).collect::<Vec<_>>());
        assert_eq!(content(&buffer), (0..24).map(|at| at / 2).collect::<Vec<u8>>());
        assert!(node.is_quiet());
    }
}
