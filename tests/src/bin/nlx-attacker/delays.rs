//! What makes single system calls of the helper long, and touches of memory:
//!
//! - `watches COPIES SETS`: so many copies of the client's own socket, each in so many epoll sets: whoever sends to it wakes them all.
//! - `shared-page MAPPINGS`: so many mappings of a page of the submission ring, which is punched out of it without end: whoever
//!   touches it waits until it is unmapped everywhere.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use memmap2::MmapOptions;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;

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
    let mut client = Client::connect(&target.socket, "shared-page")?;
    // That of the first slot, at which the helper looks again and again; what describes the ring is in the first page.
    let at = client.ring.queue.slot(0) / PAGE * PAGE;
    let mut maps = Vec::new();
    for _ in 0..number::<usize>(mappings)? {
        let map = MmapOptions::new().offset(at as u64).len(PAGE).map_raw(&client.ring_memory);
        maps.push(map.map_err(|error| format!("mapping {}: {error}", maps.len()))?);
    }
    let memory = client.ring.queue.memory.clone();
    std::thread::spawn(move || while memory.punch(at, PAGE).is_ok() {});
    sync_without_end(&mut client, &format!("{} mappings", maps.len()))
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
