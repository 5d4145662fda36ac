//! The record of calls.

use lnet_fake::{Call, CallKind};

use super::*;

// Covers: S-7
#[test]
fn every_call_is_recorded_with_its_arguments_and_in_order() {
    let (lnet, log) = (FakeLnet::new(&["10.0.0.1@tcp"]), EventLog::new());
    let eq = lnet.eq_alloc(log.clone()).unwrap();
    let polled = lnet.eq_alloc_polled(3, Some(log)).unwrap();
    assert_eq!(lnet.eq_poll(&[polled]).unwrap(), None);
    let me = lnet.me_attach(&spec()).unwrap();
    let beside = lnet.me_insert(me, &spec()).unwrap();
    let rig = Rig { lnet: lnet.clone(), log: EventLog::new(), eq };
    let attached = lnet.md_attach(me, rig.md(64, MdOptions::OP_GET, 3), Unlink::Retain).unwrap();
    let bound = lnet.md_bind(rig.md(8, MdOptions::empty(), 2), Unlink::Auto).unwrap();
    rig.put(bound, AckRequest::NoAck).unwrap();
    rig.get(bound).unwrap();
    let sent = lnet.bind_put(rig.bind_put(AckRequest::Ack, 2)).unwrap().expect("it waits to be sent");
    let asked = lnet.bind_get(rig.bind_get(2)).unwrap().expect("it waits to be sent");
    lnet.md_unlink(attached).unwrap();
    lnet.me_unlink(beside).unwrap();
    lnet.set_lazy(portal(9), true);
    assert!(lnet.is_lazy(portal(9)) && !lnet.is_lazy(portal(8)));
    lnet.distance(peer().nid).unwrap();
    assert_eq!(lnet.local_ids().len(), 1);
    assert_eq!(errno(lnet.eq_free(eq)), Errno::EBUSY);

    let puts = [put(bound, AckRequest::NoAck), put(sent, AckRequest::Ack)];
    assert_eq!((lnet.puts(), lnet.gets()), (puts.to_vec(), vec![get(bound), get(asked)]));
    assert!(matches!(lnet.calls_of(CallKind::EqFree)[..], [Call::EqFree(freed)] if freed == eq));
    let calls = lnet.take_calls();
    assert!(
        matches!(&calls[..], [
        Call::EqAlloc,
        Call::EqAllocPolled { count: 3, handler: true },
        Call::EqPoll(queues),
        Call::MeAttach(first),
        Call::MeInsert { beside: other, me: second },
        Call::MdAttach { me: entry, md: getter, unlink: Unlink::Retain },
        Call::MdBind { md: sender, unlink: Unlink::Auto },
        Call::Put(_),
        Call::Get(_),
        Call::BindPut { md: sends, .. },
        Call::BindGet { md: asks, .. },
        Call::MdUnlink(unlinked),
        Call::MeUnlink(removed),
        Call::SetLazy { lazy: true, .. },
        Call::Distance(nid),
        Call::LocalIds,
        Call::EqFree(_),
    ] if *queues == [polled]
        && *first == spec() && *second == spec()
        && (*other, *entry, *removed) == (me, me, beside)
        && (getter.options, getter.memory.len()) == (MdOptions::OP_GET, 64)
        && [sender, sends, asks].iter().all(|md| (md.memory.len(), md.user_ptr) == (8, USER))
        && *unlinked == attached
        && *nid == peer().nid),
        "{calls:?}"
    );
    assert!(lnet.calls().is_empty());
}

#[test]
fn a_query_in_a_loop_is_recorded_once() {
    let rig = Rig::new();
    for _ in 0..3 {
        rig.lnet.local_ids();
    }
    rig.bind(1);
    rig.lnet.local_ids();
    let kinds: Vec<CallKind> = rig.lnet.calls().iter().map(Call::kind).collect();
    assert_eq!(kinds, [CallKind::LocalIds, CallKind::MdBind, CallKind::LocalIds]);
    assert_eq!(rig.lnet.take_kinds(), [CallKind::MdBind]);
    assert!(rig.lnet.calls().is_empty());
}
