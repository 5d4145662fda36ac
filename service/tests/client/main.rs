//! A client and a service over transfer machines, in process and through helpers, and over portals.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bed;
#[path = "../support/cores.rs"]
mod cores;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use nlx_core::Errno;
use nlx_service::client::{Answer, Outcome};
use nlx_service::rpc::{Delivery, RequestError};
use nlx_testkit::buffers::pattern;
use nlx_testkit::until;

use bed::{BULK, Bed, bytes, over_each};
use cores::Cores;

fn answered(bytes: &[u8]) -> Outcome {
    Ok(Answer { bytes: bytes.to_vec(), moved: Vec::new() })
}

/// Counts its wake-ups.
#[derive(Default)]
struct Counting(AtomicU64);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Calls of several threads at once, in all three forms. A callback calls again, and blocks.
// Covers: S-313
#[test]
fn each_call_has_its_own_answer() {
    over_each!(|bed| {
        let (client, server) = (&bed.client, bed.server);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for number in 0..30 {
                        let request = format!("{thread} {number} e");
                        let outcome = match thread {
                            0 => client.call(server, request.as_bytes()).wait(),
                            1 => {
                                let (counting, (tx, rx)) = (Arc::new(Counting::default()), mpsc::channel());
                                let waker = Waker::from(counting.clone());
                                let mut answering =
                                    pin!(client.call(server, request.as_bytes()).into_future());
                                let mut poll = || answering.as_mut().poll(&mut Context::from_waker(&waker));
                                if let Poll::Ready(outcome) = poll() {
                                    tx.send(outcome).unwrap();
                                } else {
                                    until("the future is woken", || counting.0.load(Ordering::Acquire) == 1);
                                    let Poll::Ready(outcome) = poll() else {
                                        panic!("it was woken too early")
                                    };
                                    tx.send(outcome).unwrap();
                                }
                                rx.recv().unwrap()
                            }
                            _ => {
                                let ((tx, rx), again) = (mpsc::channel(), client.clone());
                                let call = client.call(server, request.as_bytes());
                                call.start(move |outcome| {
                                    let second = again.call(server, &outcome.unwrap().bytes).wait();
                                    tx.send(second).unwrap();
                                })
                                .unwrap();
                                rx.recv().unwrap()
                            }
                        };
                        assert_eq!(outcome, answered(request.as_bytes()));
                    }
                });
            }
        });
        assert_eq!(client.in_flight(), 0);
        assert_eq!((client.counters().answered, bed.scripted().runs.load(Ordering::Acquire)), (120, 120));
        let refused = client.call(server, b"r").wait().unwrap_err();
        assert_eq!(refused, RequestError::Refused { errno: Errno::EPERM });
    });
}

/// Bulk in both directions; what the answer does not need is taken back before the call ends.
// Covers: S-313
#[test]
fn bulk_moves_before_the_answer() {
    over_each!(|bed| {
        let (client, server) = (&bed.client, bed.server);
        for seed in 0..20 {
            let (source, spare, target) =
                (bed.memory(&pattern(seed, BULK)), bed.memory(&[7; 50]), bed.memory(&vec![0; BULK]));
            let call =
                client.call(server, b"b").writable(&target).readable(&source, BULK - 1).readable(&spare, 50);
            let answer = call.wait().unwrap();
            assert_eq!(answer.moved, [Some(BULK - 1), None, Some(BULK - 1)]);
            let mut expected = pattern(seed, BULK)[..BULK - 1].to_vec();
            expected.reverse();
            expected.push(0);
            assert!(bytes(&target) == expected, "the bulk came changed");
            // None of it is in flight.
            assert_eq!((bytes(&source) == pattern(seed, BULK), bytes(&spare)), (true, vec![7; 50]));
        }
        let spare = bed.memory(&[7; 50]);
        let answer = client.call(server, b"n").writable(&spare).wait().unwrap();
        assert_eq!((answer.moved, bytes(&spare)), (vec![None], vec![7; 50]));
    });
}

/// Memory of a transfer machine is offered twice: the second offer is refused, and the first taken
/// back.
// Covers: S-313
#[test]
fn an_offer_that_is_refused_ends_the_call() {
    for bed in Bed::both() {
        let memory = bed.memory(&[7; 50]);
        let call = bed.client.call(bed.server, b"n").writable(&memory).writable(&memory);
        assert_eq!(call.wait().unwrap_err().errno(), Errno::EBUSY);
        assert_eq!(bytes(&memory), [7; 50]);
    }
}

