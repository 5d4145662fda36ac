//! The raw client's halves of the queues in shared memory, against those of the helper.

use nlx_bev_cqueue::{Consumer, Producer, QueueWord, SharedMemory};
use nlx_sync::{Bell, Waker};
use nlx_tests::client::events::Events;
use nlx_tests::client::points::Points;
use nlx_tests::client::ring::{Queue, Ring};
use nlx_tests::client::wire::{ENTRY, Entry};

/// Entries that a raw client puts into a ring arrive unchanged, over many rounds of a full and an
/// empty ring.
#[test]
fn a_submission_ring() {
    const SLOTS: u32 = 8;
    let (memory, fd) = SharedMemory::create(SLOTS).unwrap();
    let mut helper = Consumer::<[u64; ENTRY / 8], _>::new(memory).unwrap();
    helper.grow(SLOTS - 2).unwrap();
    let doorbell = Bell::new().unwrap().into();
    let mut ring = Ring::new(Queue::map(&fd).unwrap(), doorbell);
    let mut came = Vec::new();
    for number in 0..1000 {
        if ring.free() == 0 {
            came.extend(helper.drain(usize::MAX));
        }
        let filled = ring.fill(&Entry::cancel(number, 2 * number, 3 * number).bytes());
        ring.stamp(filled);
    }
    came.extend(helper.drain(usize::MAX));
    assert_eq!(came.len(), 1000);
    for (number, words) in (0..).zip(came) {
        // The kind without a queue, transfer machine, buffer, cookie.
        assert_eq!(words[..4], [2, number, 2 * number, 3 * number]);
    }
}

/// Events arrive unchanged, while the queue grows and although the raw client sleeps before each.
#[test]
fn an_event_queue() {
    const EVENTS: u64 = 300;
    let (memory, fd) = SharedMemory::create(64).unwrap();
    let mut helper = Producer::<[u64; 11], _>::new(memory.clone()).unwrap();
    let waker = Waker::futex(QueueWord::consumer(memory));
    let mut points = Points::harmless();
    let mut events = Events::new(Queue::map(&fd).unwrap());
    events.provision(1, &mut points);
    let thread = std::thread::spawn(move || {
        for number in 0..EVENTS {
            let event = [number, number, 0, 4096, 64, 1 << 32, 0, 0, 0, 0, 0];
            while helper.push(event).is_err() {
                std::thread::yield_now();
            }
            waker.wake().unwrap();
        }
    });
    for number in 0..EVENTS {
        if number % 10 == 0 {
            events.provision(1, &mut points);
        }
        assert!(events.wait(nlx_tests::client::TIME_LIMIT, &mut points, || false));
        let event = events.take(&mut points).unwrap();
        assert_eq!((event.buffer, event.cookie, event.length), (number, number, 4096));
        assert_eq!((event.offset, event.status, event.last), (64, 0, true));
    }
    assert!(events.take(&mut points).is_none());
    thread.join().unwrap();
}
