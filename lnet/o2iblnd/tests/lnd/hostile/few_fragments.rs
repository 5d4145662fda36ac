//! Peers that accept fewer fragments than LNet's payloads have, as 2.10 with `map_on_demand` does:
//! S-502 to S-505.

use std::sync::Arc;

use lnet_api::{Errno, EventKind, MdOptions};
use lnet_o2iblnd::O2ibConfig;
use lnet_o2iblnd::sizes::{self, Adjusted, Release, Side, Tunables};
use lnet_region::IoVec;
use nlx_testkit::buffers::{cut, filled, gapped, pattern, whole};
use nlx_testkit::lnds::watched::{Seen, watched_pair};
use nlx_testkit::lnds::{TestBed as _, exchange};
use nlx_testkit::warnings::Warnings;

use super::bytes::*;
use super::stranger::{Line, Scene};
use crate::Bed;
use crate::calculated::{check_queues, limits};

/// The number of fragments that the peer accepts.
const FRAGMENTS: u16 = 2;

/// The length of a payload in many pieces of one region: at most that of the stranger's memory.
const BYTES: usize = 20_000;
const PIECES: usize = 100;

/// The offset of the second of two fragments, and the length of each.
const SECOND: usize = HALF + 100;
const HALF: usize = BYTES / 2;

fn scene() -> (Scene, [Arc<Seen>; 2]) {
    let bed = Bed::new();
    let (nodes, seen) = watched_pair(&bed, [&O2ibConfig::default(); 2], |_| ());
    (Scene::of(bed, nodes), seen)
}

fn pieces() -> IoVec {
    gapped(&cut(BYTES, PIECES))
}

/// nlx does not depend on `map_on_demand`, `ntx` and other tunables of the kernel; a peer that sets
/// them gets queues for the fragments that it requests.
// Covers: S-502, S-508
#[test]
fn its_queues_are_as_calculated() {
    for (map_on_demand, peer_credits) in [(32, 8), (2, 8), (256, 4)] {
        let mut old = Side::of(Release::V2_10);
        (old.tunables.map_on_demand, old.tunables.peer_credits) = (map_on_demand, peer_credits);
        let old = old.adjust().unwrap();
        let mut own = Side::of(Release::Nlx);
        own.tunables =
            Tunables { map_on_demand, ntx: 1, fmr_pool_size: 1, use_fastreg_gaps: 1, ..own.tunables };
        let own = Adjusted { ntx: 512, fmr_pool_size: 512, gaps: false, ..own.adjust().unwrap() };
        assert_eq!(own, sizes::adjust(&O2ibConfig::default()));

        let (scene, seen) = scene();
        let victim = limits(&scene.bed.host(1).1, scene.victim());
        let before = seen[0].bytes();
        let agreed = sizes::negotiate((&old, &victim), (&own, &victim)).outcome.unwrap();
        let line = scene.connected_with(&params(agreed.depth, agreed.fragments, 4096));
        check_queues(&seen[0], 1, &agreed.passive);
        assert_eq!(seen[0].bytes() - before, agreed.passive.receive_bytes + agreed.passive.transmit_bytes);
        drop((line, seen));
        scene.end();
    }
}

