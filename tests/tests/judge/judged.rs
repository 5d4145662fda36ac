//! The judge before itself: both sides play a kernel node, so they must pass each other; and a judge whose bytes are
//! changed must fail exactly the check that the change breaks.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4};
use std::time::Duration;

use nlx_tests::judge::active::{Answer, expect_end, new_incarnation};
use nlx_tests::judge::frame::{ACK, Frame, GET, Message, NO_HANDLE, PUT, PingInfo, REPLY, read_frame};
use nlx_tests::judge::passive::{Passive, Play, Stage};
use nlx_tests::judge::session::Session;
use nlx_tests::judge::wire::{self, Nid, Order, kind};
use nlx_tests::judge::{CHECKS, Outcome, Policy, Target};

const PORT: u16 = 21_961;
/// What is known not to come need not be waited for long; what must come has come far earlier.
const SHORT: Duration = Duration::from_secs(3);

fn play(listen: Ipv4Addr) -> Play {
    let play = Play::new(SocketAddrV4::new(listen, PORT), Nid::new(listen, 0));
    Play { policy: Policy::Hello, copies: false, ..play }
}

fn target(own: Ipv4Addr, to: Ipv4Addr) -> Target {
    let target = Target::new(SocketAddrV4::new(to, PORT), Nid::new(to, 0), Nid::new(own, 0));
    Target { privileged: false, policy: Policy::Hello, buffer: Some((9, 9)), ..target }
}

#[test]
fn the_two_sides_pass_each_other() {
    let (own, to) = (Ipv4Addr::new(127, 6, 1, 1), Ipv4Addr::new(127, 6, 1, 2));
    let _passive = Passive::start(play(to)).unwrap();
    let report = super::active::judge(&target(own, to));
    assert!(report.failures().is_empty(), "{:#?}", report.failures());
    assert_eq!(report.passed().len(), CHECKS.len() - 3, "{report}");
}

/// A change of what the passive side sends, and the one check that must notice, among those that depend on it least.
#[test]
fn a_wrong_byte_fails_its_check_and_no_other() {
    /// The checks that are run against each change.
    const RUN: [&str; 6] = ["wrong-nid", "types", "ping", "push", "zc-ack", "duplicate"];
    type Tamper = fn(Stage, &mut Vec<u8>);
    let cases: [(&str, Tamper); 6] = [
        // Refusals that come in the wrong version.
        ("duplicate", |stage, bytes| {
            if stage == Stage::Hello && bytes[48..52] == [0xff; 4] {
                bytes[4] = 2;
            }
        }),
        // BULK_IN is answered BULK_IN.
        ("types zc-ack push duplicate", |stage, bytes| {
            if stage == Stage::Hello && bytes[48] == 3 {
                bytes[48] = 2;
            }
        }),
        // The ping info's magic.
        ("types ping push zc-ack duplicate", |stage, bytes| {
            if stage == Stage::Frame && bytes.len() == 24 + 72 + 48 {
                bytes[96] ^= 1;
            }
        }),
        // The answer to the larger sink alone.
        ("ping", |stage, bytes| {
            static ANSWERS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            // Per run of "ping": one answer to 272, one to 3960.
            if stage == Stage::Frame && bytes.len() == 24 + 72 + 48 {
                let before = ANSWERS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                bytes[100] = if before == 2 { 0 } else { bytes[100] };
            }
        }),
        // The handle in ACKs.
        ("push", |stage, bytes| {
            if stage == Stage::Frame && bytes.len() == 24 + 72 && bytes[48] == 0 {
                bytes[24 + 32 + 15] ^= 1;
            }
        }),
        // The cookie that is acknowledged.
        ("zc-ack", |stage, bytes| {
            if stage == Stage::Frame && bytes.len() == 24 {
                bytes[16] ^= 0x40;
            }
        }),
    ];
    for (number, (expected, tamper)) in (1..).zip(cases) {
        let (own, to) = (Ipv4Addr::new(127, 6, 2, number), Ipv4Addr::new(127, 6, 3, number));
        let _passive = Passive::start(Play { tamper: Some(tamper), ..play(to) }).unwrap();
        let target = Target { patience: SHORT, ..target(own, to) };
        let failed = |check: &&nlx_tests::judge::Check| matches!(check.run(&target), Outcome::Fail(_));
        let checks = CHECKS.iter().filter(|check| RUN.contains(&check.name));
        let failed: Vec<_> = checks.filter(failed).map(|check| check.name).collect();
        let mut expected: Vec<_> = expected.split(' ').collect();
        expected.sort_by_key(|name| CHECKS.iter().position(|check| check.name == *name));
        assert_eq!(failed, expected);
    }
}

/// A peer that does all right but for one thing; the rule that it breaks.
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
            // Acknowledged, so it has been read: connections have no order among themselves.
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
        let (own, to) = (Ipv4Addr::new(127, 6, 4, number), Ipv4Addr::new(127, 6, 5, number));
        let passive = Passive::start(Play { copies: true, ..play(to) }).unwrap();
        let target = target(own, to);
        let mut session = Session::with(&target, &kinds).unwrap();
        act(&mut session).unwrap();
        // A kernel drops what it has not read when one connection ends.
        match expected {
            "" => drop(session.ping(0).unwrap()),
            rule => passive.wait_for_failure(rule).unwrap(),
        }
        drop(session);
        passive.wait_for_end().unwrap();
        let failures = passive.report().failures();
        let expected: Vec<&str> = expected.split_terminator(' ').collect();
        assert_eq!(failures.keys().copied().collect::<Vec<_>>(), expected, "{number}: {failures:#?}");
    }
}

