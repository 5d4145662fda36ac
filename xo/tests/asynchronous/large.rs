//! Bulk of any size, as futures.

use nlx::{Errno, Offer};

use super::*;

const LENGTH: usize = 5 * (1 << 20) + 777;

async fn both_ways(pair: &Pair) {
    let bytes = pattern(0, LENGTH);
    let written = pair.b.machine.start(Op::passive_receive(pair.b.empty(LENGTH)).timeout(HUNG));
    let offer = written.offer().clone();
    // As if received in a message.
    let offer = Offer::from_bytes(offer.as_bytes()).unwrap();
    let sent =
        pair.a.machine.start(Op::active_send(pair.a.filled(&bytes), &offer).timeout(HUNG)).await.unwrap();
    assert_eq!((sent.length, sent.buffer.len()), (LENGTH, LENGTH));
    let written = written.await.unwrap();
    assert_eq!(written.length, LENGTH);
    assert!(*written.buffer.read().unwrap() == *bytes);

    let read = pair.b.machine.start(Op::passive_send(written.buffer).length(LENGTH).timeout(HUNG));
    let offer = read.offer().clone();
    let got =
        pair.a.machine.start(Op::active_receive(pair.a.empty(LENGTH), &offer).timeout(HUNG)).await.unwrap();
    assert!(*got.buffer.read().unwrap() == *bytes);
    read.await.unwrap();
}

#[test]
fn large_bulk_completes_once_over_the_loopback() {
    block_on(both_ways(&Pair::over_loopback()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bulk_completes_once_over_tcp() {
    both_ways(&Pair::over_tcp(2)).await;
}

#[test]
fn a_dropped_large_future_cancels_every_part() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_receive(a.empty(LENGTH)));
    assert_eq!(a.machine.in_flight(), 6);
    drop(offered);
    block_on(a.machine.stop(Stop::Drain, HUNG)).unwrap();
    assert_eq!(a.machine.in_flight(), 0);
}

#[test]
fn a_large_future_ends_with_its_machine_and_its_whole_buffer() {
    let Pair { a, .. } = Pair::over_loopback();
    let offered = a.machine.start(Op::passive_receive(a.empty(LENGTH)));
    block_on(a.machine.stop(Stop::Abort, HUNG)).unwrap();
    let failed = block_on(offered).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, LENGTH));
    let failed = block_on(a.machine.start(Op::passive_receive(a.empty(LENGTH)))).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ESHUTDOWN, LENGTH));
}
