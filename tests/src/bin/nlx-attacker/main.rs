//! `nlx-attacker`: attacks against `nlxd`, each a command, run as an ordinary user of the host or
//! as a peer.
//!
//! ```text
//! nlx-attacker ATTACK SOCKET ADDRESS [ARG…]
//! ```
//!
//! It prints `ready` once it has started, and `full …` with its result once the attack has its full
//! strength, which lasts until it is killed. It ends with its parent.
//!
//! A new attack is a file here with a function `fn(&Target, &[&str]) -> Result<Infallible,
//! String>`, and a line in [`ATTACKS`]. The test that runs it is `tests/tests/attack`.

#![forbid(unsafe_code)]

mod bell;
mod clients;
mod connects;
mod delays;
mod departures;
mod descriptors;
mod flood;
mod folder;
mod fuse;
mod linger;
mod machines;
mod matches;
mod silent;
mod status;
mod throttled;
mod unread;

use std::convert::Infallible;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nlx_tests::client::wire;

/// The attacked helper.
pub(crate) struct Target {
    pub(crate) socket: PathBuf,
    pub(crate) address: Ipv4Addr,
    pub(crate) nid: [u8; 20],
}

type Attack = fn(&Target, &[&str]) -> Result<Infallible, String>;

/// All attacks, by name.
const ATTACKS: [(&str, Attack); 27] = [
    ("clients", clients::attack),
    ("connects", connects::attack),
    ("departures", departures::attack),
    ("descriptors", descriptors::attack),
    ("flood", flood::attack),
    ("fuse", fuse::attack),
    ("fuse-bell", bell::attack),
    ("fuse-bell-file", bell::read_into_file),
    ("fuse-file", fuse::send_file),
    ("fuse-folder", folder::attack),
    ("fuse-folder-file", folder::list_into_file),
    ("fuse-watch", bell::watch),
    ("fuse-watch-file", bell::watch_into_file),
    ("idle", idle),
    ("left-arena", delays::left_arena),
    ("linger", linger::attack),
    ("machine-watches", delays::machine_watches),
    ("machines", machines::attack),
    ("matches", matches::attack),
    ("moved-arena", delays::moved_arena),
    ("sends", delays::sends),
    ("shared-page", delays::shared_page),
    ("silent", silent::attack),
    ("status", status::attack),
    ("throttled", throttled::attack),
    ("unread", unread::attack),
    ("watches", delays::watches),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    // Both calls fail only for invalid arguments.
    let _ = set_pdeathsig(Signal::SIGKILL);
    let outcome = match words[..] {
        [name, socket, address, ref rest @ ..] => match ATTACKS.iter().find(|(known, _)| *known == name) {
            Some((_, attack)) => target(socket, address).and_then(|target| {
                say("ready");
                attack(&target, rest)
            }),
            None => Err(format!("no such attack: {name}")),
        },
        _ => Err(format!("ATTACK SOCKET ADDRESS are missing in {words:?}")),
    };
    let Err(words) = outcome;
    say(&format!("failed: {words}"));
    ExitCode::FAILURE
}

/// Parses the address: an IPv4 address of network tcp, or one with `@o2ib` appended.
fn target(socket: &str, address: &str) -> Result<Target, String> {
    let (ip, _) = parts(address);
    Ok(Target { socket: socket.into(), address: number(ip)?, nid: nid(address)? })
}

/// Returns the NID of an address in one of the two forms of `target`.
pub(crate) fn nid(address: &str) -> Result<[u8; 20], String> {
    let (ip, net) = parts(address);
    Ok(wire::nid_on(net, number(ip)?))
}

/// Splits an address from its network.
fn parts(address: &str) -> (&str, &str) {
    address.split_once('@').unwrap_or((address, "tcp"))
}

/// Parses an argument.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("invalid argument {text:?}"))
}

/// Prints a line for the test.
pub(crate) fn say(line: &str) {
    println!("{line}");
    // An error means that the test has ended.
    let _ = std::io::stdout().flush();
}

/// Prints that the attack has its full strength, and blocks until the process is killed.
pub(crate) fn hold(words: &str) -> ! {
    say(&format!("full {words}"));
    loop {
        std::thread::park();
    }
}

/// Does nothing, for comparison.
fn idle(_: &Target, _: &[&str]) -> Result<Infallible, String> {
    hold("nothing")
}
