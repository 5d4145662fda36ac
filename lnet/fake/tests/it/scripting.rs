//! Calls fail, and events come inside calls.

use lnet_fake::{CallKind, ScriptedEvent};

use super::*;

#[test]
fn the_next_calls_fail_as_often_as_was_said() {
    let rig = Rig::new();
    rig.lnet.fail(CallKind::MdBind, Errno::ENOMEM);
    rig.lnet.fail_with(CallKind::MdBind, LNetError::ShuttingDown);
    let bind = || rig.lnet.md_bind(rig.md(8, MdOptions::empty(), 1), Unlink::Auto);
    assert_eq!(errno(bind()), Errno::ENOMEM);
    // Calls of another kind still succeed.
    rig.expect(MdOptions::OP_PUT, 1);
    assert_eq!(bind(), Err(LNetError::ShuttingDown));
    assert!(bind().is_ok());
}

#[test]
fn a_certain_call_fails() {
    let rig = Rig::new();
    rig.bind(1);
    rig.lnet.fail_nth(CallKind::MdBind, 3, Errno::EIO);
    rig.lnet.fail(CallKind::MdBind, Errno::ENOMEM);
    let outcomes = [(); 5].map(|()| rig.lnet.md_bind(rig.md(8, MdOptions::empty(), 1), Unlink::Auto).is_ok());
    assert_eq!(outcomes, [false, true, false, true, true]);
}

#[test]
fn every_call_that_can_fail_can_be_made_to() {
    let rig = Rig::new();
    let (lnet, md, me) = (&rig.lnet, rig.bind(1), rig.post());
    let fail = |kind| lnet.fail(kind, Errno::EXDEV);
    let check = |outcome: Result<(), LNetError>| assert_eq!(errno(outcome), Errno::EXDEV);
    fail(CallKind::EqAlloc);
    check(lnet.eq_alloc(rig.log.clone()).map(drop));
    fail(CallKind::EqAllocPolled);
    check(lnet.eq_alloc_polled(1, None).map(drop));
    fail(CallKind::EqPoll);
    check(lnet.eq_poll(&[rig.eq]).map(drop));
    fail(CallKind::EqFree);
    check(lnet.eq_free(rig.eq));
    fail(CallKind::MeAttach);
    check(lnet.me_attach(&spec()).map(drop));
    fail(CallKind::MeInsert);
    check(lnet.me_insert(me, &spec()).map(drop));
    fail(CallKind::MeUnlink);
    check(lnet.me_unlink(me));
    fail(CallKind::MdUnlink);
    check(lnet.md_unlink(md));
    fail(CallKind::Put);
    check(rig.put(md, AckRequest::NoAck));
    fail(CallKind::Get);
    check(rig.get(md));
    fail(CallKind::BindPut);
    check(lnet.bind_put(rig.bind_put(AckRequest::NoAck, 1)).map(drop));
    fail(CallKind::BindGet);
    check(lnet.bind_get(rig.bind_get(2)).map(drop));
    assert_eq!(lnet.objects().mds, 1, "a refused call makes none");
    fail(CallKind::Distance);
    check(lnet.distance(peer().nid).map(drop));
    // The failed attach also removes the entry.
    fail(CallKind::MdAttach);
    check(lnet.md_attach(me, rig.md(8, MdOptions::OP_PUT, 1), Unlink::Auto).map(drop));
    assert_eq!(errno(lnet.me_unlink(me)), Errno::ENOENT);
    for kind in [CallKind::SetLazy, CallKind::LocalIds] {
        assert!(panic_of(|| fail(kind)).contains("cannot fail"));
    }
}

// Over the loopback an operation can end before the call that starts it has returned.
// Covers: MT-225
#[test]
fn events_come_inside_the_call_in_the_order_that_was_said() {
    let rig = Rig::new();
    rig.lnet
        .complete_inside(CallKind::Get, [ScriptedEvent::reply().bytes("answered"), ScriptedEvent::send()]);
    rig.lnet.complete_inside(CallKind::Get, [ScriptedEvent::send()]);
    rig.lnet.complete_inside(CallKind::MdAttach, [ScriptedEvent::put().length(3)]);
    // A refused call delivers no event.
    rig.lnet.fail(CallKind::Get, Errno::EIO);
    let (first, second) = (rig.bind(2), rig.bind(2));
    let memory = rig.lnet.memory(first);
    assert_eq!(errno(rig.get(first)), Errno::EIO);
    assert_eq!(rig.brief(), []);
    rig.get(first).unwrap();
    assert_eq!(rig.brief(), [(EventKind::Reply, Ok(()), false), (EventKind::Send, Ok(()), true)]);
    assert_eq!(memory.read(0..8).unwrap().to_vec(), b"answered");
    rig.get(second).unwrap();
    assert_eq!(rig.brief(), [(EventKind::Send, Ok(()), false)]);
    rig.expect(MdOptions::OP_PUT, 2);
    assert_eq!(rig.brief(), [(EventKind::Put, Ok(()), false)]);
    // A call that makes its MD returns no handle if the MD has ended.
    rig.lnet.complete_inside(CallKind::BindGet, [ScriptedEvent::reply(), ScriptedEvent::send()]);
    rig.lnet.complete_inside(CallKind::BindPut, [ScriptedEvent::send()]);
    assert_eq!(rig.lnet.bind_get(rig.bind_get(2)), Ok(None));
    assert_eq!(rig.brief(), [(EventKind::Reply, Ok(()), false), (EventKind::Send, Ok(()), true)]);
    let put = rig.lnet.bind_put(rig.bind_put(AckRequest::Ack, 2)).unwrap().expect("its ACK is to come");
    assert_eq!(rig.brief(), [(EventKind::Send, Ok(()), false)]);
    rig.lnet.inject(put, ScriptedEvent::ack());
    assert_eq!(rig.brief(), [(EventKind::Ack, Ok(()), true)]);
    assert!(panic_of(|| rig.lnet.complete_inside(CallKind::MeAttach, [])).contains("no event can come"));
}
