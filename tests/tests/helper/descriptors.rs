//! Invalid descriptors.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::{ftruncate, write};
use nlx_tests::attack::linger::Sink;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, Reply, kind};
use nlx_tests::client::{Client, TIME_LIMIT};

use crate::scene::{Helper, Work};
use crate::support::peer::hung_unless;

fn hello(name: &str) -> Vec<u8> {
    wire::packet(kind::HELLO, 1, &wire::hello(name, wire::VERSION))
}

fn memfd(bytes: i64) -> OwnedFd {
    let fd = memfd_create("stranger", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fd
}

/// Creates a helper that receives descriptors, as before Linux 6.16.
fn permissive() -> Helper {
    Helper::configured("[helper]\nlet_descriptors_pass = true\n")
}

/// Descriptors, one or many, are never received: their client is cut off.
// Covers: MT-219
#[test]
fn descriptors_that_nothing_asks_for() {
    let helper = permissive();
    let work = Work::start(&helper);
    let memory = memfd(4096);
    let before = helper.holdings();
    for (kind, body) in [
        (kind::SYNC, Vec::new()),
        (kind::CREATE_ARENA, wire::create_arena(4096, 0, 0)),
        (kind::START_TM, wire::start_tm(helper.nid(), PORTAL, 0, 16, 0)),
        (kind::HELLO, wire::hello("again", wire::VERSION)),
        (kind::TM_DESCRIPTOR, vec![0; 8]),
        (0x7fff, Vec::new()),
        // Too long for a packet.
        (kind::SYNC, vec![0; 8192]),
    ] {
        let cut_off = helper.number("/door/cut_off");
        let mut client = helper.client("attached");
        let fds = vec![memory.as_raw_fd(); if kind == kind::SYNC { 253 } else { 1 }];
        let outcome = client.request_with(kind, &body, &fds);
        assert!(outcome.is_err(), "request {kind} is answered: {outcome:?}");
        assert_eq!(helper.number("/door/cut_off"), cut_off + 1);
    }
    // Before the hello.
    let socket = Socket::connect(&helper.socket()).unwrap();
    socket.send(&hello("early"), &[memory.as_raw_fd()]).unwrap();
    assert!(!matches!(socket.receive(TIME_LIMIT), Ok(Some(_)) | Err(Errno::ETIMEDOUT)));
    helper.holds_again(before);
    work.advance(2);
    work.stop();
    helper.is_clean();
}

/// Creates a listening socket whose accepted connections let descriptors pass: before Linux 6.16
/// all do, since then those of a socket for which `nlxd` has not disabled it.
fn permissive_listener(path: &Path) -> OwnedFd {
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&listener, Backlog::MAXCONN).unwrap();
    listener
}

/// The attacks of a client of an older kernel, with clients that connect before systemd starts the
/// helper for them: descriptors come before the hello, with it and after it. They are not received,
/// and their clients are cut off; others are served.
#[test]
fn descriptors_that_the_kernel_lets_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handed-over.sock");
    let listener = permissive_listener(&path);
    let (hello, sync) = (hello("early"), wire::packet(kind::SYNC, 2, &[]));
    let early = |packets: &[(&[u8], &[RawFd])]| {
        let socket = Socket::connect(&path).unwrap();
        packets.iter().for_each(|(packet, fds)| socket.send(packet, fds).unwrap());
        socket
    };
    // A helper that received one of them would have a thread that blocks in its close.
    let mut sink = Sink::default();
    let lingering = [(); 4].map(|()| sink.lingering().unwrap());
    let [one, two, three, four] = lingering.each_ref().map(|fd| [fd.as_raw_fd()]);
    let hostile = [
        (early(&[(&hello, &one)]), 0),
        (early(&[(&sync, &two), (&hello, &[])]), 0),
        (early(&[(&hello, &[]), (&hello, &three)]), 1),
        (early(&[(&hello, &[]), (&sync, &four)]), 1),
    ];
    drop(lingering);
    let honest = early(&[(&hello, &[])]);
    let helper = Helper::at(listener, path.clone());
    for (socket, welcome) in hostile {
        let answers = std::iter::from_fn(|| match socket.receive(TIME_LIMIT) {
            Ok(answer) => answer,
            Err(errno) => (errno == Errno::ETIMEDOUT).then(|| panic!("it is not cut off")),
        });
        assert_eq!(answers.count(), welcome);
    }
    assert_eq!(helper.number("/door/cut_off"), 4);
    let (packet, fds) = honest.receive(TIME_LIMIT).unwrap().expect("an answer");
    let reply = Reply::read(&packet, fds).unwrap();
    assert_eq!((reply.id, reply.status), (1, 0), "{reply:?}");
    drop(honest);
    helper.is_clean();
}

/// Newer kernels refuse them, before the hello and after it; with older ones their client is cut
/// off.
#[test]
fn descriptors_that_the_kernel_refuses() {
    let helper = Helper::start();
    let memory = memfd(4096);
    let mut client = helper.client("attached");
    client.sync().unwrap();
    let early = Socket::connect(&helper.socket()).unwrap();
    for socket in [&early, &client.socket] {
        match socket.send(&hello("again"), &[memory.as_raw_fd()]) {
            Ok(()) => assert!(!matches!(socket.receive(TIME_LIMIT), Ok(Some(_)) | Err(Errno::ETIMEDOUT))),
            Err(errno) => assert_eq!(errno, Errno::EPERM),
        }
    }
}

/// The porter is killed again and again: clients remain connected, new ones connect, and nothing is
/// left.
#[test]
fn the_porter_is_killed() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("survivor");
    for _ in 0..3 {
        let porter = helper.porter();
        kill(porter, Signal::SIGKILL).unwrap();
        hung_unless("there is another porter", || {
            Client::connect(&helper.socket(), "newcomer").is_ok_and(|mut newcomer| newcomer.sync().is_ok())
        });
        assert_ne!(helper.porter(), porter);
        client.sync().unwrap();
        work.advance(2);
    }
    drop(client);
    work.stop();
    helper.is_clean();
}

/// The doorbell is filled, made blocking and drained: its client's submissions are served all the
/// same, since every request serves them, and no other client is affected.
// Covers: MT-219
#[test]
fn a_doorbell_that_is_abused() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("doorbell");
    let arena = client.arena(1 << 20, false).unwrap();
    let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
    client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).unwrap();
    let bell = client.ring.doorbell().try_clone().unwrap();
    // Full and blocking: a further write would block.
    for bit in (0..64).rev() {
        while write(&bell, &(1u64 << bit).to_ne_bytes()).is_ok() {}
    }
    fcntl(&bell, FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
    work.advance(2);
    tm.events.provision(1, &mut client.points);
    // Without ringing, which would block this client.
    for entry in [Entry::receive(tm.handle, handle(0), 1, 1, 1), Entry::cancel(tm.handle, handle(0), 1)] {
        let filled = client.ring.fill(&entry.bytes());
        client.ring.stamp(filled);
        client.sync().unwrap();
    }
    assert_eq!(Errno::from_raw(-client.event(&mut tm).unwrap().status), Errno::ECANCELED);
    work.advance(2);
    work.stop();
    // The memory outlives its client.
    let memory: Memory = arena.memory.clone();
    drop(client);
    memory.write(0, &[1; 8]);
}
