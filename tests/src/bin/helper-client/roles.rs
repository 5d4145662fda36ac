//! The work of honest clients until they are killed.

use std::net::Ipv4Addr;
use std::path::Path;

use nlx_tests::client::Client;
use nlx_tests::client::pair::{PORTAL, Pair, Side, handle};
use nlx_tests::client::points::Points;
use nlx_tests::client::wire::{self, Address, Entry};

use crate::say;

/// Rounds between attaching and leaving.
const ROUNDS: u32 = 3;

/// The size in bytes of an arena that the greedy client fills.
const ARENA: u64 = 4 << 20;
/// The number of arenas of the greedy client: more than fit into a small memory.
const ARENAS: usize = 16;
/// The size of a page, or of a part of one, in bytes.
const PAGE: usize = 4096;

/// Parses a NID: an address of network tcp, or one of `@o2ib`.
pub(crate) fn nid(text: &str) -> Result<[u8; 20], String> {
    let (address, net) = text.split_once('@').unwrap_or((text, "tcp"));
    let address = address.parse::<Ipv4Addr>().map_err(|error| format!("{text}: {error}"))?;
    Ok(wire::nid_on(net, address))
}

/// Returns the transfer machine of a node that does not answer.
fn silent_address(address: &str) -> Result<Address, String> {
    Ok(Address { nid: nid(address)?, portal: PORTAL, tmid: 9 })
}

pub(crate) fn traffic(
    socket: &str,
    address: &str,
    silent: &str,
    end: Option<(&str, &str)>,
) -> Result<(), String> {
    let (path, nid, silent) = (Path::new(socket), nid(address)?, silent_address(silent)?);
    say("ready");
    let mut points = match end {
        Some((point, nth)) => Points::trap(point, nth.parse().map_err(|error| format!("{nth}: {error}"))?),
        None => Points::harmless(),
    };
    loop {
        let mut pair = Pair::connect([path; 2], [nid; 2], "traffic", points)?;
        for _ in 0..ROUNDS {
            pair.round()?;
        }
        let held = pair.sides[0].start_everything(&silent)?;
        pair.sides[0].cancel_everything(&held)?;
        points = pair.end()?;
    }
}

pub(crate) fn hold(socket: &str, address: &str, silent: &str) -> Result<(), String> {
    let silent = silent_address(silent)?;
    let mut side = Side::connect(Path::new(socket), nid(address)?, "hold", Points::harmless())?;
    side.start_everything(&silent)?;
    say("ready");
    loop {
        std::thread::park();
    }
}

pub(crate) fn wait(socket: &str, address: &str) -> Result<(), String> {
    let mut client = Client::connect(Path::new(socket), "wait")?;
    let failed = |errno| format!("cannot start the operation: {errno}");
    let arena = client.arena(1 << 20, false).map_err(failed)?;
    let mut tm = client.start_tm(nid(address)?, PORTAL, 16).map_err(failed)?;
    client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).map_err(failed)?;
    let receive = Entry::receive(tm.handle, handle(0), 1, 1, 1);
    client.operate(&mut tm, &receive).map_err(failed)?;
    client.sync().map_err(failed)?;
    say("ready");
    match client.event(&mut tm) {
        Ok(event) => say(&format!("event {event:?}")),
        Err(errno) => say(&format!("ended {errno:?}")),
    }
    Ok(())
}

pub(crate) fn greedy(socket: &str, address: &str) -> Result<(), String> {
    say("ready");
    let mut client = Client::connect(Path::new(socket), "greedy")?;
    client.start_tm(nid(address)?, PORTAL, 16).map_err(|errno| format!("no transfer machine: {errno}"))?;
    let mut arenas = Vec::new();
    let end = loop {
        match client.arena(ARENA, false) {
            Ok(arena) if arenas.len() < ARENAS => {
                (0..arena.memory.len()).step_by(PAGE).for_each(|at| arena.memory.write(at, &[1; 8]));
                arenas.push(arena);
            }
            Ok(_) => break None,
            Err(errno) => break Some(errno),
        }
    };
    say(&format!("{} arenas, then {end:?}", arenas.len()));
    Ok(())
}
