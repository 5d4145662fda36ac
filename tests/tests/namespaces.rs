//! Two nodes on two hosts with network faults: loss, reordering, a disconnected cable. Needs root,
//! so `./test namespaces` runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use nix::sys::signal::Signal;
use support::hosts::Hosts;
use support::peer::{Stream, exchange, hung_unless};

/// Short timeouts for tests that wait for them: a second without progress ends a connection.
const SHORT: &str = "sock_timeout=1 transaction_timeout=2 min_reconnectms=50 max_reconnectms=200";

/// Every operation and size, both ways at once, between hosts with settings of real sites.
// Covers: S-205, S-206, S-208, S-210, S-307
#[test]
#[ignore = "needs root: ./test namespaces"]
fn lists_of_operations_between_hosts() {
    let hosts = Hosts::new();
    let shapes = [
        ("partitions=1", "partitions=4"),
        ("partitions=2 conns_per_peer=4", "partitions=1 conns_per_peer=4"),
    ];
    for (seed, (one, other)) in (0..).zip(shapes) {
        let (mut one, mut other) = (hosts.peer(0, one), hosts.peer(1, other));
        exchange(&mut one, &mut other, 10 * seed, "count=120 inflight=24");
        one.answers(&mut other);
    }
}

/// TCP repairs the network's losses: every byte arrives, and no operation fails.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn lost_packets_lose_no_message() {
    let hosts = Hosts::new();
    let (mut one, mut other) = (hosts.peer(0, ""), hosts.peer(1, "partitions=2"));
    hosts.lose(2);
    exchange(&mut one, &mut other, 5, "count=150 inflight=8 max=65536");
    assert!(hosts.stop_losing() > 0);
}

/// A cable is disconnected while traffic runs: outstanding operations end with an error at their
/// timeout or are repaired, and traffic continues when the cable is back.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_cable_that_is_pulled_and_put_back() {
    let hosts = Hosts::new();
    let (mut one, mut other) = (hosts.peer(0, SHORT), hosts.peer(1, SHORT));
    let there = Stream::start(&mut one, &mut other, "lanes=8");
    let back = Stream::start(&mut other, &mut one, "lanes=8");
    for _ in 0..2 {
        there.advance(&mut one, 50);
        back.advance(&mut other, 50);
        hosts.set_cable("down");
        // Outstanding operations end, and attempts to reconnect fail, in both nodes.
        there.fail(&mut one, 20);
        back.fail(&mut other, 20);
        hosts.set_cable("up");
    }
    there.advance(&mut one, 50);
    back.advance(&mut other, 50);
    for done in [there.stop(&mut one), back.stop(&mut other)] {
        assert_eq!(done.number("blank"), 0, "{done:?}");
    }
    one.answers(&mut other);
    other.answers(&mut one);
}

/// lnet-wire 28: a cable is disconnected while no messages are sent. TCP's probes detect this, or
/// LNet's keepalives that are not acknowledged, whichever is enabled. There is no other sign: the
/// hosts exchange nothing. One of them has lost its carrier, the other has not.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_cable_that_is_pulled_from_idle_connections() {
    let hosts = Hosts::new();
    let probes = "conns_per_peer=1 keepalive=0 keepalive_idle=1 keepalive_intvl=1 keepalive_count=1";
    let noops = "conns_per_peer=1 keepalive=1 keepalive_idle=0";
    for (what, options, sends_noops) in [("probes", probes, false), ("noops", noops, true)] {
        let mut sides = [0, 1].map(|host| hosts.peer(host, &format!("{SHORT} {options}")));
        let quiet = sides.each_ref().map(|side| side.descriptors("socket:"));
        let [one, other] = &mut sides;
        other.answers(one);
        hung_unless("a whole set of connections", || {
            one.counts(0).number("connects") == 3 && other.counts(0).number("accepts") == 3
        });
        // Otherwise TCP would find unacknowledged data, and no keepalive would be sent.
        hung_unless("all is acknowledged", || sides.iter().all(|side| !side.awaits_acknowledgement()));
        let before = sides.each_mut().map(|side| side.counts(0));
        hosts.set_cable("down");
        for ((side, before), quiet) in sides.iter_mut().zip(before).zip(quiet) {
            assert_eq!((before.number("peers_lost"), before.number("msgs")), (0, 0), "{before:?}");
            hung_unless(&format!("{what} find the peer gone"), || side.counts(0).number("peers_lost") == 1);
            let counts = side.counts(0);
            assert_eq!((counts.number("timeouts"), counts.number("protocol_errors")), (1, 0), "{counts:?}");
            assert_eq!(counts.number("keepalives") > before.number("keepalives"), sends_noops, "{counts:?}");
            assert_eq!(side.descriptors("socket:"), quiet);
        }
        let nids = sides.each_ref().map(|side| side.nid());
        for (side, peer) in sides.iter_mut().zip(nids.iter().rev()) {
            let failure = side.ask(0, "failure", &format!("of={peer}"), "failure").0;
            assert!(
                failure.contains("step=Established") && failure.contains("no longer answers"),
                "{failure}"
            );
        }
        hosts.set_cable("up");
        let [one, other] = &mut sides;
        other.answers(one);
    }
}

/// A peer is killed while traffic runs and returns with another incarnation.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_peer_that_is_killed_and_comes_back() {
    let hosts = Hosts::new();
    let (mut one, mut other) = (hosts.peer(0, SHORT), hosts.peer(1, SHORT));
    let there = Stream::start(&mut one, &mut other, "lanes=8");
    there.advance(&mut one, 50);
    other.kill();
    there.fail(&mut one, 20);
    there.stop(&mut one);
    let mut other = hosts.peer(1, SHORT);
    // The new incarnation sends first: the old peer's last attempt may still be in its back-off.
    one.answers(&mut other);
    exchange(&mut one, &mut other, 9, "count=60");
    one.kill();
    let mut one = hosts.peer(0, SHORT);
    other.answers(&mut one);
    exchange(&mut other, &mut one, 10, "count=60");
    one.answers(&mut other);
}

/// A peer is stopped for longer than every timeout, and then continues.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn a_peer_that_stands_still_and_goes_on() {
    let hosts = Hosts::new();
    let (mut one, mut other) = (hosts.peer(0, SHORT), hosts.peer(1, SHORT));
    let there = Stream::start(&mut one, &mut other, "lanes=8");
    there.advance(&mut one, 50);
    other.signal(Signal::SIGSTOP);
    there.fail(&mut one, 20);
    other.signal(Signal::SIGCONT);
    there.advance(&mut one, 50);
    let done = there.stop(&mut one);
    assert_eq!(done.number("blank"), 0, "{done:?}");
    one.answers(&mut other);
    other.answers(&mut one);
}
