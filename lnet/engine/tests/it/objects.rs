//! EQs, MEs and MDs: handles, portal types, and calls that are refused.

use lnet_api::{AckRequest, Errno, EventKind, LNet, MdHandle, MdOptions, MeHandle, Position, Unlink};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};

use super::common::*;

// Covers: S-107
#[test]
fn handles_of_what_is_gone_are_enoent() {
    let (_network, node) = one_node();
    let buffer = memory(64);
    let me = node.post(1);
    let md = node.engine.md_attach(me, node.md(&buffer, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    node.engine.me_unlink(me).unwrap();
    assert_eq!(brief(&node.events()), [(EventKind::Unlink, Ok(()), true)]);
    assert_eq!(errno(node.engine.me_unlink(me)), Errno::ENOENT);
    assert_eq!(errno(node.engine.md_unlink(md)), Errno::ENOENT);
    // The slots are used again, but the old handles stay invalid.
    let (me2, md2) = (node.post(1), node.bind(&buffer, 1));
    assert!(me2 != me && md2 != md);
    assert_eq!(errno(node.engine.me_unlink(me)), Errno::ENOENT);
    assert_eq!(errno(node.engine.md_unlink(md)), Errno::ENOENT);
    assert_eq!(errno(node.put(md, node.id(), 1, AckRequest::NoAck)), Errno::ENOENT);
    assert_eq!(errno(node.engine.md_unlink(MdHandle(u64::MAX))), Errno::ENOENT);
    assert_eq!(errno(node.engine.me_unlink(MeHandle(0))), Errno::ENOENT);
}

#[test]
fn an_event_queue_in_use_is_not_freed() {
    let (_network, node) = one_node();
    let md = node.bind(&memory(8), 1);
    assert_eq!(errno(node.engine.eq_free(node.eq)), Errno::EBUSY);
    node.engine.md_unlink(md).unwrap();
    node.engine.eq_free(node.eq).unwrap();
    assert_eq!(errno(node.engine.eq_free(node.eq)), Errno::ENOENT);
    let md = node.md(&memory(8), MdOptions::empty(), 1);
    assert_eq!(errno(node.engine.md_bind(md, Unlink::Auto)), Errno::ENOENT);
}

#[test]
fn descriptors_that_make_no_sense_are_refused() {
    let (_network, node) = one_node();
    let buffer = memory(64);
    let bind = |options, max_size, bytes| {
        let md = lnet_api::Md { max_size, ..node.md(&memory(bytes), options, 1) };
        node.engine.md_bind(md, Unlink::Auto)
    };
    assert_eq!(errno(bind(MdOptions::OP_PUT, 0, 64)), Errno::EINVAL);
    assert_eq!(errno(bind(MdOptions::MAX_SIZE, 65, 64)), Errno::EINVAL);
    assert_eq!(errno(bind(MdOptions::empty(), 0, (1 << 20) + 1)), Errno::EINVAL);
    assert!(bind(MdOptions::empty(), 0, 1 << 20).is_ok());
    let me = node.post(1);
    let neither = node.md(&buffer, MdOptions::empty(), 1);
    assert_eq!(errno(node.engine.md_attach(me, neither, Unlink::Auto)), Errno::EINVAL);
    // The entry was removed with its MD.
    assert_eq!(errno(node.engine.me_unlink(me)), Errno::ENOENT);
    // A refused MD does not replace the MD that the entry has.
    let me = node.post(1);
    let md = || node.md(&buffer, MdOptions::OP_PUT, 1);
    let attached = node.engine.md_attach(me, md(), Unlink::Auto).unwrap();
    assert_eq!(errno(node.engine.md_attach(me, md(), Unlink::Auto)), Errno::EBUSY);
    node.engine.md_unlink(attached).unwrap();
    assert_eq!(errno(node.engine.md_attach(me, md(), Unlink::Auto)), Errno::ENOENT);
}

// Covers: S-101, S-103, S-104
#[test]
fn the_first_entry_decides_the_type_of_a_portal() {
    let (_network, node) = one_node();
    let one = ProcessId::new(nid(9), Pid::LNET);
    let open = [
        (ProcessId::ANY, 0),
        (ProcessId::new(Nid::ANY, Pid::LNET), 0),
        (ProcessId::new(nid(9), Pid::ANY), 0),
        (one, 1),
    ];
    let attach = |portal, match_id, ignore, position| {
        let (portal, ignore_bits) = (Portal::new(portal).unwrap(), MatchBits(ignore));
        node.engine.me_attach(&lnet_api::MeSpec { portal, match_id, ignore_bits, position, ..spec(1) })
    };
    // A unique portal has no order, and takes no wildcard.
    assert_eq!(errno(attach(1, one, 0, Position::Before)), Errno::EPERM);
    let first = attach(1, one, 0, Position::After).unwrap();
    for (match_id, ignore) in open {
        assert_eq!(errno(attach(1, match_id, ignore, Position::After)), Errno::EPERM);
    }
    assert_eq!(errno(attach(1, one, 0, Position::Before)), Errno::EPERM);
    attach(1, one, 0, Position::After).unwrap();
    // The portal keeps its type when the entry that determined it is gone.
    node.engine.me_unlink(first).unwrap();
    assert_eq!(errno(attach(1, ProcessId::ANY, 0, Position::After)), Errno::EPERM);
    // A wildcard in any of the fields makes a portal a wildcard portal.
    for (number, (match_id, ignore)) in open.into_iter().enumerate() {
        let portal = 2 + number as u32;
        attach(portal, match_id, ignore, Position::Before).unwrap();
        attach(portal, match_id, ignore, Position::After).unwrap();
        assert_eq!(errno(attach(portal, one, 0, Position::After)), Errno::EPERM);
    }
}

#[test]
fn exhausted_descriptors_send_nothing_more() {
    let (network, node) = one_node();
    let md = node.md(&memory(8), MdOptions::empty(), 2);
    let md = node.engine.md_bind(md, Unlink::Retain).unwrap();
    node.put(md, ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    node.put(md, ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    assert_eq!(errno(node.put(md, ProcessId::lnet(nid(3)), 1, AckRequest::NoAck)), Errno::ENOENT);
    assert_eq!(errno(node.get(md, ProcessId::lnet(nid(3)), 1)), Errno::ENOENT);
    network.lose(0);
    network.lose(0);
    assert_eq!(brief(&node.events()), [(EventKind::Send, Ok(()), false); 2]);
    node.engine.md_unlink(md).unwrap();
    assert_eq!(brief(&node.events()), [(EventKind::Unlink, Ok(()), true)]);
}

#[test]
fn attached_descriptors_send_nothing() {
    let (_network, node) = one_node();
    let md = node.expect(1, &memory(8), MdOptions::OP_PUT);
    assert_eq!(errno(node.put(md, ProcessId::lnet(nid(3)), 1, AckRequest::NoAck)), Errno::ENOENT);
}
