//! A link that was down: TCP repeats a first segment at growing intervals, up to half a minute
//! apart, and does not know when the link is back. An attempt to connect does not wait for that.

use lnet_socklnd::SockConfig;

use super::raw::{Behaviour, ScriptedPeer, Wire};
use super::stage::{PEER, Stage};
use super::{MS, NETWORK_NS, S};

/// The maximum time between two first segments of an attempt: a socket sends at once and after 1 s,
/// another one takes over after 3 s.
const GAP_NS: u64 = 2 * S;

const OUTAGE_NS: u64 = 60 * S;

/// Cuts both directions.
fn cut(stage: &Stage, duration_ns: u64) {
    for (from, to) in [(0, 1), (1, 0)] {
        stage.net.cut(from, to, Some(duration_ns));
    }
}

/// Sends one message after the other until one leaves; returns the time of this one.
fn traffic_resumes(stage: &mut Stage, scripted: &mut ScriptedPeer) -> u64 {
    for _ in 0..1_000 {
        let put = stage.put(PEER, 100);
        let (_, result) = stage.end_of(put, 2 * OUTAGE_NS, |_| scripted.serve()).expect("it ends");
        if result.is_ok() {
            return stage.now_ns();
        }
        stage.run_for(100 * MS);
    }
    panic!("nothing has left");
}

// Covers: S-205
#[test]
fn traffic_resumes_within_two_seconds_of_the_end_of_an_outage() {
    // Start times of the first attempt, which shift the times of TCP's retransmissions.
    for begun_s in [0, 5, 20, 33, 40, 57] {
        let mut stage = Stage::new(&SockConfig::default());
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let healed_ns = stage.now_ns() + OUTAGE_NS;
        cut(&stage, OUTAGE_NS);
        stage.run_for(begun_s * S);
        let resumed_ns = traffic_resumes(&mut stage, &mut scripted);
        // After a failure, LNet's own pause and the time between two messages come first.
        let latest_ns = healed_ns + GAP_NS + NETWORK_NS;
        assert!(
            (healed_ns..=latest_ns).contains(&resumed_ns),
            "begun at {begun_s} s, resumed {} ms after the end of the outage",
            resumed_ns.saturating_sub(healed_ns) / MS
        );
    }
}

/// After an outage that ends connections in use, with messages in flight, traffic resumes soon,
/// too.
// Covers: S-205
#[test]
fn connections_that_an_outage_has_ended_are_there_again_soon() {
    let mut stage = Stage::new(&SockConfig::default());
    let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
    traffic_resumes(&mut stage, &mut scripted);
    stage.run_for(S);
    let healed_ns = stage.now_ns() + OUTAGE_NS;
    cut(&stage, OUTAGE_NS);
    // Data that TCP has accepted counts as sent. After the timeout the node gives up the data and
    // closes the connections.
    stage.put(PEER, 100);
    let peers_lost = |stage: &mut Stage| (stage.lnd.counters().rx.peers_lost == 1).then_some(());
    stage.until(OUTAGE_NS, peers_lost).expect("the connections end");
    let resumed_ns = traffic_resumes(&mut stage, &mut scripted);
    assert!((healed_ns..=healed_ns + GAP_NS + NETWORK_NS).contains(&resumed_ns));
}

/// The peer connects first: its connection loses the race (lnet-wire 24), and the winning one does
/// not wait for TCP, nor for the next socket, which is delayed here by the shortest pause.
// Covers: S-205
#[test]
fn an_attempt_begins_anew_when_the_peer_is_heard() {
    let mut stage = Stage::new(&SockConfig { min_reconnect_ms: 30_000, ..SockConfig::default() });
    let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
    // First segments leave at 0, 1, 3, 7 and 15 s.
    cut(&stage, 8 * S);
    let put = stage.put(PEER, 100);
    stage.run_for(8 * S);
    assert_eq!(stage.result(put), None);
    let heard_ns = stage.now_ns();
    // The connection is answered with NONE.
    Wire::greet(&mut stage, 3);
    assert_eq!(stage.lnd.counters().rx.refusals, 1);
    let end = stage.end_of(put, 10 * S, |_| scripted.serve());
    assert_eq!(end.map(|(_, result)| result), Some(Ok(())));
    let took_ns = stage.now_ns() - heard_ns;
    assert!(took_ns <= 2 * NETWORK_NS, "{} ms after the peer has connected", took_ns / MS);
}
