//! Attacks that delay single system calls of the helper, and its accesses to memory:
//!
//! - `watches COPIES SETS`: COPIES duplicates of the client's socket, each in SETS epoll sets: each
//!   packet to it wakes them all.
//! - `machine-watches COPIES SETS`: the same on the descriptor of a transfer machine, whose event
//!   loop always sleeps: each message to it wakes them all. It prints the machine's id as its last
//!   word. `sends TMID ADDRESS` sends such messages, from any process.
//! - `shared-page MAPPINGS`: MAPPINGS mappings of a page of the submission ring, which is not
//!   sealed and is punched out of it without end: an access would wait until it is unmapped
//!   everywhere, and for the next time.
//! - `left-arena MAPPINGS`: MAPPINGS mappings of an arena that is not sealed, whose pages are
//!   touched and punched out without end while its client leaves: unmapping would wait for that,
//!   and block every other mapping. Repeated.
//! - `moved-arena`: messages out of an arena whose small pages are collapsed into huge ones
//!   meanwhile, which moves them. Repeated.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use memmap2::MmapOptions;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::ring::place;
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Address, Entry, Reply, kind, u32_at};

use crate::{Target, nid, number, say};

const PAGE: usize = 4096;

/// The alignment of addresses for huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// The size of an arena in bytes: the maximum.
const ARENA: usize = 16 << 20;

/// The size of its messages in bytes.
const MESSAGE: u64 = 1 << 20;

/// Time limit of a wait: longer than the helper delays a client.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The time between two announcements that an event loop sleeps.
const NAP: Duration = Duration::from_millis(1);

/// Messages between two lines with the number sent.
const MESSAGES: u64 = 100;

pub(crate) fn watches(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let mut client = Client::connect(&target.socket, "watches")?;
    let watches = set_watches(client.socket.as_fd(), args)?;
    sync_without_end(&mut client, &format!("{} watches", watches.count))
}

pub(crate) fn machine_watches(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let failed = |errno| format!("no transfer machine: {errno}");
    let mut client = Client::connect(&target.socket, "machine-watches")?;
    let tm = client.start_tm(target.nid, PORTAL, 8).map_err(failed)?;
    let mut reply = client.call(kind::TM_DESCRIPTOR, &tm.handle.to_le_bytes()).map_err(failed)?;
    let bell = reply.fds.pop().ok_or("no descriptor came")?;
    let watches = set_watches(bell.as_fd(), args)?;
    say(&format!("full {} watches on machine {}", watches.count, tm.address.tmid));
    let mut signals = [0; 4096];
    loop {
        tm.events.queue.memory.half(place::LOOKOUT).store(1, SeqCst);
        // A full socket takes no signals, which then wake no watch.
        let _ = nix::unistd::read(&bell, &mut signals);
        std::thread::sleep(NAP);
    }
}

/// Sends messages for which there are no buffers.
pub(crate) fn sends(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [tmid, address] = *args else { return Err("TMID ADDRESS are missing".into()) };
    let to = Address { nid: nid(address)?, portal: PORTAL, tmid: number(tmid)? };
    let failed = |errno| format!("cannot send: {errno}");
    let mut client = Client::connect(&target.socket, "sends")?;
    client.patience = TIME_LIMIT;
    let arena = client.arena(PAGE as u64, false).map_err(failed)?;
    let mut tm = client.start_tm(target.nid, PORTAL, 8).map_err(failed)?;
    client.submit(&Entry::register(handle(0), arena.number, 0, PAGE as u64)).map_err(failed)?;
    say("full of messages");
    for sent in 1_u64.. {
        let send = Entry::send(tm.handle, handle(0), sent, 8, &to);
        client.operate(&mut tm, &send).map_err(failed)?;
        client.event(&mut tm).map_err(failed)?;
        if sent.is_multiple_of(MESSAGES) {
            say(&format!("did {sent}"));
        }
    }
    Err("it has sent too often".into())
}

/// Duplicates of a socket, each in several epoll sets.
struct Watches {
    count: usize,
    _copies: Vec<OwnedFd>,
    _sets: Vec<Epoll>,
}

fn set_watches(socket: BorrowedFd<'_>, args: &[&str]) -> Result<Watches, String> {
    let [copies, sets] = *args else { return Err("COPIES SETS are missing".into()) };
    let (copies, sets) = (number::<usize>(copies)?, number::<usize>(sets)?);
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let copies = (0..copies).map(|_| socket.try_clone_to_owned()).collect::<Result<Vec<OwnedFd>, _>>();
    let copies = copies.map_err(|error| format!("a copy of the socket: {error}"))?;
    let watch = |_| {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        copies.iter().try_for_each(|copy| set.add(copy, event))?;
        Ok(set)
    };
    let sets = (0..sets).map(watch).collect::<Result<Vec<Epoll>, nix::errno::Errno>>();
    let sets = sets.map_err(|errno| format!("a watch: {errno}"))?;
    Ok(Watches { count: copies.len() * sets.len(), _copies: copies, _sets: sets })
}

