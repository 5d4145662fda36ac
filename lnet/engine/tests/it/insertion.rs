//! Insertion of entries beside others, and the end of an entry before that of its MD (S-103, S-104,
//! S-107, S-108).

use lnet_api::EventKind::Put;
use lnet_api::{AckRequest, Errno, LNet, MdHandle, MdOptions, MeHandle, MeSpec, Position, Unlink};
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};

use super::common::*;

fn beside(position: Position, bits: u64) -> MeSpec {
    MeSpec { position, ..spec(bits) }
}

/// `MEInsert`: an entry directly before or after another one.
// Covers: S-104
#[test]
fn an_entry_is_tried_where_it_was_inserted() {
    let (network, node) = one_node();
    let attach = |me| node.engine.md_attach(me, node.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Auto);
    let middle = node.post(1);
    let last = node.engine.me_insert(middle, &beside(Position::After, 1)).unwrap();
    let first = node.engine.me_insert(middle, &beside(Position::Before, 1)).unwrap();
    // An entry with ignore bits between two without them: its separate list must have its position
    // in the portal's list.
    let masked = MeSpec { ignore_bits: MatchBits(6), ..beside(Position::After, 1) };
    let masked = node.engine.me_insert(first, &masked).unwrap();
    let mds: Vec<MdHandle> =
        [first, masked, middle, last].into_iter().map(|me| attach(me).unwrap()).collect();
    let taken: Vec<MdHandle> = (0..4)
        .flat_map(|_| {
            network.arrive(put_from(&node, nid(3), 1, vec![]));
            node.events()
        })
        .map(|event| event.md)
        .collect();
    assert_eq!(taken, mds);
}

// Covers: S-103, S-104
#[test]
fn insertions_that_cannot_be_are_refused() {
    let (network, node) = one_node();
    let insert = |me, spec| errno(node.engine.me_insert(me, &spec));
    let me = node.post(1);
    assert_eq!(insert(me, beside(Position::Local, 1)), Errno::EINVAL);
    let elsewhere = MeSpec { portal: Portal::new(35).unwrap(), ..beside(Position::After, 1) };
    assert_eq!(insert(me, elsewhere), Errno::EINVAL);
    let one = MeSpec { match_id: ProcessId::new(nid(3), Pid::LNET), ..beside(Position::After, 1) };
    assert_eq!(insert(me, one), Errno::EPERM);
    node.engine.me_unlink(me).unwrap();
    assert_eq!(insert(me, beside(Position::After, 1)), Errno::ENOENT);
    // A unique portal has no order.
    let unique = MeSpec { portal: Portal::new(36).unwrap(), ..one };
    let me = node.engine.me_attach(&unique).unwrap();
    for position in [Position::Before, Position::After] {
        assert_eq!(insert(me, MeSpec { position, ..unique }), Errno::EPERM);
        let open = MeSpec { match_id: ProcessId::ANY, position, ..unique };
        assert_eq!(insert(me, open), Errno::EPERM);
    }
    let before = MeSpec { position: Position::Before, ..unique };
    assert_eq!(errno(node.engine.me_attach(&before)), Errno::EPERM);
    // The refused insertions left nothing behind.
    node.engine.me_unlink(me).unwrap();
    let md = node.expect(1, &memory(8), MdOptions::OP_PUT);
    network.arrive(put_from(&node, nid(3), 1, vec![]));
    assert_eq!(node.events().pop().map(|event| event.md), Some(md));
}

/// A handle's value is valid for one kind of object only.
// Covers: S-107
#[test]
fn a_handle_of_one_kind_names_nothing_of_another() {
    let (_network, node) = one_node();
    let me = node.post(1);
    let md = node.bind(&memory(8), 1);
    for value in [me.0, node.eq.0] {
        assert_eq!(errno(node.engine.md_unlink(MdHandle(value))), Errno::ENOENT);
        assert_eq!(errno(node.put(MdHandle(value), node.id(), 1, AckRequest::Ack)), Errno::ENOENT);
    }
    for value in [md.0, node.eq.0] {
        assert_eq!(errno(node.engine.me_unlink(MeHandle(value))), Errno::ENOENT);
    }
    for value in [md.0, me.0] {
        assert_eq!(errno(node.engine.eq_free(lnet_api::EqHandle(value))), Errno::ENOENT);
    }
    node.engine.me_unlink(me).unwrap();
    node.engine.md_unlink(md).unwrap();
}

// Covers: S-108
#[test]
fn an_exhausted_descriptor_outlives_its_entry_until_its_message_is_done() {
    let (network, node) = one_node();
    let me = node.post(1);
    let md = node.engine.md_attach(me, node.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    let (token, receiver) = network.arrive_header(&put_from(&node, nid(3), 1, vec![7; 8])).unwrap();
    // The entry is gone, no handle finds the MD, and no message matches any more ...
    assert_eq!(errno(node.engine.me_unlink(me)), Errno::ENOENT);
    assert_eq!(errno(node.engine.me_insert(me, &spec(1))), Errno::ENOENT);
    assert_eq!(errno(node.engine.md_unlink(md)), Errno::ENOENT);
    network.arrive(put_from(&node, nid(3), 1, vec![8; 8]));
    assert_eq!((network.verdicts().discarded, node.events()), (1, vec![]));
    // ... but the MD still exists: the queue cannot be freed.
    assert_eq!(errno(node.engine.eq_free(node.eq)), Errno::EBUSY);
    receiver.finalize_rx(token, Ok(()));
    let events = node.events();
    assert_eq!(brief(&events), [(Put, Ok(()), true)]);
    assert_eq!(events[0].md, md);
    node.engine.eq_free(node.eq).unwrap();
}
