//! Processor time of programs that have little or nothing to do: the rows `cpu/…`.

use std::time::{Duration, Instant};

use super::pair::{Pair, Way};
use super::pingpong;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};

/// What the client sends in a second.
const MESSAGES_PER_SECOND: u32 = 100;

/// Measured for this many rounds: the figures are small.
const ROUNDS: u32 = 4;

/// After this time without messages everything has gone to sleep.
const SETTLED: Duration = Duration::from_millis(300);

/// A client that sends 100 messages a second, each of which is answered, and waits for events all the time: percent of a
/// processor that its process takes.
pub(crate) fn paced(round: &Round) -> Result<Sample> {
    let mut pair = Pair::start(round, Way::InProcess, pingpong::NAME)?;
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

/// A node that waits for messages and gets none, with a connection: microseconds of processor time in a second.
pub(crate) fn idle_node(round: &Round) -> Result<Sample> {
    idle(round, Way::InProcess)
}

/// A helper that has a client which waits and gets nothing, and a connection: both processes, microseconds of processor time
/// in a second.
pub(crate) fn idle_helper(round: &Round) -> Result<Sample> {
    idle(round, Way::Helpers)
}

/// What all processes of a pair but this one spend while this one sleeps.
fn idle(round: &Round, way: Way) -> Result<Sample> {
    let mut pair = Pair::start(round, way, pingpong::NAME)?;
    pingpong::turn(&mut pair)?;
    std::thread::sleep(SETTLED);
    let pids = pair.pids();
    let (begun, before_s) = (Instant::now(), meter::processor_seconds_of(&pids)?);
    std::thread::sleep(ROUNDS * round.time);
    let spent_s = meter::processor_seconds_of(&pids)? - before_s;
    Ok(Sample::of(1e6 * spent_s / begun.elapsed().as_secs_f64()))
}
