//! The progress of computing threads beside messages between two nodes (the rows `cpu/computing`
//! and `cpu/beside-computing`): a wait that polls before it sleeps must not take processors from
//! them.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pingpong;
use super::station::Wait;
use crate::cores;

use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::ours::nodes::Nodes;
use crate::ours::spin::steps;

/// Threads that compute, for each processor.
const THREADS_PER_PROCESSOR: usize = 2;

/// Steps between two checks of the end: some microseconds.
const STEPS: u64 = 4096;

/// Number of rounds that are measured together, over which the sharing of processors evens out.
const ROUNDS: u32 = 2;

/// Messages of 64 bytes with default waits beside threads that compute: millions of the threads'
/// steps in a second.
pub(crate) fn computed_by_default(round: &Round) -> Result<Sample> {
    both(round, Wait::Default).map(|rates| Sample::of(rates.steps / 1e6))
}

/// [`computed_by_default`], with waits that sleep at once.
pub(crate) fn computed_sleeping(round: &Round) -> Result<Sample> {
    both(round, Wait::Sleep).map(|rates| Sample::of(rates.steps / 1e6))
}

/// Messages of 64 bytes with default waits beside threads that compute: thousands of round trips in
/// a second.
pub(crate) fn messages_by_default(round: &Round) -> Result<Sample> {
    both(round, Wait::Default).map(|rates| Sample::of(rates.round_trips / 1e3))
}

/// [`messages_by_default`], with waits that sleep at once.
pub(crate) fn messages_sleeping(round: &Round) -> Result<Sample> {
    both(round, Wait::Sleep).map(|rates| Sample::of(rates.round_trips / 1e3))
}

/// The rates of both activities, per second.
struct Rates {
    /// Steps of all threads that compute.
    steps: f64,
    round_trips: f64,
}

fn both(round: &Round, wait: Wait) -> Result<Rates> {
    let threads = THREADS_PER_PROCESSOR * cores::count()?;
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let computing = (0..threads).map(|_| scope.spawn(|| compute(&done, &over))).collect::<Vec<_>>();
        let rates = pingpong::client(round, Nodes::choose()?, wait, 64, |_, turn| {
            let mut batch = || turn().map(|()| 1);
            Timed::repeat(round.time, &mut batch)?;
            let before = done.load(Ordering::Relaxed);
            let timed = Timed::repeat(ROUNDS * round.time, batch)?;
            let steps = done.load(Ordering::Relaxed) - before;
            Ok(Rates { steps: steps as f64 / timed.seconds, round_trips: timed.steps as f64 / timed.seconds })
        });
        over.store(true, Ordering::Relaxed);
        let computed = computing.into_iter().map(|thread| thread.join().expect("the thread does not panic"));
        computed.collect::<Vec<_>>().into_iter().collect::<Result<()>>()?;
        rates
    })
}

/// Computes on any processor until the end, and counts the steps.
fn compute(done: &AtomicU64, over: &AtomicBool) -> Result<()> {
    cores::roam()?;
    let mut state = 1;
    while !over.load(Ordering::Relaxed) {
        state = steps(state, STEPS);
        done.fetch_add(STEPS, Ordering::Relaxed);
    }
    black_box(state);
    Ok(())
}
