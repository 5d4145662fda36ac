//! Messages between two clients of a helper beside a flood of requests from processes of another
//! user, all in one control group with half of the machine.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{self, Entry, kind};
use nlx_tests::client::{Client, Tm};

use super::group::Group;
use super::process::{self, Helper};
use super::stall::while_it_works;
use crate::cores::{self, Cores};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::xo::pair::NetworkPath;
use crate::ours::xo::pingpong;
use crate::server::{self, Server};

pub(crate) const FLOOD: &str = "helper-flood";
pub(crate) const BUSY: &str = "busy";

/// The work of each attacking process.
const ATTACKS: [&str; 4] = ["sync", "sync", "connect", "operations"];

/// The attackers' user, which need not exist on the host.
const ATTACKER: u32 = 12_100;

/// Number of connections of a process that sends `Sync`.
const CONNECTIONS: usize = 100;
/// Number of requests that the process sends on one connection before it goes to the next.
const SYNCS: usize = 8;

/// Number of connections of the process that submits operations.
const SUBMITTERS: usize = 16;
/// Number of messages in flight on each of these connections.
const MESSAGES: u64 = 32;
/// Length of each message in bytes.
const MESSAGE: u64 = 64;

/// Rounds are longer here: a percentile needs enough messages, and the group's periods are 0.1 s
/// long.
const ROUNDS: u32 = 4;

/// Messages with their answers beside the flood, one at a time: thousands per second.
pub(crate) fn rate(round: &Round) -> Result<Sample> {
    beside_flood(round).map(|trips| trips.rate())
}

/// The 99th percentile of the round-trip times beside the flood: microseconds.
pub(crate) fn p99(round: &Round) -> Result<Sample> {
    beside_flood(round).map(|trips| trips.p99())
}

/// [`rate`] beside a process that spins and sends no requests.
pub(crate) fn rate_beside_busy(round: &Round) -> Result<Sample> {
    beside_busy(round).map(|trips| trips.rate())
}

/// [`p99`] beside a process that spins and sends no requests.
pub(crate) fn p99_beside_busy(round: &Round) -> Result<Sample> {
    beside_busy(round).map(|trips| trips.p99())
}

fn beside_flood(round: &Round) -> Result<Trips> {
    if !Uid::effective().is_root() {
        let problem = "needs a separate user, and only root can start processes of other users";
        return Err(BenchError::Peer { program: "an attacker", problem: problem.to_string() });
    }
    let group = Group::of_half_the_machine()?;
    Trips::beside(round, |helper| {
        let start = |attack: &&str| {
            let [path, members] = [helper.path(), &group.members()].map(|path| path.display().to_string());
            Server::start(FLOOD, round.cores, &[attack.to_string(), path, helper.address(), members])
        };
        ATTACKS.iter().map(start).collect::<Result<Vec<_>>>()
    })
}

fn beside_busy(round: &Round) -> Result<Trips> {
    Trips::beside(round, |_| Server::start::<&str>(BUSY, round.cores, &[]))
}

/// The times of all messages with their answers, in ascending order.
struct Trips(Vec<Duration>);

impl Trips {
    /// Measures the times of messages beside the processes that `start` starts. Messages continue
    /// during the start, because the other side waits for them only for a short time.
    fn beside<T: Send>(round: &Round, start: impl FnOnce(&Helper) -> Result<T> + Send) -> Result<Trips> {
        pingpong::trips_beside(round, NetworkPath::OneHelper, |helper, trip| {
            let _others = while_it_works(|| start(helper), trip)?.0?;
            let (begin, mut times) = (Instant::now(), Vec::new());
            while begin.elapsed() < ROUNDS * round.time || times.is_empty() {
                times.push(trip()?);
            }
            times.sort_unstable();
            Ok(Trips(times))
        })
    }

    fn rate(&self) -> Sample {
        let seconds = self.0.iter().sum::<Duration>().as_secs_f64();
        Sample::of(self.0.len() as f64 / seconds / 1e3)
    }

    fn p99(&self) -> Sample {
        let place = (self.0.len() * 99).div_ceil(100).saturating_sub(1);
        Sample::of(self.0[place].as_secs_f64() * 1e6)
    }
}

/// Spins until it is killed.
pub(crate) fn serve_busy(_: Cores, _: &[String]) -> Result<()> {
    cores::roam()?;
    server::ready("")?;
    loop {
        std::hint::spin_loop();
    }
}

