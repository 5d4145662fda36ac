//! When a request is sent again, and until when.

use nlx::Errno;
use nlx::request::{Delivery, RequestError};

use super::*;

/// How long after the one before each of them was sent.
fn gaps(sent: &[Sent]) -> Vec<u64> {
    sent.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).collect()
}

fn check_doubling(gaps: &[u64]) {
    let mut pause = 100 * MS_NS;
    for &gap in gaps {
        assert!(
            (3 * pause / 4..=pause).contains(&gap),
            "{gap} ns is not up to a quarter less than {pause} ns"
        );
        pause = (2 * pause).min(2000 * MS_NS);
    }
}

#[test]
fn a_request_that_is_never_answered_is_sent_at_growing_intervals_until_its_deadline() {
    let mut rig = Rig::new(RequestOptions { delivery: Delivery::AtLeastOnce, ..OPTIONS }, |_| Vec::new());
    let error = rig.client.call(&rig.to, b"anybody?").unwrap_err();
    assert_eq!(rig.network.now(), 10_000 * MS_NS, "not a nanosecond more");
    let sent = rig.network.take_sent();
    assert!(sent.iter().all(is(OFTEN)));
    assert_eq!(
        (&error, error.errno()),
        (&RequestError::Unanswered { sent: sent.len() as u32 }, Errno::ETIMEDOUT)
    );
    // 100, 200, 400, 800, 1600, and then 2000 ms each.
    assert!((8..=11).contains(&sent.len()), "{} times", sent.len());
    check_doubling(&gaps(&sent));
    let counters = rig.client.counters();
    assert_eq!((counters.calls, counters.unanswered, counters.answered), (1, 1, 0));
    assert_eq!(counters.retries, sent.len() as u64 - 1);
}

#[test]
fn a_session_is_asked_for_at_the_same_intervals() {
    let mut rig = Rig::new(OPTIONS, |_| Vec::new());
    let error = rig.client.call(&rig.to, b"anybody?").unwrap_err();
    assert_eq!(error, RequestError::Unanswered { sent: 0 });
    let sent = rig.network.take_sent();
    assert!(sent.iter().all(is(OPEN)));
    check_doubling(&gaps(&sent));
    assert_eq!((rig.client.counters().opens, rig.client.counters().retries), (sent.len() as u64, 0));
}

#[test]
fn calls_that_wait_for_a_session_ask_once_and_go_together() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    for number in 0..8 {
        rig.client.start(&rig.to, &[number]).unwrap();
    }
    assert_eq!(rig.network.take_sent().len(), 1);
    rig.settle();
    let sent = rig.network.take_sent();
    assert_eq!((sent.len(), sent[1..].iter().filter(|sent| is(ONCE)(sent)).count()), (9, 8));
    for _ in 0..8 {
        let (finished, _) = rig.run();
        assert_eq!(finished.outcome.unwrap().len(), 1);
    }
    // The session stays.
    rig.client.start(&rig.to, b"once more").unwrap();
    assert!(rig.network.take_sent().iter().any(is(ONCE)));
    assert_eq!(rig.run().0.outcome.unwrap()[..], *b"erom ecno");
    assert_eq!((rig.client.counters().opens, rig.client.counters().retries), (1, 0));
}

#[test]
fn a_server_that_comes_late_is_found() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.server = None;
    let call = rig.client.start(&rig.to, b"hello").unwrap();
    assert!(rig.client.wait(Some(3000 * MS)).unwrap().is_none());
    rig.start_server(RESPONDER);
    let (finished, ran) = rig.run();
    assert_eq!((finished.call, &finished.outcome.unwrap()[..], ran.len()), (call, &b"olleh"[..], 1));
    assert!(finished.after >= 3000 * MS);
}

#[test]
fn a_deadline_is_kept_though_the_session_is_there() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.client.start(&rig.to, b"first").unwrap();
    rig.run().0.outcome.unwrap();
    rig.network.change(|sent| if is(ANSWER)(sent) { Vec::new() } else { arrives() });
    let began_ns = rig.network.now();
    rig.client.start(&rig.to, b"second").unwrap();
    let (finished, ran) = rig.run();
    assert_eq!(ran.len(), 1);
    assert!(matches!(finished.outcome, Err(RequestError::Unanswered { sent: 8.. })));
    assert_eq!((finished.after, rig.network.now() - began_ns), (OPTIONS.deadline, 10_000 * MS_NS));
}
