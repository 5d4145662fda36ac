use lnet_api::AckRequest;

use super::Network;
use super::station::{Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

/// Where messages arrive, on both sides.
const INBOX: usize = 0;
/// What messages are sent from, on both sides.
const OUTBOX: usize = 1;

/// PUTs of `LENGTH` bytes, sleeping: microseconds one way.
pub(crate) fn sleeping<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong::<Nodes>(round, Wait::Sleep, LENGTH)
}

/// PUTs of `LENGTH` bytes, polling: microseconds one way.
pub(crate) fn polling<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong::<Nodes>(round, Wait::Poll(round.cores), LENGTH)
}

/// PUTs of `length` bytes there and back over any network: microseconds one way.
pub(crate) fn pingpong<N: Network>(round: &Round, wait: Wait, length: usize) -> Result<Sample> {
    let nodes = N::choose()?;
    let station = nodes.client()?;
    let server = Server::start(N::PINGPONG, round.cores, &nodes.args(&[&wait.name(), &length]))?;
    station.post(INBOX, buffer(length)?)?;
    let message = station.bind(OUTBOX, buffer(length)?)?;
    let mut turn = 0;
    meter::pingpong(round.time, &server, || {
        turn += 1;
        station.put(message, INBOX, 0, AckRequest::NoAck)?;
        station.wait_for(INBOX, turn, wait)?;
        Ok(1)
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
