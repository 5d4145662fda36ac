//! Two nodes that connect to each other in a simulated world (lnet-wire 33 and 34, lnet-semantics
//! 35, S-501 to S-503).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod links_world;
#[path = "conn_world/rng.rs"]
mod rng;

use links_world::{NodeConfig, S, World};
use lnet_sim::Rng;
use rng::seeds;

fn config(rng: &mut Rng) -> NodeConfig {
    NodeConfig {
        conns: rng.between((1, 4)) as u8,
        depth: rng.between((8, 255)) as u16,
        fragments: rng.between((2, 257)) as u16,
        device_depth: if rng.below(4) == 0 { rng.between((2, 20)) as u16 } else { 255 },
        races: 0,
    }
}

/// For every order in which their requests cross, both are connected, by connections that both
/// know, with the smaller parameters of both. One may be a kernel node, which rejects requests
/// while it connects itself.
#[test]
fn two_nodes_agree() {
    let (mut raced, mut crossed) = (0, 0);
    seeds(20_000, |seed| {
        let mut rng = Rng::new(seed);
        let mut both = [config(&mut rng), config(&mut rng)];
        both[1].races = if rng.below(2) == 0 { rng.between((1, 20)) as u32 } else { 0 };
        let mut world = World::new(both);
        let sends = rng.between((1, 3));
        for at in 0..2 {
            world.nodes[at].waiting = sends & (1 << at) != 0;
        }
        world.settle(&mut rng);
        world.check();
        let depth = both.map(|one| one.depth.min(one.device_depth)).into_iter().min().unwrap();
        let fragments = both.map(|one| one.fragments).into_iter().min().unwrap();
        for node in &world.nodes {
            assert!(!node.live.is_empty() && node.failed == 0 && !node.waiting);
            for link in node.live.values() {
                assert_eq!((link.params.queue_depth, link.params.max_fragments), (depth, fragments));
            }
        }
        raced += u32::from(both[1].races > world.nodes[1].config.races);
        let own = |at: usize| world.nodes[at].live.values().any(|link| link.own);
        crossed += u32::from(own(0) && own(1));
        if sends != 3 {
            let active = usize::from(sends == 2);
            assert_eq!(world.nodes[active].live.len(), both[active].conns.into(), "all that it wants");
        }
    });
    assert!(raced > 0 && crossed > 0, "{raced} races, {crossed} connections that crossed");
}

/// Connections break, nodes restart, messages in flight are lost: in the end all connections are of
/// the current incarnations, and a message is delivered, or fails and is delivered later.
#[test]
fn nodes_find_each_other_again_after_any_trouble() {
    let mut failed = 0;
    seeds(20_000, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new([config(&mut rng), config(&mut rng)]);
        world.nodes[1].config.races = rng.below(4) as u32;
        for _ in 0..rng.between((1, 300)) {
            match rng.below(60) {
                0 => world.break_one(&mut rng),
                1 => world.lose_event(&mut rng),
                2 if rng.below(3) == 0 => {
                    let at = rng.index(2);
                    world.restart(at);
                }
                3..9 => {
                    let at = rng.index(2);
                    world.nodes[at].waiting = true;
                }
                _ => _ = world.step(&mut rng),
            }
        }
        world.settle(&mut rng);
        world.check();
        // A pause takes at most a minute.
        world.now_ns += 60 * S;
        for at in 0..2 {
            let before = world.nodes[at].sent;
            world.nodes[at].waiting = true;
            world.settle(&mut rng);
            world.check();
            assert_eq!(world.nodes[at].sent, before + 1, "node {at} reaches its peer");
        }
        failed += world.nodes[0].failed + world.nodes[1].failed;
    });
    assert!(failed > 0, "no message ever failed");
}

/// A peer that loses all messages in flight, or all connections at once: attempts become rarer.
#[test]
fn no_thread_is_kept_busy() {
    seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let conns = rng.between((1, 4)) as u8;
        let mut world = World::new([NodeConfig { conns, ..NodeConfig::PLAIN }, NodeConfig::PLAIN]);
        let drops = rng.below(2) == 0;
        while world.now_ns < 1000 * S {
            world.nodes[0].waiting = true;
            for _ in 0..40 {
                if drops {
                    world.break_one(&mut rng)
                } else {
                    world.lose_event(&mut rng)
                }
                if !world.step(&mut rng) {
                    break;
                }
            }
            world.now_ns += S / 2;
        }
        // The pauses are 1, 2, 4 … 60 s: some 20 in all. With each come all connections, and a few
        // attempts without a pause before.
        assert!(world.nodes[0].attempts <= 40 * u32::from(conns), "{} attempts", world.nodes[0].attempts);
    });
}
