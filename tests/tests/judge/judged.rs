//! The judge against itself: both sides play a kernel node, so they must pass each other's checks;
//! and a judge whose bytes are changed must fail exactly the checks that the change breaks.

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nlx_tests::judge::active::{Answer, expect_end, new_incarnation};
use nlx_tests::judge::frame::{ACK, Frame, GET, Message, NO_HANDLE, PUT, REPLY, read_frame};
use nlx_tests::judge::info::{PingInfo, feature};
use nlx_tests::judge::passive::{Passive, Play, Stage, Tamper};
use nlx_tests::judge::session::Session;
use nlx_tests::judge::wire::{self, Nid, Order, kind};
use nlx_tests::judge::{CHECKS, Check, Outcome, Policy, Target};

use crate::active::{NOT_OVER_IPV4, NOT_OVER_IPV6, UNPRIVILEGED};
use crate::place::Place;

/// A short time limit for answers that do not come; expected answers come far earlier.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

#[test]
fn the_two_sides_pass_each_other() {
    for place in Place::of(1, 1) {
        let _passive = place.passive();
        let silent = [UNPRIVILEGED, if place.to.is_large() { NOT_OVER_IPV6 } else { NOT_OVER_IPV4 }].concat();
        super::active::pass(&place.target(), &silent);
    }
}

/// For each change of the passive side's bytes, exactly the listed checks of `RUN` must fail.
#[test]
fn a_wrong_byte_fails_its_check_and_no_other() {
    /// The checks that are run against each change.
    const RUN: [&str; 7] = ["wrong-nid", "types", "ping", "ping-large", "push", "zc-ack", "duplicate"];
    type Change = fn(&Place, Stage, &mut Vec<u8>, &AtomicU32);
    let cases: [(&str, Change); 7] = [
        // Refusals in the wrong version.
        ("duplicate", |place, stage, bytes, _| {
            if stage == Stage::Hello && bytes[place.shift() + 48..][..4] == [0xff; 4] {
                bytes[4] = 2;
            }
        }),
        // BULK_IN is answered with BULK_IN.
        ("types zc-ack push duplicate", |place, stage, bytes, _| {
            let kind = &mut bytes[place.shift() + 48];
            if stage == Stage::Hello && *kind == 3 {
                *kind = 2;
            }
        }),
        // The ping info's magic.
        ("types ping ping-large push zc-ack duplicate", |place, stage, bytes, _| {
            if is_ping_reply(place, stage, bytes) {
                bytes[place.frame()] ^= 1;
            }
        }),
        // Only the answer to the larger sink.
        ("ping", |place, stage, bytes, answers| {
            // Per run of "ping": one answer to 272, one to 3960.
            if is_ping_reply(place, stage, bytes) && answers.fetch_add(1, Ordering::SeqCst) == 2 {
                bytes[place.frame() + 4] = 0;
            }
        }),
        // The features of large NIDs, and the size: as for small NIDs.
        ("ping-large", |place, stage, bytes, _| {
            if is_ping_reply(place, stage, bytes) && place.to.is_large() {
                bytes[place.frame() + 4] &= !feature::PRIMARY_LARGE as u8;
            }
        }),
        // The handle in ACKs.
        ("push", |place, stage, bytes, _| {
            let ack = stage == Stage::Frame && bytes.len() == place.frame();
            if ack && bytes[place.shift() + 48] == 0 {
                bytes[place.shift() + 24 + 32 + 15] ^= 1;
            }
        }),
        // The acknowledged cookie.
        ("zc-ack", |_, stage, bytes, _| {
            if stage == Stage::Frame && bytes.len() == 24 {
                bytes[16] ^= 0x40;
            }
        }),
    ];
    for (number, (expected, change)) in (1..).zip(cases) {
        for place in Place::of(2, number) {
            let place = Arc::new(place);
            let (there, answers) = (place.clone(), AtomicU32::new(0));
            let tamper: Tamper = Arc::new(move |stage, bytes| change(&there, stage, bytes, &answers));
            let _passive = Passive::start(Play { tamper: Some(tamper), ..place.play() }).unwrap();
            let target = Target { patience: SHORT, ..place.target() };
            let failed = |check: &&Check| matches!(check.run(&target), Outcome::Fail(_));
            let checks = CHECKS.iter().filter(|check| RUN.contains(&check.name));
            let failed: Vec<_> = checks.filter(failed).map(|check| check.name).collect();
            let only_large = |name: &&str| place.to.is_large() || *name != "ping-large";
            let mut expected: Vec<_> = expected.split(' ').filter(only_large).collect();
            expected.sort_by_key(|name| CHECKS.iter().position(|check| check.name == *name));
            assert_eq!(failed, expected, "{number}, {}", place.to);
        }
    }
}

