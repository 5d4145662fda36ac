//! The longest that a message takes while clients that have very much depart from the helper.

use std::path::Path;
use std::time::{Duration, Instant};

use nlx::{Receive, TmOptions};

use super::process::{self, Helper};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::xo::pingpong;
use crate::server::{self, PATIENCE, Server};

pub(crate) const RICH: &str = "helper-rich";

/// Operations in flight of the client that departs, each with a buffer of its own: half of what a client may have by default,
/// because one user alone has half of LNet's tables.
const OPERATIONS: usize = 1 << 15;

/// Bytes of one buffer.
const BUFFER: usize = 64;

/// Memory beside them, every page of which was touched.
const MEMORY: usize = 512;
const CHUNK: usize = 1 << 20;

/// The longest round trip in milliseconds beside departures: the client is killed as soon as it has everything, and what
/// follows is measured for a while.
pub(crate) fn departures(round: &Round) -> Result<Sample> {
    let longest = pingpong::longest_beside(round, |helper, number, turns| {
        // The message goes on meanwhile: the other side waits for it, and not for long.
        let rich = std::thread::scope(|scope| {
            let starting = scope.spawn(|| rich(helper, round.cores, number));
            while !starting.is_finished() {
                turns()?;
            }
            let failed = |_| BenchError::Server { name: RICH.into(), what: "was not started".into() };
            starting.join().map_err(failed)?
        })?;
        let begin = Instant::now();
        drop(rich);
        let mut longest = Duration::ZERO;
        while begin.elapsed() < round.time {
            longest = longest.max(turns()?);
        }
        Ok(longest)
    })?;
    Ok(Sample::of(longest.as_secs_f64() * 1e3))
}

/// A process that is a client of this helper with very much.
fn rich(helper: &Helper, cores: Cores, number: usize) -> Result<Server> {
    Server::start(RICH, cores, &[helper.path().display().to_string(), helper.address(), number.to_string()])
}

/// Takes very much, and waits for its end.
pub(crate) fn serve_rich(_: Cores, args: &[String]) -> Result<()> {
    let [path, address, number] = args else {
        return Err(BenchError::Server {
            name: RICH.into(),
            what: "was not told a path, an address and a number".into(),
        });
    };
    process::many_descriptors();
    let domain = process::through(Path::new(path))?;
    let own = format!("{address}@tcp:12345:41:{}", number.parse::<u32>().unwrap_or(0) % 1000 + 100);
    let tm = domain
        .transfer_machine(&own, TmOptions::default())
        .map_err(BenchError::nlx("start a transfer machine"))?;
    for _ in 0..OPERATIONS {
        let buffer = domain.allocate(BUFFER).map_err(BenchError::nlx("allocate a buffer"))?;
        tm.receive(buffer, Receive { min_receive_size: 1, max_messages: 1 }, None)
            .map_err(BenchError::nlx("receive"))?;
    }
    let mut memory = Vec::with_capacity(MEMORY);
    for _ in 0..MEMORY {
        let mut chunk = domain.allocate(CHUNK).map_err(BenchError::nlx("allocate memory"))?;
        chunk.write().map_err(BenchError::nlx("touch memory"))?.fill(1);
        memory.push(chunk);
    }
    server::ready(memory.len())?;
    loop {
        std::thread::park_timeout(PATIENCE);
    }
}
