//! Back-off after failures, and the pauses that a peer requests (lnet-wire 24).

use lnet_api::Errno;
use lnet_socklnd::SockConfig;

use super::raw::{Behaviour, ScriptedPeer};
use super::stage::{PEER, Stage};
use super::{MS, NETWORK_NS, S, assert_fires, watched_ns};

/// Returns the tested values: the defaults, and others.
fn pauses() -> [(u32, u32); 2] {
    let config = SockConfig::default();
    assert_eq!((config.min_reconnect_ms, config.max_reconnect_ms), (1_000, 60_000));
    [(1_000, 60_000), (300, 5_000)]
}

fn stage((min_reconnect_ms, max_reconnect_ms): (u32, u32)) -> Stage {
    Stage::new(&SockConfig { min_reconnect_ms, max_reconnect_ms, ..SockConfig::default() })
}

/// Sends one message after the other, as fast as they fail, until there is another attempt to
/// connect; returns how long that takes. A message that fails by back-off does so at once.
fn next_attempt(stage: &mut Stage, limit_ns: u64) -> Option<u64> {
    let (begun_ns, attempts) = (stage.now_ns(), stage.net.seen().connects);
    while stage.now_ns() - begun_ns < limit_ns {
        let (put, put_ns) = (stage.put(PEER, 100), stage.now_ns());
        let (_, result) = stage.end_of(put, S, |_| {}).expect("it fails at once, as there is no listener");
        if stage.net.seen().connects > attempts {
            assert_eq!(result, Err(Errno::ECONNREFUSED));
            // The attempt began when the message was sent.
            return Some(put_ns - begun_ns);
        }
        assert_eq!(result, Err(Errno::EHOSTUNREACH), "it is in its back-off");
        assert!(stage.now_ns() - put_ns <= MS, "it fails at once, not after {} ns", stage.now_ns() - put_ns);
        stage.run_for(5 * MS);
    }
    None
}

/// Checks that `times` attempts follow each other with pauses that double, up to the longest.
fn check_doubling(stage: &mut Stage, (min_ms, max_ms): (u32, u32), times: usize) {
    let mut pause_ns = u64::from(min_ms) * MS;
    for _ in 0..times {
        let after_ns = next_attempt(stage, watched_ns(pause_ns));
        // The pause begins only when the last attempt has failed.
        assert_fires("back-off", after_ns, pause_ns - 5 * MS);
        assert!(after_ns <= Some(pause_ns + 2 * NETWORK_NS), "{after_ns:?} is no pause of {pause_ns} ns");
        pause_ns = (2 * pause_ns).min(u64::from(max_ms) * MS);
    }
}

#[test]
fn it_doubles_up_to_the_longest_and_is_forgotten_after_success() {
    for pauses in pauses() {
        let mut stage = stage(pauses);
        assert_eq!(next_attempt(&mut stage, S), Some(0), "the first attempt comes at once");
        check_doubling(&mut stage, pauses, 9);
        // There is a listener once the current back-off has passed.
        stage.run_for(u64::from(pauses.1) * MS);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let put = stage.put(PEER, 100);
        let end = stage.end_of(put, S, |_| scripted.serve());
        assert_eq!(end.map(|(_, result)| result), Some(Ok(())));
        stage.until(10 * S, |_| {
            scripted.serve();
            None::<()>
        });
        drop(scripted);
        stage.run_for(S);
        assert_eq!(next_attempt(&mut stage, S), Some(0), "its connections have lasted: there is no pause");
        check_doubling(&mut stage, pauses, 3);
    }
}

/// NONE requests a pause, in which messages wait. After three such pauses in a row the attempt has
/// failed.
#[test]
fn none_is_followed_by_a_pause_and_three_of_them_by_failure() {
    for pauses in pauses() {
        let pause_ns = u64::from(pauses.0) * MS;
        let mut stage = stage(pauses);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Refuses);
        let put = stage.put(PEER, 100);
        let mut attempts = stage.net.seen().connects;
        for _ in 0..4 {
            let begun_ns = stage.now_ns();
            let after_ns = stage.until(watched_ns(pause_ns), |stage| {
                scripted.serve();
                (stage.net.seen().connects > attempts).then(|| stage.now_ns() - begun_ns)
            });
            attempts += 1;
            match attempts {
                1 => assert!(after_ns.is_some_and(|ns| ns <= MS), "the first attempt comes at once"),
                _ => assert_fires("the pause after NONE", after_ns, pause_ns),
            }
            assert_eq!(stage.result(put), None, "it waits");
        }
        let end = stage.end_of(put, pause_ns, |_| scripted.serve());
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::EALREADY)));
        assert!(end.is_some_and(|(ns, _)| ns <= MS), "it fails with the fourth NONE");
        let put = stage.put(PEER, 100);
        let end = stage.end_of(put, S, |_| scripted.serve());
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::EHOSTUNREACH)), "back-off has begun");
        assert_eq!(stage.net.seen().connects, attempts);
        // There is a listener once the pause has passed.
        scripted.behaviour = Behaviour::Welcomes;
        stage.run_for(pause_ns);
        let put = stage.put(PEER, 100);
        let end = stage.end_of(put, S, |_| scripted.serve());
        assert_eq!(end.map(|(_, result)| result), Some(Ok(())));
    }
}
