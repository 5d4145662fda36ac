//! Signals of a session that are left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_fake::{FakeDrive, FakeLnet};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_bev_cqueue::{QueueWord, SharedMemory};
use nlx_driver_proto::{Hello, Reply, Request, StartTm};
use nlx_sync::{Bell, Sleeper};

use super::*;
use crate::driver::HostConfig;
use crate::taker::{Losses, Taker};

const USER: Credentials = Credentials { pid: 2, uid: 1000, gid: 1000 };

fn ask(session: &mut Session, request: &Request) -> (Reply, Vec<OwnedFd>) {
    let (mut packet, mut answer) = (Vec::new(), Answer::default());
    request.write(7, &mut packet);
    session.request(&packet, &mut answer).unwrap();
    (Reply::read(&answer.packet).unwrap().1, answer.take_fds().unwrap())
}

/// The client has set very many watches on the descriptors of its transfer machines: none of their signals is sent while the network is
/// polled, and none is lost.
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
        let outlet = session.record.tms.lock()[&tm].1.clone();
        let sleeper =
            Sleeper::ringing(QueueWord::event_loop(memory), Bell::socket(bell.try_clone().unwrap()));
        (outlet, bell, sleeper)
    });
    let is_rung = |bell: &OwnedFd| {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    };
    let signals = &session.record.tally.signals;
    signals.leave(5);
    machines.iter().for_each(|(.., sleeper)| sleeper.prepare());
    machines[0].0.ring();
    machines[1].0.lost();
    assert!(!machines.iter().any(|(_, bell, _)| is_rung(bell)), "they are left");
    session.send_signals();
    assert!(machines.iter().all(|(_, bell, _)| is_rung(bell)));
    assert_eq!((session.take_owed_ns(), session.take_owed_ns()), (5, 0));
    // They were short: the next ones are not left.
    machines.iter().for_each(|(.., sleeper)| {
        sleeper.finish();
        sleeper.prepare();
    });
    machines[0].0.ring();
    assert!(is_rung(&machines[0].1) && !is_rung(&machines[1].1));
    // One that finds its event loop awake, and one that falls asleep meanwhile.
    signals.leave(0);
    machines[0].2.finish();
    machines[0].0.ring();
    session.send_signals();
    assert!(!is_rung(&machines[0].1));
    machines[0].0.ring();
    machines[0].2.prepare();
    session.send_signals();
    assert!(is_rung(&machines[0].1) && !is_rung(&machines[1].1));
}
