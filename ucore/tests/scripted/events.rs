//! Correct and impossible events, and a full ring.

use std::sync::Arc;

use nlx_core::{
    BufferEvent, BufferHandle, Core, CoreTm, Errno, EventFlags, IoVec, Operation, OperationKind, TmOptions,
};
use nlx_driver_proto::Entry;
use nlx_ucore::Ucore;

use crate::helper::*;

/// Returns a correct helper, a client of it, and a transfer machine.
fn started() -> (Helper, Arc<Ucore>, Box<dyn CoreTm>) {
    let helper = Helper::start(1, |_, _| Answer::Right);
    let domain = helper.client();
    let tm = domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), &TmOptions::default()).unwrap();
    (helper, domain, tm)
}

fn buffer(domain: &Ucore, bytes: usize) -> (BufferHandle, IoVec) {
    let memory = IoVec::whole(domain.allocate(bytes).unwrap());
    (domain.register(&memory).unwrap(), memory)
}

fn message(buffer: BufferHandle, offset: u64, length: u64) -> BufferEvent {
    BufferEvent { buffer: buffer.0, cookie: 1, offset, length, ..BufferEvent::ZERO }
}

fn receive(buffer: BufferHandle, messages: u32) -> Operation {
    let kind = OperationKind::Receive { min_receive_size: 1, max_messages: messages };
    Operation { buffer, cookie: 1, kind }
}

/// Each message is the client's when its event has been taken, in whatever order they come; the
/// rest is the helper's.
#[test]
fn messages_arrive_in_any_order_of_their_places() {
    let (helper, domain, tm) = started();
    let (handle, memory) = buffer(&domain, 1000);
    tm.submit(&receive(handle, 4)).unwrap();
    for (offset, length) in [(300, 100), (0, 300), (700, 1)] {
        assert!(memory.read(offset..offset + length).is_err());
        helper.push(message(handle, offset as u64, length as u64));
        assert!(tm.event_wait(None));
        let came = tm.event_get().unwrap().unwrap();
        assert_eq!((came.offset, came.length, came.released), (offset as u64, length as u64, 0));
        assert!(memory.read(offset..offset + length).is_ok());
        assert!(memory.read(offset..offset + length + 1).is_err() || length == 300);
    }
    // The helper's number of released event slots is ignored.
    let flags = EventFlags::UNLINKED;
    helper.push(BufferEvent { flags, released: 1_000_000, ..message(handle, 400, 300) });
    let last = tm.event_get().unwrap().unwrap();
    assert_eq!((last.released, tm.needed()), (4, 0));
    assert!(memory.write(0..1000).is_ok());
    drop((tm, domain));
}

/// Events that no correct helper produces end the domain, and not the process.
#[test]
fn events_that_cannot_be_end_the_domain() {
    let lies: [fn(BufferHandle) -> BufferEvent; 5] = [
        |buffer| message(buffer, 0, 1001),
        |buffer| message(buffer, u64::MAX, u64::MAX),
        |buffer| BufferEvent { cookie: 2, ..message(buffer, 0, 1) },
        |buffer| BufferEvent { buffer: buffer.0 + 1, ..message(buffer, 0, 1) },
        |_| BufferEvent { buffer: u64::MAX, ..BufferEvent::ZERO },
    ];
    for lie in lies {
        let (helper, domain, tm) = started();
        let (handle, memory) = buffer(&domain, 1000);
        tm.submit(&receive(handle, 4)).unwrap();
        helper.push(lie(handle));
        let mut statuses = vec![];
        while tm.needed() > 0 {
            tm.event_wait(None);
            statuses.extend(tm.event_get().unwrap().map(|event| event.status()));
        }
        assert_eq!(statuses.last(), Some(&Err(Errno::ENOTCONN)), "{statuses:?}");
        assert!(statuses.len() == 1 || statuses[0] == Err(Errno::EPROTO));
        assert!(tm.has_ended() && !domain.is_connected());
        until("the memory is free", || memory.write(0..1000).is_ok());
    }
}