/// Attacks until it is killed.
pub(crate) fn serve_flood(_: Cores, args: &[String]) -> Result<()> {
    let [attack, path, address, members] = args else {
        let problem = "was not given an attack, a path, an address and a group".to_string();
        return Err(BenchError::Server { name: FLOOD.into(), problem });
    };
    cores::roam()?;
    process::many_descriptors();
    std::fs::write(members, std::process::id().to_string()).map_err(BenchError::system("join a group"))?;
    become_the_attacker().map_err(BenchError::system("become another user"))?;
    let path = Path::new(path);
    let outcome = match attack.as_str() {
        "sync" => sync(path),
        "connect" => connect(path),
        _ => operate(path, address),
    };
    outcome.map_err(|problem| BenchError::Server { name: FLOOD.into(), problem })
}

fn become_the_attacker() -> Result<(), Errno> {
    setgroups(&[])?;
    setgid(Gid::from_raw(ATTACKER))?;
    setuid(Uid::from_raw(ATTACKER))
}

/// Sends `Sync` over the connections.
fn sync(path: &Path) -> Result<(), String> {
    let clients: Vec<Client> =
        (0..CONNECTIONS).map(|_| Client::connect(path, "flood")).collect::<Result<_, _>>()?;
    for turn in 0_u64.. {
        for client in &clients {
            for _ in 0..SYNCS {
                if client.socket.try_send(&wire::packet(kind::SYNC, turn + 2, &[])).is_err() {
                    break;
                }
            }
            while client.socket.is_readable(Duration::ZERO).unwrap_or(false) {
                let answer = client.socket.receive(Duration::ZERO);
                answer.ok().flatten().ok_or("a connection was cut off")?;
            }
        }
        if turn == 0 {
            server::ready("").map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Connects, attaches and disconnects repeatedly.
fn connect(path: &Path) -> Result<(), String> {
    drop(Client::connect(path, "flood")?);
    server::ready("").map_err(|error| error.to_string())?;
    loop {
        // Refused at times, when too many previous connections are still closing.
        drop(Client::connect(path, "flood"));
    }
}

/// Sends messages over the connections, each to itself.
fn operate(path: &Path, address: &str) -> Result<(), String> {
    let address = address.parse().map_err(|_| format!("{address} is not an address"))?;
    let mut submitters: Vec<Submitter> =
        (0..SUBMITTERS).map(|_| Submitter::connect(path, wire::nid(address))).collect::<Result<_, _>>()?;
    for turn in 0_u64.. {
        for submitter in &mut submitters {
            submitter.continue_operations().map_err(|errno| format!("cannot submit: {errno}"))?;
        }
        if turn == 0 {
            server::ready("").map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// A transfer machine that sends to itself.
struct Submitter {
    client: Client,
    tm: Tm,
}

impl Submitter {
    fn connect(path: &Path, nid: [u8; 20]) -> Result<Submitter, String> {
        let mut client = Client::connect(path, "flood")?;
        let prepare = |client: &mut Client| {
            let arena = client.arena(2 * MESSAGES * MESSAGE, false)?;
            client.submit(&Entry::register(handle(0), arena.number, 0, MESSAGES * MESSAGE))?;
            for number in 1..=MESSAGES {
                let place = (MESSAGES + number - 1) * MESSAGE;
                client.submit(&Entry::register(handle(number), arena.number, place, MESSAGE))?;
            }
            client.start_tm(nid, PORTAL, 4 * MESSAGES as u32)
        };
        let tm = prepare(&mut client).map_err(|errno| format!("a connection of little use: {errno}"))?;
        Ok(Submitter { client, tm })
    }

    /// Takes all available events; when none is missing, posts a buffer and fills it with messages.
    fn continue_operations(&mut self) -> Result<(), Errno> {
        while self.tm.events.take(&mut self.client.points).is_some() {}
        if self.tm.events.needed() > 0 {
            return Ok(());
        }
        let (tm, to) = (self.tm.handle, self.tm.address);
        self.client.operate(&mut self.tm, &Entry::receive(tm, handle(0), 0, MESSAGE, MESSAGES as u32))?;
        for number in 1..=MESSAGES {
            let send = Entry::send(tm, handle(number), number, MESSAGE, &to);
            self.client.operate(&mut self.tm, &send)?;
        }
        Ok(())
    }
}
