//! Cancelling, and its races with completion (S-414).

use super::*;

#[test]
fn every_operation_can_be_cancelled() {
    for (kind, call, _) in every_operation() {
        let rig = Rig::new();
        let md = rig.start(kind);
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        if call != CallKind::MdAttach {
            // What waits to be sent ends when its turn comes (lnet-semantics 7).
            assert!(!rig.tm.pending());
            rig.lnet.inject(md, Happening::send().failed(Errno::ECANCELED));
        }
        assert_eq!(rig.only_event().status(), Err(Errno::ECANCELED));
    }
}

// lnet-semantics 7: an MD that is unlinked in flight ends with ETIMEDOUT in place of a success.
#[test]
fn what_lnet_aborts_in_flight_was_cancelled() {
    for (kind, _, happenings) in every_operation() {
        let rig = Rig::new();
        let md = rig.start(kind);
        rig.lnet.set_busy(true);
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        assert!(!rig.tm.pending());
        rig.lnet.inject(md, happenings[0].clone().failed(Errno::ETIMEDOUT));
        assert_eq!(rig.only_event().status(), Err(Errno::ECANCELED), "{kind:?}");
    }
}

#[test]
fn a_timeout_of_lnet_itself_stays_one() {
    let rig = Rig::new();
    let md = rig.start(OperationKind::Send { length: 1, to: peer() });
    rig.lnet.inject(md, Happening::send().failed(Errno::ETIMEDOUT));
    assert_eq!(rig.only_event().status(), Err(Errno::ETIMEDOUT));
}

#[test]
fn an_operation_that_wins_ends_as_it_would_have() {
    for (kind, _, happenings) in every_operation() {
        let rig = Rig::new();
        let md = rig.start(kind);
        rig.lnet.set_busy(true);
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        // Of a GET the REPLY first: the SEND is what the unlink waits for.
        for happening in happenings.into_iter().rev() {
            rig.lnet.inject(md, happening.succeeded());
        }
        assert_eq!(rig.only_event().status(), Ok(()));
    }
}

#[test]
fn a_cancel_that_comes_too_late_finds_nothing() {
    let rig = Rig::new();
    let gone = Err(CoreError::NoSuchOperation { buffer: rig.buffer, cookie: COOKIE });
    assert_eq!(rig.tm.cancel(rig.buffer, COOKIE), gone);
    let md = rig.start(OperationKind::PassiveReceive);
    rig.lnet.inject(md, Happening::put());
    assert_eq!(rig.tm.cancel(rig.buffer, COOKIE), gone);
    rig.only_event();
}

#[test]
fn a_late_cancel_does_not_hit_the_next_operation_of_the_buffer() {
    let rig = Rig::new();
    rig.start(OperationKind::PassiveReceive);
    rig.lnet.take_calls();
    let late = COOKIE - 1;
    assert_eq!(rig.tm.cancel(rig.buffer, late).unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(rig.lnet.take_kinds(), []);
}

#[test]
fn a_cancel_through_another_transfer_machine_finds_nothing() {
    let rig = Rig::new();
    let other = rig.core.start_machine(&start("10.0.0.1@tcp:12345:31:*"), &TmOptions::default()).unwrap();
    let md = rig.start(OperationKind::PassiveReceive);
    assert_eq!(other.cancel(rig.buffer, COOKIE).unwrap_err().errno(), Errno::ENOENT);
    rig.lnet.inject(md, Happening::put());
    rig.only_event();
}

// A cancel between `md_attach` and the moment its handle is known: the submitting thread does the unlink.
#[test]
fn a_cancel_before_the_md_is_known_is_done_by_who_learns_of_it() {
    let rig = Rig::new();
    let buffer = rig.tm.domain().buffers.find(rig.buffer).unwrap();
    let new =
        crate::shared::NewOp { queue: Queue::PassiveBulkReceive, buffer: &buffer, cookie: COOKIE, events: 1 };
    let entered = rig.tm.shared().enter(new).unwrap();
    assert_eq!(rig.tm.shared().cancel(&buffer, COOKIE), Ok(None));
    assert!(rig.tm.shared().set_md(entered.key, MdHandle(77)), "it is to be unlinked");
    assert!(rig.tm.shared().withdraw(entered.key));
}

#[test]
fn messages_that_came_before_the_cancel_are_delivered() {
    let rig = Rig::new();
    let md = rig.start(RECEIVE);
    rig.lnet.inject(md, Happening::put().length(10));
    rig.tm.cancel(rig.buffer, COOKIE).unwrap();
    let first = rig.tm.event_get().unwrap();
    assert_eq!((first.status(), first.length, first.unlinked()), (Ok(()), 10, false));
    assert_eq!(rig.only_event().status(), Err(Errno::ECANCELED));
}
