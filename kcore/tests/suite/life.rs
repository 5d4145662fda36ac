//! Starting and stopping transfer machines.

use lnet_api::Errno;
use lnet_fake::{Call, CallKind};
use nlx_core::{Core, CoreError, OperationKind, StartAddress, TmId, TmOptions};
use nlx_kcore::Kcore;
use parking_lot::{Mutex, MutexGuard};

use super::bed;
use crate::bed::*;

fn errno_of(core: &Kcore, text: &str) -> Errno {
    core.tm_start(&start(text), &TmOptions::default()).err().expect("it is refused").errno()
}

// Covers: S-406, MT-57
#[test]
fn a_transfer_machine_has_one_event_queue_while_it_runs() {
    let bed = bed();
    let tm = bed.core.tm_start(&start("0@lo:12345:30:101"), &TmOptions::default()).unwrap();
    assert_eq!(tm.address(), "0@lo:12345:30:101".parse().unwrap());
    assert_eq!(bed.spy.take_kinds(), [CallKind::EqAlloc]);
    let eq = bed.spy.last_eq();
    tm.stop().unwrap();
    tm.stop().unwrap();
    drop(tm);
    assert!(matches!(bed.spy.take_calls()[..], [Call::EqFree(freed)] if freed == eq));
}

/// K11: nothing is made before the address is checked.
// Covers: MT-8, MT-14, MT-56, MT-223
#[test]
fn an_address_that_cannot_be_started_is_refused_before_lnet_is_asked() {
    let bed = bed();
    for (address, errno) in [
        ("10.77.0.1@tcp:12345:0:*", Errno::EINVAL),
        ("10.77.0.1@tcp:12345:64:*", Errno::EINVAL),
        ("10.77.0.1@tcp:12345:99:*", Errno::EINVAL),
        ("10.77.0.2@tcp:12345:30:*", Errno::ENOENT),
        ("10.77.0.1@tcp1:12345:30:*", Errno::ENOENT),
        ("10.77.0.1@tcp:54321:30:*", Errno::ENOENT),
    ] {
        assert_eq!(errno_of(&bed.core, address), errno, "{address}");
    }
    assert_eq!(bed.spy.take_kinds(), []);
    for portal in [1, 63] {
        bed.core.tm_start(&start(&format!("0@lo:12345:{portal}:1")), &TmOptions::default()).unwrap();
    }
}

// Covers: MT-221
#[test]
fn a_fixed_address_is_started_once_at_a_time() {
    let bed = bed();
    let first = bed.core.tm_start(&start("0@lo:12345:30:101"), &TmOptions::default()).unwrap();
    assert_eq!(errno_of(&bed.core, "0@lo:12345:30:101"), Errno::EADDRINUSE);
    let others = ["0@lo:12345:31:101", "10.77.0.1@tcp:12345:30:101", "0@lo:12345:30:102"];
    let _others = others.map(|text| bed.core.tm_start(&start(text), &TmOptions::default()).unwrap());
    drop(first);
    bed.core.tm_start(&start("0@lo:12345:30:101"), &TmOptions::default()).unwrap();
}

// Covers: S-417, MT-59, MT-60, MT-209
#[test]
fn dynamic_ids_come_from_the_top_and_are_used_again() {
    let bed = bed();
    let begin = || bed.core.tm_start(&start("0@lo:12345:30:*"), &TmOptions::default()).unwrap();
    let tms: Vec<_> = (0..3).map(|_| begin()).collect();
    let ids: Vec<u32> = tms.iter().map(|tm| tm.address().tmid.get()).collect();
    assert_eq!(ids, [4095, 4094, 4093]);
    let middle = tms[1].address();
    tms[1].stop().unwrap();
    assert_eq!(begin().address(), middle);
}

/// This number of transfer machines needs most of a process's descriptors and mappings: one test at
/// a time.
fn alone() -> MutexGuard<'static, ()> {
    static CROWD: Mutex<()> = Mutex::new(());
    CROWD.lock()
}

/// All 4,095 run; there is no id 0, and a freed id is the next one assigned.
// Covers: MT-222
#[test]
fn all_ids_of_a_portal_are_given_and_no_more() {
    let _alone = alone();
    let bed = bed();
    let options = TmOptions::default().events_max(1);
    let wanted = start("0@lo:12345:30:*");
    let mut tms: Vec<_> =
        (1..=TmId::MAX.get()).map(|_| bed.core.tm_start(&wanted, &options).unwrap()).collect();
    let ids: Vec<u32> = tms.iter().map(|tm| tm.address().tmid.get()).collect();
    assert!(ids.is_sorted_by(|a, b| a > b));
    assert_eq!((ids.first(), ids.last()), (Some(&4095), Some(&1)));
    assert_eq!(errno_of(&bed.core, "0@lo:12345:30:*"), Errno::EADDRNOTAVAIL);
    assert_eq!(errno_of(&bed.core, "0@lo:12345:30:1"), Errno::EADDRINUSE);
    assert!(
        bed.core.tm_start(&start("0@lo:12345:29:*"), &options).is_ok(),
        "another portal has all of its own"
    );
    let gone = tms.swap_remove(77).address();
    assert_eq!(bed.core.tm_start(&wanted, &options).unwrap().address(), gone);
}

