//! `accept_timeout`: the limit for the request and hello of a connecting peer.

use lnet_socklnd::SockConfig;

use super::raw::{Wire, hello, request};
use super::stage::{PEER, Stage};
use super::{S, assert_fires, watched_ns};

/// Connects, sends these bytes, and waits for the end.
fn check(what: &str, words: &[u8]) {
    for seconds in [SockConfig::default().accept_timeout_s, 17] {
        let mut stage = Stage::new(&SockConfig { accept_timeout_s: seconds, ..SockConfig::default() });
        let mut wire = Wire::connect(&mut stage);
        let begun_ns = stage.now_ns();
        // The time counts from the beginning, however late the next byte comes.
        stage.run_for(S);
        wire.send(words);
        let timer_ns = u64::from(seconds) * S;
        let ended =
            stage.until(watched_ns(timer_ns), |stage| wire.has_ended().then(|| stage.now_ns() - begun_ns));
        assert_fires(what, ended, timer_ns);
        assert!(wire.bytes.is_empty(), "{what}: it is answered: {:?}", wire.bytes);
        assert_eq!(stage.lnd.counters().rx.handshake_timeouts, 1, "{what}");
    }
}

#[test]
fn the_default_is_five_seconds() {
    assert_eq!(SockConfig::default().accept_timeout_s, 5);
}

#[test]
fn who_says_nothing() {
    check("no request", &[]);
}

#[test]
fn who_says_half_a_request() {
    check("half a request", &request()[..9]);
}

#[test]
fn who_asks_and_does_not_say_hello() {
    check("no hello", &request());
}

#[test]
fn who_says_half_a_hello() {
    check("half a hello", &[request(), hello(3, PEER, 1)[..31].to_vec()].concat());
}
