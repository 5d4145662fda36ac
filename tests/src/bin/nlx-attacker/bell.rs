//! Receives the helper's signals into memory whose pages never arrive: `fuse-bell DEVICE FOLDER`,
//! which starts `fuse-bell-file FOLDER` as the process that maps the file. That process requests
//! the descriptor of a transfer machine, reads it into a page of a FUSE file system, whose read is
//! never answered, and makes the helper ring it again and again.
//!
//! Also watches the helper's open descriptors with such memory: `fuse-watch DEVICE FOLDER CLIENTS
//! HOW`, which starts `fuse-watch-file FOLDER CLIENTS HOW`. One epoll set watches the doorbells of
//! CLIENTS connections, and descriptors of transfer machines. A thread that waits for its page
//! holds the set's lock; a process that closes the last descriptor of a watched file waits for that
//! lock. HOW selects what the connections do then: `leave`; `gone`: they request more such
//! descriptors, and cannot be answered; `unread`: they leave with operations whose end takes long,
//! while such an answer waits for room.

use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::SYS_epoll_pwait;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{Pid, gettid};
use nlx_tests::attack::fuse::open_in;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::ring::place;
use nlx_tests::client::wire::{self, Entry, kind};
use nlx_tests::client::{Client, Tm};

use crate::{Target, fuse, hold};

/// The size of the page in bytes.
pub(crate) const PAGE: usize = 4096;
/// Signals: many more than the reader needs to reach its page, and more than can wait for it.
const RINGS: u64 = 2000;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [device, folder] = *args else { return Err("DEVICE FOLDER are missing".into()) };
    fuse::serve_for(target, "fuse-bell-file", [device, folder], &[])
}

pub(crate) fn read_into_file(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [folder] = *args else { return Err("FOLDER is missing".into()) };
    let file = open_in(Path::new(folder)).map_err(|error| format!("cannot open: {error}"))?;
    let page = Memory::map_beginning(&file, PAGE).map_err(|errno| format!("cannot map: {errno}"))?;
    let mut client = Client::connect(&target.socket, "bell")?;
    let (mut tm, bell) = loop_handle(target, &mut client).map_err(|errno| format!("no bell: {errno}"))?;
    let refused = |errno| format!("the helper does not answer: {errno}");
    // The first signal is sent before it is read.
    ring(&mut client, &mut tm).map_err(refused)?;
    let reader = std::thread::spawn(move || page.fill_from(&bell));
    for _ in 1..RINGS {
        ring(&mut client, &mut tm).map_err(refused)?;
    }
    if reader.is_finished() {
        return Err(format!("the page was there: {:?}", reader.join()));
    }
    hold(&format!("a page that never comes, under {RINGS} signals"))
}

pub(crate) fn watch(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [device, folder, clients, how] = *args else {
        return Err("DEVICE FOLDER CLIENTS HOW are missing".into());
    };
    fuse::serve_for(target, "fuse-watch-file", [device, folder], &[clients, how])
}

/// If a request finds no room for this long, the helper has stopped reading.
const TIME_LIMIT: Duration = Duration::from_millis(500);

/// Operations of a client whose end takes the helper many turns.
const OPERATIONS: u32 = 60_000;

pub(crate) fn watch_into_file(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [folder, clients, how] = *args else { return Err("FOLDER CLIENTS HOW are missing".into()) };
    let file = open_in(Path::new(folder)).map_err(|error| format!("cannot open: {error}"))?;
    let page = Memory::map_beginning(&file, PAGE).map_err(|errno| format!("cannot map: {errno}"))?;
    let failed = |errno| format!("cannot watch: {errno}");
    let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
    let watch = |fd: BorrowedFd<'_>| set.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed);
    let (mut watching, mut watched) = (Vec::new(), 0);
    for number in 0..crate::number::<usize>(clients)? {
        // The user may have reached its limit of connections.
        let Ok(mut client) = Client::connect(&target.socket, "watch") else { break };
        if how == "unread" {
            crate::matches::fill(target, &mut client, OPERATIONS)?;
        }
        watch(client.ring.doorbell().as_fd())?;
        watched += 1;
        let tm = match loop_handle(target, &mut client) {
            Ok((tm, bell)) if number % 2 == 0 => {
                watch(bell.as_fd())?;
                watched += 1;
                Some(tm)
            }
            _ => None,
        };
        watching.push((client.socket, tm));
    }
    let waiter = hold_lock(set, page)?;
    let count = watching.len();
    for (socket, tm) in watching.iter().filter_map(|(socket, tm)| Some((socket, tm.as_ref()?))) {
        let ask = |id| socket.try_send(&wire::packet(kind::TM_DESCRIPTOR, id, &tm.handle.to_le_bytes()));
        match how {
            "leave" => {}
            // A reply to a closed socket.
            "gone" => {
                shutdown(socket.as_fd().as_raw_fd(), Shutdown::Read).map_err(failed)?;
                ask(1000).map_err(failed)?;
            }
            // A reply that waits for room while its client leaves: the helper has read no request
            // for a while.
            "unread" => {
                let mut id = 1000;
                while socket.is_writable(TIME_LIMIT).map_err(failed)? {
                    id += u64::from(ask(id).is_ok());
                }
            }
            how => return Err(format!("HOW is not {how}")),
        }
    }
    let _stays = (how == "gone").then_some(watching);
    if waiter.is_finished() {
        return Err(format!("the page was there: {:?}", waiter.join()));
    }
    hold(&format!("{watched} watches of {count} connections"))
}

/// Holds the lock of an epoll set: `epoll_wait` copies an event into a page that never arrives.
fn hold_lock(set: Epoll, page: Memory) -> Result<JoinHandle<Result<usize, Errno>>, String> {
    let failed = |errno| format!("cannot wait: {errno}");
    let ready = EventFd::from_value(1).map_err(failed)?;
    set.add(&ready, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed)?;
    let (tell, told) = channel();
    let waiter = std::thread::spawn(move || {
        let _ready = ready;
        let _ = tell.send(gettid());
        page.wait_for(&set.0)
    });
    let thread = told.recv().map_err(|error| error.to_string())?;
    while !sleeps_in(thread, SYS_epoll_pwait) && !waiter.is_finished() {
        std::thread::yield_now();
    }
    Ok(waiter)
}

/// Returns whether this thread of this process sleeps in this system call.
pub(crate) fn sleeps_in(thread: Pid, call: i64) -> bool {
    let current = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    current.is_ok_and(|current| current.split(' ').next() == Some(&call.to_string()))
}

/// Starts a transfer machine; returns its bell, whose `read` blocks.
fn loop_handle(target: &Target, client: &mut Client) -> Result<(Tm, OwnedFd), Errno> {
    let tm = client.start_tm(target.nid, PORTAL, 8)?;
    let bell = client.call(kind::TM_DESCRIPTOR, &tm.handle.to_le_bytes())?.fds.pop().ok_or(Errno::EPROTO)?;
    fcntl(&bell, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok((tm, bell))
}

/// Announces that a loop sleeps, and submits an entry that is refused with an event.
fn ring(client: &mut Client, tm: &mut Tm) -> Result<(), Errno> {
    tm.events.queue.memory.half(place::LOOKOUT).store(1, SeqCst);
    let of_no_buffer = Entry::receive(tm.handle, handle(5), 7, 64, 1);
    client.operate(tm, &of_no_buffer)?;
    client.sync()?;
    tm.events.take(&mut client.points).map(drop).ok_or(Errno::EPROTO)
}
