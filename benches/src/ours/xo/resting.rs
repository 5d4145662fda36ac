//! Processor time of idle and almost idle programs: the rows `cpu/…`.

use std::time::{Duration, Instant};

use super::pair::{NetworkPath, Pair};
use super::pingpong;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};

/// Messages of the client per second.
const MESSAGES_PER_SECOND: u32 = 100;

/// Number of rounds that are measured together, because the figures are small.
const ROUNDS: u32 = 4;

/// Time without messages after which all threads sleep.
const SETTLED: Duration = Duration::from_millis(300);

/// A client that sends 100 messages a second, each of which is answered, and always waits for
/// events: percent of a processor that its process uses.
pub(crate) fn paced(round: &Round) -> Result<Sample> {
    let mut pair = Pair::start(round, NetworkPath::InProcess, pingpong::NAME)?;
    pingpong::turn(&mut pair)?;
    let (begun, before_s) = (Instant::now(), meter::processor_seconds(&[])?);
    let mut next = begun;
    while begun.elapsed() < ROUNDS * round.time {
        pingpong::turn(&mut pair)?;
        next += Duration::from_secs(1) / MESSAGES_PER_SECOND;
        pair.party.rest_until(next)?;
    }
    let spent_s = meter::processor_seconds(&[])? - before_s;
    Ok(Sample::of(100.0 * spent_s / begun.elapsed().as_secs_f64()))
}

/// A node with a connection that waits and receives nothing: microseconds of processor time in a
/// second.
pub(crate) fn idle_node(round: &Round) -> Result<Sample> {
    idle(round, NetworkPath::InProcess)
}

/// A helper with a connection whose client waits and receives nothing: both processes, microseconds
/// of processor time in a second.
pub(crate) fn idle_helper(round: &Round) -> Result<Sample> {
    idle(round, NetworkPath::Helpers)
}

/// Returns the processor time of all processes of a pair but this one, while this one sleeps.
fn idle(round: &Round, path: NetworkPath) -> Result<Sample> {
    let mut pair = Pair::start(round, path, pingpong::NAME)?;
    pingpong::turn(&mut pair)?;
    std::thread::sleep(SETTLED);
    let pids = pair.pids();
    let (begun, before_s) = (Instant::now(), meter::processor_seconds_of(&pids)?);
    std::thread::sleep(ROUNDS * round.time);
    let spent_s = meter::processor_seconds_of(&pids)? - before_s;
    Ok(Sample::of(1e6 * spent_s / begun.elapsed().as_secs_f64()))
}
