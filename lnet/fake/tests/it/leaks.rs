//! Objects that a program leaves behind, and calls that it must not make.

use lnet_fake::events::{on_event, on_wake};
use lnet_fake::{CallKind, Objects, ScriptedEvent};

use super::*;

#[test]
fn what_is_left_is_reported() {
    let rig = Rig::new();
    let md = rig.expect(MdOptions::OP_PUT, 2);
    let sending = rig.bind(1);
    rig.put(sending, AckRequest::NoAck).unwrap();
    let unlinked = rig.bind(1);
    rig.put(unlinked, AckRequest::NoAck).unwrap();
    rig.lnet.md_unlink(unlinked).unwrap();
    rig.lnet.fail(CallKind::Get, Errno::EIO);
    rig.lnet.complete_inside(CallKind::Get, [ScriptedEvent::send()]);
    assert_eq!(rig.lnet.objects(), Objects { eqs: 1, mes: 1, mds: 3 });
    let text = panic_of(|| rig.lnet.assert_quiet());
    for expected in [
        "EQ 0x1 of call 1 was not freed",
        "ME 0x2 of call 2 (portal 30",
        "MD 0x3 of call 3 (64 bytes) was not unlinked\n",
        "MD 0x4 of call 4 (8 bytes) was not unlinked, and is still sending",
        "MD 0x5 of call 6 (8 bytes) was unlinked, but its last event has not come",
        "a Get that was to be refused (as scripted: EIO",
        "a Get that was to bring 1 events was never made",
    ] {
        assert!(text.contains(expected), "{text}\ndoes not say {expected:?}");
    }
    rig.lnet.inject(md, ScriptedEvent::put().length(0));
    rig.lnet.inject(md, ScriptedEvent::put().length(0));
    for md in [sending, unlinked] {
        rig.lnet.inject(md, ScriptedEvent::send());
    }
    assert_eq!(errno(rig.get(md)), Errno::EIO);
    rig.get(rig.bind(1)).unwrap();
    assert!(panic_of(|| rig.lnet.assert_quiet()).lines().skip(1).eq(["  EQ 0x1 of call 1 was not freed"]));
    rig.lnet.eq_free(rig.eq).unwrap();
    rig.lnet.assert_quiet();
}

#[test]
fn a_callback_that_calls_lnet_is_caught() {
    let lnet = FakeLnet::new(&["0@lo"]);
    let called = lnet.clone();
    let careless = on_event(move |event| drop(called.md_unlink(event.md)));
    let eq = lnet.eq_alloc(careless).unwrap();
    let rig = Rig { lnet: lnet.clone(), log: EventLog::new(), eq };
    let md = rig.expect(MdOptions::OP_PUT, 2);
    let text = panic_of(|| lnet.inject(md, ScriptedEvent::put().length(0)));
    assert!(text.contains("from inside an event callback"), "{text}");
    // Outside the callback the program may call LNet again.
    assert_eq!(lnet.local_ids().len(), 1);
}

#[test]
fn lnet_may_be_called_from_wake() {
    let lnet = FakeLnet::new(&["0@lo"]);
    let called = lnet.clone();
    let careful = on_wake(move || {
        if called.objects().mds > 0 {
            called.md_unlink(called.last_md()).unwrap();
        }
    });
    let eq = lnet.eq_alloc(careful).unwrap();
    let rig = Rig { lnet: lnet.clone(), log: EventLog::new(), eq };
    lnet.inject(rig.expect(MdOptions::OP_PUT, 2), ScriptedEvent::put().length(0));
    assert_eq!(lnet.objects(), Objects { eqs: 1, mes: 0, mds: 0 });
}