/// Returns the next message that the stranger receives.
fn next_message(scene: &Scene, line: &Line) -> Vec<u8> {
    let mut received = Vec::new();
    scene.until(|| {
        received.extend(line.messages());
        !received.is_empty()
    });
    received.remove(0)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns a descriptor of the stranger's memory in two fragments, with a gap between them.
fn target(line: &Line) -> Vec<u8> {
    let (address, key) = line.target();
    descriptor(key, 2, &[(HALF as u32, address), (HALF as u32, address + SECOND as u64)])
}

/// Returns the contents of the stranger's memory.
fn written(line: &Line) -> Vec<u8> {
    [line.written(0, HALF), line.written(SECOND, HALF)].concat()
}

/// Returns the status of a PUT_DONE or GET_DONE.
fn status(message: &[u8]) -> i32 {
    word(message, 56) as i32
}

/// Makes the node the source of a PUT; returns the status of its PUT_DONE.
fn puts(scene: &Scene, line: &mut Line, other: End, source: &IoVec) -> i32 {
    scene.victim().put_unasked(scene.id(), source, 7);
    let request = next_message(scene, line);
    assert_eq!(request[6], PUT_REQ);
    let body = [&request[120..128], &[5; 8], &target(line)].concat();
    line.send(&message(PUT_ACK, scene.own(), other, &body));
    let done = next_message(scene, line);
    assert_eq!(done[6], PUT_DONE);
    status(&done)
}

/// Makes the node the source of a REPLY; returns the status of its GET_DONE.
fn replies(scene: &Scene, line: &mut Line, other: End, source: &IoVec) -> i32 {
    scene.victim().post(source, 8, MdOptions::OP_GET);
    let own = scene.own();
    let body = [&header(2, own.nid, other.nid, BYTES as u32, 8)[..], &[1; 8], &target(line)].concat();
    line.send(&message(GET_REQ, own, other, &body));
    let done = next_message(scene, line);
    assert_eq!(done[6], GET_DONE);
    status(&done)
}

/// Makes the node the sink of a PUT; returns the number of fragments that the node describes, or
/// the error with which it refuses.
fn takes(scene: &Scene, line: &mut Line, other: End, sink: &IoVec) -> Result<u32, i32> {
    scene.victim().post(sink, 9, MdOptions::OP_PUT);
    let own = scene.own();
    let body = [&header(1, own.nid, other.nid, BYTES as u32, 9)[..], &[1; 8]].concat();
    line.send(&message(PUT_REQ, own, other, &body));
    let answer = next_message(scene, line);
    if answer[6] == PUT_NAK {
        return Err(status(&answer));
    }
    assert_eq!(answer[6], PUT_ACK);
    let refused = [&answer[56..64], &(-5_i32).to_le_bytes()].concat();
    line.send(&message(PUT_DONE, own, other, &refused));
    Ok(word(&answer, 68))
}

/// Makes the node the sink of a GET; returns the number of fragments that the node describes.
fn gets(scene: &Scene, line: &mut Line, other: End, sink: &IoVec) -> u32 {
    scene.victim().get(scene.id(), sink, 7);
    let request = next_message(scene, line);
    assert_eq!(request[6], GET_REQ);
    let refused = [&request[120..128], &(-5_i32).to_le_bytes()].concat();
    line.send(&message(GET_DONE, scene.own(), other, &refused));
    word(&request, 132)
}

/// Memory in more fragments than the peer accepts is split as far as possible, and otherwise copied
/// through a contiguous bounce buffer.
// Covers: S-504
#[test]
fn too_many_pieces_become_one() {
    let (scene, seen) = scene();
    let (mut line, other) = scene.connected_with(&params(8, FRAGMENTS, 4096));
    let counters = || scene.victim().lnd.counters();
    let (before, source) = (counters(), filled(pieces(), 3));
    assert_eq!(puts(&scene, &mut line, other, &source), BYTES as i32);
    assert!(written(&line) == pattern(3, BYTES));
    drop(source);
    let source = filled(pieces(), 4);
    assert_eq!(replies(&scene, &mut line, other, &source), BYTES as i32);
    assert!(written(&line) == pattern(4, BYTES));
    let after = counters();
    // Each fragment of the sink needs a write.
    assert_eq!(after.tx.writes - before.tx.writes, 2 * u64::from(FRAGMENTS));
    assert_eq!(after.tx.bytes_bounced - before.tx.bytes_bounced, 2 * BYTES as u64);
    assert_eq!(takes(&scene, &mut line, other, &pieces()), Ok(1));
    assert_eq!(gets(&scene, &mut line, other, &pieces()), 1);
    drop(source);
    // Memory that the peer accepts unchanged is not copied.
    let source = filled(gapped(&cut(BYTES, 4)), 5);
    assert_eq!(puts(&scene, &mut line, other, &source), BYTES as i32);
    assert!(written(&line) == pattern(5, BYTES));
    assert_eq!(counters().tx.bytes_bounced, after.tx.bytes_bounced);
    assert_eq!(gets(&scene, &mut line, other, &gapped(&cut(BYTES, 2))), 2);
    scene.until(|| scene.victim().engine.sending() == 0);
    scene.victim().take();
    line.endpoint.disconnect();
    drop((line, source, seen));
    scene.end();
}

/// If copying is not possible either, the transfer fails with EMSGSIZE at both sides, and a warning
/// says what to change; shorter lists still work.
// Covers: S-504
#[test]
fn too_many_pieces_are_refused_with_advice() {
    let (scene, seen) = scene();
    let [victim, honest] = [&scene.nodes[0], &scene.nodes[1]];
    let (source, sink, short) = (filled(pieces(), 1), pieces(), filled(whole(BYTES), 2));
    // The memory is registered for both directions while that is possible.
    exchange(&scene.bed, [victim, honest], &source, &whole(BYTES));
    exchange(&scene.bed, [honest, victim], &filled(whole(BYTES), 1), &sink);
    exchange(&scene.bed, [victim, honest], &short, &whole(BYTES));
    let (mut line, other) = scene.connected_with(&params(8, FRAGMENTS, 4096));
    seen[0].refuse_memory(true);
    let warnings = Warnings::heard();
    let refused = -(Errno::EMSGSIZE as i32);
    let advised = |words: &str| {
        let warnings = warnings.with("a transfer failed");
        assert!(warnings.last().is_some_and(|warning| warning.contains(words)), "{warnings:?}");
        assert!(
            warnings.iter().all(|warning| warning.contains("map_on_demand") && warning.contains("EMSGSIZE")),
            "{warnings:?}"
        );
        scene.later(11 * nlx_testkit::lnds::S);
    };
    assert_eq!(puts(&scene, &mut line, other, &source), refused);
    advised("more than the 2 work requests that both nodes have agreed on, each of at most 2 pieces");
    assert_eq!(replies(&scene, &mut line, other, &source), refused);
    advised("raise wrq_sge as far as the device can");
    assert_eq!(takes(&scene, &mut line, other, &sink), Err(refused));
    advised("more than the 2 fragments that both nodes have agreed on");
    let get = victim.get(scene.id(), &sink, 7);
    scene.until(|| victim.outcome(EventKind::Send, get).is_some());
    assert_eq!(victim.outcome(EventKind::Send, get), Some(Err(Errno::EMSGSIZE)));
    advised("use buffers of fewer and larger fragments");
    assert_eq!(puts(&scene, &mut line, other, &short), BYTES as i32);
    assert!(written(&line) == pattern(2, BYTES));
    scene.until(|| victim.engine.sending() == 0);
    let failed = victim.take().iter().filter(|event| event.status == Err(Errno::EMSGSIZE)).count();
    assert_eq!(failed, 4, "each operation has ended with the error");
    seen[0].refuse_memory(false);
    line.endpoint.disconnect();
    drop((line, source, sink, short, seen));
    scene.end();
}
