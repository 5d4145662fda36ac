//! A peer that allows fewer connections than the node, and closes surplus ones (measured with a
//! kernel node whose `conns_per_peer` is 1): each is closed alone, and requested again after
//! `max_reconnectms`.

use lnet_api::Errno;
use lnet_sim::tcp::TcpBehaviour;
use lnet_socklnd::SockConfig;

use super::raw::{Behaviour, ScriptedPeer};
use super::stage::{PEER, Stage};
use super::{S, assert_fires, watched_ns};

/// The number of connections: CONTROL, and two of each bulk type.
const ALL: usize = 5;
const BULK_OUT: u8 = 3;

/// Makes a node and a peer with all connections that the node requests.
fn connected(behaviour: TcpBehaviour) -> (Stage, ScriptedPeer) {
    let mut stage = Stage::over(&SockConfig { conns_per_peer: 2, ..SockConfig::default() }, behaviour);
    let mut scripted = ScriptedPeer::open(&stage, Behaviour::Welcomes);
    let put = stage.put(PEER, 100);
    let all = |stage: &mut Stage| {
        scripted.serve();
        (stage.lnd.counters().rx.connects == ALL as u64).then_some(())
    };
    stage.until(S, all).expect("the set is complete");
    assert_eq!(stage.result(put), Some(Ok(())));
    assert_eq!(scripted.wires.last().map(|wire| wire.wanted), Some(BULK_OUT));
    (stage, scripted)
}

// Covers: S-208
#[test]
fn it_goes_alone_and_is_asked_for_again_after_the_longest_pause() {
    let pause_ns = u64::from(SockConfig::default().max_reconnect_ms) * 1_000_000;
    assert_eq!(pause_ns, 60 * S);
    let (mut stage, mut scripted) = connected(TcpBehaviour::reliable());
    for _ in 0..3 {
        drop(scripted.wires.pop());
        let begun_ns = stage.now_ns();
        let after_ns = stage.until(watched_ns(pause_ns), |stage| {
            scripted.serve();
            let surplus = scripted.wires.get(ALL - 1).filter(|wire| wire.wanted == BULK_OUT);
            surplus.map(|_| stage.now_ns() - begun_ns)
        });
        assert_fires("the pause after a surplus connection", after_ns, pause_ns);
        // In this time the hello reaches the node.
        stage.run_for(S / 10);
    }
    drop(scripted.wires.pop());
    for size in [100, 5_000] {
        let put = stage.put(PEER, size);
        assert_eq!(stage.end_of(put, S, |_| {}).map(|(_, result)| result), Some(Ok(())));
    }
    stage.run_for(S);
    for wire in &mut scripted.wires {
        while wire.read(64 << 10) > 0 {}
        assert!(!wire.ended, "the others stay");
    }
    assert_eq!(stage.lnd.counters().rx.peers_lost, 0);
}

/// One of four messages has begun to leave on the connection that ends. It fails, and the others
/// arrive whole.
// Covers: S-208
#[test]
fn what_has_not_begun_to_leave_on_it_goes_on_the_others() {
    const SIZE: usize = 100_000;
    const FRAME: usize = 24 + 72;
    let behaviour =
        TcpBehaviour { send_buffer: 16 << 10, receive_buffer: 16 << 10, ..TcpBehaviour::reliable() };
    let (mut stage, mut scripted) = connected(behaviour);
    let puts = [(); 4].map(|()| stage.put(PEER, SIZE));
    stage.run_for(S / 10);
    assert!(puts.iter().all(|put| stage.result(*put).is_none()), "no socket takes so much");
    drop(scripted.wires.pop());
    stage.until(10 * S, |stage| {
        for wire in &mut scripted.wires {
            wire.read(64 << 10);
        }
        puts.iter().all(|put| stage.result(*put).is_some()).then_some(())
    });
    let mut results: Vec<_> = puts.iter().filter_map(|put| stage.result(*put)).collect();
    results.sort_by_key(Result::is_ok);
    assert_eq!(results, [Err(Errno::ECONNRESET), Ok(()), Ok(()), Ok(())]);
    stage.until(10 * S, |_| {
        scripted.wires.iter_mut().for_each(|wire| _ = wire.read(64 << 10));
        None::<()>
    });
    let bulk = scripted.wires.iter().find(|wire| wire.wanted == BULK_OUT).expect("the first one stays");
    assert_eq!(bulk.bytes.len(), 3 * (FRAME + SIZE));
}

/// A connection that has been in use is not surplus: if the peer ends it, all end.
// Covers: S-208
#[test]
fn a_connection_that_the_peer_has_spoken_on_takes_the_others_with_it() {
    let (mut stage, mut scripted) = connected(TcpBehaviour::reliable());
    let wire = scripted.wires.pop().expect("BULK_OUT");
    wire.send(&super::raw::noop(1));
    stage.run_for(S);
    drop(wire);
    let lost = |stage: &mut Stage| (stage.lnd.counters().rx.peers_lost == 1).then_some(());
    stage.until(S, lost).expect("all connections end");
    let ended = |_: &mut Stage| scripted.wires.iter_mut().all(|wire| wire.has_ended()).then_some(());
    stage.until(S, ended).expect("each of them ends");
}
