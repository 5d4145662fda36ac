//! An attempt to connect takes at most `sock_timeout`, and so does a message that waits for a
//! connection.

use lnet_api::Errno;
use lnet_socklnd::{ConnStep, SockConfig};

use super::raw::{Behaviour, ScriptedPeer};
use super::stage::{OTHER, PEER, Stage, nid};
use super::{S, assert_fires, watched_ns};

/// Returns the tested values: the default, and another.
fn timeouts() -> [u32; 2] {
    assert_eq!(SockConfig::default().timeout_s, 50);
    [50, 12]
}

fn check(what: &str, step: ConnStep, prepare: impl Fn(&Stage) -> Option<ScriptedPeer>) {
    for seconds in timeouts() {
        let mut stage = Stage::new(&SockConfig { timeout_s: seconds, ..SockConfig::default() });
        let mut scripted = prepare(&stage);
        let timer_ns = u64::from(seconds) * S;
        let put = stage.put(PEER, 100);
        let end =
            stage.end_of(put, watched_ns(timer_ns), |_| scripted.iter_mut().for_each(ScriptedPeer::serve));
        assert_fires(what, end.map(|(ns, _)| ns), timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)), "{what}");
        let failure = stage.lnd.last_failure(nid(PEER)).expect("a reason");
        assert_eq!((failure.step, failure.errno), (step, Errno::ETIMEDOUT), "{what}: {failure}");
    }
}

#[test]
fn the_first_segment_is_not_answered() {
    check("no connection", ConnStep::Connect, |stage| {
        stage.silence_the_node();
        None
    });
}

#[test]
fn a_listener_that_sends_no_hello() {
    check("no hello", ConnStep::Handshake, |stage| Some(ScriptedPeer::open(stage, Behaviour::Silent)));
}

/// One attempt at a time: the peer of the second message has its turn when the first attempt is
/// over. Its own attempt could take longer than the message's time.
#[test]
fn a_message_waits_for_its_turn() {
    for seconds in timeouts() {
        let timer_ns = u64::from(seconds) * S;
        let mut stage =
            Stage::new(&SockConfig { timeout_s: seconds, nconnds_max: 1, ..SockConfig::default() });
        stage.silence_the_node();
        stage.put(OTHER, 100);
        stage.run_for(timer_ns / 10);
        let put = stage.put(PEER, 100);
        let end = stage.end_of(put, watched_ns(timer_ns), |_| {});
        assert_fires("a message waits for a connection", end.map(|(ns, _)| ns), timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        assert_eq!(
            stage.lnd.progress(nid(PEER)),
            Some(ConnStep::Connect),
            "its attempt has begun late, and goes on"
        );
        assert_eq!(stage.lnd.last_failure(nid(PEER)), None);
    }
}
