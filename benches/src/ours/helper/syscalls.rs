//! System calls under load: of processes, as `perf` counts them; and of the working thread, for
//! each part of its work.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::calls::Calls;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::xo::pair::NetworkPath;
use crate::ours::xo::rate::Loaded;

const PERF: &str = "perf";

/// Shortest time for a count: long compared with the start of `perf`.
const LEAST: Duration = Duration::from_millis(500);

/// System calls of the client per operation, 64 messages in flight, each answered: both ends are
/// clients of helpers.
pub(crate) fn client(round: &Round) -> Result<Sample> {
    count(round, NetworkPath::Helpers, |_| vec![Pid::this()])
}

/// System calls of the client's helper per operation, under the load of [`client`].
pub(crate) fn helper(round: &Round) -> Result<Sample> {
    count(round, NetworkPath::Helpers, |load| load.helper().into_iter().collect())
}

/// System calls per operation of a program with the whole stack inside, under the load of
/// [`client`].
pub(crate) fn in_process(round: &Round) -> Result<Sample> {
    count(round, NetworkPath::InProcess, |_| vec![Pid::this()])
}

/// System calls per taken event, while events are available.
pub(crate) fn events(round: &Round, path: NetworkPath) -> Result<Sample> {
    apart(round, path).map(|[events, _, _]| events)
}

/// System calls for each operation that is submitted, in batches.
pub(crate) fn submissions(round: &Round, path: NetworkPath) -> Result<Sample> {
    apart(round, path).map(|[_, submissions, _]| submissions)
}

/// System calls per answer, while no event is available: of waiting for one, and of releasing
/// buffers.
pub(crate) fn waits(round: &Round, path: NetworkPath) -> Result<Sample> {
    apart(round, path).map(|[_, _, waits]| waits)
}

/// Counts the parts of the load of [`client`] separately.
fn apart(round: &Round, path: NetworkPath) -> Result<[Sample; 3]> {
    let mut load = Loaded::start(round, path)?;
    let mut calls = Calls::counted()?;
    let (mut done, mut made) = ([0; 3], [0; 3]);
    let begin = Instant::now();
    let warm = round.time / 4;
    while begin.elapsed() < round.time + warm {
        let is_warm = begin.elapsed() >= warm;
        let parts = [calls.of(|| load.take())?, calls.of(|| load.submit())?, calls.of(|| load.work())?];
        for (part, (count, calls)) in parts.into_iter().enumerate().filter(|_| is_warm) {
            done[part] += count;
            made[part] += calls;
        }
    }
    Ok([0, 1, 2].map(|part| Sample::of(made[part] as f64 / done[part] as f64)))
}

fn count(round: &Round, path: NetworkPath, of: impl FnOnce(&Loaded) -> Vec<Pid>) -> Result<Sample> {
    let time = round.time.max(LEAST);
    let mut load = Loaded::start(round, path)?;
    let warm = Instant::now();
    while warm.elapsed() < time / 4 {
        load.step()?;
    }
    let pids: Vec<String> = of(&load).iter().map(Pid::to_string).collect();
    let mut perf = Command::new(PERF)
        .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(",")])
        .args(["sleep", &time.as_secs_f64().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => not_counted("is not installed"),
            _ => BenchError::system("start perf")(error),
        })?;
    let begin = Instant::now();
    let mut answers = 0;
    while perf.try_wait().map_err(BenchError::system("wait for perf"))?.is_none() {
        for _ in 0..CHECK_ROUNDS {
            answers += load.step()?;
        }
    }
    let elapsed = begin.elapsed();
    let output = perf.wait_with_output().map_err(BenchError::system("read the output of perf"))?;
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    let calls = output.lines().find_map(|line| line.split(',').next()?.parse::<f64>().ok());
    let calls = calls.ok_or_else(|| not_counted(&format!("does not count: {}", output.trim())))?;
    // Rates, because `perf` counts a slightly shorter interval than is measured here. Each answer
    // is an operation of sending, and a part of one of receiving that is not counted.
    let per_second = answers as f64 / elapsed.as_secs_f64();
    Ok(Sample::of(calls / time.as_secs_f64() / per_second))
}

/// Rounds of messages between two checks of perf, which are system calls.
const CHECK_ROUNDS: usize = 64;

fn not_counted(problem: &str) -> BenchError {
    BenchError::Peer { program: PERF, problem: problem.to_string() }
}
