//! Cancels and completions: one of them wins, and the last event reports which (S-414).

use super::lnet::{Payload, Sending};
use super::*;
use crate::agreed::{NOTE, UNLINK_DUE, UNNAMED};

/// A message arrives for an operation that is being cancelled. The message wins if it reaches the
/// MD before the unlink; an unlink that finds the message in progress aborts it.
// Covers: S-414
#[test]
fn a_message_and_a_cancel() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let (lnet, payload) = (rig.lnet.clone(), Payload::default());
        let arriving = thread::spawn(move || lnet.arrive(0, &payload));
        let cancelled = rig.cancel(&buffer);
        let arrived = arriving.join().unwrap();
        let status = buffer.ended(&events(&rig.tm));
        if !arrived {
            assert_eq!((status, cancelled), (CANCELLED, Ok(())), "only the cancel can have ended it");
        } else if cancelled.is_err() {
            assert_eq!(status, Ok(()), "only the message can have ended it");
        } else {
            assert!(status == Ok(()) || status == CANCELLED);
        }
        rig.finish(&[&buffer]);
    });
}

/// An operation is cancelled by another thread while it starts, before or after its MD is stored.
fn cancelled_while_it_starts() {
    check(|| {
        let rig = Arc::new(Rig::new());
        let buffer = rig.buffer(0);
        let canceller = beside(&rig, &buffer, |rig, buffer| rig.cancel(buffer));
        rig.submit(&buffer, OperationKind::PassiveReceive).expect("it starts");
        if canceller.join().unwrap().is_err() {
            rig.cancel(&buffer).expect("it came before the operation");
        }
        assert_eq!(buffer.ended(&events(&rig.tm)), CANCELLED);
        rig.finish(&[&buffer]);
    });
}

// Covers: S-414
#[test]
fn a_cancel_and_the_noting_of_the_md() {
    cancelled_while_it_starts();
}

#[test]
fn noted_without_a_look_for_the_cancel_an_operation_does_not_end() {
    needs(NOTE, cancelled_while_it_starts, "one event ends operation 0");
}

/// The same with a message that arrives as soon as there is an MD, so that the operation may be
/// over before it is stored.
// Covers: S-414
#[test]
fn a_message_a_cancel_and_the_noting_of_the_md() {
    check(|| {
        let rig = Arc::new(Rig::new());
        let buffer = rig.buffer(0);
        let canceller = beside(&rig, &buffer, |rig, buffer| {
            (rig.lnet.arrive(0, &Payload::default()), rig.cancel(buffer))
        });
        rig.submit(&buffer, OperationKind::PassiveReceive).expect("it starts");
        let (arrived, cancelled) = canceller.join().unwrap();
        if !arrived && cancelled.is_err() {
            rig.cancel(&buffer).expect("both came before the operation");
        }
        assert_eq!(buffer.ended(&events(&rig.tm)), if arrived { Ok(()) } else { CANCELLED });
        rig.finish(&[&buffer]);
    });
}

/// A PUT that waits to be sent is cancelled by another thread while it starts, before or after its
/// MD is stored.
fn cancelled_while_it_is_sent() {
    check(|| {
        let rig = Arc::new(Rig::over(ScriptedLnet::new(Sending::Later)));
        let buffer = rig.buffer(0);
        let canceller = beside(&rig, &buffer, |rig, buffer| rig.cancel(buffer));
        rig.submit(&buffer, send()).expect("it starts");
        if canceller.join().unwrap().is_err() {
            rig.cancel(&buffer).expect("it came before the operation");
        }
        assert!(rig.lnet.leave(0, Ok(())), "it waits to be sent");
        assert_eq!(buffer.ended(&events(&rig.tm)), CANCELLED, "its MD was unlinked");
        rig.finish(&[&buffer]);
    });
}

#[test]
fn a_cancel_and_the_noting_of_a_puts_md() {
    cancelled_while_it_is_sent();
}

#[test]
fn noted_without_a_look_for_the_cancel_a_put_goes_on() {
    needs(NOTE, cancelled_while_it_is_sent, "its MD was unlinked");
}

