//! Peers that make no progress, in virtual time: while messages to other peers wait for the NI's
//! credits that they hold, and while no message waits.

use lnet_api::{EventKind, MdHandle, Upcalls};
use lnet_o2iblnd::O2ibConfig;
use nlx_testkit::buffers::{filled, whole};
use nlx_testkit::lnds::{S, TestBed as _};

use super::bytes::*;
use super::stranger::{Line, Scene};
use crate::Bed;

/// The timeout in seconds.
const TIMEOUT_S: u64 = 40;

/// The number of checks of the connections per timeout.
const LOOKS: u64 = 4;

/// The number of credits of the NI, all of which one peer may hold.
const CREDITS: usize = 8;

/// The lengths of a payload in an IMMEDIATE, and of one that is written by RDMA.
const LENGTHS: [usize; 2] = [1000, 5000];

/// Returns a node whose credits one peer can all hold, and a stranger that is connected to
/// it.
fn scene() -> (Scene, Line, End) {
    let credits = CREDITS as u32;
    let timeout_s = TIMEOUT_S as u32;
    let config = O2ibConfig { timeout_s, credits, peer_credits: credits, ..O2ibConfig::default() };
    let bed = Bed::simulated();
    let nodes = bed.pair(&config);
    let scene = Scene::of(bed, nodes);
    scene.nodes.iter().for_each(|node| drop(node.take()));
    let (line, other) = scene.connected();
    (scene, line, other)
}

/// Sends the stranger more messages than the node has credits for; the stranger returns no credit.
fn hold_all(scene: &Scene, length: usize) {
    let victim = scene.victim();
    // An IMMEDIATE ends when it has been sent, so as many again wait for the stranger's credits.
    let count = if length > 4000 { CREDITS } else { 2 * CREDITS };
    for bits in 0..count as u64 {
        victim.put_unasked(scene.id(), &filled(whole(length), 1), bits);
    }
    scene.until(|| victim.count(EventKind::Send).1 == count - CREDITS);
}

/// Sends a message to the honest peer, which waits for a credit.
fn wait_for_a_credit(scene: &Scene) -> MdHandle {
    let [victim, honest] = &scene.nodes;
    let put = victim.put_unasked(honest.id, &filled(whole(100), 1), 7);
    assert!(victim.engine.is_short(victim.id.nid), "it has a credit");
    put
}

/// Returns the time until the node closes the stranger's connection, calling `at_each` every fifth
/// of the timeout; `None` if that takes more than `fifths` of them.
fn given_up_after(scene: &Scene, fifths: u64, mut at_each: impl FnMut()) -> Option<u64> {
    let begun_ns = scene.bed.now_ns();
    let connections = || scene.victim().lnd.conn_stats().connections;
    for step in 0..fifths * TIMEOUT_S / 5 {
        if step % (TIMEOUT_S / 5) == 0 {
            at_each();
        }
        scene.later(S);
        if connections() == 1 {
            return Some(scene.bed.now_ns() - begun_ns);
        }
    }
    None
}

/// Checks that the honest peer's message has been sent, and the stranger's have failed.
fn end(scene: Scene, line: Line, waiting: MdHandle) {
    let victim = scene.victim();
    scene.until(|| victim.outcome(EventKind::Send, waiting) == Some(Ok(())));
    let reason = victim.lnd.last_failure(scene.id().nid).expect("a reason").to_string();
    assert!(reason.contains("wait for its credits"), "{reason}");
    let (all, well) = victim.count(EventKind::Send);
    assert!(all - well > 0, "what it held has failed");
    assert_eq!(victim.lnd.counters().rx.timeouts, 1);
    victim.take();
    drop(line);
    scene.end();
}

/// Checks that the connection was closed early: a quarter of the timeout (one check interval) after
/// the first check that found it stuck. The range also covers the wait for that check and the time
/// until all is sent.
#[track_caller]
fn assert_short(ended_ns: Option<u64>) {
    let short_ns = TIMEOUT_S * S / LOOKS;
    let range = short_ns..=2 * short_ns + 2 * S;
    assert!(ended_ns.is_some_and(|ns| range.contains(&ns)), "{ended_ns:?} of {TIMEOUT_S} s");
}

/// A message to another peer waits for a credit that the silent peer holds: the node closes the
/// silent peer's connection after a quarter of the timeout.
#[test]
fn silence_while_others_wait_for_credits() {
    for length in LENGTHS {
        let (scene, line, _) = scene();
        hold_all(&scene, length);
        let waiting = wait_for_a_credit(&scene);
        assert_short(given_up_after(&scene, 5, || {}));
        end(scene, line, waiting);
    }
}

/// If no message waits, the peer has the whole timeout.
#[test]
fn silence_without_a_waiter() {
    for length in LENGTHS {
        let (scene, line, _) = scene();
        hold_all(&scene, length);
        assert_eq!(given_up_after(&scene, 4, || {}), None, "nobody wants its credits");
        let waiting = wait_for_a_credit(&scene);
        // The peer has made no progress for a long time: its connection is closed at the next
        // check, if its own timeout has not closed it before.
        let victim = scene.victim();
        assert!(given_up_after(&scene, 2, || {}).is_some());
        scene.until(|| victim.outcome(EventKind::Send, waiting) == Some(Ok(())));
        victim.take();
        drop(line);
        scene.end();
    }
}

