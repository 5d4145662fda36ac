//! System calls and copies, counted.

use std::sync::atomic::Ordering;

use lnet_api::corked;
use nlx_testkit::until;

use crate::common::{Node, drive, idle_pair, memory, pattern};

/// Returns the system calls, and the messages sent, since `before`.
fn sent_since(node: &Node, before: (u64, u64)) -> (u64, u64) {
    let tx = node.counters().tx;
    (tx.calls - before.0, tx.messages - before.1)
}

/// Messages sent under a cork leave in one call at its end, between two polls and before the first
/// one.
#[test]
fn a_batch_leaves_in_one_call() {
    const COUNT: usize = 16;
    let (a, b) = idle_pair();
    for batch in 0..3 {
        let before = sent_since(&a, (0, 0));
        let tokens = corked(|| {
            let tokens: Vec<_> =
                (0..COUNT).map(|number| a.put_bytes(b.id(), &pattern(number as u64, 64), 0)).collect();
            assert_eq!(sent_since(&a, before), (0, 0));
            tokens
        });
        assert_eq!(sent_since(&a, before), (1, COUNT as u64));
        assert!(tokens.into_iter().all(|token| a.sent(token) == Some(Ok(()))), "each is told to have left");
        drive(&[&b], || b.received() == 1 + (batch + 1) * COUNT);
    }
}

/// A message that another thread sends at the same time under its own cork, over the same
/// connection, leaves too.
#[test]
fn batches_of_two_threads_leave_completely() {
    const BATCHES: usize = 50;
    const COUNT: usize = 16;
    let (a, b) = idle_pair();
    let wakeups = a.counters().tx.wakeups;
    let send = || {
        for _ in 0..BATCHES {
            let send_one = |number| a.put_bytes(b.id(), &pattern(number, 64), 0);
            let tokens = corked(|| (0..COUNT as u64).map(send_one).collect::<Vec<_>>());
            // The thread that writes to the connection also writes the messages of the thread that
            // finished before.
            until("all are sent", || tokens.iter().all(|&token| a.sent(token).is_some()));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(send);
        scope.spawn(send);
        drive(&[&b], || b.received() == 1 + 2 * BATCHES * COUNT);
    });
    assert_eq!(a.counters().tx.wakeups, wakeups, "nobody had to come for what was left");
}

/// A message that is too long to be held back leaves at once.
#[test]
fn a_cork_holds_back_no_more_than_a_socket_takes() {
    let (a, b) = idle_pair();
    let before = sent_since(&a, (0, 0));
    corked(|| {
        a.put_bytes(b.id(), &pattern(1, 64), 0);
        assert_eq!(sent_since(&a, before), (0, 0));
        a.put_bytes(b.id(), &pattern(2, 100 << 10), 0);
        assert!(sent_since(&a, before).0 > 0);
    });
    drive(&[&a, &b], || b.received() == 3);
}

/// Header and payload leave in one call, for any number of fragments of odd sizes.
// Covers: S-210
#[test]
fn a_message_leaves_in_one_call() {
    for fragments in [1, 7, 256] {
        for size in [fragments, 255 * fragments + 13, 9999] {
            let (a, b) = idle_pair();
            let before = a.counters().tx;
            let bytes = pattern(7, size);
            let token = a.put(b.id(), &memory(&bytes, fragments), 0);
            assert_eq!(a.sent(token), Some(Ok(())), "sent by the time the call returns");
            let after = a.counters().tx;
            assert_eq!((after.calls - before.calls, after.short), (1, 0), "{size} bytes in {fragments}");
            assert_eq!(after.bytes - before.bytes, 24 + 72 + size as u64);
            drive(&[&a, &b], || b.received() == 2);
            b.with_got(|got| assert!(got[1].bytes() == bytes));
        }
    }
}

/// A message without payload, and one with an empty payload: a header each, in one call.
#[test]
fn a_message_of_nothing_leaves_in_one_call() {
    let (a, b) = idle_pair();
    let before = a.counters().tx;
    a.put_bytes(b.id(), b"", 0);
    let after = a.counters().tx;
    assert_eq!((after.calls - before.calls, after.bytes - before.bytes), (1, 96));
    drive(&[&a, &b], || b.received() == 2);
}

/// Messages that queue behind each other leave in one call, and arrive in few.
// Covers: S-210
#[test]
fn queued_messages_leave_in_one_call() {
    const COUNT: usize = 60;
    let (a, b) = idle_pair();
    // The first message leaves at once; the others wait for the poll.
    a.put_bytes(b.id(), b"first", 0);
    let before = a.counters().tx;
    for number in 0..COUNT {
        a.put_bytes(b.id(), &pattern(number as u64, 30), 0);
    }
    a.poll();
    let after = a.counters().tx;
    assert_eq!((after.calls - before.calls, after.messages - before.messages), (1, COUNT as u64));
    let before = b.counters().rx.calls;
    drive(&[&a, &b], || b.received() == COUNT + 2);
    // One or two calls read the bytes, which may arrive in two pieces; one call each finds nothing
    // more.
    assert!(b.counters().rx.calls - before <= 4, "{:?}", b.counters());
}

/// Below the measured threshold a stream of messages is read in large pieces and copied; above it
/// almost everything goes directly to its destination.
// Covers: S-210
#[test]
fn the_size_decides_whether_payloads_are_copied() {
    const COUNT: usize = 20;
    let direct_of = |size: usize| {
        let (a, b) = idle_pair();
        let before = b.counters().rx;
        let bytes = pattern(2, size);
        let memory = memory(&bytes, 1);
        for number in 0..COUNT {
            a.put(b.id(), &memory, 0);
            drive(&[&a, &b], || b.received() == number + 2);
        }
        b.with_got(|got| assert!(got[1..].iter().all(|got| got.bytes() == bytes)));
        let after = b.counters().rx;
        let direct = after.bytes_direct - before.bytes_direct;
        assert_eq!(after.bytes_copied - before.bytes_copied + direct, (COUNT * size) as u64);
        direct
    };
    // For all that the driver can tell, the first message of a bulk connection may be large, and
    // TCP may deliver a message in two pieces.
    assert!(direct_of(40 << 10) < (COUNT * (40 << 10) / 4) as u64);
    assert!(direct_of(64 << 10) > (COUNT * (64 << 10) / 4 * 3) as u64);
}

/// The payload of a 1 MiB GET goes from the socket directly to its destination, except the part
/// that came with the header: at most the read-ahead of a connection that carries bulk.
// Covers: S-210
#[test]
fn a_bulk_reply_is_received_straight_into_its_place() {
    const SIZE: usize = 1 << 20;
    const AHEAD: u64 = 4 << 10;
    for fragments in [1, 256] {
        let (a, b) = idle_pair();
        a.engine.fragments.store(fragments, Ordering::Relaxed);
        for number in 0..8 {
            let before = a.counters().rx;
            a.get(b.id(), SIZE, number);
            drive(&[&a, &b], || a.received() == number as usize + 1);
            let after = a.counters().rx;
            let (copied, direct) =
                (after.bytes_copied - before.bytes_copied, after.bytes_direct - before.bytes_direct);
            assert_eq!((copied + direct, after.bytes_discarded), (SIZE as u64, 0));
            assert!(copied <= AHEAD, "{copied} bytes of {SIZE} were copied");
        }
        a.with_got(|got| {
            assert!(got.iter().zip(0..).all(|(got, number)| got.bytes() == pattern(number, SIZE)))
        });
    }
}
