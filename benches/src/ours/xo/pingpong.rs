//! Messages answered by messages, one at a time.

use std::time::{Duration, Instant};

use super::pair::{self, NetworkPath, Pair};
use super::party::Party;
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::helper::process::Helper;
use crate::ours::nodes::Nodes;
use crate::server;

pub(crate) const NAME: &str = "xo-pingpong";

const MESSAGE: usize = 64;

/// Length of the intervals in which messages with and without the other work alternate: long
/// compared with a message, short compared with disturbances of the machine.
const MOMENT: Duration = Duration::from_millis(5);

/// Messages answered by messages, with default waits: microseconds one way.
pub(crate) fn default(round: &Round) -> Result<Sample> {
    by(round, NetworkPath::InProcess)
}

/// [`default`] by any path to the network.
pub(crate) fn by(round: &Round, path: NetworkPath) -> Result<Sample> {
    let mut pair = Pair::start(round, path, NAME)?;
    let pids = pair.pids();
    meter::pingpong(round.time, &pids, || turn(&mut pair))
}

/// The ratio of the times of a message through helpers, with and without other work of one side's
/// helper. Messages with it and without, through separate helpers, alternate in short intervals, so
/// that other disturbances hit both alike.
pub(crate) fn beside<T>(round: &Round, other: impl FnOnce(&Helper) -> Result<T>) -> Result<Sample> {
    let mut alone = Pair::at(Nodes::choose()?, round, NetworkPath::Helpers, NAME)?;
    let mut beside = Pair::at(Nodes::choose_more()?, round, NetworkPath::Helpers, NAME)?;
    let _other = beside.helper().map(other).transpose()?;
    let mut times = [Duration::ZERO; 2];
    let mut messages = [0; 2];
    let begin = Instant::now();
    // The first moments are for warming up.
    let warm = round.time / 10;
    while begin.elapsed() < 2 * round.time + warm {
        for (side, pair) in [&mut beside, &mut alone].into_iter().enumerate() {
            let is_warm = begin.elapsed() >= warm;
            turn(pair)?;
            let since = Instant::now();
            let mut count = 0;
            while since.elapsed() < MOMENT {
                count += turn(pair)?;
            }
            if is_warm {
                times[side] += since.elapsed();
                messages[side] += count;
            }
        }
    }
    let [beside, alone] = [0, 1].map(|side| times[side].as_secs_f64() / messages[side] as f64);
    Ok(Sample::of(beside / alone))
}

/// Runs `beside`, which makes round trips through helpers during other work of one side's helper.
/// Its arguments are the helper and a function that makes a round trip and returns its time.
pub(crate) fn trips_beside<T>(
    round: &Round,
    path: NetworkPath,
    beside: impl FnOnce(&Helper, &mut dyn FnMut() -> Result<Duration>) -> Result<T>,
) -> Result<T> {
    let Pair { mut party, helpers, server } = Pair::at(Nodes::choose()?, round, path, NAME)?;
    let mut trip = || {
        let since = Instant::now();
        party.send_messages(1, MESSAGE)?;
        await_message(&mut party)?;
        Ok(since.elapsed())
    };
    let warm = Instant::now();
    while warm.elapsed() < round.time / 10 {
        trip()?;
    }
    let helper = helpers.first().ok_or(BenchError::Wrong {
        subject: "the number of helpers",
        value: 0,
        expected: 1,
    })?;
    let outcome = beside(helper, &mut trip);
    drop(party);
    drop(server);
    outcome
}

/// Sends a message to the other side, and receives its answer; returns the number of round trips,
/// which is 1.
pub(super) fn turn(pair: &mut Pair) -> Result<u64> {
    pair.party.send_messages(1, MESSAGE)?;
    await_message(&mut pair.party)?;
    Ok(1)
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let mut party = pair::served(args)?;
    server::ready("")?;
    loop {
        await_message(&mut party)?;
        party.send_messages(1, MESSAGE)?;
    }
}

/// Waits for the peer's message.
fn await_message(party: &mut Party) -> Result<()> {
    let mut received = false;
    while !received {
        party.next(|_| received = true)?;
    }
    Ok(())
}