pub(crate) fn shared_page(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [mappings] = *args else { return Err("MAPPINGS is missing".into()) };
    let socket = Socket::connect(&target.socket).map_err(|errno| format!("cannot connect: {errno}"))?;
    let failed = |errno: Errno| format!("no answer: {errno}");
    let ask = |kind, id, body: &[u8]| {
        socket.send(&wire::packet(kind, id, body), &[]).map_err(failed)?;
        let (packet, fds) = socket.receive(TIME_LIMIT).map_err(failed)?.ok_or("cut off")?;
        Reply::read(&packet, fds).map(Reply::done)
    };
    let welcome = ask(kind::HELLO, 1, &wire::hello("shared-page", wire::VERSION))?;
    let ring = welcome.map_err(|errno| format!("not welcome: {errno}"))?.fds.swap_remove(0);
    let mut maps = Vec::new();
    for _ in 0..number::<usize>(mappings)? {
        let map = MmapOptions::new().len(PAGE).map_raw(&ring);
        maps.push(map.map_err(|error| format!("mapping {}: {error}", maps.len()))?);
    }
    let memory = Memory::map(&ring).map_err(|errno| format!("cannot map: {errno}"))?;
    std::thread::spawn(move || while memory.punch(0, PAGE).is_ok() {});
    say(&format!("full {} mappings", maps.len()));
    for done in 0_u64.. {
        match ask(kind::SYNC, done, &[])? {
            Err(Errno::EPERM) => say(&format!("did {done}")),
            other => return Err(format!("{other:?} from a helper that has not seen the seal")),
        }
    }
    Err("it has asked too often".into())
}

pub(crate) fn left_arena(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [mappings] = *args else { return Err("MAPPINGS is missing".into()) };
    let mappings = number::<usize>(mappings)?;
    for done in 0_u64.. {
        let failed = |errno| format!("arena {done}: {errno}");
        let mut client = Client::connect(&target.socket, "left-arena")?;
        let made = client.call(kind::CREATE_ARENA, &wire::create_arena(ARENA as u64, 0, 0));
        let arena = made.map_err(failed)?.fds.pop().ok_or("no memory came")?;
        let maps: Result<Vec<Memory>, Errno> = (0..mappings).map(|_| Memory::map(&arena)).collect();
        let maps = maps.map_err(failed)?;
        std::thread::scope(|scope| {
            let memory = &maps[0];
            // Both end once the helper has sealed it.
            scope.spawn(|| while memory.punch(0, ARENA).is_ok() {});
            scope.spawn(|| {
                while memory.punch(0, PAGE).is_ok() {
                    maps.iter().for_each(|map| map.half(ARENA / 2).store(1, SeqCst));
                }
            });
            if done == 0 {
                say(&format!("full {mappings} mappings"));
            }
            drop(client);
        });
        say(&format!("did {done}"));
    }
    Err("it has left too often".into())
}

pub(crate) fn moved_arena(target: &Target, _: &[&str]) -> Result<Infallible, String> {
    let mut client = Client::connect(&target.socket, "moved-arena")?;
    client.patience = TIME_LIMIT;
    let failed = |errno| format!("it goes wrong: {errno}");
    let mut tm = client.start_tm(target.nid, PORTAL, 8).map_err(failed)?;
    let to = Address { tmid: tm.address.tmid, ..tm.address };
    let [sent, received] = [0, 1].map(handle);
    for done in 0_u64.. {
        let mut arena =
            client.call(kind::CREATE_ARENA, &wire::create_arena(ARENA as u64, 0, 0)).map_err(failed)?;
        let number = u32_at(&arena.body, 0);
        let fd = arena.fds.pop().ok_or("no memory came")?;
        let memory = Memory::map_aligned_and_seal(&fd, HUGE_PAGE).map_err(failed)?;
        (0..ARENA / PAGE).for_each(|page| memory.half(page * PAGE).store(1, SeqCst));
        let halves = [(sent, 0), (received, ARENA as u64 / 2)];
        for (buffer, offset) in halves {
            client.submit(&Entry::register(buffer, number, offset, MESSAGE)).map_err(failed)?;
        }
        if done == 0 {
            say("full of pages that move");
        }
        std::thread::scope(|scope| {
            // EAGAIN: a page is in use at this moment.
            let moved = scope.spawn(|| {
                loop {
                    match memory.collapse() {
                        Err(Errno::EAGAIN) => std::thread::yield_now(),
                        done => break done,
                    }
                }
            });
            let room = Entry::receive(tm.handle, received, done, MESSAGE, 1);
            let message = Entry::send(tm.handle, sent, done, MESSAGE, &to);
            client.operate(&mut tm, &room).map_err(failed)?;
            client.operate(&mut tm, &message).map_err(failed)?;
            for _ in halves {
                client.event(&mut tm).map_err(failed)?;
            }
            moved.join().map_err(|_| "it has panicked")?.map_err(|errno| format!("nothing moves: {errno}"))
        })?;
        for (buffer, _) in halves {
            client.submit(&Entry::deregister(buffer)).map_err(failed)?;
        }
        client.sync().map_err(failed)?;
        client.call(kind::RELEASE_ARENA, &wire::arena(number)).map_err(failed)?;
        say(&format!("did {done}"));
    }
    Err("it has moved too often".into())
}

fn sync_without_end(client: &mut Client, words: &str) -> Result<Infallible, String> {
    client.patience = TIME_LIMIT;
    say(&format!("full {words}"));
    for done in 0_u64.. {
        client.sync().map_err(|errno| format!("request {done}: {errno}"))?;
        say(&format!("did {done}"));
    }
    Err("it has asked too often".into())
}
