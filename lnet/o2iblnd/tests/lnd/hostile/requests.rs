//! Requests to connect that are wrong in each field, and connections that are begun and abandoned.

use std::os::fd::BorrowedFd;

use lnet_api::Lnd;
use lnet_o2iblnd::fabric::{ConnectOptions, Rejected};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_testkit::lnds::{S, TestBed as _};

use super::bytes::{CONNACK, CONNREQ, MAGIC, NOOP, Record, VERSION, changed, message, params};
use super::stranger::{Line, LineEvent, Scene};

/// Reject reasons (lnet-wire 33).
const FATAL: u8 = 3;
const STALE: u8 = 5;
const FRAGMENTS: u8 = 6;
const DEPTH: u8 = 7;
const EARLY: u8 = 9;

const OPTIONS: ConnectOptions = ConnectOptions { retry_count: 5, rnr_retry_count: 6 };

fn rejected(scene: &Scene, what: &str, data: &[u8]) -> Record {
    let (_, event) = scene.ask(data);
    match event {
        LineEvent::Rejected(Rejected::Record(record)) => Record::of(&record),
        other => panic!("{what}: {other:?}"),
    }
}

/// lnet-wire 33, 34: each wrong field is answered by the record and its reason; nothing else
/// happens.
// Covers: S-502
#[test]
fn each_field_of_a_request() {
    let scene = Scene::new();
    let right = scene.request();
    let unknown = (super::bytes::number(scene.id().nid) + 90).to_le_bytes();
    let wrong: [(&str, Vec<u8>, u8); 20] = [
        ("magic", changed(&right, 0, &[0x12, 0x34, 0x56, 0x78]), FATAL),
        ("zeros", vec![0; 56], FATAL),
        ("ones", vec![0xff; 56], FATAL),
        ("nothing", Vec::new(), FATAL),
        ("too short", right[..20].to_vec(), FATAL),
        ("without its body", right[..48].to_vec(), FATAL),
        ("an old version", changed(&right, 4, &[0x11]), FATAL),
        ("a later version", changed(&right, 4, &[0x13]), FATAL),
        ("no version", changed(&right, 4, &[0, 0]), FATAL),
        ("a CONNACK", changed(&right, 6, &[CONNACK]), FATAL),
        ("a NOOP", changed(&right, 6, &[NOOP]), FATAL),
        ("an unknown type", changed(&right, 6, &[0x77]), FATAL),
        ("longer than it is", changed(&right, 8, &4096u32.to_le_bytes()), FATAL),
        ("shorter than its kind", changed(&right, 8, &55u32.to_le_bytes()), FATAL),
        ("from nobody", changed(&right, 16, &[0xff; 8]), FATAL),
        ("to somebody else", changed(&right, 32, &unknown), FATAL),
        ("to another life", changed(&right, 40, &77u64.to_le_bytes()), STALE),
        ("too deep", changed(&right, 48, &9u16.to_le_bytes()), DEPTH),
        ("too many fragments", changed(&right, 50, &258u16.to_le_bytes()), FRAGMENTS),
        ("messages too large", changed(&right, 52, &4097u32.to_le_bytes()), FATAL),
    ];
    for (what, data, reason) in &wrong {
        let record = rejected(&scene, what, data);
        assert_eq!(
            (record.magic, record.version, record.reason),
            (MAGIC, VERSION, *reason),
            "{what}: {record:?}"
        );
        if [STALE, DEPTH, FRAGMENTS].contains(reason) {
            assert_eq!((record.depth, record.fragments, record.bytes), (8, 257, 4096), "{what}: {record:?}");
            assert_ne!(record.stamp, 0, "{what}: {record:?}");
        }
    }
    for (what, depth, fragments) in [("no depth", 0, 257), ("no fragments", 8, 0)] {
        rejected(
            &scene,
            what,
            &message(CONNREQ, scene.own(), scene.other(), &params(depth, fragments, 4096)),
        );
    }
    assert_eq!(scene.victim().lnd.counters().rx.refusals, wrong.len() as u64 + 2);
    scene.end();
}

