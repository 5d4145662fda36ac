//! Operations and machines that are ended early.

use nlx::{Errno, Queue, TmEvent, TmState};

use super::*;

#[test]
fn a_dropped_future_cancels_and_its_buffer_is_given_up() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_receive(a.empty(100)));
    let mut polled = a.machine.start(Op::passive_receive(a.empty(100)));
    assert!(poll_once(&mut polled).is_pending());
    drop((offered, polled));
    // A stop with `Drain` waits for the end of every operation.
    block_on(a.machine.stop(Stop::Drain, HUNG)).unwrap();
    let counters = a.machine.statistics()[Queue::PassiveBulkReceive.index()];
    assert_eq!((counters.adds, counters.cancels, counters.failures), (2, 2, 2));
}

#[test]
fn a_future_dropped_after_the_end_cancels_nothing() {
    let pair = Pair::over_loopback();
    pair.b.post();
    let sending = pair.a.machine.start(Op::send(pair.a.filled(b"x"), &pair.to_b()).timeout(HUNG));
    block_on(pair.b.machine.next_message()).unwrap();
    until("the operation ends", || pair.a.machine.in_flight() == 0);
    drop(sending);
    assert_eq!(pair.a.machine.statistics()[Queue::MessageSend.index()].cancels, 0);
}

#[test]
fn what_is_cancelled_by_name_gives_its_buffer_back() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_send(a.empty(100)));
    assert!(a.machine.posted(Queue::PassiveBulkSend) == 1 && offered.op().is_some());
    assert!(offered.cancel());
    let failed = block_on(offered).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, 100));
    assert_eq!(
        failed.error.to_string(),
        "the passive bulk send operation has ended: ECANCELED: Operation canceled"
    );
}

#[test]
fn an_operation_times_out_without_a_waiter() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_receive(a.empty(100)).timeout(Duration::from_millis(20)));
    let failed = block_on(offered).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ETIMEDOUT, 100));
}

#[tokio::test]
async fn a_task_may_lose_its_patience() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_receive(a.empty(100)));
    tokio::time::timeout(Duration::from_millis(20), offered).await.unwrap_err();
    a.machine.stop(Stop::Drain, HUNG).await.unwrap();
}

/// MT-238 for futures.
// Covers: MT-238
#[test]
fn a_stop_ends_every_future_with_its_buffer() {
    let pair = Pair::over_loopback();
    let machine = &pair.a.machine;
    pair.a.post();
    let offers = [0; 3].map(|_| machine.start(Op::passive_receive(pair.a.empty(100))));
    let mut message = machine.next_message();
    assert!(poll_once(&mut message).is_pending());
    block_on(machine.stop(Stop::Abort, HUNG)).unwrap();
    assert_eq!(machine.state(), TmState::Stopped);
    for offer in offers {
        let failed = block_on(offer).unwrap_err();
        assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, 100));
    }
    // First comes the posted receive buffer, then no further one, and new operations are refused.
    let failed = block_on(message).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, 4096));
    assert_eq!(block_on(machine.next_message()).unwrap_err().errno(), Errno::ESHUTDOWN);
    let failed = block_on(machine.start(Op::send(pair.a.empty(1), machine.own_end_point()))).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ESHUTDOWN, 1));
}

#[test]
fn futures_outlive_their_machine() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_receive(a.empty(100)));
    drop(a);
    let failed = block_on(offered).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, 100));
}

#[test]
fn tasks_that_wait_in_other_threads_hear_of_the_end() {
    let Pair { a, .. } = Pair::over_loopback();
    std::thread::scope(|scope| {
        let waiting = [0; 4].map(|_| {
            let offered = a.machine.start(Op::passive_receive(a.empty(100)));
            scope.spawn(move || block_on(offered))
        });
        let messages = [0; 4].map(|_| scope.spawn(|| block_on(a.machine.next_message())));
        block_on(a.machine.stop(Stop::Abort, HUNG)).unwrap();
        for thread in waiting {
            assert_eq!(thread.join().unwrap().unwrap_err().errno(), Errno::ECANCELED);
        }
        for thread in messages {
            assert_eq!(thread.join().unwrap().unwrap_err().errno(), Errno::ESHUTDOWN);
        }
    });
}

#[test]
fn a_machine_that_fails_ends_every_future() {
    let Pair { a, .. } = Pair::over_loopback();
    let observer = |_: &nlx::Machine, event: &TmEvent| {
        if let TmEvent::NoBuffer { .. } = event {
            panic!("an observer that panics, as the test wants");
        }
    };
    let failing = a.domain.machine().observer(observer).start_async("0@lo:12345:31:*").unwrap();
    let offered = failing.start(Op::passive_receive(a.empty(100)));
    let mut message = failing.next_message();
    assert!(poll_once(&mut message).is_pending());
    // A message without a buffer there.
    let to = a.machine.end_point(&failing.address().to_string()).unwrap();
    block_on(a.machine.start(Op::send(a.empty(1), &to).timeout(HUNG))).unwrap();
    let failed = block_on(offered).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, 100));
    assert_eq!(block_on(message).unwrap_err().errno(), Errno::ESHUTDOWN);
    assert_eq!(failing.state(), TmState::Failed);
}
