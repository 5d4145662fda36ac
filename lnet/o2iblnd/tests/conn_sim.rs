//! Two connections in a simulated world, thousands of seeds: no credit is lost or created, no
//! message meets a peer without a buffer, no operation waits forever, and each ends exactly once
//! (lnet-wire 35 and 36).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conn_world;

use conn_world::World;
use conn_world::rng::seeds;
use lnet_o2iblnd::conn::{Limits, Own};

const DEFAULT: Limits =
    Limits { depth: 8, high_water: 4, sends: 8, works: 2080, messages: 256, keepalive_ns: conn_world::NEVER };

#[test]
fn everything_ends_and_all_credits_are_back() {
    let mut total = [0; 3];
    seeds(5000, |seed| {
        let mut world = World::new(seed);
        (0..400).for_each(|_| _ = world.step());
        world.drain();
        world.check_end();
        for node in &world.nodes {
            total[0] += node.ops.len();
            total[1] += node.ops.iter().filter(|op| op.withdrawn).count();
            total[2] += node.noops as usize;
        }
    });
    assert!(total.iter().all(|count| *count > 0), "{total:?}: operations, withdrawn ones, NOOPs");
}

#[test]
fn whenever_the_connection_is_lost_each_operation_ends_once() {
    seeds(25, |seed| {
        for step in 0..300 {
            let mut world = World::new(seed);
            (0..step).for_each(|_| _ = world.step());
            world.lose();
        }
    });
}

/// Messages that a lazy portal holds keep their credits: other messages must still pass, although
/// the high-water mark is never reached.
#[test]
fn held_messages_do_not_stop_the_others() {
    for held in 0..usize::from(DEFAULT.depth) {
        let mut world = World::of(&DEFAULT);
        for _ in 0..held {
            assert!(
                world.nodes[0].queue(Own::Immediate)
                    && world.act(0, 1)
                    && world.deliver(0)
                    && world.process(1)
            );
        }
        // Messages are held here by keeping their receipts.
        for _ in 0..100 {
            assert!(world.nodes[0].queue(Own::Immediate));
        }
        for _ in 0..1000 {
            while world.act(0, 1) || world.act(1, 1) {}
            while world.deliver(0) || world.deliver(1) || world.process(0) || world.process(1) {}
            while world.nodes[0].complete() || world.nodes[1].complete() {}
            while world.nodes[1].receipts.len() > held {
                assert!(world.repost_at(1, held));
            }
            while world.repost_at(0, 0) {}
        }
        assert_eq!(world.nodes[0].credit_messages as usize, held + 100, "{held} held");
        world.drain();
        world.check_end();
    }
}

/// lnet-wire 36: one NOOP for each high-water mark of messages in one direction, and none if
/// messages are sent in the other direction anyway.
#[test]
fn noops_are_as_many_as_the_high_water_mark_makes_them() {
    for both in [false, true] {
        let mut world = World::of(&DEFAULT);
        for _ in 0..100 {
            for at in 0..if both { 2 } else { 1 } {
                assert!(world.nodes[at].queue(Own::Immediate) && world.act(at, 1));
                assert!(world.deliver(at) && world.process(1 - at) && world.repost_at(1 - at, 0));
            }
            while world.act(0, 1) || world.act(1, 1) {}
            while world.deliver(1) || world.process(0) || world.repost_at(0, 0) {}
            while world.nodes[0].complete() || world.nodes[1].complete() {}
        }
        assert_eq!(world.nodes[0].noops, 0);
        assert_eq!(world.nodes[1].noops, if both { 0 } else { 100 / u32::from(DEFAULT.high_water) });
        world.drain();
        world.check_end();
    }
}

/// A peer that processes nothing has enough buffers. It gets at most: credit messages and answers
/// to the connection's depth each, and two NOOPs, even if more credits could be returned.
#[test]
fn a_peer_that_looks_at_nothing_has_buffers_enough() {
    for depth in 1..=16 {
        let mut world = World::of(&Limits { depth, high_water: 1, sends: 64, ..DEFAULT });
        let get = Own::Get { length: 1 };
        let all = |world: &mut World, at: usize| {
            while world.act(at, 1) {}
            while world.deliver(at) {}
            while world.nodes[at].complete() {}
        };
        // The peer requests data, gets its credits back, and uses them again.
        for own in [get, Own::Immediate] {
            for _ in 0..depth {
                assert!(world.nodes[1].queue(own));
            }
            all(&mut world, 1);
            while world.process(0) {
                assert!(world.repost_at(0, 0));
                all(&mut world, 0);
                // After this message the peer processes none.
                while own == get && world.process(1) {
                    assert!(world.repost_at(1, 0));
                    all(&mut world, 1);
                }
            }
        }
        // The node sends its answers, and all other messages that it may send.
        while !world.nodes[0].requests.is_empty() {
            assert!(world.act(0, 7));
            assert!(world.nodes[0].queue(Own::Immediate));
        }
        all(&mut world, 0);
        assert!(world.nodes[1].arrived.len() > 2 * usize::from(depth), "{}", world.nodes[1].arrived.len());
        world.drain();
        world.check_end();
    }
}
