//! Time, and processor time.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::error::{BenchError, Result};
use crate::server::Server;

/// Processes whose time is counted in addition to this one's.
pub(crate) trait Processes {
    fn pids(&self) -> Vec<Pid>;
}

impl Processes for Server {
    fn pids(&self) -> Vec<Pid> {
        vec![self.pid()]
    }
}

impl Processes for Vec<Pid> {
    fn pids(&self) -> Vec<Pid> {
        self.clone()
    }
}

/// A number of steps and the time that they took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) steps: u64,
    pub(crate) seconds: f64,
}

impl Timed {
    /// Repeats a batch of steps, which returns its number of steps, until the time is over. The
    /// clock is read once per batch.
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

    /// Runs [`Timed::repeat`] after warming up for a tenth of the time.
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

/// Returns the warm-up time before a round of this length.
fn warm_up(time: Duration) -> Duration {
    time / 10
}

/// Measures single steps by this thread's processor time: the time of other programs that use the
/// core during a step is not counted, but page faults are.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    since: Duration,
    longest: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Result<Stopwatch> {
        Ok(Stopwatch { since: thread_time()?, longest: Duration::ZERO })
    }

    /// Ends a step and begins the next one.
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

/// The result of one side of one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// In the row's unit.
    pub(crate) value: f64,
    /// The processor time of both processes together, if it was measured.
    pub(crate) cpu: Option<CpuTime>,
}

impl Sample {
    pub(crate) fn of(value: f64) -> Sample {
        Sample { value, cpu: None }
    }
}

/// Processor time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CpuTime {
    /// Seconds for each GiB moved.
    PerGib(f64),
    /// Microseconds for each message.
    PerMessage(f64),
}

impl CpuTime {
    pub(crate) fn value(self) -> f64 {
        match self {
            CpuTime::PerGib(value) | CpuTime::PerMessage(value) => value,
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            CpuTime::PerGib(_) => "s/GiB",
            CpuTime::PerMessage(_) => "µs/msg",
        }
    }

    /// Returns the same unit with another value.
    pub(crate) fn with(self, value: f64) -> CpuTime {
        match self {
            CpuTime::PerGib(_) => CpuTime::PerGib(value),
            CpuTime::PerMessage(_) => CpuTime::PerMessage(value),
        }
    }
}

/// Repeats a batch of steps that move `bytes_per_step` each until the time is over (after a tenth
/// of it for warming up); returns GB/s and the processor time of all processes.
pub(crate) fn bulk(
    time: Duration,
    others: &impl Processes,
    bytes_per_step: usize,
    batch: impl FnMut() -> Result<u64>,
) -> Result<Sample> {
    const GIB: f64 = (1u64 << 30) as f64;
    let (timed, spent_s) = costed(time, others, batch)?;
    let bytes = timed.steps as f64 * bytes_per_step as f64;
    let cpu = Some(CpuTime::PerGib(spent_s / (bytes / GIB)));
    Ok(Sample { value: bytes / timed.seconds / 1e9, cpu })
}

/// Repeats a batch of round trips; returns the microseconds of one way and the processor time of a
/// message in one direction.
pub(crate) fn pingpong(
    time: Duration,
    others: &impl Processes,
    batch: impl FnMut() -> Result<u64>,
) -> Result<Sample> {
    let (timed, spent_s) = costed(time, others, batch)?;
    let messages = 2.0 * timed.steps as f64;
    let cpu = Some(CpuTime::PerMessage(spent_s * 1e6 / messages));
    Ok(Sample { value: timed.seconds * 1e6 / messages, cpu })
}

/// Repeats a batch of messages; returns millions of messages per second and the processor time of
/// one with its answer.
pub(crate) fn rate(
    time: Duration,
    others: &impl Processes,
    batch: impl FnMut() -> Result<u64>,
) -> Result<Sample> {
    let (timed, spent_s) = costed(time, others, batch)?;
    let cpu = Some(CpuTime::PerMessage(spent_s * 1e6 / timed.steps as f64));
    Ok(Sample { value: timed.millions_per_second(), cpu })
}

/// Runs [`Timed::warm`]; returns also the processor seconds of this process and the others.
fn costed(
    time: Duration,
    others: &impl Processes,
    mut batch: impl FnMut() -> Result<u64>,
) -> Result<(Timed, f64)> {
    let pids = others.pids();
    Timed::repeat(warm_up(time), &mut batch)?;
    let before = processor_seconds(&pids)?;
    let timed = Timed::repeat(time, batch)?;
    Ok((timed, processor_seconds(&pids)? - before))
}

/// Returns the processor time of this process and the others, in seconds.
pub(crate) fn processor_seconds(others: &[Pid]) -> Result<f64> {
    Ok(seconds_of(ClockId::CLOCK_PROCESS_CPUTIME_ID)? + processor_seconds_of(others)?)
}

/// Returns the processor time of these processes, in seconds.
pub(crate) fn processor_seconds_of(processes: &[Pid]) -> Result<f64> {
    let seconds = processes.iter().map(|&process| {
        let clock = clock_getcpuclockid(process).map_err(BenchError::system("find a server's clock"))?;
        seconds_of(clock)
    });
    seconds.sum()
}

fn seconds_of(clock: ClockId) -> Result<f64> {
    let spent = clock_gettime(clock).map_err(BenchError::system("read a processor clock"))?;
    Ok(Duration::from(spent).as_secs_f64())
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> Result<f64> {
    resident_bytes_of(Pid::this())
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident_bytes_of(process: Pid) -> Result<f64> {
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm"));
    let pages = pages.map_err(BenchError::system("read statm"))?;
    let resident = pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    let page = sysconf(SysconfVar::PAGE_SIZE).map_err(BenchError::system("ask for the size of a page"))?;
    Ok(resident.unwrap_or(0.0) * page.unwrap_or(0) as f64)
}
