//! Starting and stopping transfer machines.

use nlx::{Errno, Stop, TmState};

use super::world;
use crate::bed::*;

/// An unused transfer machine leaves nothing behind: the same address can be started again.
// Covers: MT-53, X-3
#[test]
fn a_transfer_machine_that_did_nothing_can_be_had_again() {
    let world = world();
    let domain = world.domain(0);
    for _ in 0..2 {
        let tm = begin(&domain, &wanted(&world, 0, "7")).unwrap();
        assert_eq!((tm.state(), tm.in_flight()), (TmState::Started, 0));
    }
}

/// A text that is not an address is refused by the call, and the domain can still be used.
// Covers: MT-55
#[test]
fn a_bad_address_is_refused_at_once() {
    let world = world();
    let domain = world.domain(0);
    for text in ["invalid", "", "::::", &wanted(&world, 0, "0"), &wanted(&world, 0, "4096")] {
        assert_eq!(begin(&domain, text).unwrap_err().errno(), Errno::EINVAL, "{text}");
    }
    begin(&domain, &wanted(&world, 0, "*")).unwrap();
}

/// A portal that LNet does not have, or reserves.
// Covers: MT-56
#[test]
fn a_bad_portal_is_refused_at_once() {
    let world = world();
    let domain = world.domain(0);
    for portal in [0, 64, 99, u32::MAX] {
        let text = format!("{}:12345:{portal}:*", world.nids[0]);
        assert_eq!(begin(&domain, &text).unwrap_err().errno(), Errno::EINVAL, "{text}");
    }
}

/// A fixed id is the requested one, and no other machine gets it, nor a NID or PID that is not the
/// node's; the machine's end point counts one; a stop with abort ends it.
// Covers: MT-55, MT-56, MT-57, MT-95, MT-105, MT-130, MT-191, MT-221, MT-223
#[test]
fn a_fixed_id_is_the_one_asked_for() {
    let world = world();
    let domain = world.domain(0);
    let tm = begin(&domain, &wanted(&world, 0, "101")).unwrap();
    assert_eq!(tm.address().to_string(), wanted(&world, 0, "101"));
    assert_eq!((tm.state(), tm.end_points()), (TmState::Started, 1));
    assert_eq!((tm.own_end_point().address(), tm.own_end_point().references()), (tm.address(), 1));
    for (text, errno) in [
        (wanted(&world, 0, "101"), Errno::EADDRINUSE),
        (format!("{}:54321:{PORTAL}:*", world.nids[0]), Errno::ENOENT),
        (format!("10.255.255.1@tcp:12345:{PORTAL}:*"), Errno::ENOENT),
    ] {
        assert_eq!(begin(&domain, &text).unwrap_err().errno(), errno, "{text}");
    }
    tm.stop(Stop::Abort, HUNG).unwrap();
    assert_eq!(tm.state(), TmState::Stopped);
}

/// Dynamic ids fall, across domains; a released one is assigned again.
// Covers: MT-59, MT-60, MT-61
#[test]
fn dynamic_ids_fall_across_domains_and_come_again() {
    let world = world();
    let domains = [(); 3].map(|()| world.domain(0));
    let text = wanted(&world, 0, "*");
    let [first, middle, last] = domains.each_ref().map(|domain| begin(domain, &text).unwrap());
    for tm in [&first, &middle, &last] {
        assert_ne!(tm.address().to_string(), text);
    }
    assert!(first.address().tmid > middle.address().tmid && middle.address().tmid > last.address().tmid);
    let before = middle.address();
    middle.stop(Stop::Abort, HUNG).unwrap();
    drop(middle);
    let again = begin(&domains[1], &text).unwrap();
    assert_eq!(again.address(), before);
    // MT-61: all stop without abort, and their addresses are free.
    for tm in [&first, &again, &last] {
        tm.stop(Stop::Drain, HUNG).unwrap();
        assert_eq!(tm.state(), TmState::Stopped);
        begin(&domains[0], &tm.address().to_string()).unwrap();
    }
}
