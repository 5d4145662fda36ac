//! Starting and stopping transfer machines (MT-9, MT-56, MT-57, MT-59, MT-60, MT-209, MT-221 to MT-223; S-406).

use lnet_fake::Call;

use super::*;

fn domain() -> (Arc<FakeLnet>, Arc<Kcore>) {
    let lnet = FakeLnet::new(&["0@lo", "10.0.0.1@tcp", "fd00::1@tcp"]);
    let core = Kcore::new(lnet.clone(), FakeDrive::new());
    (lnet, core)
}

fn errno_of(core: &Kcore, text: &str) -> Errno {
    core.tm_start(&start(text), &TmOptions::default()).err().expect("it is refused").errno()
}

// MT-57, S-406
#[test]
fn a_transfer_machine_has_one_event_queue_while_it_runs() {
    let (lnet, core) = domain();
    let tm = core.tm_start(&start("10.0.0.1@tcp:12345:30:101"), &TmOptions::default()).unwrap();
    assert_eq!(tm.address(), "10.0.0.1@tcp:12345:30:101".parse().unwrap());
    assert_eq!(lnet.take_kinds(), [CallKind::EqAlloc]);
    let eq = lnet.last_eq();
    tm.stop().unwrap();
    tm.stop().unwrap();
    drop(tm);
    assert!(matches!(lnet.take_calls()[..], [Call::EqFree(freed)] if freed == eq));
}

// MT-56, MT-223, K11: nothing is made before the address is checked.
#[test]
fn an_address_that_cannot_be_started_is_refused_before_lnet_is_asked() {
    let (lnet, core) = domain();
    for (text, errno) in [
        ("10.0.0.1@tcp:12345:0:*", Errno::EINVAL),
        ("10.0.0.1@tcp:12345:64:*", Errno::EINVAL),
        ("10.0.0.1@tcp:12345:99:*", Errno::EINVAL),
        ("10.0.0.2@tcp:12345:30:*", Errno::ENOENT),
        ("10.0.0.1@tcp1:12345:30:*", Errno::ENOENT),
        ("10.0.0.1@tcp:54321:30:*", Errno::ENOENT),
    ] {
        assert_eq!(errno_of(&core, text), errno, "{text}");
    }
    assert_eq!(lnet.take_kinds(), []);
    assert!(core.tm_start(&start("fd00::1@tcp:12345:63:*"), &TmOptions::default()).is_ok());
}

// MT-221
#[test]
fn a_fixed_address_is_started_once_at_a_time() {
    let (_, core) = domain();
    let first = core.tm_start(&start("0@lo:12345:30:101"), &TmOptions::default()).unwrap();
    assert_eq!(errno_of(&core, "0@lo:12345:30:101"), Errno::EADDRINUSE);
    let others = ["0@lo:12345:31:101", "10.0.0.1@tcp:12345:30:101"];
    let _others = others.map(|text| core.tm_start(&start(text), &TmOptions::default()).unwrap());
    drop(first);
    core.tm_start(&start("0@lo:12345:30:101"), &TmOptions::default()).unwrap();
}

// MT-59, MT-60, MT-209
#[test]
fn dynamic_ids_come_from_the_top_and_are_used_again() {
    let (_, core) = domain();
    let begin = || core.tm_start(&start("0@lo:12345:30:*"), &TmOptions::default()).unwrap();
    let tms: Vec<_> = (0..3).map(|_| begin()).collect();
    let ids: Vec<u32> = tms.iter().map(|tm| tm.address().tmid.get()).collect();
    assert_eq!(ids, [4095, 4094, 4093]);
    let middle = tms[1].address();
    tms[1].stop().unwrap();
    assert_eq!(begin().address(), middle);
}

// MT-222
#[test]
fn when_all_ids_are_taken_the_next_start_is_refused() {
    let (_, core) = domain();
    let options = TmOptions::default().events_max(1);
    let wanted = start("0@lo:12345:30:*");
    {
        let mut registry = core.domain().registry.lock();
        for value in 2..=TmId::MAX.get() {
            registry.take(&StartAddress { tmid: TmId::new(value).ok(), ..wanted }).unwrap();
        }
    }
    let last = core.tm_start(&wanted, &options).unwrap();
    assert_eq!(last.address().tmid, TmId::MIN);
    assert_eq!(errno_of(&core, "0@lo:12345:30:*"), Errno::EADDRNOTAVAIL);
}

#[test]
fn a_start_that_lnet_refuses_gives_the_address_back() {
    let (lnet, core) = domain();
    lnet.fail(CallKind::EqAlloc, Errno::ENOMEM);
    assert_eq!(errno_of(&core, "0@lo:12345:30:5"), Errno::ENOMEM);
    core.tm_start(&start("0@lo:12345:30:5"), &TmOptions::default()).unwrap();
}

// MT-9
#[test]
fn the_nids_are_those_of_lnet_with_the_loopback_last() {
    let (_, core) = domain();
    let texts: Vec<String> = core.nids().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.1@tcp", "fd00::1@tcp", "0@lo"]);
}

#[test]
fn stopping_waits_for_the_last_event_to_be_taken() {
    let rig = Rig::new();
    let md = rig.start(RECEIVE);
    assert_eq!(rig.tm.stop().unwrap_err().errno(), Errno::EBUSY);
    rig.lnet.inject(md, Happening::put());
    assert_eq!(rig.tm.stop().unwrap_err().errno(), Errno::EBUSY);
    rig.tm.event_get().unwrap();
    rig.tm.stop().unwrap();
    assert_eq!(rig.submit(RECEIVE).unwrap_err(), CoreError::Stopped { address: rig.tm.address() });
    assert_eq!(rig.tm.needed(), 0);
    rig.core.deregister(rig.buffer).unwrap();
}

#[test]
fn a_stop_that_lnet_refuses_can_be_tried_again() {
    let rig = Rig::new();
    rig.lnet.fail(CallKind::EqFree, Errno::EBUSY);
    assert_eq!(rig.tm.stop().unwrap_err().errno(), Errno::EBUSY);
    let md = rig.start(OperationKind::PassiveReceive);
    rig.lnet.inject(md, Happening::put());
    rig.tm.event_get().unwrap();
    rig.tm.stop().unwrap();
}

// S-415
#[test]
fn a_transfer_machine_dropped_in_use_ends_its_operations() {
    let Rig { lnet, core, tm, buffer, .. } = Rig::new();
    let address = StartAddress::from(tm.address());
    tm.submit(&Operation { buffer, cookie: COOKIE, kind: RECEIVE }).unwrap();
    drop(tm);
    assert_nothing_posted(&lnet);
    core.deregister(buffer).unwrap();
    core.tm_start(&address, &TmOptions::default()).unwrap();
}

// S-415: LNet goes on calling back about what it could not let go.
#[test]
fn what_lnet_holds_on_to_outlives_its_transfer_machine() {
    let Rig { lnet, core, tm, buffer, .. } = Rig::new();
    let address = tm.address();
    tm.submit(&Operation { buffer, cookie: COOKIE, kind: RECEIVE }).unwrap();
    let md = lnet.last_md();
    lnet.set_busy(true);
    drop(tm);
    assert_eq!(core.deregister(buffer).unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(errno_of(&core, &address.to_string()), Errno::EADDRINUSE);
    lnet.inject(md, Happening::put().length(10).not_last());
    lnet.inject(md, Happening::put().length(10).failed(Errno::ETIMEDOUT));
    core.deregister(buffer).unwrap();
}
