//! A peer that has been silent for `keepalive` is sent a NOOP, at most one in ten seconds.

use lnet_socklnd::SockConfig;

use super::raw::{PREFIX_LEN, Wire, noop};
use super::stage::Stage;
use super::{S, assert_fires, watched_ns};

/// The minimum time between two NOOPs.
const PAUSE_NS: u64 = 10 * S;

/// Returns the time until the next NOOP arrives.
fn next(stage: &mut Stage, wire: &mut Wire, limit_ns: u64) -> Option<u64> {
    let begun_ns = stage.now_ns();
    let ns = stage.until(limit_ns, |stage| {
        wire.read(PREFIX_LEN - wire.bytes.len());
        (wire.bytes.len() == PREFIX_LEN).then(|| stage.now_ns() - begun_ns)
    })?;
    assert_eq!(wire.bytes, noop(1), "a NOOP with cookie 1");
    wire.bytes.clear();
    Some(ns)
}

#[test]
fn who_is_silent_is_sent_one_and_then_one_in_ten_seconds() {
    assert_eq!(SockConfig::default().keepalive_s, 30);
    for seconds in [30, 8] {
        let timer_ns = u64::from(seconds) * S;
        let mut stage = Stage::new(&SockConfig { keepalive_s: seconds, ..SockConfig::default() });
        let mut wire = Wire::greet(&mut stage, 3);
        wire.send(&noop(1));
        assert_fires("the first", next(&mut stage, &mut wire, watched_ns(timer_ns)), timer_ns);
        for _ in 0..4 {
            let after_ns = next(&mut stage, &mut wire, watched_ns(timer_ns)).expect("another one");
            // Each pass checks whether one is due; there are four passes in the keepalive time.
            let latest_ns = PAUSE_NS + timer_ns / 4 + super::NETWORK_NS;
            assert!(
                (PAUSE_NS - super::NETWORK_NS..=latest_ns).contains(&after_ns),
                "the next after {after_ns} ns"
            );
        }
    }
}

/// Any received byte ends the silence, also those of a NOOP.
#[test]
fn the_time_counts_from_what_was_last_heard() {
    for seconds in [30, 8] {
        let timer_ns = u64::from(seconds) * S;
        let mut stage = Stage::new(&SockConfig { keepalive_s: seconds, ..SockConfig::default() });
        let mut wire = Wire::greet(&mut stage, 3);
        for _ in 0..5 {
            assert_eq!(next(&mut stage, &mut wire, timer_ns * 9 / 10), None, "the peer was not silent");
            wire.send(&noop(1));
        }
        assert_fires("after the last word", next(&mut stage, &mut wire, watched_ns(timer_ns)), timer_ns);
    }
}

#[test]
fn version_two_and_a_keepalive_of_nothing_have_none() {
    for (version, seconds, expected) in [(2, 30, false), (3, 0, false), (3, 30, true)] {
        let mut stage = Stage::new(&SockConfig { keepalive_s: seconds, ..SockConfig::default() });
        let mut wire = Wire::greet(&mut stage, version);
        let came = next(&mut stage, &mut wire, 300 * S).is_some();
        assert_eq!(came, expected, "version {version}, {seconds} s");
        assert!(!wire.ended);
        assert_eq!(stage.lnd.counters().tx.keepalives > 0, expected);
    }
}
