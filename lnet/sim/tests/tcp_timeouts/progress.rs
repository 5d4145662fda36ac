//! A transfer that has begun must make progress: after `sock_timeout` without a byte, or twice that
//! for one message, all connections are closed.

use lnet_api::Errno;
use lnet_sim::tcp::TcpBehaviour;
use lnet_socklnd::{ConnStep, SockConfig};

use super::raw::{Behaviour, ScriptedPeer, Wire, noop, put};
use super::stage::{OTHER, PEER, Stage, nid};
use super::{MS, S, assert_fires, watched_ns};

const TIMEOUTS_S: [u32; 2] = [50, 12];

fn stage(seconds: u32) -> (Stage, u64) {
    (Stage::new(&SockConfig { timeout_s: seconds, ..SockConfig::default() }), u64::from(seconds) * S)
}

#[track_caller]
fn assert_timed_out(stage: &Stage) {
    let failure = stage.lnd.last_failure(nid(PEER)).expect("a reason");
    assert_eq!((failure.step, failure.errno), (ConnStep::Established, Errno::ETIMEDOUT), "{failure}");
    let counters = stage.lnd.counters().rx;
    assert_eq!((counters.timeouts, counters.peers_lost, counters.protocol_errors), (1, 1, 0));
}

/// Checks the time that the node waits after the last byte of these pieces.
fn check_receiving(what: &str, pieces: &[&[u8]]) {
    for seconds in TIMEOUTS_S {
        let (mut stage, timer_ns) = stage(seconds);
        let mut wire = Wire::greet(&mut stage, 3);
        let mut begun_ns = 0;
        for piece in pieces {
            // The time counts from the last byte.
            stage.run_for(timer_ns * 2 / 5 + 100 * MS);
            wire.send(piece);
            begun_ns = stage.now_ns();
        }
        let ended =
            stage.until(watched_ns(timer_ns), |stage| wire.has_ended().then(|| stage.now_ns() - begun_ns));
        assert_fires(what, ended, timer_ns);
        assert_timed_out(&stage);
    }
}

#[test]
fn a_prefix_does_not_end() {
    check_receiving("half a prefix", &[&noop(1)[..10], &noop(1)[10..11]]);
}

#[test]
fn a_header_does_not_end() {
    check_receiving("half a header", &[&put(0)[..40], &put(0)[40..41]]);
}

#[test]
fn a_payload_does_not_end() {
    let message = put(5_000);
    check_receiving("half a payload", &[&message[..3_000], &message[3_000..3_001]]);
}

/// Between whole messages there is no limit: silence is no error.
#[test]
fn silence_between_messages_is_no_error() {
    let (mut stage, timer_ns) = stage(50);
    let mut wire = Wire::greet(&mut stage, 3);
    wire.send(&[put(5_000), noop(1)].concat());
    assert_eq!(stage.until(5 * timer_ns, |_| wire.has_ended().then_some(())), None);
}

/// Single bytes count as progress, but a message has at most twice the time.
#[test]
fn a_message_trickles_in() {
    for seconds in TIMEOUTS_S {
        let (mut stage, timer_ns) = stage(seconds);
        let mut wire = Wire::greet(&mut stage, 3);
        stage.run_for(300 * MS);
        let begun_ns = stage.now_ns();
        let message = put(5_000);
        let ended = message.iter().find_map(|byte| {
            wire.send(&[*byte]);
            stage.until(timer_ns / 5, |stage| wire.has_ended().then(|| stage.now_ns() - begun_ns))
        });
        assert_fires("a trickling message", ended, 2 * timer_ns);
        assert_timed_out(&stage);
    }
}

/// The timeout and the keepalive time, in seconds.
const TIMES_S: [(u32, u32); 3] = [(50, 30), (12, 30), (30, 29)];

/// Returns a stage with TCP buffers so small that a message does not fit into them, and the timeout
/// in nanoseconds. The keepalive time determines when the node checks its connections: a quarter of
/// it may not divide the timeout.
fn narrow((seconds, keepalive_s): (u32, u32)) -> (Stage, u64) {
    let behaviour =
        TcpBehaviour { send_buffer: 4 << 10, receive_buffer: 4 << 10, ..TcpBehaviour::reliable() };
    let config = SockConfig { timeout_s: seconds, keepalive_s, ..SockConfig::default() };
    (Stage::over(&config, behaviour), u64::from(seconds) * S)
}