fn is_ping_reply(place: &Place, stage: Stage, bytes: &[u8]) -> bool {
    stage == Stage::Frame && bytes.len() == place.frame() + PingInfo::of(place.to, 0).bytes().len()
}

/// A peer with exactly one fault, and the rule that it breaks.
#[test]
fn a_peer_breaks_the_rule_it_breaks_and_no_other() {
    type Act = fn(&mut Session<'_>) -> Result<(), String>;
    const ALL: [u32; 3] = [kind::CONTROL, kind::BULK_IN, kind::BULK_OUT];
    fn put(session: &Session<'_>, length: usize) -> Message {
        Message::put(session.identity(0).0, session.nid(), 9, 9, NO_HANDLE, &vec![1; length])
    }
    fn ping(session: &mut Session<'_>) -> Message {
        session.ping_request(0, 272)
    }
    let cases: [(&str, [u32; 3], Act); 13] = [
        ("", ALL, |_| Ok(())),
        ("order", [kind::CONTROL, kind::BULK_OUT, kind::BULK_IN], |_| Ok(())),
        ("header", ALL, |session| session.send(0, &Message { src_pid: 99, ..put(session, 1) })),
        ("header", ALL, |session| {
            let mut get = ping(session);
            get.body[39] = 1;
            session.send(0, &get)
        }),
        ("header", ALL, |session| {
            let mut message = put(session, 1);
            message.prefix.csum = 1;
            session.send(0, &message)
        }),
        ("no-cookie", ALL, |session| session.send(0, &put(session, 10).with_cookie(2))),
        ("connection", ALL, |session| {
            let handle = session.handle();
            let first = Message::put(session.identity(0).0, session.nid(), 9, 9, handle, &[1; 2000]);
            session.send(2, &first)?;
            // Acknowledged, so it has been read: frames on different connections are not ordered.
            session.message()?;
            session.send(0, &put(session, 2000))
        }),
        ("ack-only", ALL, |session| session.send(1, &put(session, 10))),
        ("handles", ALL, |session| {
            let mut get = ping(session);
            get.body[0] ^= 1;
            let before = ping(session);
            session.send(0, &before)?;
            session.send(0, &get)
        }),
        ("zc-ack", ALL, |session| session.send_noop(1, 0, 5)),
        ("keepalive", ALL, |session| session.send_noop(0, 0, 1)),
        ("keepalive", ALL, |session| {
            session.send_noop(1, 0, 1)?;
            session.send_noop(1, 0, 1)
        }),
        ("framing", ALL, |session| session.send_bytes(0, &[0xc3; 24])),
    ];
    for (number, (expected, kinds, act)) in (1..).zip(cases) {
        for place in Place::of(4, number) {
            let passive = Passive::start(Play { copies: true, ..place.play() }).unwrap();
            let target = place.target();
            let mut session = Session::with(&target, &kinds).unwrap();
            act(&mut session).unwrap();
            // A kernel discards unread bytes when one connection ends.
            match expected {
                "" => drop(session.ping(0).unwrap()),
                rule => passive.wait_for_failure(rule).unwrap(),
            }
            drop(session);
            passive.wait_for_end().unwrap();
            only(&passive, expected, number);
        }
    }
}

/// Checks that exactly these rules are broken.
fn only(passive: &Passive, expected: &str, number: u8) {
    let failures = passive.report().failures();
    let expected: Vec<&str> = expected.split_terminator(' ').collect();
    assert_eq!(failures.keys().copied().collect::<Vec<_>>(), expected, "{number}: {failures:#?}");
}

/// Faults in a peer's connection request or hello.
#[test]
fn a_greeting_breaks_the_rule_it_breaks_and_no_other() {
    /// `hello` is the offset of the hello, `rest` that of the bytes after its NIDs.
    type Change = fn(bytes: &mut Vec<u8>, hello: usize, rest: usize);
    let cases: [(&str, Change); 9] = [
        ("request", |bytes, _, _| bytes[0] ^= 1),
        ("request", |bytes, _, _| bytes[4] = 9),
        ("request", |bytes, _, _| bytes[8] ^= 1),
        ("request", |bytes, hello, _| bytes.truncate(hello - 1)),
        ("hello", |bytes, hello, _| bytes[hello] ^= 1),
        ("hello", |bytes, hello, _| bytes[hello + 4] = 9),
        ("hello", |bytes, _, rest| bytes[rest] = 1),
        ("hello", |bytes, _, rest| bytes[rest + 8..rest + 16].fill(0)),
        ("hello", |bytes, _, rest| bytes[rest + 24] = 7),
    ];
    for (number, (expected, change)) in (1..).zip(cases) {
        for place in Place::of(6, number) {
            let passive = place.passive();
            let target = place.target();
            let hello = target.hello(target.version(), kind::CONTROL, new_incarnation());
            let mut bytes = [wire::request(target.nid, Order::Little), hello.bytes(Order::Little)].concat();
            change(&mut bytes, place.request(), place.request() + 24 + place.shift());
            let stream = target.say(&bytes).unwrap();
            // The judge may have closed it already.
            let _ = stream.shutdown(Shutdown::Write);
            passive.wait_for_failure(expected).unwrap();
            passive.wait_for_end().unwrap();
            only(&passive, expected, number);
        }
    }
}

/// A connection from an unprivileged port.
#[test]
fn a_source_port_breaks_its_rule() {
    for place in Place::of(8, 1) {
        let passive = Passive::start(Play { policy: Policy::Secure, ..place.play() }).unwrap();
        let mut stream = place.target().dial().unwrap();
        passive.wait_for_failure("source-port").unwrap();
        expect_end(&mut stream).unwrap();
        only(&passive, "source-port", 1);
    }
}

/// A second connection whose hello has another incarnation.
#[test]
fn another_incarnation_breaks_its_rule() {
    for place in Place::of(9, 1) {
        let passive = place.passive();
        let target = place.target();
        let offer = |kind| target.offer(&target.hello(target.version(), kind, new_incarnation())).unwrap();
        let first = offer(kind::CONTROL);
        assert!(matches!(first, Answer::Accepted(..)), "{first}");
        let second = offer(kind::BULK_IN);
        assert!(matches!(second, Answer::Refused(_)), "{second}");
        passive.wait_for_end().unwrap();
        only(&passive, "incarnation", 1);
    }
}

/// A peer that answers the judge's requests wrongly or not at all.
#[test]
fn a_wrong_answer_breaks_the_rule_it_breaks_and_no_other() {
    /// Returns the answer to the judge's ping or push; `None` for no answer.
    type Answers = fn(&Message, Nid) -> Option<Message>;
    fn right(asked: &Message, own: Nid) -> Option<Message> {
        // With the features of a node that wants pushes.
        let info = PingInfo::of(own, feature::KERNEL).bytes();
        let kind = if asked.kind == GET { REPLY } else { ACK };
        Some(asked.answer(kind, own, &info))
    }
    let cases: [(&str, Answers); 6] = [
        ("", right),
        ("ping-answer", |asked, own| right(asked, own).filter(|_| asked.kind != GET)),
        ("ping-answer", |asked, own| {
            let info = PingInfo::of(own.turned(0x80), feature::SINGLE_RAIL).bytes();
            (asked.kind == GET).then(|| asked.answer(REPLY, own, &info))
        }),
        ("push-ack", |asked, own| right(asked, own).filter(|_| asked.kind == GET)),
        ("answers ping-answer", |asked, own| {
            let mut answer = right(asked, own)?;
            answer.body[8] ^= 1;
            Some(answer)
        }),
        ("answers push-ack", |asked, own| {
            let mut answer = right(asked, own)?;
            // More bytes acknowledged than were sent.
            answer.body[24] ^= u8::from(asked.kind == PUT) << 7;
            Some(answer)
        }),
    ];
    for (number, (expected, answers)) in (1..).zip(cases) {
        for place in Place::of(10, number) {
            let passive = Passive::start(Play { patience: SHORT, ..place.play() }).unwrap();
            let target = place.target();
            let version = target.version();
            let hello = target.hello(version, kind::CONTROL, new_incarnation());
            let Answer::Accepted(mut stream, _) = target.offer(&hello).unwrap() else { panic!("refused") };
            std::thread::scope(|scope| {
                let peer = scope.spawn(|| {
                    while let Ok(frame) = read_frame(&mut stream, version, Order::Little) {
                        let Frame::Lnet(asked) = frame else { continue };
                        if let Some(answer) = answers(&asked, place.own) {
                            stream.write_all(&answer.bytes(version, Order::Little)).unwrap();
                        }
                    }
                });
                // The result is in the record.
                let _ = passive.discover(place.own);
                only(&passive, expected, number);
                drop(passive);
                peer.join().unwrap();
            });
        }
    }
}
