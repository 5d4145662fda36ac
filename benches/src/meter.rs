//! Time, and processor time.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};

use crate::error::{BenchError, Result};
use crate::server::Server;

/// How much was done in how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) steps: u64,
    pub(crate) seconds: f64,
}

impl Timed {
    /// Repeats a batch of steps, which says how many it did, until the time is over. The clock is read once per batch.
    pub(crate) fn repeat(time: Duration, mut batch: impl FnMut() -> Result<u64>) -> Result<Timed> {
        let begin = Instant::now();
        let mut steps = 0;
        loop {
            steps += batch()?;
            let elapsed = begin.elapsed();
            if elapsed >= time {
                return Ok(Timed { steps, seconds: elapsed.as_secs_f64() });
            }
        }
    }

    /// [`Timed::repeat`], after a tenth of the time for warming up.
    pub(crate) fn warm(time: Duration, mut batch: impl FnMut() -> Result<u64>) -> Result<Timed> {
        Timed::repeat(warm_up(time), &mut batch)?;
        Timed::repeat(time, batch)
    }

    pub(crate) fn millions_per_second(self) -> f64 {
        self.steps as f64 / self.seconds / 1e6
    }

    pub(crate) fn nanoseconds_per_step(self) -> f64 {
        self.seconds * 1e9 / self.steps as f64
    }

    pub(crate) fn microseconds_per_step(self) -> f64 {
        self.nanoseconds_per_step() / 1e3
    }
}

/// How long a side warms up before a round of this length.
fn warm_up(time: Duration) -> Duration {
    time / 10
}

/// Measures single steps by this thread's processor time: so other programs that take the core in the middle of a step
/// don't count, but page faults do.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    since: Duration,
    longest: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Result<Stopwatch> {
        Ok(Stopwatch { since: thread_time()?, longest: Duration::ZERO })
    }

    /// A step is done, and the next one begins.
    pub(crate) fn lap(&mut self) -> Result<()> {
        let now = thread_time()?;
        self.longest = self.longest.max(now.saturating_sub(self.since));
        self.since = now;
        Ok(())
    }

    pub(crate) fn longest_ms(&self) -> f64 {
        self.longest.as_secs_f64() * 1e3
    }
}

fn thread_time() -> Result<Duration> {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    spent.map(Duration::from).map_err(BenchError::system("read the thread's clock"))
}

/// What one side of one round has come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// In the row's unit.
    pub(crate) value: f64,
    /// Processor seconds, both processes together, per GiB moved; bulk only.
    pub(crate) cpu_s_per_gib: Option<f64>,
}

impl Sample {
    pub(crate) fn of(value: f64) -> Sample {
        Sample { value, cpu_s_per_gib: None }
    }
}

/// Repeats a batch of steps that move `bytes_per_step` each until the time is over (after a tenth of it for warming up),
/// and reckons GB/s and the processor time of this process and the server.
pub(crate) fn bulk(
    time: Duration,
    server: &Server,
    bytes_per_step: usize,
    mut batch: impl FnMut() -> Result<u64>,
) -> Result<Sample> {
    Timed::repeat(warm_up(time), &mut batch)?;
    let before = processor_seconds(server)?;
    let timed = Timed::repeat(time, batch)?;
    let spent = processor_seconds(server)? - before;
    let bytes = timed.steps as f64 * bytes_per_step as f64;
    const GIB: f64 = (1u64 << 30) as f64;
    Ok(Sample { value: bytes / timed.seconds / 1e9, cpu_s_per_gib: Some(spent / (bytes / GIB)) })
}

fn processor_seconds(server: &Server) -> Result<f64> {
    let theirs = clock_getcpuclockid(server.pid()).map_err(BenchError::system("find the server's clock"))?;
    let mut seconds = 0.0;
    for clock in [ClockId::CLOCK_PROCESS_CPUTIME_ID, theirs] {
        let spent = clock_gettime(clock).map_err(BenchError::system("read a processor clock"))?;
        seconds += Duration::from(spent).as_secs_f64();
    }
    Ok(seconds)
}
