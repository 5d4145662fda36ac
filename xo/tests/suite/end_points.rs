//! End points.

use nlx::{Errno, Op, Stop};

use super::{pair, world};
use crate::bed::*;

/// Texts that are no address of a peer, and those that are; a refused one leaves no end point
/// behind.
// Covers: MT-70, MT-96, MT-130, MT-192
#[test]
fn an_end_point_has_a_whole_address() {
    let Pair { a, world, .. } = &pair();
    let nid = world.nids[0];
    let bad = [
        String::new(),
        "invalid".into(),
        wanted(world, 0, "*"),
        wanted(world, 0, "0"),
        wanted(world, 0, "4096"),
        wanted(world, 0, "-1"),
        format!("{nid}:12345:{PORTAL}"),
        format!("{nid}:12345:x:1"),
        format!("{nid}:x:{PORTAL}:1"),
        format!("nowhere:12345:{PORTAL}:1"),
    ];
    let before = a.tm.end_points();
    for text in &bad {
        assert_eq!(a.tm.end_point(text).unwrap_err().errno(), Errno::EINVAL, "{text}");
    }
    assert_eq!(a.tm.end_points(), before);
    for id in ["1", "4095"] {
        let end_point = a.tm.end_point(&wanted(world, 0, id)).unwrap();
        assert_eq!(end_point.to_string(), wanted(world, 0, id));
    }
}

/// One address is one counted object, the machine's address included; the last drop releases it.
// Covers: MT-97, MT-98, MT-192
#[test]
fn end_points_are_shared_and_counted() {
    let Pair { a, b, world: _world } = &pair();
    assert_eq!((a.tm.own_end_point().references(), a.tm.end_points()), (1, 1));
    let own = a.knows(a);
    assert_eq!((&own, own.references(), a.tm.end_points()), (a.tm.own_end_point(), 2, 1));
    let peer = a.knows(b);
    assert_eq!((peer.references(), a.tm.end_points()), (1, 2));
    let again = a.knows(b);
    let third = again.clone();
    assert_eq!((&peer, peer.references(), a.tm.end_points()), (&third, 3, 2));
    drop(again);
    assert_eq!(peer.references(), 2);
    drop(third);
    assert_eq!(peer.references(), 1);
    drop(peer);
    assert_eq!(a.tm.end_points(), 1);
    // The other machine is not affected.
    assert_eq!(b.tm.end_points(), 1);
}

/// A peer is counted while a message to it is in flight, even if its end point is dropped.
// Covers: MT-101, MT-242
#[test]
fn a_message_in_flight_counts_its_peer() {
    let pair = pair();
    let before = pair.a.tm.end_points();
    pair.b.receive_one(64);
    let to = pair.a.knows(&pair.b);
    let op = pair.a.tm.start(Op::send(pair.a.filled(b"x"), &to).timeout(HUNG)).unwrap().op;
    // The event may already be in a callback.
    assert!(to.references() == 2 || pair.world.is_called());
    drop(to);
    assert!(pair.a.tm.end_points() == before + 1 || pair.world.is_called());
    assert_eq!(pair.a.end_of(op).status, Ok(()));
    assert_eq!(pair.a.tm.end_points(), before);
    assert_eq!(pair.b.next().message.as_deref(), Some(&b"x"[..]));
}

/// The sender of a message is counted while its end point exists, after the message, the stop and
/// the transfer machine have ended; its text is valid at any other machine.
// Covers: MT-22, MT-98, MT-242
#[test]
fn the_end_point_of_a_stopped_machine_is_still_a_name() {
    let pair = pair();
    pair.b.receive(640, 2, 64);
    let (first, second) = (pair.pass(b"one").sender.unwrap(), pair.pass(b"two").sender.unwrap());
    assert_eq!((&first, first.references()), (&second, 2));
    drop(second);
    let Pair { a, b, world } = pair;
    b.tm.stop(Stop::Abort, HUNG).unwrap();
    assert_eq!((first.references(), b.tm.end_points()), (1, 2));
    assert_eq!(b.tm.end_point(&a.tm.address().to_string()).unwrap_err().errno(), Errno::ESHUTDOWN);
    drop(b);
    let other = Side::on(&world, 1, "*");
    let same = other.tm.end_point(&first.to_string()).unwrap();
    assert_eq!((same.address(), same.references(), first.references()), (a.tm.address(), 1, 1));
}

/// An end point is only an address, so that of another transfer machine is valid too.
// Covers: MT-242
#[test]
fn end_points_are_names() {
    let world = world();
    let [one, other] = ["7", "8"].map(|id| Side::on(&world, 0, id));
    let target = Side::on(&world, 1, "9");
    target.receive(64, 2, 32);
    let known = one.knows(&target);
    for side in [&one, &other] {
        let op = side.tm.start(Op::send(side.filled(b"hi"), &known).timeout(HUNG)).unwrap().op;
        assert_eq!(side.end_of(op).status, Ok(()));
        assert_eq!(target.next().sender.unwrap().address(), side.tm.address());
    }
}
