//! A service over a transfer machine, in process and through a helper. Its clients are made of the
//! Core's operations alone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bed;
#[path = "../support/cores.rs"]
mod cores;

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use nlx_testkit::addresses::unused;
use nlx_testkit::buffers::pattern;
use nlx_testkit::until;

use bed::{Ask, BULK, Bed, HEADER, LENGTH};
use cores::Cores;

const CLIENTS: u8 = 3;
const CALLS: u8 = 60;

/// Every request gets its reply, and its bulk before that: more requests than the first buffers
/// have room for, of clients that call at the same time.
fn all_are_answered(bed: &Bed) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let raw = bed.client();
                for call in 0..CALLS {
                    let (ask, seed) =
                        ([Ask::Echo, Ask::Push, Ask::Pull][call as usize % 3], client * CALLS + call);
                    let answer = raw.call(ask, seed, call.into());
                    let sent = &pattern(seed.into(), LENGTH)[HEADER + 1..];
                    let expected: Vec<u8> = sent.iter().map(|byte| byte.wrapping_add(1)).collect();
                    assert_eq!(answer.reply[0], 0, "{ask:?}: the bulk failed");
                    assert!(answer.reply[HEADER + 1..] == expected, "{ask:?}: not the reply to the request");
                    let bulk = pattern(u64::from(seed) + u64::from(ask == Ask::Push), BULK);
                    assert!(ask == Ask::Echo || answer.bulk == bulk, "{ask:?}: the bulk came changed");
                }
            });
        }
    });
    let calls = u64::from(CLIENTS) * u64::from(CALLS);
    let counters = || bed.service.counters()[0];
    until("all replies have left", || counters().replies == calls);
    assert_eq!((counters().requests, counters().dropped, counters().failed), (calls, 0, 0));
    assert_eq!((counters().bulk, counters().bulk_bytes), (calls / 3 * 2, calls / 3 * 2 * BULK as u64));
}

// Covers: S-313
#[test]
fn a_service_serves_in_process() {
    all_are_answered(&Bed::over(Cores::in_process()));
}

// Covers: S-313, S-405
#[test]
fn a_service_serves_through_a_helper() {
    all_are_answered(&Bed::over(Cores::through_helpers()));
}

/// Bulk from a node that accepts connections and never says anything: the end of the helper ends it,
/// and its request, and takes the request buffers back.
// Covers: S-313, MT-167
#[test]
fn a_helper_that_goes_ends_bulk_and_requests() {
    let mut bed = Bed::over(Cores::through_helpers());
    let address = unused();
    let _silent = TcpListener::bind((address, 988)).unwrap();
    let raw = bed.client();
    raw.begin_with_memory_at(format!("{address}@tcp").parse().unwrap());
    let counters = |bed: &Bed| bed.service.counters()[0];
    until("the bulk is about to begin", || bed.service.handler().moving.load(Ordering::Acquire) == 1);
    assert_eq!((counters(&bed).active, counters(&bed).bulk_failed), (1, 0));
    bed.lose_helpers();
    until("the request ends", || counters(&bed).active == 0);
    assert_eq!((counters(&bed).bulk_failed, counters(&bed).replies, counters(&bed).failed), (1, 0, 1));
    until("no buffer is left", || counters(&bed).buffers == 0);
}
