//! PUTs answered by PUTs.

use lnet_api::AckRequest;

use super::Network;
use super::station::{Wait, buffer};
#[cfg(feature = "verbs")]
use crate::calls::Calls;
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

/// The buffer that receives messages, on both sides.
const INBOX: usize = 0;
/// The buffer that messages are sent from, on both sides.
const OUTBOX: usize = 1;

/// PUTs of `LENGTH` bytes, sleeping: microseconds one way.
pub(crate) fn sleeping<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong::<Nodes>(round, Wait::Sleep, LENGTH)
}

/// PUTs of `LENGTH` bytes, polling: microseconds one way.
pub(crate) fn polling<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong::<Nodes>(round, Wait::Poll(round.cores), LENGTH)
}

/// PUTs of `LENGTH` bytes, with default waits: microseconds one way.
pub(crate) fn default<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong::<Nodes>(round, Wait::Default, LENGTH)
}

/// [`default`] between nodes with `PARTITIONS` partitions and one waiting thread each.
pub(crate) fn one_waiter<const PARTITIONS: usize>(round: &Round) -> Result<Sample> {
    timed(round, Nodes::choose()?.partitioned(PARTITIONS), Wait::Default, 64)
}

/// PUTs of `length` bytes in both directions over any network: microseconds one way.
pub(crate) fn pingpong<N: Network>(round: &Round, wait: Wait, length: usize) -> Result<Sample> {
    timed(round, N::choose()?, wait, length)
}

fn timed<N: Network>(round: &Round, nodes: N, wait: Wait, length: usize) -> Result<Sample> {
    client(round, nodes, wait, length, |server, turn| {
        meter::pingpong(round.time, server, || turn().map(|()| 1))
    })
}

/// PUTs of `length` bytes in both directions, sleeping: system calls of the client per round trip.
#[cfg(feature = "verbs")]
pub(crate) fn calls<N: Network>(round: &Round, length: usize) -> Result<Sample> {
    /// Turns until all tables have their final size, and turns that are counted.
    const TURNS: u64 = 20;
    client(round, N::choose()?, Wait::Sleep, length, |_, turn| {
        let mut calls = Calls::counted()?;
        (0..TURNS).try_for_each(|_| turn())?;
        let ((), made) = calls.of(|| (0..TURNS).try_for_each(|_| turn()))?;
        Ok(Sample::of(made as f64 / TURNS as f64))
    })
}

/// Runs the measuring side: calls `measure` with a function that sends a message and receives its
/// answer.
pub(super) fn client<N: Network, R>(
    round: &Round,
    nodes: N,
    wait: Wait,
    length: usize,
    measure: impl FnOnce(&Server, &mut dyn FnMut() -> Result<()>) -> Result<R>,
) -> Result<R> {
    let station = nodes.client()?;
    let server = Server::start(N::PINGPONG, round.cores, &nodes.args(&[&wait.name(), &length]))?;
    station.post(INBOX, buffer(length)?)?;
    let message = station.bind(OUTBOX, buffer(length)?)?;
    let mut turn = 0;
    measure(&server, &mut || {
        turn += 1;
        station.put(message, INBOX, 0, AckRequest::NoAck)?;
        station.wait_for(INBOX, turn, wait)
    })
}

pub(crate) fn serve<N: Network>(cores: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = N::parse(args)?;
    let wait = Wait::parse(args.first(), cores);
    let length = args.get(1).and_then(|length| length.parse().ok()).unwrap_or(0);
    let station = nodes.server()?;
    station.post(INBOX, buffer(length)?)?;
    let message = station.bind(OUTBOX, buffer(length)?)?;
    server::ready("")?;
    for turn in 1.. {
        station.wait_for(INBOX, turn, wait)?;
        station.put(message, INBOX, 0, AckRequest::NoAck)?;
    }
    Ok(())
}
