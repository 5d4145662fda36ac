//! Stopping and dropping a transfer machine while LNet calls it (S-415, K1).

use super::lnet::Payload;
use super::*;
use crate::agreed::{STOP, TEARDOWN};

/// A transfer machine is busy until the last event has been taken and LNet has released its MD.
/// Once it has stopped and is gone, the callback's wake-up may still be on its way, and the objects
/// that it touches are alive.
// Covers: S-415, MT-235
#[test]
fn a_last_event_and_a_stop() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let Rig { lnet, core, tm } = rig;
        let other = lnet.clone();
        let arriving = thread::spawn(move || other.arrive(0, &Payload::default()));
        let taken = tm.event_get().unwrap();
        let stopped = tm.stop();
        match &stopped {
            Ok(()) => assert!(taken.is_some(), "stopped with an event to come"),
            Err(error) => assert_eq!(error.errno(), Errno::EBUSY),
        }
        let tm = match stopped {
            Ok(()) => {
                let refused = tm.submit(&buffer.operation(OperationKind::PassiveReceive));
                assert_eq!(refused, Err(CoreError::Stopped { address: tm.address() }));
                drop(tm);
                None
            }
            Err(_) => Some(tm),
        };
        assert!(arriving.join().unwrap());
        let later = tm.iter().flat_map(events);
        assert_eq!(buffer.ended(&taken.into_iter().chain(later).collect::<Vec<_>>()), Ok(()));
        buffer.give_back(&core);
        if let Some(tm) = tm {
            tm.stop().expect("LNet has let go");
        }
        lnet.assert_empty();
        assert_eq!(core.faults(), Anomalies::default());
    });
}

/// An operation starts while the transfer machine stops: one of them is refused, with its reason.
fn started_while_it_stops() {
    check(|| {
        let rig = Arc::new(Rig::new());
        let buffer = rig.buffer(0);
        let starting = beside(&rig, &buffer, |rig, buffer| rig.submit(buffer, OperationKind::PassiveReceive));
        let stopped = rig.tm.stop();
        match starting.join().unwrap() {
            Ok(_) => {
                assert_eq!(stopped.expect_err("an operation is in flight").errno(), Errno::EBUSY);
                rig.cancel(&buffer).expect("it is in flight");
                assert_eq!(buffer.ended(&events(&rig.tm)), CANCELLED);
            }
            Err(error) => assert_eq!(error, CoreError::Stopped { address: rig.tm.address() }),
        }
        rig.finish(&[&buffer]);
    });
}

// Covers: S-415
#[test]
fn a_start_and_a_stop() {
    started_while_it_stops();
}

#[test]
fn with_the_lock_let_go_between_look_and_refusal_both_go_ahead() {
    needs(STOP, started_while_it_stops, "assertion `left == right` failed");
}

/// A transfer machine is dropped in use while a callback runs. The client's event is lost, as
/// requested, but the callback touches nothing that is freed. Whichever comes last, the drop or the
/// callback, frees the buffer, the event queue and the address.
fn dropped_while_a_message_arrives() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let Rig { lnet, core, tm } = rig;
        let address = tm.address().to_string();
        let other = lnet.clone();
        let arriving = thread::spawn(move || other.arrive(0, &Payload::default()));
        drop(tm);
        arriving.join().unwrap();
        buffer.give_back(&core);
        let left = lnet.shut_down();
        assert!(!left, "the event queue is left over");
        start_machine(&core, &address).expect("the address is free");
        lnet.assert_empty();
        assert_eq!(core.faults(), Anomalies::default());
    });
}

// Covers: S-415
#[test]
fn a_message_and_a_drop() {
    dropped_while_a_message_arrives();
}

#[test]
fn a_first_try_before_the_announcement_leaves_it_uncleared() {
    needs(TEARDOWN, dropped_while_a_message_arrives, "the event queue is left over");
}

/// The same with a GET that cannot be sent: the callback, the wake-up that would unlink the MD, and
/// the drop that does.
// Covers: S-415
#[test]
fn a_failed_get_and_a_drop() {
    check(|| {
        let rig = Rig::new();
        let buffer = rig.buffer(0);
        rig.submit(&buffer, receive_actively()).expect("it starts");
        let Rig { lnet, core, tm } = rig;
        let other = lnet.clone();
        let failing = thread::spawn(move || other.fail_send(0));
        drop(tm);
        failing.join().unwrap();
        buffer.give_back(&core);
        assert!(!lnet.shut_down(), "the event queue is left over");
        assert_eq!(core.faults(), Anomalies::default());
    });
}
