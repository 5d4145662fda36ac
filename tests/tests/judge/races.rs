//! The judge against itself when both sides connect at once: a wrong decision of the race is
//! detected, on either side.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::sync::Arc;

use nlx_tests::judge::active::{Answer, TIME_LIMIT, new_incarnation};
use nlx_tests::judge::passive::{Passive, Play, Stage, Tamper};
use nlx_tests::judge::wire::{Hello, Order, kind, request};
use nlx_tests::judge::{CHECKS, Outcome, Target};

use crate::judged::SHORT;
use crate::place::Place;

/// Returns the connecting and the listening side, one of which has the higher NID.
fn place(number: u8, who_connects_is_higher: bool) -> Place {
    let [low, high] = [1, 2].map(|last| Ipv4Addr::new(127, 6, number, last));
    if who_connects_is_higher { Place::small(high, low) } else { Place::small(low, high) }
}

/// A peer's reaction to the connection that the judge makes while the peer connects.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Take,
    Refuse,
    Close,
}

#[test]
fn a_peer_that_decides_a_race_wrongly_breaks_that_rule_and_no_other() {
    let cases = [
        (true, Does::Refuse, &[][..]),
        (true, Does::Take, &["race"]),
        (true, Does::Close, &["race"]),
        (false, Does::Take, &[]),
        (false, Does::Refuse, &["race"]),
        (false, Does::Close, &["race"]),
    ];
    for (number, (higher, does, expected)) in (21..).zip(cases) {
        let place = place(number, higher);
        let target = place.target();
        let mine = target.hello(target.version(), kind::CONTROL, new_incarnation());
        let knocks = target.listen().unwrap();
        let passive = Passive::start(Play { race: true, ..place.play() }).unwrap();
        std::thread::scope(|scope| {
            let offered = scope.spawn(|| target.offer(&mine).unwrap());
            // A judge that wins completes its set.
            let count = if !higher && does == Does::Take { 3 } else { 1 };
            let taken: Vec<_> =
                (0..count).map(|_| meet(&target, &mine, &knocks.accept().unwrap(), does)).collect();
            let answer = offered.join().unwrap();
            assert_eq!(matches!(answer, Answer::Accepted(..)), higher, "{number}: {answer}");
            drop(taken);
        });
        passive.wait_for_end().unwrap();
        let report = passive.report();
        assert_eq!(report.failures().into_keys().collect::<Vec<_>>(), expected, "{number}: {report}");
        assert_eq!(report.passed().contains(&"race"), expected.is_empty(), "{number}: {report}");
    }
}

/// Reads the judge's bytes on a connection that it makes, and reacts; returns the stream that must
/// remain open.
fn meet(target: &Target, mine: &Hello, mut stream: &std::net::TcpStream, does: Does) -> std::net::TcpStream {
    let mut named = request(target.own, Order::Little);
    stream.read_exact(&mut named).unwrap();
    let hello = Hello::read(&mut stream).unwrap().0;
    let kind = if does == Does::Take { kind::inverse(hello.kind) } else { kind::NONE };
    if does != Does::Close {
        stream.write_all(&Hello { kind, ..mine.clone() }.bytes(Order::Little)).unwrap();
    }
    if does != Does::Take {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    stream.try_clone().unwrap()
}

#[test]
fn a_node_that_decides_a_race_wrongly_fails_the_check() {
    /// The offset of the type in a hello of V3.
    const KIND: std::ops::Range<usize> = 48..52;
    /// Changes the type in hellos that answer a hello of type `instead_of`.
    fn says(instead_of: u32, kind: u32) -> Option<Tamper> {
        Some(Arc::new(move |stage, bytes| {
            if stage == Stage::Hello && bytes[KIND] == instead_of.to_le_bytes() {
                bytes[KIND].copy_from_slice(&kind.to_le_bytes());
            }
        }))
    }
    let cases = [
        (false, None, None),
        (false, says(kind::NONE, kind::CONTROL), Some("lower NID was accepted while the node connected")),
        (true, None, None),
        // This node refuses, but keeps the connection.
        (true, says(kind::CONTROL, kind::NONE), Some("the connection did not end")),
    ];
    for (number, (higher, tamper, expected)) in (31..).zip(cases) {
        let place = place(number, higher);
        let _passive = Passive::start(Play { tamper, ..place.play() }).unwrap();
        let race = CHECKS.iter().find(|check| check.name == "race").unwrap();
        let patience = if expected.is_none() { TIME_LIMIT } else { SHORT };
        match (race.run(&Target { patience, ..place.target() }), expected) {
            (Outcome::Pass, None) => {}
            (Outcome::Fail(words), Some(expected)) if words.contains(expected) => {}
            (outcome, _) => panic!("{number}: {outcome:?} instead of {expected:?}"),
        }
    }
}
