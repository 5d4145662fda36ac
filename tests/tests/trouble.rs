//! Two processes with faults between them: delays, split data, cuts, simultaneous connects,
//! restarts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::Command;
use std::time::Duration;

use support::forwarder::{Forwarder, NO_FAULTS, NetworkFaults};
use support::peer::{PORT, Peer, Stream, Values, address, exchange, hung_unless};

/// Short pauses between attempts to connect, for tests that make many of them fail.
const QUICK: &str = "sock_timeout=2 transaction_timeout=4 min_reconnectms=20 max_reconnectms=100";

/// TCP preserves no boundaries: with pieces of any length and delay, every message arrives whole.
#[test]
fn messages_that_come_late_and_in_pieces() {
    let forwarder = Forwarder::new([address(), address()]);
    let [mut one, mut other] = forwarder.peers(["partitions=2", "partitions=1"]);
    let late = |ms, piece| NetworkFaults { delay: Duration::from_millis(ms), piece, ..NO_FAULTS };
    let fault_sets =
        [(late(0, 3), 929), (late(1, 97), 16_383), (late(3, 1500), 65_536), (late(10, 1 << 16), 1 << 20)];
    for (seed, (faults, max)) in (0..).zip(fault_sets) {
        forwarder.set(faults);
        exchange(&mut one, &mut other, 10 * seed, &format!("count=72 inflight=12 max={max}"));
    }
}

/// Connections that break at any byte, also during handshakes: outstanding operations end, no wrong
/// byte is read, and traffic continues.
#[test]
fn connections_that_break_anywhere() {
    let forwarder = Forwarder::new([address(), address()]);
    let [mut one, mut other] = forwarder.peers([QUICK, QUICK]);
    let there = Stream::start(&mut one, &mut other, "lanes=6");
    let back = Stream::start(&mut other, &mut one, "lanes=6");
    // In the request, in the hello, in a prefix, in a header, in payloads.
    for bytes in [1, 15, 16, 40, 71, 72, 80, 100, 200, 1000, 20_000, 100_000] {
        forwarder.set(NetworkFaults { cut_after: Some(bytes), ..NO_FAULTS });
        forwarder.cut();
        there.fail(&mut one, 6);
        back.fail(&mut other, 6);
    }
    forwarder.set(NO_FAULTS);
    forwarder.cut();
    there.advance(&mut one, 50);
    back.advance(&mut other, 50);
    for done in [there.stop(&mut one), back.stop(&mut other)] {
        assert_eq!(done.number("blank"), 0, "{done:?}");
    }
    exchange(&mut one, &mut other, 3, "count=60");
}

/// A node restarts while its peer sends to it.
// Covers: S-202
#[test]
fn another_life_of_a_peer() {
    let options = "transaction_timeout=1 min_reconnectms=20";
    let (mut one, mut other) = (Peer::start(address(), options), Peer::start(address(), options));
    let there = Stream::start(&mut one, &mut other, "lanes=4");
    for life in 0..3 {
        other.ask(0, "restart", "", "restarted");
        // Its memory is gone: a write to it finds no buffer, and ends at its timeout or with the
        // connection.
        there.fail(&mut one, 4);
        // The stream may have begun to connect to the former incarnation, whose end resets the
        // attempt, or while no node listens: messages that wait for the attempt end with it. During
        // the pause after that, messages end at once, as in LNet.
        let pinged = one.ask(0, "ping", &format!("to={}", other.nid()), "pinged");
        for errno in pinged.words("failed") {
            assert!(["ECONNRESET", "ECONNREFUSED", "EHOSTUNREACH"].contains(&&*errno), "{pinged:?}");
        }
        exchange(&mut one, &mut other, life, "count=30");
        exchange(&mut other, &mut one, life, "count=30");
    }
    there.stop(&mut one);
}

/// Pairs of nodes that start to send to each other at the same moment, many times: both connect,
/// the higher NID's attempts win, and at the end each pair has one full set of connections and has
/// delivered everything (lnet-wire 24).
// Covers: S-206
#[test]
fn both_connecting_at_once() {
    const PAIRS: usize = 20;
    const ROUNDS: u64 = 10;
    // One node of each pair in either process; in every second pair the first process has the
    // higher NID.
    let mut addresses = [Vec::new(), Vec::new()];
    for pair in 0..PAIRS {
        addresses[pair % 2].push(address());
        addresses[1 - pair % 2].push(address());
    }
    let mut sides = addresses.map(|addresses| {
        let program = Command::new(env!("CARGO_BIN_EXE_nlx-peer"));
        Peer::spawn(program, &addresses, &format!("port={PORT} min_reconnectms=20"))
    });
    let quiet = [0, 1].map(|side: usize| sides[side].descriptors("socket:"));
    let mut refusals = 0;
    for round in 0..ROUNDS {
        exchange_at_once(&mut sides, 1000 * round);
        // Three connections each: the loser of a race connects again for what is missing.
        hung_unless("full sets of connections", || {
            let [one, other] = &mut sides;
            all(one, "ping", |pair| format!("to={}", other.nid_of(pair)), "pinged");
            [0, 1].map(|side| sides[side].descriptors("socket:") - quiet[side]) == [3 * PAIRS; 2]
        });
        for side in &mut sides {
            let counts = all(side, "counts", |_| String::new(), "counts");
            refusals += counts.iter().map(|counts| counts.number("refusals")).sum::<u64>();
            all(side, "restart", |_| String::new(), "restarted");
        }
    }
    assert!(refusals > 0, "no two of {} attempts met", PAIRS as u64 * ROUNDS);
}

