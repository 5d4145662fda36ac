//! Messages, and the tasks that wait for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;

const MANY: u32 = 64;

fn sends(pair: &Pair, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let buffer = pair.a.filled(&number.to_le_bytes());
        block_on(pair.a.machine.start(Op::send(buffer, &pair.to_b()).length(4).timeout(HUNG))).unwrap();
    }
}

fn number(message: &[u8]) -> u32 {
    u32::from_le_bytes(message.try_into().unwrap())
}

#[test]
fn messages_come_in_order_and_the_last_brings_the_buffer() {
    let pair = Pair::over_loopback();
    pair.b.machine.post(Op::receive(pair.b.empty(4096)).min_receive_size(4).max_messages(MANY)).unwrap();
    sends(&pair, 0..MANY);
    for expected in 0..MANY {
        let received = block_on(pair.b.machine.next_message()).unwrap();
        assert_eq!(number(&received.message), expected);
        assert_eq!(received.buffer.is_some(), expected == MANY - 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_message_goes_to_one_of_the_tasks_that_wait() {
    let pair = Arc::new(Pair::over_loopback());
    let tasks: Vec<_> = (0..MANY)
        .map(|_| {
            let pair = pair.clone();
            tokio::spawn(async move { number(&pair.b.machine.next_message().await.unwrap().message) })
        })
        .collect();
    pair.b.machine.post(Op::receive(pair.b.empty(4096)).min_receive_size(4).max_messages(MANY)).unwrap();
    let sender = pair.clone();
    tokio::task::spawn_blocking(move || sends(&sender, 0..MANY)).await.unwrap();
    let mut numbers = BTreeSet::new();
    for task in tasks {
        assert!(numbers.insert(task.await.unwrap()));
    }
    assert_eq!(numbers, (0..MANY).collect());
}

#[test]
fn a_task_that_does_not_wait_any_more_loses_no_message() {
    let pair = Pair::over_loopback();
    let mut first = pair.b.machine.next_message();
    let mut second = pair.b.machine.next_message();
    assert!(poll_once(&mut first).is_pending());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            // It waits in the queue behind `first`.
            assert!(poll_once(&mut second).is_pending());
            pair_ready().wait();
            block_on(second).unwrap().message.len()
        });
        pair_ready().wait();
        pair.b.post();
        block_on(pair.a.machine.start(Op::send(pair.a.empty(7), &pair.to_b()).timeout(HUNG))).unwrap();
        // It may have been woken for the message.
        drop(first);
        assert_eq!(waiting.join().unwrap(), 7);
    });
}

/// Returns the barrier of the two threads of a test.
fn pair_ready() -> &'static std::sync::Barrier {
    static READY: std::sync::Barrier = std::sync::Barrier::new(2);
    &READY
}