/// A corrupt event queue ends the domain: the operation in flight ends with ENOTCONN, and none
/// starts any more.
// Covers: MT-219
#[test]
fn a_corrupt_event_queue_ends_the_domain_and_starts_nothing() {
    let (helper, domain, tm) = started();
    let ((handle, memory), (other, _)) = (buffer(&domain, 1000), buffer(&domain, 1000));
    tm.submit(&receive(handle, 4)).unwrap();
    helper.corrupt();
    while tm.needed() > 0 {
        assert!(tm.event_wait(None));
        if let Some(event) = tm.event_get().unwrap() {
            assert_eq!((event.buffer(), event.status()), (handle, Err(Errno::ENOTCONN)));
        }
    }
    assert!(tm.has_ended() && !domain.is_connected());
    assert_eq!(tm.submit(&receive(other, 1)).unwrap_err().errno(), Errno::ENOTCONN);
    until("the memory is free", || memory.write(0..1000).is_ok());
}

/// The helper's refusal of an operation is its last event.
#[test]
fn an_operation_is_refused_by_the_helper() {
    let (helper, domain, tm) = started();
    let (handle, memory) = buffer(&domain, 1000);
    tm.submit(&receive(handle, 4)).unwrap();
    let mut refused = BufferEvent { flags: EventFlags::UNLINKED, released: 4, ..message(handle, 0, 0) };
    refused.set_status(Err(Errno::EPERM));
    helper.push(refused);
    assert_eq!(tm.event_get().unwrap().map(|event| event.status()), Some(Err(Errno::EPERM)));
    assert!(memory.write(0..1000).is_ok() && tm.needed() == 0);
    tm.submit(&receive(handle, 4)).unwrap();
    drop(domain);
    helper.push(BufferEvent { flags: EventFlags::UNLINKED, released: 4, ..message(handle, 0, 0) });
    drop(tm);
}

/// A ring that is not polled: a request makes room, and the order stays.
#[test]
fn a_full_ring_is_emptied_by_a_request() {
    let (helper, domain, tm) = started();
    let buffers: Vec<_> = (0..50).map(|_| buffer(&domain, 10)).collect();
    let operations: Vec<_> = buffers.iter().map(|(handle, _)| receive(*handle, 1)).collect();
    let mut started = 0;
    tm.submit_all(None, &operations, &mut |_, outcome| started += usize::from(outcome.is_ok()));
    assert_eq!(started, 50);
    let entries = helper.entries();
    let operated = entries.iter().filter_map(|entry| match entry {
        Entry::Operate { operation, tm: 1, .. } => Some(*operation),
        _ => None,
    });
    assert!(operated.eq(operations.iter().copied()), "{entries:?}");
    tm.cancel(buffers[3].0, 1).unwrap();
    assert_eq!(helper.entries().last(), Some(&Entry::Cancel { tm: 1, buffer: buffers[3].0, cookie: 1 }));
    for (handle, _) in &buffers {
        helper.push(BufferEvent { flags: EventFlags::UNLINKED, released: 1, ..message(*handle, 0, 1) });
        assert!(tm.event_get().unwrap().is_some());
    }
    tm.stop().unwrap();
}

/// Events are taken in batches with the same result as one by one: each is applied to its
/// operation, and events after an impossible one are taken as well.
#[test]
fn events_are_taken_together() {
    let (helper, domain, tm) = started();
    let buffers: Vec<_> = (0..6).map(|_| buffer(&domain, 10)).collect();
    for (handle, _) in &buffers {
        tm.submit(&receive(*handle, 1)).unwrap();
        helper.push(BufferEvent { flags: EventFlags::UNLINKED, released: 7, ..message(*handle, 0, 1) });
    }
    let mut events = [BufferEvent::ZERO; 4];
    let mut taken = Vec::new();
    for expected in [4, 2, 0] {
        assert_eq!(tm.events_get(&mut events).unwrap(), expected);
        taken.extend(events[..expected].iter().map(|event| (event.buffer(), event.released)));
        assert_eq!(tm.needed(), buffers.len() - taken.len());
    }
    assert!(taken.into_iter().eq(buffers.iter().map(|(handle, _)| (*handle, 1))));
    assert!(buffers.iter().all(|(_, memory)| memory.write(0..10).is_ok()));
    // An event without an operation, before one with an operation.
    tm.submit(&receive(buffers[1].0, 1)).unwrap();
    helper.push(message(buffers[0].0, 0, 1));
    helper.push(BufferEvent { flags: EventFlags::UNLINKED, ..message(buffers[1].0, 0, 1) });
    assert_eq!(tm.events_get(&mut events).unwrap(), 1);
    assert_eq!((events[0].buffer(), events[0].status()), (buffers[1].0, Ok(())));
    assert!(tm.has_ended() && tm.needed() == 0, "the domain has ended by the lie");
}
