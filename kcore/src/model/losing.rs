//! Lost messages: the waiter notices each one, however losses and its checks interleave (X13).

use super::waking::wait;
use super::*;
use crate::agreed::LOSS;
use crate::event_sink::LossSink;
use crate::local_sink::LocalSink;

/// Two threads lose a message each. The waiter sleeps until it has seen both; a missed notification
/// would make it sleep for ever.
fn no_loss_goes_unnoticed() {
    check_bounded(4, || {
        let sink = Arc::new(LocalSink::default());
        let losing = [(); 2].map(|()| {
            let sink = sink.clone();
            thread::spawn(move || sink.lost())
        });
        while sink.dropped() < 2 {
            wait(&sink.waiters, || sink.take_news());
        }
        for thread in losing {
            thread.join().unwrap();
        }
    });
}

//
#[test]
fn two_losses_and_a_waiter() {
    no_loss_goes_unnoticed();
}

#[test]
fn a_loss_that_is_counted_after_its_report_is_missed() {
    needs(LOSS, no_loss_goes_unnoticed, "deadlock");
}