/// `conns_per_peer` changes while streams run both ways: connections are added, existing ones
/// remain even if fewer are wanted, and no message is affected.
// Covers: S-208
#[test]
fn more_and_fewer_connections_under_load() {
    let options = "min_reconnectms=20";
    let mut sides = [0; 2].map(|_| Peer::start(address(), options));
    let quiet = [0, 1].map(|side: usize| sides[side].descriptors("socket:"));
    let [one, other] = &mut sides;
    // So that the first node has opened the connections, and opens the missing ones.
    other.answers(one);
    let streams = [Stream::start(one, other, "lanes=6"), Stream::start(other, one, "lanes=6")];
    let advance = |sides: &mut [Peer; 2], rounds| {
        streams.iter().zip(sides).for_each(|(stream, side)| drop(stream.advance(side, rounds)));
    };
    let connections =
        |sides: &[Peer; 2]| [0, 1].map(|side: usize| sides[side].descriptors("socket:") - quiet[side]);
    for (per_peer, wanted) in [(1, 3), (4, 9), (2, 9), (5, 11), (1, 11)] {
        // The accepting node first: connections are offered once.
        for side in sides.iter_mut().rev() {
            side.ask(0, "conns", &format!("per_peer={per_peer}"), "changed");
        }
        hung_unless(&format!("{wanted} connections"), || {
            advance(&mut sides, 5);
            connections(&sides) == [wanted; 2]
        });
        advance(&mut sides, 100);
        assert_eq!(connections(&sides), [wanted; 2], "{per_peer} per type");
    }
    for (stream, side) in streams.into_iter().zip(&mut sides) {
        let done = stream.stop(side);
        assert_eq!((done.number("failed"), done.number("blank")), (0, 0), "{done:?}");
        let counts = side.counts(0);
        let lost = ["peers_lost", "dropped", "timeouts", "protocol_errors"].map(|name| counts.number(name));
        assert_eq!(lost, [0; 4], "{counts:?}");
    }
}

/// Gives all nodes a command, then waits for all answers.
fn all(side: &mut Peer, command: &str, values: impl Fn(usize) -> String, word: &str) -> Vec<Values> {
    let jobs = tell_all(side, command, values);
    jobs.into_iter().enumerate().map(|(node, job)| side.wait(node, word, job)).collect()
}

fn tell_all(side: &mut Peer, command: &str, values: impl Fn(usize) -> String) -> Vec<u32> {
    (0..side.addresses.len()).map(|node| side.tell(node, command, &values(node))).collect()
}

/// Makes each node run a list with its partner, the node with the same index on the other side.
fn exchange_at_once(sides: &mut [Peer; 2], seed: u64) {
    let nids = [0, 1].map(|side: usize| {
        (0..sides[side].addresses.len()).map(|node| sides[side].nid_of(node)).collect::<Vec<_>>()
    });
    let list =
        |side: usize, node: usize| format!("seed={} count=12 max=4097", seed + 2 * node as u64 + side as u64);
    let expected = [0, 1].map(|side: usize| {
        let values = |node: usize| format!("{} from={}", list(1 - side, node), nids[1 - side][node]);
        let jobs = tell_all(&mut sides[side], "expect", values);
        jobs.iter().enumerate().for_each(|(node, job)| drop(sides[side].wait(node, "posted", *job)));
        jobs
    });
    let mut running = [Vec::new(), Vec::new()];
    for (node, pair) in nids[0].iter().zip(&nids[1]).enumerate() {
        for (side, partner) in [(0, pair.1), (1, pair.0)] {
            let values = format!("{} to={partner}", list(side, node));
            running[side].push(sides[side].tell(node, "run", &values));
        }
    }
    for (side, jobs) in running.iter().enumerate() {
        for (node, job) in jobs.iter().enumerate() {
            let done = sides[side].wait(node, "done", *job);
            assert_eq!(done.number("failed"), 0, "{done:?}");
            sides[side].wait(node, "done", expected[side][node]);
        }
    }
}