/// A peer of the other byte order is accepted.
#[test]
fn the_other_byte_order() {
    let scene = Scene::new();
    let mut request = scene.request();
    for field in [0..4, 4..6, 8..12, 12..16, 16..24, 24..32, 32..40, 40..48, 48..50, 50..52, 52..56] {
        request[field].reverse();
    }
    let (line, event) = scene.ask(&request);
    let LineEvent::Accepted(data) = event else { panic!("{event:?}") };
    assert_eq!((data[6], &data[0..4]), (CONNACK, &MAGIC.to_le_bytes()[..]));
    drop(line);
    scene.end();
}

/// A peer that disconnects at any step leaves no state, and does not disturb others.
#[test]
fn leaving_at_each_step() {
    let scene = Scene::new();
    for _ in 0..3 {
        drop(scene.dial());
        // First step: the connection is requested, and the peer leaves without waiting for the
        // answer.
        let mut line = scene.dial();
        line.receive();
        line.endpoint.connect(&scene.request(), &OPTIONS).unwrap();
        drop(line);
        // Second step: the connection is accepted, and not established.
        let (line, event) = scene.ask(&scene.request());
        assert!(matches!(event, LineEvent::Accepted(_)), "{event:?}");
        line.endpoint.disconnect();
        drop(line);
        // Third step: the connection is in use.
        let (line, _) = scene.connected();
        line.endpoint.disconnect();
        scene.expect_ended(&line, "in use");
        let (line, _) = scene.connected();
        drop(line);
        scene.until(|| scene.victim().lnd.conn_stats().connections == 1);
    }
    // The node ends the abandoned attempts at their deadline.
    scene.later(60 * S);
    scene.end();
}

/// Returns whether the descriptor is readable.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
}

/// Ends the node's NI, and starts it again; returns the rejection of the line's request.
fn rejected_at_the_end(scene: &Scene, line: Line) -> Rejected {
    scene.victim().end();
    let LineEvent::Rejected(rejected) = scene.next_event(line.token) else { panic!("it is not rejected") };
    drop(line);
    scene.nodes[1].take();
    scene.victim().start();
    scene.check_honest();
    rejected
}

/// A request that is pending in the connection manager when the NI ends is rejected with LNet's
/// record: kernel nodes log any other reject as a fatal error (lnet-measured). EARLY ends this
/// attempt and nothing else.
// Covers: S-4
#[test]
fn pending_when_the_ni_ends() {
    let scene = Scene::new();
    let (victim, honest) = (&scene.nodes[0], &scene.nodes[1]);
    let mut line = scene.dial();
    scene.until(|| victim.arm());
    line.endpoint.connect(&scene.request(), &OPTIONS).unwrap();
    scene.bed.until(&[honest], || is_readable(victim.lnd.wait_fd(0)));
    let rejected = rejected_at_the_end(&scene, line);
    let Rejected::Record(record) = rejected else { panic!("{rejected:?}") };
    let record = Record::of(&record);
    assert_eq!((record.magic, record.version, record.reason), (MAGIC, VERSION, EARLY), "{record:?}");
    scene.end();
}

/// A peer that was accepted and has not established its connection yet is rejected without a
/// record. A reject with a record after the accept would make Linux block the NI's thread for a
/// minute: the guest's kernel logs that, and the simulated devices report an error.
// Covers: S-4
#[test]
fn half_open_when_the_ni_ends() {
    let scene = Scene::new();
    let (line, event) = scene.ask(&scene.request());
    assert!(matches!(event, LineEvent::Accepted(_)), "{event:?}");
    let rejected = rejected_at_the_end(&scene, line);
    assert!(matches!(rejected, Rejected::NoListener | Rejected::Other(_)), "{rejected:?}");
    scene.end();
}