#[test]
fn a_peer_never_reads() {
    for times in TIMES_S {
        let (mut stage, timer_ns) = narrow(times);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let put = stage.put(PEER, 100_000);
        let end = stage.end_of(put, watched_ns(timer_ns), |_| scripted.serve());
        assert_fires("nothing is taken", end.map(|(ns, _)| ns), timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        assert_timed_out(&stage);
    }
}

/// A message to another peer waits for the credit that the silent peer holds: the connections to
/// the silent peer are closed sooner.
#[test]
fn a_peer_never_reads_while_others_wait_for_its_credits() {
    for (seconds, keepalive_s) in TIMES_S {
        let behaviour =
            TcpBehaviour { send_buffer: 4 << 10, receive_buffer: 4 << 10, ..TcpBehaviour::reliable() };
        let config = SockConfig {
            timeout_s: seconds,
            keepalive_s,
            credits: 1,
            peer_credits: 1,
            ..SockConfig::default()
        };
        let (mut stage, timer_ns) = (Stage::over(&config, behaviour), u64::from(seconds) * S);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let (silent, waiting) = (stage.put(PEER, 100_000), stage.put(OTHER, 10));
        let end = stage.end_of(silent, timer_ns, |_| scripted.serve());
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        // The connections end a quarter of the timeout after the first pass that finds the socket
        // full; a timeout has at least four passes.
        let spent_ns = end.map_or(0, |(ns, _)| ns);
        assert!((timer_ns / 4..=timer_ns / 2 + S).contains(&spent_ns), "{spent_ns} ns of {timer_ns}");
        assert_eq!(stage.result(waiting), None, "it has the credit now");
        assert_timed_out(&stage);
        let reason = stage.lnd.last_failure(nid(PEER)).expect("a reason").to_string();
        assert!(reason.contains("wait for its credits"), "{reason}");
    }
}

/// Fills both sockets of a connection, with nothing else to be sent.
fn fill(stage: &mut Stage, scripted: &mut ScriptedPeer) {
    // One message makes the connections; the other fills both buffers exactly: 8 KiB with prefix
    // and header.
    for size in [10, (8 << 10) - 96] {
        let put = stage.put(PEER, size);
        let end = stage.end_of(put, S, |_| scripted.serve());
        assert_eq!(end.map(|(_, result)| result), Some(Ok(())));
        stage.until(100 * MS, |_| {
            scripted.serve();
            None::<()>
        });
    }
}

/// Data in the sockets must also make progress: without it the connection ends, though no message
/// waits.
#[test]
fn a_peer_stops_reading_when_all_has_left() {
    for times in TIMES_S {
        let (mut stage, timer_ns) = narrow(times);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        fill(&mut stage, &mut scripted);
        let begun_ns = stage.now_ns() - 100 * MS;
        let ended = stage.until(watched_ns(timer_ns), |stage| {
            scripted.serve();
            (stage.lnd.counters().rx.closes > 0).then(|| stage.now_ns() - begun_ns)
        });
        assert_fires("nothing is taken", ended, timer_ns);
        assert_timed_out(&stage);
    }
}

/// A peer that reads a little now and then: a message that has begun to leave has twice the
/// timeout, and one behind it the timeout.
#[test]
fn a_peer_reads_too_slowly() {
    for times in TIMES_S {
        let (mut stage, timer_ns) = narrow(times);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let mut read_ns = 0;
        let mut script = move |stage: &mut Stage| {
            scripted.serve();
            if stage.now_ns() >= read_ns {
                read_ns = stage.now_ns() + timer_ns / 5;
                stage.net.at(read_ns, 0);
                scripted.wires.iter_mut().for_each(|wire| _ = wire.read(3_000));
            }
        };
        let (begun, behind) = (stage.put(PEER, 1 << 20), stage.put(PEER, 2_000));
        let end = stage.end_of(behind, watched_ns(timer_ns), &mut script);
        assert_fires("a message behind it", end.map(|(ns, _)| ns), timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        assert_eq!(stage.lnd.counters().rx.timeouts, 0, "the connections stand");
        let spent_ns = end.map_or(0, |(ns, _)| ns);
        let end = stage.end_of(begun, watched_ns(2 * timer_ns), &mut script);
        assert_fires("a message that leaves too slowly", end.map(|(ns, _)| spent_ns + ns), 2 * timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        assert_timed_out(&stage);
    }
}

/// Returns a function that lets the peer send a keepalive on one of its connections each second,
/// while the peer reads nothing.
fn lives(scripted: &mut ScriptedPeer) -> impl FnMut(&mut Stage) + '_ {
    let mut said_ns = 0;
    move |stage| {
        scripted.serve();
        if stage.now_ns() >= said_ns {
            said_ns = stage.now_ns() + S;
            stage.net.at(said_ns, 0);
            if let Some(wire) = scripted.wires.iter().find(|wire| wire.wanted == 1) {
                wire.send(&noop(1));
            }
        }
    }
}

/// A peer that reads nothing and sends keepalives on another connection may be holding a message
/// back: its connections stay, and a message that has begun to leave waits. One that has not begun
/// ends in its own time. When the peer falls silent, like a stopped program whose system still
/// answers, its connections are closed.
// Covers: S-109
#[test]
fn a_peer_holds_what_it_was_sent() {
    for times in TIMES_S {
        let (mut stage, timer_ns) = narrow(times);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let (begun, behind) = (stage.put(PEER, 100_000), stage.put(PEER, 2_000));
        let end = stage.end_of(behind, watched_ns(timer_ns), lives(&mut scripted));
        assert_fires("a message behind it", end.map(|(ns, _)| ns), timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        assert_eq!(stage.end_of(begun, 20 * timer_ns, lives(&mut scripted)), None, "it lives");
        assert_eq!(stage.lnd.counters().rx.closes, 0);
        let end = stage.end_of(begun, watched_ns(timer_ns), |_| scripted.serve());
        // The peer has sent a keepalive within the second before.
        let end = end.map(|(ns, result)| (ns + S, result));
        assert_fires("silence", end.map(|(ns, _)| ns), timer_ns);
        assert_eq!(end.map(|(_, result)| result), Some(Err(Errno::ETIMEDOUT)));
        assert_timed_out(&stage);
    }
}

/// The rule also holds when all data is in the socket, where TCP would give up data that finds no
/// room for this time (tcp(7)).
// Covers: S-109
#[test]
fn a_peer_holds_what_is_in_the_socket() {
    for times in TIMES_S {
        let (mut stage, timer_ns) = narrow(times);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        fill(&mut stage, &mut scripted);
        let closed = |stage: &mut Stage| (stage.lnd.counters().rx.closes > 0).then_some(());
        let mut script = lives(&mut scripted);
        let ended = stage.until(20 * timer_ns, |stage| {
            script(stage);
            closed(stage)
        });
        drop(script);
        assert_eq!((ended, stage.net.seen().user_timeouts), (None, 0), "it lives");
        let ended = stage.until(watched_ns(timer_ns), |stage| {
            scripted.serve();
            closed(stage)
        });
        assert_eq!(ended, Some(()), "it is silent");
        assert_timed_out(&stage);
    }
}

/// Where messages to others wait for credits, a live peer keeps its connections, and the credit of
/// a message that has begun to leave. One that has not begun ends after a quarter of the time.
// Covers: S-109
#[test]
fn a_peer_holds_what_it_was_sent_while_others_wait_for_its_credits() {
    for (seconds, keepalive_s) in TIMES_S {
        let behaviour =
            TcpBehaviour { send_buffer: 4 << 10, receive_buffer: 4 << 10, ..TcpBehaviour::reliable() };
        let config = SockConfig {
            timeout_s: seconds,
            keepalive_s,
            credits: 2,
            peer_credits: 2,
            ..SockConfig::default()
        };
        let (mut stage, timer_ns) = (Stage::over(&config, behaviour), u64::from(seconds) * S);
        let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
        let mut other = ScriptedPeer::at(&stage, OTHER, Behaviour::Welcomes);
        let (begun, behind) = (stage.put(PEER, 100_000), stage.put(PEER, 2_000));
        let waiting = stage.put(OTHER, 10);
        let mut script = lives(&mut scripted);
        let mut script = |stage: &mut Stage| {
            script(stage);
            other.serve();
        };
        let end = stage.end_of(waiting, timer_ns, &mut script);
        let spent_ns = end.map_or(0, |(ns, _)| ns);
        assert!((timer_ns / 4..=timer_ns / 2 + S).contains(&spent_ns), "{spent_ns} ns of {timer_ns}");
        assert_eq!(end.map(|(_, result)| result), Some(Ok(())));
        assert_eq!(stage.result(behind), Some(Err(Errno::ETIMEDOUT)));
        assert_eq!(stage.end_of(begun, 5 * timer_ns, &mut script), None, "it lives");
        assert_eq!(stage.lnd.counters().rx.closes, 0);
    }
}

/// A node that cannot send to a peer sends nothing else to it. So a kernel node that holds a
/// message, and is otherwise silent, shows by its own keepalive that it is alive (lnet-wire 28).
#[test]
fn who_waits_for_a_peer_leaves_the_keepalive_to_it() {
    let (mut stage, timer_ns) = narrow((50, 10));
    let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
    let put = stage.put(PEER, 100_000);
    assert_eq!(stage.end_of(put, 4 * timer_ns, lives(&mut scripted)), None);
    // The peer is silent for longer than the keepalive time, but shorter than the timeout.
    assert_eq!(stage.end_of(put, 3 * timer_ns / 5, |_| scripted.serve()), None);
    assert_eq!(stage.lnd.counters().tx.keepalives, 0);
}
