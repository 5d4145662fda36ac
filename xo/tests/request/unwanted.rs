//! Answers that no call waits for, and invalid messages.

use nlx::request::RequestError;
use nlx::{Errno, Queue, Quotas};

use super::*;

#[test]
fn an_answer_that_comes_twice_is_dropped_and_counted() {
    let mut rig = Rig::new(OPTIONS, |sent| if is(ANSWER)(sent) { vec![0, 0, MS_NS] } else { arrives() });
    rig.client.start(&rig.to, b"hi").unwrap();
    assert_eq!(rig.run().0.outcome.unwrap()[..], *b"ih");
    assert!(rig.client.wait(Some(5 * MS)).unwrap().is_none());
    assert_eq!((rig.client.counters().duplicates, rig.client.counters().late), (2, 0));
}

/// The end of a call is known even after its slot has been reused.
#[test]
fn a_late_answer_and_a_second_one_are_distinguished_after_the_next_call() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.network.change(|sent| if is(ANSWER)(sent) { vec![0, 5 * MS_NS] } else { arrives() });
    for _ in 0..3 {
        rig.client.start(&rig.to, b"hi").unwrap();
        assert_eq!(rig.run().0.outcome.unwrap()[..], *b"ih");
    }
    assert!(rig.client.wait(Some(50 * MS)).unwrap().is_none());
    assert_eq!((rig.client.counters().duplicates, rig.client.counters().late), (3, 0));
    // This call is given up; its answer arrives after the next call in the same slot has been
    // answered.
    rig.network.change(|sent| if is(ANSWER)(sent) { vec![500 * MS_NS] } else { arrives() });
    let call = rig.client.start(&rig.to, b"hi").unwrap();
    rig.settle();
    assert!(rig.client.give_up(call));
    assert!(rig.client.wait(None).unwrap().unwrap().outcome.is_err());
    rig.network.change(|_| arrives());
    rig.client.start(&rig.to, b"hi").unwrap();
    rig.run().0.outcome.unwrap();
    assert!(rig.client.wait(Some(1000 * MS)).unwrap().is_none());
    let counters = rig.client.counters();
    assert_eq!((counters.duplicates, counters.late, counters.strays), (3, 1, 0));
}

#[test]
fn an_answer_that_comes_too_late_is_dropped_and_counted() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.network.change(|sent| if is(ANSWER)(sent) { vec![11_000 * MS_NS] } else { arrives() });
    rig.client.start(&rig.to, b"hi").unwrap();
    assert!(matches!(rig.run().0.outcome, Err(RequestError::Unanswered { .. })));
    // One for the request and one for each retry.
    let answers = 1 + rig.server().counters().repeated;
    assert!(rig.client.wait(Some(20_000 * MS)).unwrap().is_none());
    assert_eq!((rig.client.counters().duplicates, rig.client.counters().late), (0, answers));
}

#[test]
fn a_call_can_be_given_up() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    let call = rig.client.start(&rig.to, b"hi").unwrap();
    rig.settle_once();
    assert!(rig.client.give_up(call));
    assert!(!rig.client.give_up(call));
    let finished = rig.client.wait(None).unwrap().unwrap();
    assert_eq!((finished.call, finished.outcome.unwrap_err().errno()), (call, Errno::ECANCELED));
    rig.settle();
    assert!(rig.client.wait(Some(MS)).unwrap().is_none());
    assert_eq!((rig.client.counters().late, rig.client.in_flight()), (1, 0));
}

/// A program may hold requests and answers for long without blocking further ones.
#[test]
fn held_messages_do_not_stop_receiving() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    // Each round fills receive buffers, and keeps two of its messages, the numbers 0 and 50.
    for round in 0..8 {
        for number in 0..64_u8 {
            rig.client.start(&rig.to, &[number]).unwrap();
            let finished = loop {
                if let Some(request) = rig.request() {
                    rig.server().answer(&request, &answer_to(&request)).unwrap();
                    if number % 50 == 0 {
                        requests.push(request);
                    }
                }
                if let Some(finished) = rig.client.wait(Some(MS)).unwrap() {
                    break finished;
                }
            };
            let answer = finished.outcome.unwrap();
            assert_eq!((round, &answer[..]), (round, &[number][..]));
            if number % 50 == 0 {
                answers.push(answer);
            }
        }
    }
    assert!(requests.iter().zip(&answers).all(|(request, answer)| request[..] == answer[..]));
}

/// A server without room to post a receive buffer goes on: operations in flight end, and make room.
#[test]
fn a_server_without_room_goes_on() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    let request = loop {
        rig.client.start(&rig.to, b"hi").unwrap();
        let request = loop {
            if let Some(request) = rig.request() {
                break request;
            }
            assert!(rig.client.wait(Some(Duration::ZERO)).unwrap().is_none());
        };
        if rig.server().machine().posted(Queue::MessageReceive) == 1 {
            break request;
        }
        rig.server().answer(&request, b"ih").unwrap();
        drop(request);
        rig.run().0.outcome.unwrap();
    };
    rig.domain.set_quotas(&Quotas::default().operations(2));
    rig.server().answer(&request, b"ih").unwrap();
    drop(request);
    assert!(rig.request().is_none());
    rig.domain.set_quotas(&Quotas::default());
    assert_eq!(rig.run().0.outcome.unwrap()[..], *b"ih");
    assert_eq!(rig.server().machine().posted(Queue::MessageReceive), 2);
}

