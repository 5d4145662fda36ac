//! The timers of the TCP LND (lnet-wire 24 and 28), measured to the nanosecond of virtual time: a
//! real engine and a real LND on one host, and on the other a script that sends plain bytes. Each
//! timer must fire within 1 and 1.25 times its value, and not before, with LNet's default and with
//! another value.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod accept;
mod backoff;
mod connect;
mod keepalive;
mod outage;
mod progress;
mod raw;
mod stage;
mod surplus;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The time that the network takes: both directions of a few handshakes.
const NETWORK_NS: u64 = 5 * MS;

/// Checks that a timer of this value has fired after `after_ns`.
#[track_caller]
fn assert_fires(what: &str, after_ns: Option<u64>, timer_ns: u64) {
    let after_ns =
        after_ns.unwrap_or_else(|| panic!("{what}: it never fires, though its value is {timer_ns} ns"));
    let latest_ns = timer_ns / 4 * 5 + NETWORK_NS;
    assert!(
        (timer_ns..=latest_ns).contains(&after_ns),
        "{what}: it fires after {after_ns} ns, and should between {timer_ns} and {latest_ns} ns"
    );
}

/// Returns the time for which a timer of this value is observed.
fn watched_ns(timer_ns: u64) -> u64 {
    2 * timer_ns + S
}
