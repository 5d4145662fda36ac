//! Receives the helper's signals in memory that never comes: `fuse-bell DEVICE FOLDER`, which starts a process for what has the
//! file mapped, `fuse-bell-file FOLDER`. That asks for the descriptor of a transfer machine, reads it into a page of a FUSE file
//! system, whose read is never answered, and makes the helper ring it again and again.
//!
//! Or watches what the helper has open, too, and sleeps on it in such memory: `fuse-watch DEVICE FOLDER CLIENTS`, which starts
//! `fuse-watch-file FOLDER CLIENTS`. So many connections are left with their doorbells, and with descriptors of transfer machines,
//! in one epoll set, whose lock a thread holds that waits for its page: whoever closes the last descriptor of one of them waits for it.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::SYS_epoll_pwait;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;
use nix::unistd::{Pid, gettid};
use nlx_tests::attack::fuse::open_in;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::ring::place;
use nlx_tests::client::wire::{Entry, kind};
use nlx_tests::client::{Client, Tm};

use crate::{Target, fuse, hold};

/// Bytes of the page.
const PAGE: usize = 4096;
/// Signals: many more than the reader needs to come to its page, and than wait for it.
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
    let (mut tm, bell) = lookout(target, &mut client).map_err(|errno| format!("no bell: {errno}"))?;
    let refused = |errno| format!("the helper does not answer: {errno}");
    // The first signal is there before it is read.
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
    let [device, folder, clients] = *args else { return Err("DEVICE FOLDER CLIENTS are missing".into()) };
    fuse::serve_for(target, "fuse-watch-file", [device, folder], &[clients])
}

pub(crate) fn watch_into_file(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [folder, clients] = *args else { return Err("FOLDER CLIENTS are missing".into()) };
    let file = open_in(Path::new(folder)).map_err(|error| format!("cannot open: {error}"))?;
    let page = Memory::map_beginning(&file, PAGE).map_err(|errno| format!("cannot map: {errno}"))?;
    let failed = |errno| format!("cannot watch: {errno}");
    let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
    let watch = |fd: BorrowedFd<'_>| set.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed);
    let (mut connections, mut watched) = (Vec::new(), 0);
    for number in 0..crate::number::<usize>(clients)? {
        // Their user may have no more, or none for now.
        let Ok(mut client) = Client::connect(&target.socket, "watch") else { break };
        watch(client.ring.doorbell().as_fd())?;
        watched += 1;
        if number % 2 == 0
            && let Ok((_, bell)) = lookout(target, &mut client)
        {
            watch(bell.as_fd())?;
            watched += 1;
        }
        let Client { socket, .. } = client;
        connections.push(socket);
    }
    // What is always ready: the wait for it ends with the copy of its event into the page.
    let ready = EventFd::from_value(1).map_err(failed)?;
    watch(ready.as_fd())?;
    let (tell, told) = channel();
    let waiter = std::thread::spawn(move || {
        let _ = tell.send(gettid());
        page.wait_for(&set.0)
    });
    let thread = told.recv().map_err(|error| error.to_string())?;
    while !sleeps_in_wait(thread) {
        if waiter.is_finished() {
            return Err(format!("the page was there: {:?}", waiter.join()));
        }
        std::thread::yield_now();
    }
    let count = connections.len();
    drop(connections);
    hold(&format!("{watched} watches of {count} connections"))
}

/// Whether this thread of this process sleeps in `epoll_pwait`.
fn sleeps_in_wait(thread: Pid) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    call.is_ok_and(|call| call.split(' ').next() == Some(&SYS_epoll_pwait.to_string()))
}

/// A transfer machine, and what its helper rings; reading that waits.
fn lookout(target: &Target, client: &mut Client) -> Result<(Tm, OwnedFd), Errno> {
    let tm = client.start_tm(target.nid, PORTAL, 8)?;
    let bell = client.call(kind::TM_DESCRIPTOR, &tm.handle.to_le_bytes())?.fds.pop().ok_or(Errno::EPROTO)?;
    fcntl(&bell, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok((tm, bell))
}

/// Announces that a loop sleeps, and submits what is refused with an event.
fn ring(client: &mut Client, tm: &mut Tm) -> Result<(), Errno> {
    tm.events.queue.memory.half(place::LOOKOUT).store(1, SeqCst);
    let of_no_buffer = Entry::receive(tm.handle, handle(5), 7, 64, 1);
    client.operate(tm, &of_no_buffer)?;
    client.sync()?;
    tm.events.take(&mut client.points).map(drop).ok_or(Errno::EPROTO)
}
