//! The spy passes every call on to the LNet below, except for those that the test refuses.

use lnet_fake::{Call, CallKind, Objects, ScriptedEvent, Spy};

use super::*;

fn watched() -> (Rig, Arc<Spy>) {
    let lnet = FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]);
    let spy = Spy::new(lnet.clone());
    let log = EventLog::new();
    let eq = spy.eq_alloc(log.clone()).unwrap();
    lnet.take_calls();
    spy.take_calls();
    (Rig { lnet, log, eq }, spy)
}

// Covers: S-7
#[test]
fn calls_pass_through_and_are_noted_with_their_arguments() {
    let (rig, spy) = watched();
    assert_eq!(spy.last_eq(), rig.eq);
    let me = spy.me_attach(&spec()).unwrap();
    let beside = spy.me_insert(me, &spec()).unwrap();
    spy.me_unlink(beside).unwrap();
    let md = spy.md_attach(me, rig.md(64, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    assert_eq!(spy.last_md(), md);
    let bound = spy.md_bind(rig.md(8, MdOptions::empty(), 2), Unlink::Auto).unwrap();
    spy.put(&put(bound, AckRequest::NoAck)).unwrap();
    spy.get(&get(bound)).unwrap();
    let asked = spy.bind_get(rig.bind_get(2)).unwrap().expect("it waits to be sent");
    assert_eq!(spy.last_md(), asked);
    let sent = spy.bind_put(rig.bind_put(AckRequest::NoAck, 1)).unwrap().expect("it waits to be sent");
    assert_eq!(spy.last_md(), sent);
    spy.set_lazy(portal(30), true);
    let polled = spy.eq_alloc_polled(4, Some(rig.log.clone())).unwrap();
    assert_eq!(spy.eq_poll(&[polled]), Ok(None));
    spy.eq_free(polled).unwrap();
    assert_eq!(spy.distance(peer().nid), rig.lnet.distance(peer().nid));
    assert_eq!(spy.local_ids(), rig.lnet.local_ids());
    spy.md_unlink(md).unwrap();
    let (above, below) = (spy.take_calls(), rig.lnet.take_calls());
    assert_eq!(format!("{above:?}"), format!("{below:?}"));
}

#[test]
fn events_are_noted_before_their_handler_has_them_and_end_their_mds() {
    let (rig, spy) = watched();
    let md = spy.md_bind(rig.md(8, MdOptions::empty(), 1), Unlink::Auto).unwrap();
    assert_eq!(spy.mds(), 1);
    spy.put(&put(md, AckRequest::NoAck)).unwrap();
    let sent = rig.lnet.inject(md, ScriptedEvent::send());
    assert_eq!((spy.take_events(), rig.log.take(), rig.log.wakes()), (vec![sent], vec![sent], 1));
    assert_eq!(spy.mds(), 0);
    rig.lnet.complete_inside(CallKind::BindPut, [ScriptedEvent::send()]);
    assert_eq!(spy.bind_put(rig.bind_put(AckRequest::NoAck, 1)), Ok(None));
    assert_eq!((spy.mds(), spy.take_events().len()), (0, 1));
}

#[test]
fn a_refused_call_does_not_reach_the_lnet_below() {
    let (rig, spy) = watched();
    use CallKind::{BindGet, BindPut, Get, MdBind, MdUnlink, MeAttach, Put};
    let fallible = [MeAttach, MdBind, Put, Get, BindPut, BindGet, MdUnlink];
    let bound = spy.md_bind(rig.md(8, MdOptions::empty(), 1), Unlink::Auto).unwrap();
    rig.lnet.take_calls();
    for kind in fallible {
        spy.fail(kind, Errno::ENOMEM);
    }
    assert_eq!(errno(spy.me_attach(&spec())), Errno::ENOMEM);
    assert_eq!(errno(spy.md_bind(rig.md(8, MdOptions::empty(), 1), Unlink::Auto)), Errno::ENOMEM);
    assert_eq!(errno(spy.put(&put(bound, AckRequest::NoAck))), Errno::ENOMEM);
    assert_eq!(errno(spy.get(&get(bound))), Errno::ENOMEM);
    assert_eq!(errno(spy.bind_put(rig.bind_put(AckRequest::NoAck, 1))), Errno::ENOMEM);
    assert_eq!(errno(spy.bind_get(rig.bind_get(2))), Errno::ENOMEM);
    assert_eq!(errno(spy.md_unlink(bound)), Errno::ENOMEM);
    assert_eq!(rig.lnet.take_kinds(), []);
    spy.md_unlink(bound).unwrap();
    assert!(matches!(rig.lnet.take_calls()[..], [Call::MdUnlink(md)] if md == bound));
}

#[test]
fn the_entry_goes_with_an_attach_that_is_refused() {
    let (rig, spy) = watched();
    let me = spy.me_attach(&spec()).unwrap();
    spy.fail(CallKind::MdAttach, Errno::ENOMEM);
    let refused = spy.md_attach(me, rig.md(64, MdOptions::OP_PUT, 1), Unlink::Auto);
    assert_eq!(errno(refused), Errno::ENOMEM);
    assert_eq!(rig.lnet.objects(), Objects { eqs: 1, mes: 0, mds: 0 });
}
