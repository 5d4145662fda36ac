//! What a program leaves behind, and what it must not do.

use std::sync::OnceLock;

use lnet_api::EventHandler;
use lnet_fake::{CallKind, Happening, Objects};

use super::*;

#[test]
fn what_is_left_is_told() {
    let rig = Rig::new();
    let md = rig.expect(MdOptions::OP_PUT, 2);
    let sending = rig.bind(1);
    rig.put(sending, AckRequest::NoAck).unwrap();
    let unlinked = rig.bind(1);
    rig.put(unlinked, AckRequest::NoAck).unwrap();
    rig.lnet.md_unlink(unlinked).unwrap();
    rig.lnet.fail(CallKind::Get, Errno::EIO);
    rig.lnet.complete_inside(CallKind::Get, [Happening::send()]);
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
    rig.lnet.inject(md, Happening::put().length(0));
    rig.lnet.inject(md, Happening::put().length(0));
    for md in [sending, unlinked] {
        rig.lnet.inject(md, Happening::send());
    }
    assert_eq!(errno(rig.get(md)), Errno::EIO);
    rig.get(rig.bind(1)).unwrap();
    assert!(panic_of(|| rig.lnet.assert_quiet()).lines().skip(1).eq(["  EQ 0x1 of call 1 was not freed"]));
    rig.lnet.eq_free(rig.eq).unwrap();
    rig.lnet.assert_quiet();
}

/// Calls LNet where it must not.
#[derive(Default)]
struct Careless(OnceLock<Arc<FakeLnet>>);

impl EventHandler for Careless {
    fn event(&self, event: &Event) {
        let _ = self.0.get().unwrap().md_unlink(event.md);
    }

    fn wake(&self) {}
}

#[test]
fn a_callback_that_calls_lnet_is_caught() {
    let (lnet, careless) = (FakeLnet::new(&["0@lo"]), Arc::new(Careless::default()));
    careless.0.set(lnet.clone()).ok().unwrap();
    let eq = lnet.eq_alloc(careless).unwrap();
    let rig = Rig { lnet: lnet.clone(), log: EventLog::new(), eq };
    let md = rig.expect(MdOptions::OP_PUT, 2);
    let text = panic_of(|| lnet.inject(md, Happening::put().length(0)));
    assert!(text.contains("from inside an event callback"), "{text}");
    // Out of it, all is well again.
    assert_eq!(lnet.local_ids().len(), 1);
}

/// Does in `wake` what it must not do in `event`.
#[derive(Default)]
struct Careful(OnceLock<Arc<FakeLnet>>);

impl EventHandler for Careful {
    fn event(&self, _: &Event) {}

    fn wake(&self) {
        let lnet = self.0.get().unwrap();
        if lnet.objects().mds > 0 {
            lnet.md_unlink(lnet.last_md()).unwrap();
        }
    }
}

#[test]
fn lnet_may_be_called_from_wake() {
    let (lnet, careful) = (FakeLnet::new(&["0@lo"]), Arc::new(Careful::default()));
    careful.0.set(lnet.clone()).ok().unwrap();
    let eq = lnet.eq_alloc(careful).unwrap();
    let rig = Rig { lnet: lnet.clone(), log: EventLog::new(), eq };
    lnet.inject(rig.expect(MdOptions::OP_PUT, 2), Happening::put().length(0));
    assert_eq!(lnet.objects(), Objects { eqs: 1, mes: 0, mds: 0 });
}
