//! Delivery guarantees: the number of times that a request runs, whatever the network does.

use std::collections::HashMap;

use nlx::Errno;
use nlx::request::{Delivery, RequestError};
use proptest::prelude::*;

use super::*;

#[test]
fn a_retry_is_answered_out_of_memory() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    let mut answers = 0;
    rig.network.change(move |sent| {
        answers += u32::from(is(ANSWER)(sent));
        if is(ANSWER)(sent) && answers <= 3 { Vec::new() } else { arrives() }
    });
    rig.client.start(&rig.to, b"once").unwrap();
    let (finished, ran) = rig.run();
    assert_eq!((&finished.outcome.unwrap()[..], ran.len()), (&b"ecno"[..], 1));
    assert_eq!((rig.client.counters().retries, rig.server().counters().repeated), (3, 3));
}

#[test]
fn a_retry_does_not_disturb_the_request_that_runs() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.client.start(&rig.to, b"slow").unwrap();
    rig.settle_open();
    let request = rig.request().unwrap();
    assert!(rig.client.wait(Some(1000 * MS)).unwrap().is_none());
    assert!(rig.request().is_none());
    assert!(rig.server().counters().ignored >= 2);
    rig.server().answer(&request, b"done").unwrap();
    let (finished, ran) = rig.run();
    assert_eq!((&finished.outcome.unwrap()[..], ran.len()), (&b"done"[..], 0));
}

impl Rig {
    /// Until the client's first request has been sent.
    fn settle_open(&mut self) {
        assert!(self.request().is_none());
        assert!(self.client.wait(Some(Duration::ZERO)).unwrap().is_none());
    }
}

#[test]
fn without_memory_a_request_runs_as_often_as_it_comes() {
    let mut answers = 0;
    let mut rig = Rig::new(RequestOptions { delivery: Delivery::AtLeastOnce, ..OPTIONS }, move |sent| {
        answers += u32::from(is(ANSWER)(sent));
        if is(ANSWER)(sent) && answers <= 3 { Vec::new() } else { arrives() }
    });
    rig.client.start(&rig.to, b"often").unwrap();
    let (finished, ran) = rig.run();
    assert_eq!((&finished.outcome.unwrap()[..], ran.len()), (&b"netfo"[..], 4));
    assert_eq!((rig.server().sessions(), rig.client.counters().opens), (0, 0));
}

#[test]
fn a_new_server_says_that_it_does_not_know_what_was_sent_to_the_old_one() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.client.start(&rig.to, b"before").unwrap();
    rig.run().0.outcome.unwrap();
    // A request received by a server that is restarted before it answers; then one that only the
    // new server receives.
    for sent in [2, 1] {
        if sent == 2 {
            rig.client.start(&rig.to, b"taken").unwrap();
            rig.request().unwrap();
            rig.start_server(RESPONDER);
        } else {
            rig.start_server(RESPONDER);
            rig.client.start(&rig.to, b"new to it").unwrap();
        }
        let (finished, ran) = rig.run();
        assert_eq!((finished.outcome.unwrap_err(), ran.len()), (RequestError::Forgotten { sent }, 0));
        // The next call succeeds.
        rig.client.start(&rig.to, b"after").unwrap();
        let (finished, ran) = rig.run();
        assert_eq!((&finished.outcome.unwrap()[..], ran.len()), (&b"retfa"[..], 1));
    }
    let counters = rig.client.counters();
    assert_eq!((counters.forgotten, counters.opens), (2, 3));
}

#[test]
fn a_full_server_takes_a_new_client_when_another_is_idle() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.start_server(ResponderOptions { sessions_max: 1, session_idle: Duration::from_secs(5), ..RESPONDER });
    rig.client.start(&rig.to, b"one").unwrap();
    rig.run().0.outcome.unwrap();
    rig.client = requester(&rig.domain, OPTIONS);
    rig.to = rig.client.machine().end_point(SERVER).unwrap();
    rig.client.start(&rig.to, b"other").unwrap();
    let (finished, _) = rig.run();
    assert_eq!(finished.outcome.unwrap()[..], *b"rehto");
    assert!(finished.after >= Duration::from_secs(4));
    assert!(rig.server().counters().full >= 3);
    assert_eq!(rig.server().sessions(), 1);
}

#[test]
fn a_refusal_of_the_program_is_an_answer_too() {
    let mut answers = 0;
    let mut rig = Rig::new(OPTIONS, move |sent| {
        answers += u32::from(is(ANSWER)(sent));
        if is(ANSWER)(sent) && answers == 1 { Vec::new() } else { arrives() }
    });
    rig.client.start(&rig.to, b"please").unwrap();
    rig.settle_open();
    let request = rig.request().unwrap();
    rig.server().refuse(&request, Errno::EPERM).unwrap();
    let (finished, ran) = rig.run();
    let error = finished.outcome.unwrap_err();
    assert_eq!(
        (&error, error.errno(), ran.len()),
        (&RequestError::Refused { errno: Errno::EPERM }, Errno::EPERM, 0)
    );
    assert_eq!(rig.server().counters().repeated, 1);
}

/// Generates the fates of messages, which apply in order and repeat from the beginning.
fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        3 => Just(Vec::new()),
        5 => Just(arrives()),
        2 => prop::collection::vec(0..900 * MS_NS, 1..4),
    ];
    // The last one arrives, so that there is progress.
    prop::collection::vec(fate, 1..40).prop_map(|mut fates| {
        fates.push(arrives());
        fates
    })
}

proptest! {
    /// Losses, delays and duplicates, and a restarted server: no request runs twice, each answer is
    /// that of its request, and each call ends once.
    #[test]
    fn no_request_runs_twice(fates in fates(), calls in 1..30_u8, restart in 0..40_usize) {
        let mut fates = fates.into_iter().cycle();
        let mut rig = Rig::new(OPTIONS, move |_| fates.next().unwrap());
        let (mut ran, mut ended): (HashMap<Vec<u8>, u32>, _) = (HashMap::new(), HashMap::new());
        let mut begun = HashMap::new();
        let mut next = 0;
        for turn in 0.. {
            while next < calls && rig.client.in_flight() < OPTIONS.in_flight_max {
                begun.insert(rig.client.start(&rig.to, &[next, 1, 2, 3]).unwrap(), next);
                next += 1;
            }
            if turn == restart {
                rig.start_server(RESPONDER);
            }
            for request in rig.serve() {
                *ran.entry(request).or_default() += 1;
            }
            if let Some(finished) = rig.client.wait(Some(50 * MS)).unwrap() {
                let number = begun[&finished.call];
                if let Ok(answer) = &finished.outcome {
                    prop_assert_eq!(&answer[..], &[3, 2, 1, number]);
                }
                prop_assert!(ended.insert(number, finished.outcome.is_ok()).is_none());
            }
            if ended.len() == usize::from(calls) {
                break;
            }
        }
        // Requests that were forgotten by the restart have not run at both servers either.
        prop_assert!(ran.values().all(|times| *times == 1), "{:?}", ran);
        for (number, answered) in ended {
            prop_assert!(!answered || ran.contains_key(&vec![number, 1, 2, 3]));
        }
        let counters = rig.client.counters();
        prop_assert_eq!(counters.calls, counters.answered + counters.unanswered + counters.forgotten);
    }
}