/// A request that is lost is repeated, with the same offers, and runs once.
// Covers: S-313
#[test]
fn lost_requests_are_repeated() {
    over_each!(|bed| {
        let (client, server, scripted) = (&bed.client, bed.server, bed.scripted());
        let (source, target) = (bed.memory(&pattern(1, BULK)), bed.memory(&vec![0; BULK]));
        client.call(server, b"e").wait().unwrap();
        scripted.losses.store(2, Ordering::Release);
        let answer = client.call(server, b"b").readable(&source, BULK).writable(&target).wait().unwrap();
        assert_eq!(answer.moved, [Some(BULK), Some(BULK)]);
        assert_eq!((scripted.runs.load(Ordering::Acquire), scripted.offers.lock().len()), (2, 1));
        assert!(client.counters().retries >= 2);
    });
}

/// A server that has forgotten the session ends a call that must not run twice. Another one is made
/// again, with fresh offers.
// Covers: S-313
#[test]
fn a_server_that_has_forgotten() {
    over_each!(|bed| {
        let (client, server, scripted) = (&bed.client, bed.server, bed.scripted());
        scripted.forgets.store(true, Ordering::Release);
        let source = bed.memory(&pattern(1, BULK));
        let call = |delivery| {
            client.call(server, b"e").wait().unwrap();
            scripted.losses.store(1, Ordering::Release);
            scripted.offers.lock().clear();
            client.call(server, b"b").delivery(delivery).readable(&source, BULK).wait()
        };
        let forgotten = call(Delivery::AtMostOnce).unwrap_err();
        assert_eq!(forgotten.errno(), Errno::ESTALE, "{forgotten}");
        assert_eq!(scripted.offers.lock().len(), 1);
        assert!(bytes(&source) == pattern(1, BULK));
        assert_eq!(call(Delivery::AtLeastOnce).unwrap().moved, [Some(BULK)]);
        assert_eq!(scripted.offers.lock().len(), 2);
    });
}

/// A deadline, a cancel, a dropped future and an unreachable server end a call, and take its memory
/// back.
// Covers: S-313
#[test]
fn calls_end_without_an_answer() {
    over_each!(|bed| {
        let (client, server) = (&bed.client, bed.server);
        let memory = bed.memory(&[7; 50]);
        let held = || client.call(server, b"h").readable(&memory, 50);
        let late = held().deadline(Duration::from_millis(60)).wait().unwrap_err();
        assert_eq!((late.errno(), bytes(&memory)), (Errno::ETIMEDOUT, vec![7; 50]));

        let (tx, rx) = mpsc::channel();
        let key = held().start(move |outcome| tx.send(outcome).unwrap()).unwrap();
        client.cancel(key);
        assert_eq!((rx.recv().unwrap(), bytes(&memory)), (Err(RequestError::GivenUp), vec![7; 50]));
        client.cancel(key);

        drop(held().into_future());
        until("the dropped call ends", || client.in_flight() == 0);
        assert_eq!(bytes(&memory), [7; 50]);

        let unreachable = client.call(bed.nowhere, b"e").readable(&memory, 50).wait().unwrap_err();
        assert!(matches!(unreachable, RequestError::Unreachable { .. }), "{unreachable}");
        assert_eq!((unreachable.errno(), bytes(&memory)), (Errno::ECONNREFUSED, vec![7; 50]));

        let long = vec![b'e'; 5000];
        assert_eq!(client.call(server, &long).wait().unwrap_err().errno(), Errno::EMSGSIZE);
    });
}

/// The end of the helper ends calls in progress with its errno, and refuses further ones.
// Covers: S-313, MT-167
#[test]
fn a_helper_that_goes_ends_each_call() {
    let mut bed = Bed::over(Cores::through_helpers());
    let (client, server, memory) = (bed.client.clone(), bed.server, bed.memory(&[7; 50]));
    let (tx, rx) = mpsc::channel();
    let call = client.call(server, b"h").writable(&memory).deadline(Duration::from_secs(3600));
    call.start(move |outcome| tx.send(outcome).unwrap()).unwrap();
    until("the request runs", || bed.scripted().runs.load(Ordering::Acquire) == 1);
    bed.lose_helpers();
    assert_eq!(rx.recv().unwrap().unwrap_err().errno(), Errno::ENOTCONN);
    assert_eq!(client.call(server, b"e").wait().unwrap_err().errno(), Errno::ENOTCONN);
    assert_eq!(client.in_flight(), 0);
}

/// The end of the pool ends calls in progress, of all forms.
// Covers: S-313
#[test]
fn the_end_of_the_pool_ends_each_call() {
    let mut bed = Bed::over(Cores::in_process());
    let (client, server) = (bed.client.clone(), bed.server);
    let waiting = std::thread::spawn(move || client.call(server, b"h").wait());
    until("the request runs", || bed.scripted().runs.load(Ordering::Acquire) == 1);
    bed.end_pool();
    assert_eq!(waiting.join().unwrap().unwrap_err().errno(), Errno::ESHUTDOWN);
    assert_eq!(bed.client.call(server, b"e").wait().unwrap_err().errno(), Errno::ESHUTDOWN);
}