/// The same with a network that sends the PUT at once, so that the operation may be over before its
/// MD is stored.
#[test]
fn a_sent_put_a_cancel_and_the_noting_of_its_md() {
    check(|| {
        let rig = Arc::new(Rig::over(ScriptedLnet::new(Sending::Later)));
        let buffer = rig.buffer(0);
        let canceller =
            beside(&rig, &buffer, |rig, buffer| (rig.lnet.leave(0, Ok(())), rig.cancel(buffer).is_ok()));
        rig.submit(&buffer, send()).expect("it starts");
        let (left, cancelled) = canceller.join().unwrap();
        if !left {
            assert!(rig.lnet.leave(0, Ok(())), "it waits to be sent");
        }
        assert_eq!(buffer.ended(&events(&rig.tm)), if cancelled { CANCELLED } else { Ok(()) });
        rig.finish(&[&buffer]);
    });
}

/// A GET cannot be sent; the event that reports it comes before or after its MD is stored.
fn failed_while_it_is_sent() {
    check(|| {
        let rig = Arc::new(Rig::new());
        let buffer = rig.buffer(0);
        let network = beside(&rig, &buffer, |rig, _| rig.lnet.leave(0, Err(Errno::EIO)));
        rig.submit(&buffer, receive_actively()).expect("it starts");
        if !network.join().unwrap() {
            rig.lnet.fail_send(0);
        }
        assert_eq!(buffer.ended(&events(&rig.tm)), Err(Errno::EIO));
        rig.finish(&[&buffer]);
    });
}

#[test]
fn a_failed_get_and_the_noting_of_its_md() {
    failed_while_it_is_sent();
}

#[test]
fn noted_without_a_look_for_its_unlink_a_get_does_not_end() {
    needs(NOTE, failed_while_it_is_sent, "one event ends operation 0");
}

#[test]
fn forgotten_for_want_of_an_md_a_failed_get_does_not_end() {
    needs(UNNAMED, failed_while_it_is_sent, "one event ends operation 0");
}

/// A PUT that completes inside the call that sends it, and a cancel by another thread.
// Covers: MT-225
#[test]
fn a_completion_inside_the_call_and_a_cancel() {
    check(|| {
        let rig = Arc::new(Rig::new());
        let buffer = rig.buffer(0);
        let canceller = beside(&rig, &buffer, |rig, buffer| rig.cancel(buffer));
        rig.submit(&buffer, send()).expect("whoever ends it, its event comes");
        let cancelled = canceller.join().unwrap();
        let status = buffer.ended(&events(&rig.tm));
        assert!(status == Ok(()) || (status == CANCELLED && cancelled.is_ok()));
        rig.finish(&[&buffer]);
    });
}

/// A PUT that LNet refuses, and a cancel by another thread: the caller gets the error, and no event
/// comes, wherever the cancel found the operation.
// Covers: S-414
#[test]
fn a_refusal_and_a_cancel() {
    check(|| {
        let rig = Arc::new(Rig::over(ScriptedLnet::new(Sending::Refused)));
        let buffer = rig.buffer(0);
        let canceller = beside(&rig, &buffer, |rig, buffer| rig.cancel(buffer));
        rig.submit(&buffer, send()).expect_err("it is refused");
        let _ = canceller.join().unwrap();
        rig.finish(&[&buffer]);
    });
}

/// A GET that cannot be sent: its event marks the MD, the wake-up after it unlinks the MD, and so
/// does a cancel. (K4: no other event of it is unexpected.)
// Covers: S-414
#[test]
fn a_failed_get_and_a_cancel() {
    check(|| {
        let rig = Rig::new();
        let buffer = rig.buffer(0);
        rig.submit(&buffer, receive_actively()).expect("it starts");
        let lnet = rig.lnet.clone();
        let failing = thread::spawn(move || lnet.fail_send(0));
        let _ = rig.cancel(&buffer);
        failing.join().unwrap();
        assert_eq!(buffer.ended(&events(&rig.tm)), Err(Errno::EIO), "the failure came first");
        rig.finish(&[&buffer]);
    });
}

