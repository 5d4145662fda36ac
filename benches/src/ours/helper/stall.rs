//! The longest time of a message while very large clients leave the helper, or take memory away
//! beneath it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{self, Entry, queue};
use nlx_tests::client::{Arena, Client, Tm};

use super::process::{self, Helper};
use crate::cores::{self, Cores};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::xo::pair::NetworkPath;
use crate::ours::xo::pingpong;
use crate::server::{self, STEP_TIMEOUT, Server};

pub(crate) const LEAVER: &str = "helper-leaver";
pub(crate) const HOLES: &str = "helper-holes";

/// Operations in flight of the client that leaves, each with its own buffer: the largest number
/// that a client may have. The helper grants fewer, half of LNet's tables, while only one user has
/// them.
const OPERATIONS: u32 = 1 << 16;

/// Memory of the client that leaves, every page of which was touched: arenas of the largest size.
const ARENAS: u64 = 32;
const ARENA_BYTES: u64 = 16 << 20;

/// Arenas from which pages are taken, each by a separate thread, while the helper writes into them.
const HOLED_ARENAS: u64 = 2;

/// Bytes of each transfer into them, and transfers in flight: their buffers fill the arenas.
const BULK: u64 = 1 << 20;
const WINDOW: u64 = HOLED_ARENAS * ARENA_BYTES / BULK;

const PAGE: usize = 4096;

/// Makes a round trip, and returns its time.
pub(super) type Trip<'a> = &'a mut dyn FnMut() -> Result<Duration>;

/// The longest round trip in milliseconds: after the kill of a client with the largest number of
/// operations, after that of one with the most memory, and beside one into whose memory the helper
/// writes while its pages are taken away, each for a while.
pub(crate) fn longest(round: &Round) -> Result<Sample> {
    let longest = pingpong::trips_beside(round, NetworkPath::Helpers, |helper, trip| {
        let mut longest = Duration::ZERO;
        for args in [[OPERATIONS.into(), 0], [0, ARENAS]] {
            let leaver = started(LEAVER, helper, round, &args, trip)?;
            longest = longest.max(while_it_ends(leaver, trip)?).max(longest_of(round.time, trip)?);
        }
        let holes = started(HOLES, helper, round, &[HOLED_ARENAS], trip)?;
        longest = longest.max(longest_of(round.time, trip)?);
        Ok(longest.max(while_it_ends(holes, trip)?))
    })?;
    Ok(Sample::of(longest.as_secs_f64() * 1e3))
}

/// The longest round trip in milliseconds with nothing beside it, in the same total time: other
/// disturbances of the machine.
pub(crate) fn longest_in_peace(round: &Round) -> Result<Sample> {
    let longest =
        pingpong::trips_beside(round, NetworkPath::Helpers, |_, trip| longest_of(3 * round.time, trip))?;
    Ok(Sample::of(longest.as_secs_f64() * 1e3))
}

fn longest_of(time: Duration, trip: Trip<'_>) -> Result<Duration> {
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    while begin.elapsed() < time {
        longest = longest.max(trip()?);
    }
    Ok(longest)
}

/// Starts an attacker of this helper. Messages continue during the start, because the other side
/// waits for them only for a short time.
fn started(name: &str, helper: &Helper, round: &Round, args: &[u64], trip: Trip<'_>) -> Result<Server> {
    let own = [helper.path().display().to_string(), helper.address()];
    let args: Vec<String> = own.into_iter().chain(args.iter().map(u64::to_string)).collect();
    while_it_works(|| Server::start(name, round.cores, &args), trip)?.0
}

/// Returns the longest round trip while an attacker is killed and the system frees its memory.
fn while_it_ends(attacker: Server, trip: Trip<'_>) -> Result<Duration> {
    Ok(while_it_works(|| drop(attacker), trip)?.1)
}

/// Makes round trips while another thread works; returns the result of the work, and the longest
/// trip.
pub(super) fn while_it_works<T: Send>(
    work: impl FnOnce() -> T + Send,
    trip: Trip<'_>,
) -> Result<(T, Duration)> {
    thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut longest = Duration::ZERO;
        while !working.is_finished() {
            longest = longest.max(trip()?);
        }
        let failed = |_| BenchError::Server { name: "of a stall".into(), problem: "was not started".into() };
        Ok((working.join().map_err(failed)?, longest))
    })
}

/// Allocates the largest permitted resources, and waits to be killed.
pub(crate) fn serve_leaver(_: Cores, args: &[String]) -> Result<()> {
    process::many_descriptors();
    let mut attacker = Attacker::connect(LEAVER, args)?;
    let [operations, arenas] = attacker.numbers()?;
    let failed = refused(LEAVER, "cannot allocate what it is to leave");
    let tm = (operations > 0).then(|| attacker.fill(operations)).transpose().map_err(&failed)?;
    let taken: Vec<Arena> =
        (0..arenas).map(|_| attacker.touched()).collect::<Result<_, _>>().map_err(&failed)?;
    server::ready(taken.len())?;
    let _held = (attacker, tm, taken);
    loop {
        thread::park_timeout(STEP_TIMEOUT);
    }
}

