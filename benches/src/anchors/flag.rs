//! A cache line that two cores write alternately: the anchor of the queue's latency.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cores::{self, Cores};
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Round trips between two readings of the clock.
const BATCH: u64 = 256;

/// Turn number that ends the other thread; no real turn has it.
const END: u64 = u64::MAX;

/// A separate cache line; 128 bytes, because processors fetch lines in pairs.
#[repr(align(128))]
struct Flag(AtomicU64);

/// One cache line that two cores write alternately: no queue between them can be faster.
/// Nanoseconds one way.
pub(crate) fn pingpong(round: &Round) -> Result<Sample> {
    let flag = Flag(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&flag.0, round.cores));
        let mut turn = 0;
        let timed = Timed::warm(round.time, || {
            for _ in 0..BATCH {
                turn += 2;
                flag.0.store(turn - 1, Ordering::Release);
                while flag.0.load(Ordering::Acquire) != turn {
                    round.cores.relax();
                }
            }
            Ok(BATCH)
        });
        flag.0.store(END, Ordering::Release);
        echo.join().expect("the echo does not panic")?;
        Ok(Sample::of(timed?.nanoseconds_per_step() / 2.0))
    })
}

/// Answers each odd value with the next even one.
fn echo(flag: &AtomicU64, cores: Cores) -> Result<()> {
    cores::pin(cores.server)?;
    let mut turn = 1;
    loop {
        match flag.load(Ordering::Acquire) {
            END => return Ok(()),
            now if now == turn => {
                flag.store(turn + 1, Ordering::Release);
                turn += 2;
            }
            _ => cores.relax(),
        }
    }
}
