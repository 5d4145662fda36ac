//! Deferred signals of a session, and batched wake-ups.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_fake::{FakeDrive, FakeLnet};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_bev_cqueue::{QueueWord, SharedMemory};
use nlx_driver_proto::{Hello, Reply, Request, StartTm};
use nlx_kcore::{EventSink, LossSink, News};
use nlx_sync::{Bell, Sleeper};

use super::*;
use crate::HostConfig;
use crate::client_sink::ClientSink;
use crate::wakeups::{GATHERED_MAX, gathered};

const USER: Credentials = Credentials { pid: 2, uid: 1000, gid: 1000 };

fn ask(session: &mut Session, request: &Request) -> (Reply, Vec<OwnedFd>) {
    let (mut packet, mut answer) = (Vec::new(), ReplyPacket::default());
    request.write(7, &mut packet);
    session.request(&packet, &mut answer).unwrap();
    (Reply::read(&answer.packet).unwrap().1, answer.take_fds().unwrap())
}

/// The client has set very many watches on the descriptors of its transfer machines: none of their
/// signals is sent while the network is polled, and none is lost.
#[test]
fn signals_that_take_long_are_sent_later() {
    let host = Host::new(FakeLnet::new(&["0@lo"]), FakeDrive::new(), HostConfig::default());
    let mut session = Session::new(&host, USER).unwrap();
    let (_, fds) = ask(&mut session, &Request::Hello(Hello::new("test")));
    lnet_region::seal(fds[0].as_fd()).unwrap();
    let machines = ["0@lo:12345:40:1", "0@lo:12345:40:2"].map(|address| {
        let start = StartTm { address: address.parse().unwrap(), events_max: 4, lazy: false };
        let (reply, mut fds) = ask(&mut session, &Request::StartTm(start));
        let Reply::Started { tm, .. } = reply else { panic!("{reply:?}") };
        let memory = SharedMemory::attach(fds.pop().unwrap()).unwrap();
        let bell = ask(&mut session, &Request::TmDescriptor { tm }).1.pop().unwrap();
        let sink = session.record.tms.lock()[&tm].1.clone();
        let sleeper =
            Sleeper::ringing(QueueWord::event_loop(memory), Bell::socket(bell.try_clone().unwrap()));
        (sink, bell, sleeper)
    });
    let is_rung = |bell: &OwnedFd| {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    };
    let signals = &session.record.counters.signals;
    signals.defer(5);
    machines.iter().for_each(|(.., sleeper)| sleeper.prepare());
    machines[0].0.wake();
    machines[1].0.lost();
    assert!(!machines.iter().any(|(_, bell, _)| is_rung(bell)), "they are left");
    session.send_signals();
    assert!(machines.iter().all(|(_, bell, _)| is_rung(bell)));
    assert_eq!((session.take_owed_ns(), session.take_owed_ns()), (5, 0));
    // They were short, so the next ones are not deferred.
    machines.iter().for_each(|(.., sleeper)| {
        sleeper.finish();
        sleeper.prepare();
    });
    machines[0].0.wake();
    assert!(is_rung(&machines[0].1) && !is_rung(&machines[1].1));
    // One event loop that is awake, and one that falls asleep meanwhile.
    signals.defer(0);
    machines[0].2.finish();
    machines[0].0.wake();
    session.send_signals();
    assert!(!is_rung(&machines[0].1));
    machines[0].0.wake();
    machines[0].2.prepare();
    session.send_signals();
    assert!(is_rung(&machines[0].1) && !is_rung(&machines[1].1));
}

/// The sink of a transfer machine, and the word by which its client sleeps.
type Served = (TryArc<ClientSink>, QueueWord<SharedMemory>);

/// Returns the sinks of `count` transfer machines.
fn sinks(count: usize) -> (Session, Vec<Served>) {
    let host = Host::new(FakeLnet::new(&["0@lo"]), FakeDrive::new(), HostConfig::default());
    let mut session = Session::new(&host, USER).unwrap();
    let (_, fds) = ask(&mut session, &Request::Hello(Hello::new("test")));
    lnet_region::seal(fds[0].as_fd()).unwrap();
    let sinks = (1..=count).map(|id| {
        let address = format!("0@lo:12345:40:{id}").parse().unwrap();
        let (reply, mut fds) =
            ask(&mut session, &Request::StartTm(StartTm { address, events_max: 4, lazy: false }));
        let Reply::Started { tm, .. } = reply else { panic!("{reply:?}") };
        let memory = SharedMemory::attach(fds.pop().unwrap()).unwrap();
        (session.record.tms.lock()[&tm].1.clone(), QueueWord::consumer(memory))
    });
    let sinks = sinks.collect();
    (session, sinks)
}

/// Returns whether the client still sleeps.
fn sleeps((_, word): &Served) -> bool {
    word.as_ref().is_announced()
}

fn asleep(sinks: &[Served]) -> Vec<bool> {
    sinks.iter().map(sleeps).collect()
}

fn fall_asleep(sinks: &[Served]) {
    sinks.iter().for_each(|(_, word)| word.as_ref().announce());
}

fn ring((sink, _): &Served, news: News) {
    ClientSink::ring(sink, news);
}

// Covers: MT-230
#[test]
fn clients_are_woken_at_the_end_of_a_step() {
    let (_session, sinks) = sinks(3);
    fall_asleep(&sinks);
    ring(&sinks[2], News::Messages);
    assert!(!sleeps(&sinks[2]), "there is no step");
    fall_asleep(&sinks);
    gathered(|| {
        ring(&sinks[0], News::Messages);
        gathered(|| ring(&sinks[1], News::Messages));
        ring(&sinks[0], News::Messages);
        assert!(sinks.iter().all(sleeps), "an inner step ends with the outer one");
    });
    assert_eq!(asleep(&sinks), [false, false, true]);
}

#[test]
fn the_end_of_a_bulk_transfer_wakes_all_at_once() {
    let (_session, sinks) = sinks(3);
    fall_asleep(&sinks);
    gathered(|| {
        ring(&sinks[0], News::Messages);
        ring(&sinks[1], News::Bulk);
        assert_eq!(asleep(&sinks), [false, false, true]);
        ring(&sinks[2], News::Messages);
        assert!(sleeps(&sinks[2]));
    });
    assert!(!sleeps(&sinks[2]));
}

/// A wake-up is delayed by a bounded number of events, whatever their number in a step.
#[test]
fn a_wake_up_waits_for_few_events() {
    let (_session, sinks) = sinks(1);
    gathered(|| {
        for _ in 0..3 {
            fall_asleep(&sinks);
            let waited = (1..1000).find(|_| {
                ring(&sinks[0], News::Messages);
                !sleeps(&sinks[0])
            });
            assert_eq!(waited, Some(GATHERED_MAX as usize));
        }
    });
}

#[test]
fn a_step_that_panics_wakes_the_sleepers() {
    let (_session, sinks) = sinks(1);
    fall_asleep(&sinks);
    let step = std::panic::AssertUnwindSafe(|| {
        gathered(|| {
            ring(&sinks[0], News::Messages);
            panic!("in the middle of a step");
        })
    });
    assert!(std::panic::catch_unwind(step).is_err());
    assert!(!sleeps(&sinks[0]));
    fall_asleep(&sinks);
    ring(&sinks[0], News::Messages);
    assert!(!sleeps(&sinks[0]), "the step is over");
}