/// Makes the helper write into arenas, all pages of which are continuously taken away and touched
/// again.
pub(crate) fn serve_holes(_: Cores, args: &[String]) -> Result<()> {
    cores::roam()?;
    let mut attacker = Attacker::connect(HOLES, args)?;
    let [count] = attacker.numbers()?;
    let failed = refused(HOLES, "cannot receive into its holes");
    let arenas: Vec<Arena> =
        (0..count).map(|_| attacker.touched()).collect::<Result<_, _>>().map_err(&failed)?;
    for Arena { memory, .. } in &arenas {
        let memory = memory.clone();
        thread::spawn(move || {
            loop {
                // The arena is sealed, so `punch` does nothing.
                let _ = memory.punch(0, memory.len());
                touch(&memory);
            }
        });
    }
    let mut tm = attacker.receive_into(&arenas).map_err(&failed)?;
    for number in 0.. {
        attacker.receive_round(&mut tm, number).map_err(&failed)?;
        if number == 0 {
            server::ready(arenas.len())?;
        }
    }
    Ok(())
}

/// A raw client of the attacked helper.
struct Attacker {
    client: Client,
    nid: [u8; 20],
    args: Vec<String>,
}

impl Attacker {
    /// Connects; the arguments are the helper's path and address, and numbers.
    fn connect(name: &str, args: &[String]) -> Result<Attacker> {
        let parsed = args.split_first_chunk();
        let parsed = parsed.and_then(|([path, address], rest)| Some((path, address.parse().ok()?, rest)));
        let wrong = |problem: String| BenchError::Server { name: name.into(), problem };
        let (path, address, rest) = parsed
            .ok_or_else(|| wrong(format!("was given '{}', not a path and an address", args.join(" "))))?;
        let client = Client::connect(Path::new(path), name).map_err(wrong)?;
        Ok(Attacker { client, nid: wire::nid(address), args: rest.to_vec() })
    }

    fn numbers<const N: usize>(&self) -> Result<[u64; N]> {
        let numbers: Option<Vec<u64>> = self.args.iter().map(|arg| arg.parse().ok()).collect();
        numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| BenchError::Server {
            name: "of a stall".into(),
            problem: format!("was given '{}', not {N} numbers", self.args.join(" ")),
        })
    }

    /// Creates an arena of the largest size, and touches every page.
    fn touched(&mut self) -> Result<Arena, Errno> {
        let arena = self.client.arena(ARENA_BYTES, false)?;
        touch(&arena.memory);
        Ok(arena)
    }

    /// Starts `count` operations that never end, each on its own buffer; those beyond its share are
    /// refused.
    fn fill(&mut self, count: u64) -> Result<Tm, Errno> {
        let client = &mut self.client;
        let count = count
            .min([52, 60, 64].map(|limit| u64::from(client.limit(limit))).into_iter().min().unwrap_or(0));
        let arena = client.arena(PAGE as u64, false)?;
        let mut tm = client.start_tm(self.nid, PORTAL, count as u32)?;
        for number in 0..count {
            client.submit(&Entry::register(handle(number), arena.number, 0, PAGE as u64))?;
            let queue = queue::PASSIVE_RECEIVE;
            let passive = Entry::passive(queue, tm.handle, handle(number), number, number + 1, PAGE as u64);
            client.operate(&mut tm, &passive)?;
        }
        client.sync()?;
        Ok(tm)
    }

    /// Starts a transfer machine that sends to itself: buffers that fill these arenas, and one in a
    /// further arena to send from.
    fn receive_into(&mut self, arenas: &[Arena]) -> Result<Tm, Errno> {
        let from = self.client.arena(BULK, false)?;
        for number in 0..WINDOW {
            let arena = &arenas[number as usize % arenas.len()];
            let offset = number / arenas.len() as u64 * BULK;
            self.client.submit(&Entry::register(handle(number), arena.number, offset, BULK))?;
        }
        for number in WINDOW..2 * WINDOW {
            self.client.submit(&Entry::register(handle(number), from.number, 0, BULK))?;
        }
        self.client.start_tm(self.nid, PORTAL, 4 * WINDOW as u32)
    }

    /// Sends from the source buffer into all holes.
    fn receive_round(&mut self, tm: &mut Tm, round: u64) -> Result<(), Errno> {
        let counters = (0..WINDOW).map(|number| 1 + round * WINDOW + number);
        for (number, counter) in (0..).zip(counters.clone()) {
            let queue = queue::PASSIVE_RECEIVE;
            let passive = Entry::passive(queue, tm.handle, handle(number), number, counter, BULK);
            self.client.operate(tm, &passive)?;
        }
        for (number, counter) in (WINDOW..).zip(counters) {
            let to = tm.address.descriptor(counter, queue::PASSIVE_RECEIVE, BULK);
            let active = Entry::active(queue::ACTIVE_SEND, tm.handle, handle(number), number, BULK, &to);
            self.client.operate(tm, &active)?;
        }
        while tm.events.needed() > 0 {
            self.client.event(tm)?;
        }
        Ok(())
    }
}

fn touch(memory: &Memory) {
    (0..memory.len()).step_by(PAGE).for_each(|at| memory.write(at, &[1; 8]));
}

fn refused(name: &str, problem: &str) -> impl Fn(Errno) -> BenchError {
    move |errno| BenchError::Server { name: name.into(), problem: format!("{problem}: {errno}") }
}
