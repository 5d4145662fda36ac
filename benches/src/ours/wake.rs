use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lnet_api::{Clock, Drive, EventFd, Poll, Sleeper, Tokens, wait_until};

use crate::cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Ends the other thread; no turn is ever this.
const END: u64 = u64::MAX;

/// Two threads wake each other in turn; each waits as a thread waits for LNet that has nothing to drive itself.
/// Microseconds one way.
pub(crate) fn pingpong(round: &Round) -> Result<Sample> {
    let (there, back) = (Bell::new()?, Bell::new()?);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            cores::pin(round.cores.server)?;
            let mut turn = 1;
            while there.wait_for(turn) != END {
                back.ring(turn);
                turn += 1;
            }
            Ok(())
        });
        let mut turn = 0;
        let timed = Timed::warm(round.time, || {
            turn += 1;
            there.ring(turn);
            back.wait_for(turn);
            Ok(1)
        });
        there.ring(END);
        echo.join().expect("the echo does not panic")?;
        Ok(Sample::of(timed?.microseconds_per_step() / 2.0))
    })
}

/// What one thread waits for and the other brings about.
struct Bell {
    rung: AtomicU64,
    sleeper: Arc<dyn Sleeper>,
    clock: NothingToDrive,
}

impl Bell {
    fn new() -> Result<Bell> {
        let sleeper = Arc::new(EventFd::new().map_err(BenchError::system("make an eventfd"))?);
        let clock = NothingToDrive { started: Instant::now(), tokens: Tokens::new(0) };
        Ok(Bell { rung: AtomicU64::new(0), sleeper, clock })
    }

    fn ring(&self, turn: u64) {
        self.rung.store(turn, Ordering::Release);
        self.sleeper.wake();
    }

    fn wait_for(&self, turn: u64) -> u64 {
        let rung = || self.rung.load(Ordering::Acquire);
        wait_until(&self.clock, &self.sleeper, None, || rung() >= turn);
        rung()
    }
}

/// A node without networks.
struct NothingToDrive {
    started: Instant,
    tokens: Tokens,
}

impl Clock for NothingToDrive {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

impl Drive for NothingToDrive {
    fn shards(&self) -> usize {
        0
    }
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    fn poll(&self, _: usize, _: usize) -> Poll {
        Poll::default()
    }
    fn arm(&self, _: usize) -> bool {
        true
    }
    fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
        unreachable!("there are no shards")
    }
}
