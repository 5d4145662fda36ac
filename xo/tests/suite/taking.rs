//! Events taken by the client's threads.

use std::time::Duration;

use nlx::{Errno, Queue, Stop, TransferMachine};

use super::{pair, world};
use crate::bed::*;

/// Without operations nothing is pending, and polls and waits return no event.
// Covers: MT-83, MT-109, MT-110
#[test]
fn nothing_comes_of_nothing() {
    let Pair { a, .. } = &pair();
    assert!(!a.tm.pending());
    assert!(a.tm.take().unwrap().is_none());
    assert!(a.tm.poll().unwrap().is_none());
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert!(a.tm.wait(Some(timeout)).unwrap().is_none());
    }
    assert!(!a.tm.pending());
}

/// Four messages into one buffer, not taken while the sends end: they stay pending however often
/// the program asks, and all are taken without driving the network.
// Covers: MT-84, MT-110
#[test]
fn messages_wait_until_they_are_taken() {
    let pair = pair();
    let lengths = [100, 200, 300, 400];
    let op = pair.b.receive(1 << 16, 4, 400);
    lengths.iter().for_each(|&length| pair.send(&pattern(0, length)));
    let mut offset = 0;
    for (number, length) in lengths.into_iter().enumerate() {
        pair.until_pending();
        for _ in 0..3 {
            assert!(pair.b.tm.pending());
        }
        let event = pair.b.tm.take().unwrap().expect("it is pending");
        assert_eq!((event.op, event.offset, event.is_last()), (op, offset, number == 3));
        assert_eq!(event.message.as_deref(), Some(&pattern(0, length)[..]));
        assert_eq!(event.sender.unwrap().address(), pair.a.tm.address());
        offset += length;
    }
    assert!(!pair.b.tm.pending());
    assert_eq!(pair.b.counts(Queue::MessageReceive), (1, 0, 4, 0));
}

/// A waiting thread is woken for an event that another thread has driven; each event is delivered
/// once, and the end to all.
// Covers: MT-84, MT-110, X-11, X-15
#[test]
fn waiting_threads_share_the_events() {
    let Pair { a, b, world: _world } = &Pair::on(world().with_threads());
    let count = 64;
    b.receive(1 << 16, count, 64);
    let tm = &b.tm;
    let mut taken: Vec<u8> = std::thread::scope(|scope| {
        let waiters = [(); 3].map(|()| scope.spawn(|| until_stopped(tm)));
        for number in 0..count as u8 {
            let op = a.send(b, &[number]);
            assert_eq!(a.end_of(op).status, Ok(()));
        }
        waiters.into_iter().flat_map(|waiter| waiter.join().unwrap()).collect()
    });
    taken.sort();
    assert!(taken.into_iter().eq(0..count as u8));
}

/// Takes messages of one byte. The thread that gets the last one stops the transfer machine.
fn until_stopped(tm: &TransferMachine) -> Vec<u8> {
    let mut taken = Vec::new();
    loop {
        match tm.wait(HUNG) {
            Ok(event) => {
                let event = event.expect("it hangs");
                taken.push(event.message.as_ref().unwrap()[0]);
                if event.is_last() {
                    tm.stop(Stop::Drain, HUNG).unwrap();
                }
            }
            Err(error) => {
                assert_eq!(error.errno(), Errno::ESHUTDOWN);
                return taken;
            }
        }
    }
}