impl Rig {
    fn settle_once(&mut self) {
        assert!(self.request().is_none());
        assert!(self.client.wait(Some(Duration::ZERO)).unwrap().is_none());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    let most = OPTIONS.message_max - 64;
    let error = rig.client.start(&rig.to, &vec![0; most + 1]).unwrap_err();
    assert_eq!(
        (&error, error.errno()),
        (&RequestError::TooLong { bytes: most + 1, limit: most }, Errno::EMSGSIZE)
    );
    rig.client.start(&rig.to, &vec![7; most]).unwrap();
    rig.settle_once();
    let request = rig.request().unwrap();
    assert_eq!(rig.server().answer(&request, &vec![0; most + 1]).unwrap_err().errno(), Errno::EMSGSIZE);
    rig.server().answer(&request, &vec![8; most]).unwrap();
    assert_eq!(rig.run().0.outcome.unwrap()[..], vec![8; most]);
}

#[test]
fn no_more_calls_are_in_flight_than_the_options_allow() {
    let mut rig = Rig::new(OPTIONS, |_| Vec::new());
    let calls: Vec<_> = (0..8).map(|number| rig.client.start(&rig.to, &[number]).unwrap()).collect();
    let error = rig.client.start(&rig.to, b"one more").unwrap_err();
    assert_eq!((&error, error.errno()), (&RequestError::Busy { limit: 8 }, Errno::EAGAIN));
    // Another server has room.
    let other = rig.client.machine().end_point("0@lo:12345:31:2").unwrap();
    rig.client.start(&other, b"hi").unwrap();
    assert!(rig.client.give_up(calls[3]));
    rig.client.start(&rig.to, b"one more").unwrap();
}

/// Whatever other machines send, both ends go on, and count it.
#[test]
fn nonsense_harms_no_other_client() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.client.start(&rig.to, b"hi").unwrap();
    rig.run().0.outcome.unwrap();
    let sent = rig.network.take_sent();
    let (stranger, client, server) = (
        "0@lo:12345:31:77".parse().unwrap(),
        rig.client.machine().address(),
        rig.server().machine().address(),
    );
    let question = sent.iter().find(|sent| is(ONCE)(sent)).unwrap();
    let answer = sent.iter().find(|sent| is(ANSWER)(sent)).unwrap();
    for junk in [&b""[..], b"x", &[0xff; 64], &[0; 256], &question.bytes[..65], &answer.bytes[..64]] {
        if !junk.is_empty() {
            rig.network.send(stranger, client, junk.to_vec());
            rig.network.send(stranger, server, junk.to_vec());
        }
    }
    // Each valid message at the wrong end, and from another machine.
    rig.network.send(server, client, question.bytes.clone());
    rig.network.send(client, server, answer.bytes.clone());
    rig.network.send(stranger, client, answer.bytes.clone());
    rig.network.send(stranger, server, question.bytes.clone());
    assert!(rig.request().is_none());
    assert!(rig.client.wait(Some(Duration::ZERO)).unwrap().is_none());
    for _ in 0..20 {
        assert!(rig.request().is_none());
        assert!(rig.client.wait(Some(Duration::ZERO)).unwrap().is_none());
    }
    let (theirs, ours) = (rig.server().counters(), rig.client.counters());
    assert_eq!((theirs.malformed, theirs.stale, theirs.requests), (6, 1, 1));
    assert_eq!((ours.malformed, ours.strays, ours.answered), (5, 2, 1));
    rig.client.start(&rig.to, b"still").unwrap();
    assert_eq!(rig.run().0.outcome.unwrap()[..], *b"llits");
}

/// An answer to an earlier program at the client's address is not accepted.
#[test]
fn a_client_that_is_started_anew_is_another() {
    let mut rig = Rig::new(OPTIONS, |_| arrives());
    rig.client.start(&rig.to, b"old").unwrap();
    rig.run().0.outcome.unwrap();
    let sent = rig.network.take_sent();
    let old = sent.iter().find(|sent| is(ANSWER)(sent)).unwrap();
    let address = rig.client.machine().address();
    rig.client = {
        let gone = std::mem::replace(&mut rig.client, requester(&rig.domain, OPTIONS));
        drop(gone);
        let tm = rig.domain.transfer_machine(&address.to_string(), TmOptions::default()).unwrap();
        Requester::new(tm, OPTIONS).unwrap()
    };
    rig.to = rig.client.machine().end_point(SERVER).unwrap();
    rig.client.start(&rig.to, b"new").unwrap();
    rig.network.send(old.from, address, old.bytes.clone());
    assert_eq!(rig.run().0.outcome.unwrap()[..], *b"wen");
    assert_eq!((rig.client.counters().strays, rig.client.counters().late), (1, 0));
}
