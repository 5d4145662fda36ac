//! Threads of several partitions, and the client's, at the same time.

use lnet_api::{Errno, EventKind};
use nlx_core::{Core, OperationKind, Queue};

use super::bed;
use crate::bed::*;

/// LNet calls back from several threads at once. Messages that race for one buffer are reported in
/// the order in which they are complete, each once, and the last one of a buffer comes last.
// Covers: S-311, S-411, S-415
#[test]
fn callbacks_of_many_threads_make_one_stream_of_events() {
    const THREADS: u32 = 4;
    const EVENTS: u32 = 200;
    let bed = bed();
    let size = u64::from(EVENTS);
    let receive = OperationKind::Receive { min_receive_size: 1, max_messages: EVENTS };
    for cookie in 0..THREADS {
        let buffer = bed.core.register(&memory(size as usize)).unwrap();
        bed.submit_on(buffer, cookie.into(), receive).unwrap();
    }
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let bed = &bed;
            scope.spawn(move || (0..EVENTS).for_each(|_| bed.receive(&bed.message(&peer_of(number), 1))));
        }
        let mut offsets = vec![Vec::new(); THREADS as usize];
        while bed.tm.needed() > 0 {
            assert!(bed.tm.event_wait(None));
            while let Some(event) = bed.tm.event_get().unwrap() {
                let offsets = &mut offsets[event.cookie as usize];
                offsets.push(event.offset);
                assert_eq!(event.unlinked(), offsets.len() as u64 == size);
            }
        }
        for mut offsets in offsets {
            offsets.sort_unstable();
            assert!(offsets.into_iter().eq(0..size));
        }
    });
    bed.assert_no_faults();
    let puts = bed.spy.take_events().iter().filter(|event| event.kind == EventKind::Put).count();
    assert_eq!(puts as u32, THREADS * EVENTS);
}

/// Cancels and messages race on real threads; each operation ends once, one way or the other.
// Covers: S-414
#[test]
fn a_cancel_races_with_a_message_of_another_thread() {
    const ROUNDS: u64 = 200;
    let bed = bed();
    let mut ends = [0u64; 2];
    for _ in 0..ROUNDS {
        let passive = bed.expose(OperationKind::PassiveReceive);
        assert_eq!(passive.0.queue, Queue::PassiveBulkReceive);
        let message = passive.put(&peer(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| bed.world.arrive(&message).into_iter().for_each(|finish| finish(Ok(()))));
            // ENOENT if the message was faster.
            let _ = bed.tm.cancel(bed.buffer, COOKIE);
        });
        let event = bed.tm.event_get().unwrap().expect("it has ended");
        assert!(event.unlinked());
        match event.status() {
            Ok(()) => ends[0] += 1,
            Err(Errno::ECANCELED) => ends[1] += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!((bed.tm.event_get().unwrap(), bed.tm.needed()), (None, 0));
    }
    assert_eq!(ends[0] + ends[1], ROUNDS);
    bed.assert_no_faults();
    bed.spy.take_events();
    bed.assert_idle();
}
