//! Descriptors that are not what they should be.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::{ftruncate, pipe, write};
use nlx_tests::attack::linger::Sink;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Entry, Reply, kind, u32_at};
use nlx_tests::client::{Client, PATIENCE};

use crate::scene::{Helper, Work};
use crate::support::peer::hung_unless;

/// What memory of the helper has: its size cannot change.
fn seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

fn memfd(bytes: i64, seals: SealFlag) -> OwnedFd {
    let fd = memfd_create("stranger", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    fd
}

/// The same file, to be read only.
fn read_only(fd: &OwnedFd) -> OwnedFd {
    File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap().into()
}

fn adopt(client: &mut Client, fds: &[OwnedFd]) -> (i32, u32) {
    let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let reply = client.request_with(kind::ADOPT_ARENA, &[], &raw).unwrap();
    (reply.status, reply.reason)
}

/// MT-219: instead of an arena's memory come a pipe, a file, a directory, a socket, memory that can still change its size,
/// memory sealed against writing, too large or empty memory. Each is refused; nothing is left of any.
#[test]
fn what_is_no_arena_is_not_adopted() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("strangers");
    let before = helper.holdings();
    let (reads, writes) = pipe().unwrap();
    let size = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    let good = memfd(1 << 20, seals());
    let too_large = client.arena_bytes_max() + 4096;
    let strangers: Vec<(&str, OwnedFd)> = vec![
        ("the end of a pipe", reads),
        ("the other end", writes),
        ("a file", File::open("/proc/self/exe").unwrap().into()),
        ("a directory", File::open("/").unwrap().into()),
        ("a device", File::options().read(true).write(true).open("/dev/zero").unwrap().into()),
        ("a socket", client.socket.as_fd().try_clone_to_owned().unwrap()),
        ("memory without seals", memfd(1 << 20, SealFlag::empty())),
        ("memory that can shrink", memfd(1 << 20, SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL)),
        ("memory that can grow", memfd(1 << 20, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL)),
        ("memory that can be sealed", memfd(1 << 20, size)),
        ("memory that cannot be written", memfd(1 << 20, seals() | SealFlag::F_SEAL_WRITE)),
        ("no memory", memfd(0, seals())),
        ("more memory than a client may have", memfd(too_large as i64, seals())),
        ("memory opened for reading", read_only(&good)),
    ];
    for (what, fd) in strangers {
        let (status, reason) = adopt(&mut client, std::slice::from_ref(&fd));
        assert!(status < 0 && reason != 0, "{what} is taken for an arena");
    }
    helper.holds_again(before);
    // What is as a helper would make it.
    assert_eq!(adopt(&mut client, &[good]), (0, 0));
    work.stop();
    drop(client);
    helper.is_clean();
}

/// MT-219: none where one should be, several where there should be one, as many as the system lets pass: each is answered, and
/// all are closed.
#[test]
fn too_many_descriptors() {
    let helper = Helper::start();
    let mut client = helper.client("many");
    client.sync().unwrap();
    let before = helper.holdings();
    for count in [0, 2, 3, 17, 253] {
        let memory = memfd(4096, seals());
        let fds: Vec<OwnedFd> = (0..count).map(|_| memory.try_clone().unwrap()).collect();
        let (status, _) = adopt(&mut client, &fds);
        assert_eq!(Errno::from_raw(-status), Errno::EBADR, "{count} descriptors");
    }
    helper.holds_again(before);
    client.sync().unwrap();
}

/// MT-219: descriptors beside requests that have none are never received: their client is cut off.
#[test]
fn descriptors_that_nothing_asks_for() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let memory = memfd(4096, seals());
    let before = helper.holdings();
    for (kind, body) in [
        (kind::SYNC, Vec::new()),
        (kind::CREATE_ARENA, wire::create_arena(4096, 0)),
        (kind::START_TM, wire::start_tm(helper.nid(), PORTAL, 0, 16, 0)),
        (kind::HELLO, wire::hello("again", 1)),
        (kind::TM_DESCRIPTOR, vec![0; 8]),
        (0x7fff, Vec::new()),
        // An adoption that is too long to be a packet.
        (kind::ADOPT_ARENA, vec![0; 8192]),
    ] {
        let cut_off = helper.number("/door/cut_off");
        let mut client = helper.client("attached");
        let outcome = client.request_with(kind, &body, &[memory.as_raw_fd()]);
        assert!(outcome.is_err(), "request {kind} is answered: {outcome:?}");
        assert_eq!(helper.number("/door/cut_off"), cut_off + 1);
    }
    // Before the hello: newer kernels refuse them at once, with older ones the client is cut off.
    for kind in [kind::HELLO, kind::ADOPT_ARENA] {
        let socket = Socket::connect(&helper.socket()).unwrap();
        match socket.send(&wire::packet(kind, 1, &wire::hello("early", 1)), &[memory.as_raw_fd()]) {
            Ok(()) => assert!(!matches!(socket.receive(PATIENCE), Ok(Some(_)) | Err(Errno::ETIMEDOUT))),
            Err(errno) => assert_eq!(errno, Errno::EPERM),
        }
    }
    helper.holds_again(before);
    work.advance(2);
    work.stop();
    helper.is_clean();
}

/// A listening socket of which clients inherit that descriptors may pass: as before Linux 6.16 of every one, and since then of one
/// that `nlxd` has not told otherwise.
fn permissive_listener(path: &Path) -> OwnedFd {
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&listener, Backlog::MAXCONN).unwrap();
    listener
}