/// Two operations fail at once: either wake-up may find both.
fn failed_at_once() {
    check_bounded(3, || {
        let rig = Rig::new();
        let buffers = [rig.buffer(0), rig.buffer(1)];
        for buffer in &buffers {
            rig.submit(buffer, receive_actively()).expect("it starts");
        }
        let lnet = rig.lnet.clone();
        let failing = thread::spawn(move || lnet.fail_send(0));
        rig.lnet.fail_send(1);
        failing.join().unwrap();
        let events = events(&rig.tm);
        assert!(buffers.iter().all(|buffer| buffer.ended(&events) == Err(Errno::EIO)));
        rig.finish(&[&buffers[0], &buffers[1]]);
    });
}

#[test]
fn two_failed_gets() {
    failed_at_once();
}

#[test]
fn with_the_word_cleared_after_the_look_a_failed_get_does_not_end() {
    needs(UNLINK_DUE, failed_at_once, "one event ends operation");
}

/// Messages arrive in a receive buffer for two while it is cancelled: each message that arrived has
/// its event, the operation's last event comes last, and only that one may report the cancel.
// Covers: S-414
#[test]
fn two_messages_and_a_cancel() {
    check(|| {
        let rig = Rig::new();
        let buffer = rig.buffer(0);
        rig.submit(&buffer, OperationKind::Receive { min_receive_size: 1, max_messages: 2 })
            .expect("it starts");
        let lnet = rig.lnet.clone();
        let payload = Payload::default();
        let arriving = thread::spawn(move || [(); 2].map(|()| lnet.arrive(0, &payload)));
        let cancelled = rig.cancel(&buffer);
        let arrived = arriving.join().unwrap().into_iter().filter(|&arrived| arrived).count();
        let events = events(&rig.tm);
        let (last, before) = events.split_last().expect("it has ended");
        assert!(last.unlinked() && before.iter().all(|event| !event.unlinked() && event.status().is_ok()));
        let ended_by_unlink = before.len() == arrived;
        assert!(
            ended_by_unlink || before.len() + 1 == arrived,
            "{arrived} messages, {} events",
            events.len()
        );
        match last.status() {
            Ok(()) => assert!(arrived == 2 && !ended_by_unlink),
            status => assert_eq!((status, cancelled), (CANCELLED, Ok(()))),
        }
        rig.finish(&[&buffer]);
    });
}

/// A late cancel, while the buffer is given to its next operation, does not cancel that one.
// Covers: S-414
#[test]
fn a_late_cancel_and_the_next_operation() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let (rig, next) = (Arc::new(rig), Buffer { number: 1, ..buffer.clone() });
        assert!(rig.lnet.arrive(0, &Payload::default()));
        let canceller = beside(&rig, &buffer, |rig, buffer| rig.cancel(buffer));
        rig.submit(&next, OperationKind::PassiveReceive).expect("its buffer is free");
        assert!(canceller.join().unwrap().is_err(), "its operation is over");
        assert!(rig.lnet.arrive(1, &Payload::default()), "the next one goes on");
        let events = events(&rig.tm);
        assert_eq!((buffer.ended(&events), next.ended(&events)), (Ok(()), Ok(())));
        rig.finish(&[&buffer]);
    });
}

/// A message, a cancel and the client that waits for the end, all at once.
// Covers: S-414
#[test]
fn a_message_a_cancel_and_the_end() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let rig = Arc::new(rig);
        let (lnet, payload) = (rig.lnet.clone(), Payload::default());
        let arriving = thread::spawn(move || lnet.arrive(0, &payload));
        let cancelling = beside(&rig, &buffer, |rig, buffer| rig.cancel(buffer));
        let taken = rig.tm.event_get().unwrap();
        let freed = rig.core.deregister(buffer.handle);
        let (arrived, cancelled) = (arriving.join().unwrap(), cancelling.join().unwrap());
        let events: Vec<_> = taken.into_iter().chain(events(&rig.tm)).collect();
        match buffer.ended(&events) {
            Ok(()) => assert!(arrived),
            status => assert_eq!((status, cancelled), (CANCELLED, Ok(()))),
        }
        match freed {
            Ok(()) => rig.finish(&[]),
            Err(_) => {
                assert!(taken.is_none(), "whoever has the last event finds its buffer free");
                rig.finish(&[&buffer]);
            }
        }
    });
}
