//! The costs of clients in a helper.

use std::path::Path;

use nlx::{Domain, TmOptions};

use super::process::{self, Helper};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample, Timed};
use crate::ours::nodes::Nodes;
use crate::ours::xo::pingpong;
use crate::server::{self, STEP_TIMEOUT, Server};

pub(crate) const CROWD: &str = "helper-crowd";

/// Buffers of one arena, 64 bytes each.
const BUFFER: usize = 64;

/// Attaching to a helper and leaving it: microseconds.
pub(crate) fn attach(round: &Round) -> Result<Sample> {
    let (helper, _) = alone(round)?;
    let timed = Timed::warm(round.time, || {
        drop(helper.domain()?);
        Ok(1)
    })?;
    Ok(Sample::of(timed.microseconds_per_step()))
}

/// Resident memory of the helper for each of `COUNT` idle clients: bytes.
pub(crate) fn client<const COUNT: usize>(round: &Round) -> Result<Sample> {
    process::many_descriptors();
    let (helper, _) = alone(round)?;
    let first = helper.domain()?;
    each(&helper, COUNT, |_| helper.domain()).inspect(|_| drop(first))
}

/// Resident memory of the helper for each of `COUNT` transfer machines of one client without
/// operations: bytes.
pub(crate) fn machine<const COUNT: usize>(round: &Round) -> Result<Sample> {
    let (helper, address) = alone(round)?;
    let domain = helper.domain()?;
    each(&helper, COUNT, |_| {
        domain
            .transfer_machine(&address, TmOptions::default())
            .map_err(BenchError::nlx("start a transfer machine"))
    })
}

/// Resident memory of the helper for each of `COUNT` buffers that are registered and not used,
/// without their memory: bytes.
pub(crate) fn buffer<const COUNT: usize>(round: &Round) -> Result<Sample> {
    let (helper, address) = alone(round)?;
    let domain = helper.domain()?;
    let taken = |domain: &Domain| domain.allocate(BUFFER).map_err(BenchError::nlx("allocate a buffer"));
    let _first = taken(&domain)?;
    each(&helper, COUNT, |last| {
        let buffer = taken(&domain)?;
        if last {
            // A request: all earlier entries of the ring are processed before it.
            domain
                .transfer_machine(&address, TmOptions::default())
                .map_err(BenchError::nlx("start a transfer machine"))?;
        }
        Ok(buffer)
    })
}

/// Creates `count` objects; returns the growth of the helper's memory per object.
fn each<T>(helper: &Helper, count: usize, mut make: impl FnMut(bool) -> Result<T>) -> Result<Sample> {
    let before = meter::resident_bytes_of(helper.pid())?;
    let mut made = Vec::with_capacity(count);
    for number in 1..=count {
        made.push(make(number == count)?);
    }
    let after = meter::resident_bytes_of(helper.pid())?;
    Ok(Sample::of((after - before) / count as f64))
}

/// The ratio of the times of a message between two clients of different helpers, with and without
/// `COUNT` idle clients attached to one of the helpers.
pub(crate) fn in_a_crowd<const COUNT: usize>(round: &Round) -> Result<Sample> {
    pingpong::beside(round, |helper| {
        Server::start(CROWD, round.cores, &[helper.path().display().to_string(), COUNT.to_string()])
    })
}

/// Attaches a number of clients to a helper, which do nothing.
pub(crate) fn serve_crowd(_: Cores, args: &[String]) -> Result<()> {
    process::many_descriptors();
    let (path, count) = match args {
        [path, count] => (Path::new(path), count.parse().unwrap_or(0)),
        _ => (Path::new(""), 0),
    };
    let clients = (0..count).map(|_| process::through(path)).collect::<Result<Vec<_>>>()?;
    server::ready(clients.len())?;
    loop {
        std::thread::park_timeout(STEP_TIMEOUT);
    }
}

/// Starts a helper; returns it and an address for a transfer machine there.
fn alone(round: &Round) -> Result<(Helper, String)> {
    let nodes = Nodes::choose()?;
    let helper = Helper::start(round.cores, nodes, nodes.client)?;
    Ok((helper, format!("{}@tcp:12345:40:*", nodes.client)))
}
