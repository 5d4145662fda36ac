//! What makes single system calls of the helper long, and touches of memory:
//!
//! - `watches COPIES SETS`: so many copies of the client's own socket, each in so many epoll sets: whoever sends to it wakes them all.
//! - `shared-page MAPPINGS`: so many mappings of a page of the submission ring, which is not sealed, and punched out of it without
//!   end: whoever touched it would wait until it is unmapped everywhere, and for the next time.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use memmap2::MmapOptions;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::socket::Socket;
use nlx_tests::client::wire::{self, Reply, kind};

use crate::{Target, number, say};

const PAGE: usize = 4096;

/// A client that the helper lets wait is patient.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn watches(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [copies, sets] = *args else { return Err("COPIES SETS are missing".into()) };
    let (copies, sets) = (number::<usize>(copies)?, number::<usize>(sets)?);
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut client = Client::connect(&target.socket, "watches")?;
    let copy = |_| client.socket.as_fd().try_clone_to_owned();
    let copies = (0..copies).map(copy).collect::<Result<Vec<OwnedFd>, _>>();
    let copies = copies.map_err(|error| format!("a copy of the socket: {error}"))?;
    let watch = |_| {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        copies.iter().try_for_each(|copy| set.add(copy, event))?;
        Ok(set)
    };
    let sets = (0..sets).map(watch).collect::<Result<Vec<Epoll>, nix::errno::Errno>>();
    let sets = sets.map_err(|errno| format!("a watch: {errno}"))?;
    sync_without_end(&mut client, &format!("{} watches", copies.len() * sets.len()))
}

pub(crate) fn shared_page(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [mappings] = *args else { return Err("MAPPINGS is missing".into()) };
    let socket = Socket::connect(&target.socket).map_err(|errno| format!("cannot connect: {errno}"))?;
    let failed = |errno: Errno| format!("no answer: {errno}");
    let ask = |kind, id, body: &[u8]| {
        socket.send(&wire::packet(kind, id, body), &[]).map_err(failed)?;
        let (packet, fds) = socket.receive(PATIENCE).map_err(failed)?.ok_or("cut off")?;
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

fn sync_without_end(client: &mut Client, words: &str) -> Result<Infallible, String> {
    client.patience = PATIENCE;
    say(&format!("full {words}"));
    for done in 0_u64.. {
        client.sync().map_err(|errno| format!("request {done}: {errno}"))?;
        say(&format!("did {done}"));
    }
    Err("it has asked too often".into())
}