/// What the little peers say that is wrong with their connection request or hello.
#[test]
fn a_greeting_breaks_the_rule_it_breaks_and_no_other() {
    type Change = fn(&mut Vec<u8>);
    // The request's 16 bytes, then the hello's 56 (lnet-wire 21, 22.2).
    let cases: [(&str, Change); 9] = [
        ("request", |bytes| bytes[0] ^= 1),
        ("request", |bytes| bytes[4] = 9),
        ("request", |bytes| bytes[8] ^= 1),
        ("request", |bytes| bytes.truncate(15)),
        ("hello", |bytes| bytes[16] ^= 1),
        ("hello", |bytes| bytes[20] = 9),
        ("hello", |bytes| bytes[16 + 24] = 1),
        ("hello", |bytes| bytes[16 + 32..16 + 40].fill(0)),
        ("hello", |bytes| bytes[16 + 48] = 7),
    ];
    for (number, (expected, change)) in (1..).zip(cases) {
        let (own, to) = (Ipv4Addr::new(127, 6, 6, number), Ipv4Addr::new(127, 6, 7, number));
        let passive = Passive::start(play(to)).unwrap();
        let target = target(own, to);
        let hello = target.hello(3, kind::CONTROL, new_incarnation());
        let mut bytes = [wire::request_v1(target.nid, Order::Little), hello.bytes(Order::Little)].concat();
        change(&mut bytes);
        let stream = target.say(&bytes).unwrap();
        // The judge may have closed it by now.
        let _ = stream.shutdown(Shutdown::Write);
        passive.wait_for_failure(expected).unwrap();
        passive.wait_for_end().unwrap();
        assert_eq!(passive.report().failures().into_keys().collect::<Vec<_>>(), [expected], "{number}");
    }
}

/// A connection from a port that is not privileged.
#[test]
fn a_source_port_breaks_its_rule() {
    let (own, to) = (Ipv4Addr::new(127, 6, 8, 1), Ipv4Addr::new(127, 6, 8, 2));
    let passive = Passive::start(Play { policy: Policy::Secure, ..play(to) }).unwrap();
    let mut stream = target(own, to).dial().unwrap();
    passive.wait_for_failure("source-port").unwrap();
    expect_end(&mut stream).unwrap();
    assert_eq!(passive.report().failures().into_keys().collect::<Vec<_>>(), ["source-port"]);
}

/// A second connection of one life that says it is of another.
#[test]
fn another_incarnation_breaks_its_rule() {
    let (own, to) = (Ipv4Addr::new(127, 6, 9, 1), Ipv4Addr::new(127, 6, 9, 2));
    let passive = Passive::start(play(to)).unwrap();
    let target = target(own, to);
    let offer = |kind| target.offer(&target.hello(3, kind, new_incarnation())).unwrap();
    let first = offer(kind::CONTROL);
    assert!(matches!(first, Answer::Accepted(..)), "{first}");
    let second = offer(kind::BULK_IN);
    assert!(matches!(second, Answer::Refused(_)), "{second}");
    passive.wait_for_end().unwrap();
    assert_eq!(passive.report().failures().into_keys().collect::<Vec<_>>(), ["incarnation"]);
}

/// A peer that answers what the judge asks, but wrongly or not at all.
#[test]
fn a_wrong_answer_breaks_the_rule_it_breaks_and_no_other() {
    /// Gives the answer to the judge's ping or push; `None` for silence.
    type Answers = fn(&Message, Nid) -> Option<Message>;
    fn right(asked: &Message, own: Nid) -> Option<Message> {
        // With the features of a node that is to be pushed to.
        let info = PingInfo::of(own, 0x1e).bytes();
        let kind = if asked.kind == GET { REPLY } else { ACK };
        Some(asked.answer(kind, own, &info))
    }
    let cases: [(&str, Answers); 6] = [
        ("", right),
        ("ping-answer", |asked, own| right(asked, own).filter(|_| asked.kind != GET)),
        ("ping-answer", |asked, own| {
            let other = own.with_address(Ipv4Addr::new(127, 0, 0, 9));
            let info = PingInfo::of(other, 0x06).bytes();
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
            // More acknowledged than was sent.
            answer.body[24] ^= u8::from(asked.kind == PUT) << 7;
            Some(answer)
        }),
    ];
    for (number, (expected, answers)) in (1..).zip(cases) {
        let (own, to) = (Ipv4Addr::new(127, 6, 10, number), Ipv4Addr::new(127, 6, 11, number));
        let passive = Passive::start(Play { patience: SHORT, ..play(to) }).unwrap();
        let target = target(own, to);
        let hello = target.hello(3, kind::CONTROL, new_incarnation());
        let Answer::Accepted(mut stream, _) = target.offer(&hello).unwrap() else { panic!("refused") };
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                while let Ok(frame) = read_frame(&mut stream, 3, Order::Little) {
                    let Frame::Lnet(asked) = frame else { continue };
                    if let Some(answer) = answers(&asked, own_nid(own)) {
                        stream.write_all(&answer.bytes(3, Order::Little)).unwrap();
                    }
                }
            });
            // What becomes of it stands in the record.
            let _ = passive.discover(own_nid(own));
            let failures = passive.report().failures();
            let expected: Vec<&str> = expected.split_terminator(' ').collect();
            assert_eq!(failures.keys().copied().collect::<Vec<_>>(), expected, "{number}: {failures:#?}");
            drop(passive);
            peer.join().unwrap();
        });
    }
}

fn own_nid(address: Ipv4Addr) -> Nid {
    Nid::new(address, 0)
}
