//! Each operation, under each executor.

use std::sync::Arc;

use nlx::{Errno, Error, Offer, Queue};

use super::*;

/// Runs all six operations, from `a` to `b`.
async fn every_operation(pair: &Pair) {
    let (a, b) = (&pair.a, &pair.b);
    let bytes = pattern(0, 4096);
    b.post();
    let sent = a.machine.start(Op::send(a.filled(&bytes), &pair.to_b()).timeout(HUNG)).await.unwrap();
    assert_eq!((sent.length, sent.buffer.len()), (4096, 4096));
    let received = b.machine.next_message().await.unwrap();
    assert_eq!(&*received.message, bytes);
    assert_eq!(received.sender.unwrap().address(), a.machine.address());
    assert_eq!(received.buffer.unwrap().len(), 4096);

    // A buffer is written by `a`, and then read by it.
    let written = b.machine.start(Op::passive_receive(b.empty(8192)).timeout(HUNG));
    let offer = written.offer().clone();
    a.machine.start(Op::active_send(a.filled(&bytes), &offer).timeout(HUNG)).await.unwrap();
    let written = written.await.unwrap();
    assert_eq!(written.length, 4096);
    assert_eq!(written.buffer.read().unwrap()[..4096], bytes);
    let read = b.machine.start(Op::passive_send(written.buffer).length(4096).timeout(HUNG));
    let offer = read.offer().clone();
    let got = a.machine.start(Op::active_receive(a.empty(4096), &offer).timeout(HUNG)).await.unwrap();
    assert_eq!(got.length, 4096);
    assert_eq!(*got.buffer.read().unwrap(), bytes);
    read.await.unwrap();
    assert_eq!((a.machine.in_flight(), b.machine.in_flight()), (0, 0));
}

#[test]
fn every_operation_under_an_executor_of_twenty_lines() {
    block_on(every_operation(&Pair::over_loopback()));
}

#[tokio::test(flavor = "current_thread")]
async fn every_operation_under_tokio_on_one_thread() {
    every_operation(&Pair::over_loopback()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_operation_under_tokio_on_several_threads_and_over_tcp() {
    let pair = Arc::new(Pair::over_tcp(1));
    let tasks = (0..8).map(|number| {
        let pair = pair.clone();
        tokio::spawn(async move { bulk(&pair, number).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    every_operation(&pair).await;
}

/// Runs some bulk transfers, one after the other.
async fn bulk(pair: &Pair, number: usize) {
    let bytes = pattern(0, 10_000 * (number + 1));
    for _ in 0..10 {
        let offered = pair.b.machine.start(Op::passive_send(pair.b.filled(&bytes)).timeout(HUNG));
        let offer = offered.offer().clone();
        let buffer = pair.a.empty(bytes.len());
        let read = pair.a.machine.start(Op::active_receive(buffer, &offer).timeout(HUNG)).await.unwrap();
        assert_eq!(*read.buffer.read().unwrap(), bytes);
        offered.await.unwrap();
    }
}

#[test]
fn an_operation_starts_at_the_call() {
    let pair = Pair::over_loopback();
    pair.b.post();
    let sending = pair.a.machine.start(Op::send(pair.a.filled(b"soon"), &pair.to_b()).timeout(HUNG));
    // The send is not polled before the message has arrived.
    assert_eq!(&*block_on(pair.b.machine.next_message()).unwrap().message, b"soon");
    block_on(sending).unwrap();
}

#[test]
fn what_is_refused_gives_its_buffer_back_at_once() {
    let Pair { a, .. } = Pair::over_loopback();
    let mut refused = a.machine.start(Op::active_receive(a.empty(100), Offer::NONE));
    assert_eq!(refused.op(), None);
    let Poll::Ready(Err(failed)) = poll_once(&mut refused) else { panic!("it is refused") };
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::EINVAL, 100));
    let refused = a.machine.start(Op::passive_send(a.empty(100)).length(101));
    assert_eq!(refused.offer(), &Offer::NONE);
    let failed = block_on(refused).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::EINVAL, 100));
    // A receive is refused, because its messages would not be delivered.
    let failed = block_on(a.machine.start(Op::receive(a.empty(100)))).unwrap_err();
    assert!(matches!(failed.error, Error::NoFuture), "{failed}");
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::EINVAL, 100));
    let counters = a.machine.statistics()[Queue::ActiveBulkReceive.index()];
    assert_eq!((counters.adds, counters.failures, a.machine.in_flight()), (0, 0, 0));
}

#[test]
#[should_panic(expected = "polled again")]
fn a_completion_is_ready_once() {
    let Pair { a, .. } = Pair::over_loopback();
    let mut refused = a.machine.start(Op::active_receive(a.empty(100), Offer::NONE));
    assert!(poll_once(&mut refused).is_ready());
    let _ = poll_once(&mut refused);
}
