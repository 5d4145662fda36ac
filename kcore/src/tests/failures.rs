//! LNet refuses (MT-226), and what there is no room for.

use super::*;

/// The LNet calls of each operation, in order.
fn calls_of(kind: &OperationKind) -> [CallKind; 2] {
    match kind.queue() {
        Queue::MessageReceive | Queue::PassiveBulkReceive | Queue::PassiveBulkSend => {
            [CallKind::MeAttach, CallKind::MdAttach]
        }
        Queue::MessageSend | Queue::ActiveBulkSend => [CallKind::MdBind, CallKind::Put],
        Queue::ActiveBulkReceive => [CallKind::MdBind, CallKind::Get],
    }
}

// MT-226, MT-207
#[test]
fn a_refusal_of_lnet_is_passed_on_and_leaves_nothing_behind() {
    for (kind, ..) in every_operation() {
        for (number, failing) in calls_of(&kind).into_iter().enumerate() {
            let rig = Rig::new();
            rig.lnet.fail(failing, Errno::EHOSTUNREACH);
            let error = rig.submit(kind).unwrap_err();
            assert_eq!(error.errno(), Errno::EHOSTUNREACH, "{kind:?} {error}");
            let kinds = rig.lnet.take_kinds();
            assert_eq!(kinds[..=number], calls_of(&kind)[..=number]);
            let bound = matches!(failing, CallKind::Put | CallKind::Get);
            let undone: &[CallKind] = if bound { &[CallKind::MdUnlink] } else { &[] };
            assert_eq!(&kinds[number + 1..], undone);
            rig.assert_idle();
        }
    }
}

#[test]
fn a_refused_put_whose_md_is_busy_keeps_the_buffer_until_lnet_lets_go() {
    let rig = Rig::new();
    rig.lnet.fail(CallKind::Put, Errno::ENOMEM);
    rig.lnet.set_busy(true);
    let kind = OperationKind::Send { length: 1, to: peer() };
    assert_eq!(rig.submit(kind).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(rig.core.deregister(rig.buffer).unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(rig.submit(kind).unwrap_err().errno(), Errno::EBUSY);
    rig.lnet.inject(rig.lnet.last_md(), Happening::send().last().failed(Errno::ETIMEDOUT).impossible());
    rig.assert_idle();
}

#[test]
fn a_buffer_has_one_operation_at_a_time() {
    let rig = Rig::new();
    let md = rig.start(OperationKind::PassiveReceive);
    for (kind, ..) in every_operation() {
        assert_eq!(rig.submit(kind).unwrap_err(), CoreError::BufferBusy { buffer: rig.buffer });
    }
    assert_eq!(rig.tm.needed(), 1);
    rig.lnet.inject(md, Happening::put());
    rig.only_event();
}

#[test]
fn an_unknown_buffer_is_refused() {
    let rig = Rig::new();
    rig.core.deregister(rig.buffer).unwrap();
    assert_eq!(rig.submit(RECEIVE).unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(rig.tm.needed(), 0);
}

// S-407: room for events is bounded, and refused before LNet is asked.
#[test]
fn an_operation_without_room_for_its_events_is_refused() {
    let rig = Rig::with(TmOptions::default().events_max(MESSAGES + 1));
    let other = rig.core.register(&rig.memory).unwrap();
    let receive = |buffer| rig.tm.submit(&Operation { buffer, cookie: COOKIE, kind: RECEIVE });
    receive(rig.buffer).unwrap();
    assert_eq!(receive(other).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(rig.tm.needed(), MESSAGES as usize);
    let small = OperationKind::PassiveReceive;
    rig.tm.submit(&Operation { buffer: other, cookie: COOKIE, kind: small }).unwrap();
    assert_eq!(rig.tm.needed(), MESSAGES as usize + 1);
}