// Covers: S-406
#[test]
fn a_start_that_lnet_refuses_gives_the_address_back() {
    let bed = bed();
    bed.spy.fail(CallKind::EqAlloc, Errno::ENOMEM);
    assert_eq!(errno_of(&bed.core, "0@lo:12345:30:5"), Errno::ENOMEM);
    bed.core.tm_start(&start("0@lo:12345:30:5"), &TmOptions::default()).unwrap();
}

// Covers: MT-9
#[test]
fn the_nids_are_those_of_lnet_with_the_loopback_last() {
    let texts: Vec<String> = bed().core.nids().iter().map(ToString::to_string).collect();
    assert_eq!(texts, [OWN_NID, "0@lo"]);
}

/// A domain without transfer machines has no objects in LNet.
// Covers: MT-13
#[test]
fn a_domain_without_transfer_machines_holds_nothing() {
    let bed = bed();
    bed.tm.stop().unwrap();
    bed.core.deregister(bed.buffer).unwrap();
    assert_eq!(bed.spy.mds(), 0);
    bed.world.audit();
    bed.assert_no_faults();
}

// Covers: MT-51, MT-235
#[test]
fn stopping_waits_for_the_last_event_to_be_taken() {
    let bed = bed().started(RECEIVE);
    assert_eq!(bed.tm.stop().unwrap_err().errno(), Errno::EBUSY);
    bed.receive(&bed.message(&peer(), LENGTH));
    assert_eq!(bed.tm.stop().unwrap_err().errno(), Errno::EBUSY);
    bed.tm.event_get().unwrap().unwrap();
    bed.tm.stop().unwrap();
    assert_eq!(bed.submit(RECEIVE).unwrap_err(), CoreError::Stopped { address: bed.tm.address() });
    assert_eq!(bed.tm.needed(), 0);
    bed.core.deregister(bed.buffer).unwrap();
}

#[test]
fn a_stop_that_lnet_refuses_can_be_tried_again() {
    let bed = bed();
    bed.spy.fail(CallKind::EqFree, Errno::EBUSY);
    assert_eq!(bed.tm.stop().unwrap_err().errno(), Errno::EBUSY);
    let passive = bed.expose(OperationKind::PassiveReceive);
    bed.receive(&passive.put(&peer(), 1));
    bed.tm.event_get().unwrap().unwrap();
    bed.tm.stop().unwrap();
}

// Covers: S-415
#[test]
fn a_transfer_machine_dropped_in_use_ends_its_operations() {
    let Bed { world, core, tm, spy, buffer, memory, .. } = bed();
    let address = StartAddress::from(tm.address());
    for (cookie, kind) in (0..).zip([RECEIVE, OperationKind::PassiveReceive, active_send(10)]) {
        let buffer = core.register(&memory).unwrap();
        tm.submit(&nlx_core::Operation { buffer, cookie, kind }).unwrap();
    }
    tm.submit(&nlx_core::Operation { buffer, cookie: COOKIE, kind: RECEIVE }).unwrap();
    let message = world.outgoing().pop().unwrap();
    drop(tm);
    // A message that is leaving cannot be recalled: the address stays taken until it has left.
    core.deregister(buffer).unwrap();
    assert_eq!(errno_of(&core, &format!("{OWN_NID}:12345:{PORTAL}:4095")), Errno::EADDRINUSE);
    world.leave(&message, Ok(()));
    assert_eq!(spy.mds(), 0);
    core.tm_start(&address, &TmOptions::default()).unwrap();
}

// Covers: S-415
#[test]
fn a_transfer_machine_dropped_while_it_waits_gives_its_address_back() {
    let Bed { world, core, tm, spy, buffer, .. } = bed();
    let address = StartAddress::from(tm.address());
    tm.submit(&nlx_core::Operation { buffer, cookie: COOKIE, kind: RECEIVE }).unwrap();
    drop(tm);
    assert_eq!(spy.mds(), 0);
    world.audit();
    core.deregister(buffer).unwrap();
    core.tm_start(&address, &TmOptions::default()).unwrap();
}

/// LNet continues to call back for operations that it could not release.
// Covers: S-415
#[test]
fn what_lnet_holds_on_to_outlives_its_transfer_machine() {
    let bed = bed().started(RECEIVE);
    let message = bed.message(&peer(), 10);
    let address = bed.tm.address();
    let Bed { world, core, tm, buffer, spy, .. } = bed;
    let finish = world.arrive(&message).expect("it is taken");
    drop(tm);
    assert_eq!(core.deregister(buffer).unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(errno_of(&core, &address.to_string()), Errno::EADDRINUSE);
    finish(Ok(()));
    assert_eq!(spy.mds(), 0);
    core.deregister(buffer).unwrap();
    core.tm_start(&address.into(), &TmOptions::default()).unwrap();
}