/// The peer's own requests, which are answered, are no progress of the messages to it: other peers
/// get their credits after a quarter of the timeout. But the peer lives, and may hold messages back
/// (lnet-semantics 11): its connection stays. A payload that the peer requests later is not sent;
/// the peer gets an error instead.
// Covers: S-109
#[test]
fn who_lives_keeps_its_connection_and_no_credits() {
    for length in LENGTHS {
        let (scene, mut line, other) = scene();
        hold_all(&scene, length);
        let victim = scene.victim();
        let received = [line.messages(), line.messages()].concat();
        let waiting = wait_for_a_credit(&scene);
        let own = scene.own();
        let header = header(1, own.nid, other.nid, 5000, 99);
        let asks = [&header[..], &[1; 8]].concat();
        let lives = |line: &mut Line| {
            // The node answers that no buffer matches.
            line.send(&message(PUT_REQ, own, other, &asks));
            line.send(&message(NOOP, own, other, &[]));
        };
        let (begun_ns, mut sent_ns) = (scene.bed.now_ns(), None);
        let ended = given_up_after(&scene, 15, || {
            if victim.outcome(EventKind::Send, waiting) == Some(Ok(())) {
                sent_ns.get_or_insert(scene.bed.now_ns() - begun_ns);
            }
            lives(&mut line);
            line.taken();
        });
        assert_eq!((ended, victim.lnd.counters().rx.timeouts), (None, 0));
        // The node is polled every fifth of the timeout.
        assert!(sent_ns.is_some_and(|ns| ns <= TIMEOUT_S * S), "{sent_ns:?}");
        let (all, well) = victim.count(EventKind::Send);
        assert_eq!(all - well, CREDITS, "what it held has failed");
        for request in received.iter().filter(|bytes| bytes[6] == PUT_REQ) {
            let body = [&request[120..128], &[5; 8], &descriptor(1, 1, &[(5000, 8)])[..]].concat();
            line.send(&message(PUT_ACK, own, other, &body));
            scene.until(|| {
                let done = line.messages().into_iter().find(|bytes| bytes[6] == PUT_DONE);
                done.is_some_and(|done| done[48..] == [&[5; 8][..], &(-110_i32).to_le_bytes()].concat())
            });
        }
        victim.take();
        drop(line);
        scene.end();
    }
}

/// If no message waits for the credits, PUTs that the peer has not answered wait while it lives,
/// and messages that have not been sent keep their own deadlines. A device answers for a program
/// that is stopped: when the program sends nothing any more, the connection is closed.
// Covers: S-109
#[test]
fn who_lives_is_waited_for_until_it_falls_silent() {
    for length in LENGTHS {
        let (scene, mut line, other) = scene();
        hold_all(&scene, length);
        let victim = scene.victim();
        let nap = message(NOOP, scene.own(), other, &[]);
        let ended = given_up_after(&scene, 20, || {
            line.send(&nap);
            line.taken();
        });
        assert_eq!(ended, None);
        let (all, well) = victim.count(EventKind::Send);
        let failed = if length > 4000 { 0 } else { CREDITS };
        assert_eq!((all - well, victim.lnd.counters().rx.timeouts), (failed, 0));
        if failed > 0 {
            victim.put_unasked(scene.id(), &filled(whole(length), 1), 99);
        }
        // The last message of the peer was a fifth of the timeout ago.
        assert_eq!(given_up_after(&scene, 3, || {}), None, "it has all of the timeout");
        assert!(given_up_after(&scene, 4, || {}).is_some());
        assert_eq!(victim.lnd.counters().rx.timeouts, 1);
        victim.take();
        drop(line);
        scene.end();
    }
}

/// A slow peer does make progress: it answers one transfer every fifth of the timeout. Its
/// connection stays.
#[test]
fn a_slow_peer_is_kept_while_others_wait_for_credits() {
    let (scene, mut line, other) = scene();
    let victim = scene.victim();
    for bits in 0..CREDITS as u64 {
        victim.put_unasked(scene.id(), &filled(whole(5000), 1), bits);
    }
    let mut cookies = Vec::new();
    scene.until(|| {
        let asked = line.messages().into_iter().filter(|bytes| bytes[6] == PUT_REQ);
        cookies.extend(asked.map(|bytes| bytes[120..128].to_vec()));
        cookies.len() == CREDITS
    });
    // Further messages to the stranger take the credits that it returns, but only after the honest
    // peer's messages, which never get a credit at once.
    for _ in 0..CREDITS {
        victim.put_unasked(scene.id(), &filled(whole(5000), 1), 50);
    }
    let own = scene.own();
    let mut answered = cookies.into_iter();
    let mut waiting = wait_for_a_credit(&scene);
    let ended = given_up_after(&scene, 4, || {
        let cookie = answered.next().unwrap();
        line.send(&message(PUT_NAK, own, other, &[&cookie[..], &[0; 4]].concat()));
        scene.until(|| victim.outcome(EventKind::Send, waiting) == Some(Ok(())));
        scene.later(S / 10);
        waiting = wait_for_a_credit(&scene);
    });
    assert_eq!(ended, None, "{:?}", victim.lnd.last_failure(scene.id().nid));
    drop(line);
    scene.until(|| victim.engine.sending() == 0);
    victim.take();
    scene.end();
}
