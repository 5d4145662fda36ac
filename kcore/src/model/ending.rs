//! Last events, and the release of the buffer (S-415, K1).

use super::lnet::Payload;
use super::*;
use crate::agreed::{ASSOCIATION, LEAVE};

/// MT-235: a buffer whose operation ends is deregistered. It is busy until the operation releases
/// it, and free once the last event has been taken. Then its memory can be freed: nothing writes to
/// it any more.
fn deregistered_while_it_ends() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let payload = Arc::new(Payload::default());
        let arriving = thread::spawn({
            let (lnet, payload) = (rig.lnet.clone(), payload.clone());
            move || lnet.arrive(0, &payload)
        });
        let taken = rig.tm.event_get().unwrap();
        let deregistered = rig.core.deregister(buffer.handle);
        if deregistered.is_ok() {
            payload.write();
        }
        assert!(arriving.join().unwrap());
        let events: Vec<_> = taken.into_iter().chain(events(&rig.tm)).collect();
        assert_eq!(buffer.ended(&events), Ok(()));
        match deregistered {
            Ok(()) => assert!(buffer.memory.upgrade().is_none(), "its memory has gone"),
            Err(error) => {
                assert_eq!(error, CoreError::BufferBusy { buffer: buffer.handle });
                assert!(taken.is_none(), "whoever has the last event finds its buffer free");
                buffer.give_back(&rig.core);
            }
        }
        rig.finish(&[]);
    });
}

// Covers: S-415, MT-235
#[test]
fn a_last_event_and_a_deregistration() {
    deregistered_while_it_ends();
}

#[test]
fn an_event_that_comes_before_its_operation_has_left_finds_the_buffer_busy() {
    needs(LEAVE, deregistered_while_it_ends, "finds its buffer free");
}

#[test]
fn a_weak_association_lets_memory_go_that_is_written_to() {
    needs(ASSOCIATION, deregistered_while_it_ends, "Causality violation");
}

/// A buffer whose operation ends is given to another transfer machine, which has another producer
/// lock: its message writes to the memory that the previous operation wrote.
fn handed_over_while_it_ends() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let other = start_machine(&rig.core, "0@lo:12345:31:8").expect("another transfer machine");
        let next = Buffer { number: 1, ..buffer.clone() };
        let payload = Arc::new(Payload::default());
        let arriving = thread::spawn({
            let (lnet, payload) = (rig.lnet.clone(), payload.clone());
            move || lnet.arrive(0, &payload)
        });
        let begun = other.submit(&next.operation(OperationKind::PassiveReceive));
        if begun.is_ok() {
            assert!(rig.lnet.arrive(1, &payload));
        }
        assert!(arriving.join().unwrap());
        assert_eq!(buffer.ended(&events(&rig.tm)), Ok(()));
        match begun {
            Ok(_) => assert_eq!(next.ended(&events(&other)), Ok(())),
            Err(error) => assert_eq!(error, CoreError::BufferBusy { buffer: buffer.handle }),
        }
        other.stop().expect("nothing is in flight");
        rig.finish(&[&buffer]);
    });
}

// Covers: S-415
#[test]
fn a_last_event_and_another_transfer_machine() {
    handed_over_while_it_ends();
}

#[test]
fn with_a_weak_association_messages_of_two_transfer_machines_meet() {
    needs(ASSOCIATION, handed_over_while_it_ends, "Causality violation");
}

/// Events of two MDs come from two threads at once, and there is one producer: both reach the
/// client.
// Covers: S-415
#[test]
fn two_callbacks_at_once() {
    check(|| {
        let rig = Rig::new();
        let buffers = [rig.buffer(0), rig.buffer(1)];
        for buffer in &buffers {
            rig.submit(buffer, OperationKind::PassiveReceive).expect("it starts");
        }
        let lnet = rig.lnet.clone();
        let arriving = thread::spawn(move || lnet.arrive(0, &Payload::default()));
        assert!(rig.lnet.arrive(1, &Payload::default()));
        assert!(arriving.join().unwrap());
        let events = events(&rig.tm);
        assert!(buffers.iter().all(|buffer| buffer.ended(&events) == Ok(())));
        rig.finish(&[&buffers[0], &buffers[1]]);
    });
}

/// An event is produced while the next operation starts, for which the ring grows.
// Covers: S-415
#[test]
fn a_last_event_and_the_next_start() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let lnet = rig.lnet.clone();
        let arriving = thread::spawn(move || lnet.arrive(0, &Payload::default()));
        let next = rig.buffer(1);
        rig.submit(&next, OperationKind::PassiveReceive).expect("there is room");
        assert!(rig.lnet.arrive(1, &Payload::default()));
        assert!(arriving.join().unwrap());
        let events = events(&rig.tm);
        assert_eq!((buffer.ended(&events), next.ended(&events)), (Ok(()), Ok(())));
        rig.finish(&[&buffer, &next]);
    });
}

/// A batch starts while the messages for its operations arrive: its room is enough, and none of it
/// stays reserved.
#[test]
fn a_batch_and_its_last_events() {
    check(|| {
        let rig = Rig::new();
        let buffers = [rig.buffer(0), rig.buffer(1)];
        let (lnet, payload) = (rig.lnet.clone(), Payload::default());
        let arriving = thread::spawn(move || [0, 1].map(|number| lnet.arrive(number, &payload)));
        let operations = buffers.each_ref().map(|buffer| buffer.operation(OperationKind::PassiveReceive));
        rig.tm.submit_all(None, &operations, &mut |place, begun| {
            begun.unwrap_or_else(|error| panic!("operation {place}: {error}"));
        });
        let arrived = arriving.join().unwrap();
        for (buffer, _) in buffers.iter().zip(arrived).filter(|(_, arrived)| !arrived) {
            rig.cancel(buffer).expect("it goes on");
        }
        let events = events(&rig.tm);
        for (buffer, arrived) in buffers.iter().zip(arrived) {
            assert_eq!(buffer.ended(&events), if arrived { Ok(()) } else { CANCELLED });
        }
        rig.finish(&[&buffers[0], &buffers[1]]);
    });
}