/// What a client of an older kernel can do, by clients that connect before the helper that systemd starts for them: descriptors come
/// before the hello, with it and behind it. They are not received, and their clients are cut off; others are served.
#[test]
fn descriptors_that_the_kernel_lets_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handed-over.sock");
    let listener = permissive_listener(&path);
    let memory = memfd(4096, seals());
    let hello = wire::packet(kind::HELLO, 1, &wire::hello("early", 1));
    let [sync, adoption] = [kind::SYNC, kind::ADOPT_ARENA].map(|kind| wire::packet(kind, 2, &[]));
    let early = |packets: &[(&[u8], &[RawFd])]| {
        let socket = Socket::connect(&path).unwrap();
        packets.iter().for_each(|(packet, fds)| socket.send(packet, fds).unwrap());
        socket
    };
    // A helper that received one of them would have a thread that sleeps in its close.
    let mut sink = Sink::default();
    let lingering = [(); 4].map(|()| sink.lingering().unwrap());
    let [one, two, three, four] = lingering.each_ref().map(|fd| [fd.as_raw_fd()]);
    let hostile = [
        (early(&[(&hello, &one)]), 0),
        (early(&[(&adoption, &two), (&hello, &[])]), 0),
        (early(&[(&hello, &[]), (&hello, &three)]), 1),
        (early(&[(&hello, &[]), (&sync, &four)]), 1),
    ];
    drop(lingering);
    let honest =
        early(&[(&hello, &[]), (&adoption, &[memory.as_raw_fd()]), (&wire::packet(kind::SYNC, 3, &[]), &[])]);
    let helper = Helper::at(listener, path.clone());
    for (socket, welcome) in hostile {
        let answers = std::iter::from_fn(|| match socket.receive(PATIENCE) {
            Ok(answer) => answer,
            Err(errno) => (errno == Errno::ETIMEDOUT).then(|| panic!("it is not cut off")),
        });
        assert_eq!(answers.count(), welcome);
    }
    assert_eq!(helper.number("/door/cut_off"), 4);
    for id in 1..=3 {
        let (packet, fds) = honest.receive(PATIENCE).unwrap().expect("an answer");
        let reply = Reply::read(&packet, fds).unwrap();
        assert_eq!((reply.id, reply.status), (id, 0), "{reply:?}");
    }
    drop(honest);
    helper.is_clean();
}

/// The porter is killed, again and again: clients live on, new ones come, arenas are adopted, and nothing is left.
#[test]
fn the_porter_is_killed() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("survivor");
    for _ in 0..3 {
        let porter = helper.porter();
        kill(porter, Signal::SIGKILL).unwrap();
        hung_unless("there is another porter", || {
            Client::connect(&helper.socket(), "newcomer").is_ok_and(|mut newcomer| {
                newcomer.sync().is_ok() && adopt(&mut newcomer, &[memfd(1 << 20, seals())]) == (0, 0)
            })
        });
        assert_ne!(helper.porter(), porter);
        assert_eq!(adopt(&mut client, &[memfd(1 << 20, seals())]), (0, 0));
        work.advance(2);
    }
    drop(client);
    work.stop();
    helper.is_clean();
}

/// S-3: an arena that is handed over anew works, with what stands in it.
#[test]
fn memory_of_an_earlier_helper_is_adopted() {
    let helper = Helper::start();
    let mut client = helper.client("before");
    let arena = client.arena(1 << 20, false).unwrap();
    arena.memory.write(0, b"a message that outlives a helper");
    drop(client);
    helper.is_clean();
    let mut client = helper.client("after");
    let mut reply = client.request_with(kind::ADOPT_ARENA, &[], &[arena.fd.as_raw_fd()]).unwrap();
    assert_eq!((reply.status, reply.fds.pop().is_none()), (0, true));
    let number = u32_at(&reply.body, 0);
    let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
    client.submit(&Entry::register(handle(0), number, 0, 32)).unwrap();
    client.submit(&Entry::register(handle(1), number, 4096, 4096)).unwrap();
    let receive = Entry::receive(tm.handle, handle(1), 1, 32, 1);
    client.operate(&mut tm, &receive).unwrap();
    let send = Entry::send(tm.handle, handle(0), 2, 32, &tm.address);
    client.operate(&mut tm, &send).unwrap();
    let came = [0; 2].map(|_| {
        let event = client.event(&mut tm).unwrap();
        assert_eq!(event.status, 0, "{event:?}");
        event
    });
    let received = came.iter().find(|event| event.cookie == 1).unwrap();
    assert_eq!((received.status, received.length), (0, 32));
    assert_eq!(arena.memory.read(4096 + received.offset as usize, 32), b"a message that outlives a helper");
}

/// MT-219: the doorbell is filled, made blocking and drained: its client's submissions are served all the same, since every
/// request serves them, and nobody else notices.
#[test]
fn a_doorbell_that_is_abused() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut client = helper.client("doorbell");
    let arena = client.arena(1 << 20, false).unwrap();
    let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
    client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).unwrap();
    let bell = client.ring.doorbell().try_clone().unwrap();
    // As full as it can be, and blocking: one more would hold up whoever writes.
    for bit in (0..64).rev() {
        while write(&bell, &(1u64 << bit).to_ne_bytes()).is_ok() {}
    }
    fcntl(&bell, FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
    work.advance(2);
    tm.events.provision(1, &mut client.points);
    // Without ringing: that would block this client for ever.
    for entry in [Entry::receive(tm.handle, handle(0), 1, 1, 1), Entry::cancel(tm.handle, handle(0), 1)] {
        let filled = client.ring.fill(&entry.bytes());
        client.ring.stamp(filled);
        client.sync().unwrap();
    }
    assert_eq!(Errno::from_raw(-client.event(&mut tm).unwrap().status), Errno::ECANCELED);
    work.advance(2);
    work.stop();
    // Its memory outlives the client that has it.
    let memory: Memory = arena.memory.clone();
    drop(client);
    memory.write(0, &[1; 8]);
}
