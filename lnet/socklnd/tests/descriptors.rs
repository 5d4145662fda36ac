//! Tests in a separate process, because they use up its descriptors.

#![allow(clippy::unwrap_used)]

mod common;

/// The number of CPU partitions of each node.
static PARTITIONS: usize = 2;

use common::raw::{CONTROL, Wire};
use common::{Node, S, address, drive, settle};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nlx_testkit::warnings::Warnings;

/// Descriptors run out while peers connect: accepting pauses, connections in use continue, and
/// waiting peers are accepted later. One warning appears, however long this lasts.
#[test]
fn accepting_pauses_when_descriptors_run_out() {
    let warnings = Warnings::heard();
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"before", 0);
    drive(&[&a, &b], || b.received() == 1 && b.counters().rx.accepts == 3);
    settle(&[&a, &b]);
    let peer = address();
    let mut wire = Wire::connect(peer, 0, &b);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // The limit is lower than the number of open descriptors, so no new one is possible.
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
    wire.send(&common::raw::request(b.nid.ipv4().unwrap()));
    settle(&[&a, &b]);
    a.put_bytes(b.id(), b"meanwhile", 0);
    drive(&[&a, &b], || b.received() == 2);
    assert_eq!(b.counters().rx.accepts, 3);
    let deadline_ns = b.poll().deadline_ns.unwrap();
    assert!(deadline_ns <= b.now_ns() + S, "accepting is tried again soon");
    for _ in 0..20 {
        b.later(S);
        settle(&[&b]);
    }
    assert_eq!(warnings.with("").len(), 1);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    b.later(S);
    wire.send(&common::raw::hello(3, peer, b.nid.ipv4().unwrap(), 1, CONTROL));
    assert_eq!(wire.read(&[&b], 56)[48..52], CONTROL.to_le_bytes());
}
