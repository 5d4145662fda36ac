//! Retries of requests: their intervals, and their end.

use nlx::Errno;
use nlx::request::{Delivery, RequestError};

use super::*;

/// Returns the intervals between consecutive messages, in nanoseconds.
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
        (&RequestError::Unanswered { sent: sent.len() as u32, failure: None }, Errno::ETIMEDOUT)
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
    assert_eq!(error, RequestError::Unanswered { sent: 0, failure: None });
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
    assert!(matches!(finished.outcome, Err(RequestError::Unanswered { sent: 8.., .. })));
    assert_eq!((finished.after, rig.network.now() - began_ns), (OPTIONS.deadline, 10_000 * MS_NS));
}

/// The server's node cannot be reached: the call ends at once with the reason, whether a session is
/// requested or a request sent.
#[test]
fn a_call_to_a_server_that_is_not_there_ends_at_once() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH] {
            let mut rig = Rig::new(RequestOptions { delivery, ..OPTIONS }, |_| arrives());
            rig.network.fail_sends(Some(errno));
            let calls = [(); 2].map(|()| rig.client.start(&rig.to, b"anybody?").unwrap());
            for _ in calls {
                let error = rig.client.wait(None).unwrap().unwrap().outcome.unwrap_err();
                let RequestError::Unreachable { sent, failure } = &error else { panic!("{error}") };
                let times = u32::from(delivery == Delivery::AtLeastOnce);
                assert_eq!((*sent, failure.errno, error.errno()), (times, errno, errno));
                assert!(error.to_string().contains(SERVER) && error.to_string().contains("E"), "{error}");
            }
            assert_eq!((rig.network.now(), rig.client.in_flight()), (0, 0), "no time passes");
            assert_eq!(rig.client.counters().unreachable, 2);
            // It can be reached again: the next call is answered.
            rig.network.fail_sends(None);
            rig.client.start(&rig.to, b"hello").unwrap();
            assert_eq!(rig.run().0.outcome.unwrap()[..], *b"olleh");
        }
    }
}

#[test]
fn a_patient_call_waits_for_its_server_and_says_at_its_deadline_why_it_was_not_there() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let mut rig = Rig::new(RequestOptions { delivery, patient: true, ..OPTIONS }, |_| arrives());
        rig.network.fail_sends(Some(Errno::ECONNREFUSED));
        rig.client.start(&rig.to, b"hello").unwrap();
        assert!(rig.client.wait(Some(3000 * MS)).unwrap().is_none());
        rig.network.fail_sends(None);
        assert_eq!(rig.run().0.outcome.unwrap()[..], *b"olleh");
        // Neither a session nor a message gets through.
        rig.network.fail_sends(Some(Errno::ECONNREFUSED));
        rig.client = requester(&rig.domain, RequestOptions { delivery, patient: true, ..OPTIONS });
        let error = rig.client.call(&rig.to, b"anybody?").unwrap_err();
        let RequestError::Unanswered { failure: Some(failure), .. } = &error else { panic!("{error}") };
        assert_eq!((failure.errno, error.errno()), (Errno::ECONNREFUSED, Errno::ETIMEDOUT));
    }
}

/// A broken connection does not prove that the server is gone: the request is sent again.
#[test]
fn a_request_whose_connection_breaks_is_sent_again() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.network.fail_sends(Some(Errno::ECONNRESET));
    rig.client.start(&rig.to, b"hello").unwrap();
    assert!(rig.client.wait(Some(1000 * MS)).unwrap().is_none());
    rig.network.fail_sends(None);
    assert_eq!(rig.run().0.outcome.unwrap()[..], *b"olleh");
    rig.network.fail_sends(Some(Errno::ECONNRESET));
    let error = rig.client.call(&rig.to, b"anybody?").unwrap_err();
    let RequestError::Unanswered { sent: 8.., failure: Some(failure) } = &error else { panic!("{error}") };
    assert_eq!(failure.errno, Errno::ECONNRESET);
}
