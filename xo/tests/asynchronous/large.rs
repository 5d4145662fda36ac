//! Bulk of any size, as futures.

use nlx::{Errno, Offer};

use super::*;

const LENGTH: usize = 5 * (1 << 20) + 777;

async fn both_ways(pair: &Pair) {
    let bytes = pattern(LENGTH);
    let (written, offer) = pair.b.machine.passive_receive_large(pair.b.empty(LENGTH), LENGTH, HUNG).unwrap();
    // It travels in a message.
    let offer = Offer::from_bytes(offer.as_bytes()).unwrap();
    let sent = pair.a.machine.active_send_large(pair.a.filled(&bytes), LENGTH, &offer, HUNG).await.unwrap();
    assert_eq!((sent.length, sent.buffer.len()), (LENGTH, LENGTH));
    let written = written.await.unwrap();
    assert_eq!(written.length, LENGTH);
    assert!(*written.buffer.read().unwrap() == *bytes);

    let (read, offer) = pair.b.machine.passive_send_large(written.buffer, LENGTH, HUNG).unwrap();
    let got = pair.a.machine.active_receive_large(pair.a.empty(LENGTH), &offer, HUNG).await.unwrap();
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
    let (offered, _) = a.machine.passive_receive_large(a.empty(LENGTH), LENGTH, None).unwrap();
    assert_eq!(a.machine.in_flight(), 6);
    drop(offered);
    block_on(a.machine.stop(false, HUNG)).unwrap();
    assert_eq!(a.machine.in_flight(), 0);
}

#[test]
fn a_large_future_ends_with_its_machine_and_its_whole_buffer() {
    let Pair { a, .. } = Pair::over_loopback();
    let (offered, _) = a.machine.passive_receive_large(a.empty(LENGTH), LENGTH, None).unwrap();
    block_on(a.machine.stop(true, HUNG)).unwrap();
    let failed = block_on(offered).unwrap_err();
    assert_eq!((failed.errno(), failed.buffer.unwrap().len()), (Errno::ECANCELED, LENGTH));
    let refused = a.machine.passive_receive_large(a.empty(LENGTH), LENGTH, None).unwrap_err();
    assert_eq!((refused.error.errno(), refused.buffer.len()), (Errno::ESHUTDOWN, LENGTH));
}
