use std::time::Instant;

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::server::PATIENCE;

/// Looks at the clock once in so many turns.
const TURNS: u32 = 1 << 20;

/// Waits in a loop for another process to write to memory, but not for ever: the other process can die.
#[derive(Debug)]
pub(crate) struct Spin {
    cores: Cores,
    what: &'static str,
    turns: u32,
    progress: u64,
    since: Option<Instant>,
}

impl Spin {
    pub(crate) fn new(cores: Cores, what: &'static str) -> Spin {
        Spin { cores, what, turns: 0, progress: 0, since: None }
    }

    /// One turn of the loop. While `progress` changes from time to time, patience does not end.
    #[inline]
    pub(crate) fn turn(&mut self, progress: u64) -> Result<()> {
        self.turns += 1;
        self.cores.relax();
        if self.turns == TURNS { self.look_at_the_clock(progress) } else { Ok(()) }
    }

    #[cold]
    fn look_at_the_clock(&mut self, progress: u64) -> Result<()> {
        self.turns = 0;
        let since = self.since.filter(|_| self.progress == progress).unwrap_or_else(Instant::now);
        (self.progress, self.since) = (progress, Some(since));
        if since.elapsed() < PATIENCE {
            return Ok(());
        }
        Err(BenchError::TimedOut { what: self.what, seconds: PATIENCE.as_secs() })
    }
}

/// So many steps of a computation in registers, each of which needs the result of the one before: a xorshift generator. No compiler
/// finds a shorter way, and it is as fast wherever it is called.
pub(crate) fn steps(state: u64, count: u64) -> u64 {
    (0..count).fold(state, |state, _| {
        let state = state ^ (state << 13);
        let state = state ^ (state >> 7);
        state ^ (state << 17)
    })
}
