//! Every table has a limit: an error names the table and its limit, and calls succeed again once
//! there is room.

use lnet::{EngineConfig, Limits};
use lnet_api::{AckRequest, Errno, LNet, LNetError, Md, MdOptions, MeSpec, Position, Threshold, Unlink};
use lnet_cpt::with_partition;
use lnet_nid::{Pid, ProcessId};

use super::common::*;

fn node(network: &std::sync::Arc<Network>, limits: Limits) -> Node {
    Node::with_config(network, 2, EngineConfig { limits, ..EngineConfig::new(Pid::LNET, 1) })
}

/// Repeats a call until it fails for lack of room; returns the created objects.
fn fill<T>(objects: &'static str, limit: usize, mut call: impl FnMut() -> Result<T, LNetError>) -> Vec<T> {
    let mut made = Vec::new();
    let error = loop {
        match call() {
            Ok(one) => made.push(one),
            Err(error) => break error,
        }
        assert!(made.len() <= limit, "{objects}: no limit");
    };
    assert_eq!(error, LNetError::TooMany { objects, limit });
    assert_eq!(error.errno(), Errno::ENOMEM);
    made
}

/// Returns an entry of the caller's partition. (The node's own entries are in the first partition,
/// and count towards its limit.)
fn local(bits: u64) -> MeSpec {
    MeSpec { position: Position::Local, ..spec(bits) }
}

#[test]
fn event_queues() {
    let network = Network::new();
    let node = node(&network, Limits { event_queues: 8, ..Limits::default() });
    for _ in 0..3 {
        let alloc = || node.engine.eq_alloc(node.log.clone());
        let eqs = fill("event queues", 8, alloc);
        assert_eq!(errno(node.engine.eq_alloc_polled(4, None)), Errno::ENOMEM);
        eqs.into_iter().for_each(|eq| node.engine.eq_free(eq).unwrap());
    }
}

#[test]
fn match_entries() {
    let network = Network::new();
    let node = node(&network, Limits { match_entries: 8, ..Limits::default() });
    with_partition(super::PARTITIONS - 1, || {
        for _ in 0..3 {
            let mes = fill("match entries", 8, || node.engine.me_attach(&local(1)));
            let beside = MeSpec { position: Position::Before, ..spec(1) };
            assert_eq!(errno(node.engine.me_insert(mes[0], &beside)), Errno::ENOMEM);
            mes.into_iter().for_each(|me| node.engine.me_unlink(me).unwrap());
        }
    });
}

#[test]
fn descriptors_that_are_bound() {
    let network = Network::new();
    let node = node(&network, Limits { descriptors: 8, ..Limits::default() });
    for _ in 0..3 {
        let md = || node.md(&memory(8), MdOptions::empty(), 1);
        let mds = fill("memory descriptors", 8, || node.engine.md_bind(md(), Unlink::Auto));
        assert_eq!(mds.len(), 8);
        mds.into_iter().for_each(|md| node.engine.md_unlink(md).unwrap());
    }
    assert_eq!(node.events().len(), 24);
}

#[test]
fn descriptors_that_are_attached() {
    let network = Network::new();
    let node = node(&network, Limits { descriptors: 8, ..Limits::default() });
    with_partition(super::PARTITIONS - 1, || {
        for _ in 0..3 {
            let attach = || {
                let me = node.engine.me_attach(&local(1))?;
                let attached =
                    node.engine.md_attach(me, node.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Auto);
                if attached.is_err() {
                    assert_eq!(errno(node.engine.me_unlink(me)), Errno::ENOENT);
                }
                attached
            };
            let mds = fill("memory descriptors", 8, attach);
            mds.into_iter().for_each(|md| node.engine.md_unlink(md).unwrap());
        }
    });
}

#[test]
fn messages_and_answers() {
    let network = Network::new();
    let node = node(&network, Limits { messages: 8, ..Limits::default() });
    let endless = Md { threshold: Threshold::Infinite, ..node.md(&memory(8), MdOptions::empty(), 0) };
    let md = node.engine.md_bind(endless, Unlink::Retain).unwrap();
    let target = ProcessId::lnet(nid(3));
    let sent = fill("messages in flight", 8, || node.put(md, target, 1, AckRequest::NoAck));
    assert_eq!((sent.len(), node.engine.counters().msgs_alloc), (8, 8));
    network.lose_all();
    assert_eq!(node.events().len(), 8);
    // These PUTs wait for their ACKs; none is in flight.
    let awaited = fill("answers waited for", 8, || {
        node.put(md, target, 1, AckRequest::Ack)?;
        network.lose(0);
        Ok(())
    });
    assert_eq!((awaited.len(), node.engine.counters().rst_alloc), (8, 8));
    node.engine.md_unlink(md).unwrap();
    assert!(node.is_quiet());
    node.events();
}
