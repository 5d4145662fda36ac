use lnet_api::AckRequest;

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "lnet-pingpong";

/// Where messages arrive, on both sides.
const INBOX: usize = 0;
/// What messages are sent from, on both sides.
const OUTBOX: usize = 1;

/// PUTs of `LENGTH` bytes, sleeping: microseconds one way.
pub(crate) fn sleeping<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong(round, Wait::Sleep, LENGTH)
}

/// PUTs of `LENGTH` bytes, polling: microseconds one way.
pub(crate) fn polling<const LENGTH: usize>(round: &Round) -> Result<Sample> {
    pingpong(round, Wait::Poll(round.cores), LENGTH)
}

fn pingpong(round: &Round, wait: Wait, length: usize) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let mode = if wait == Wait::Sleep { "sleep" } else { "poll" };
    let station = Station::client(nodes)?;
    let server = Server::start(NAME, round.cores, &nodes.args(&[&mode, &length]))?;
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

pub(crate) fn serve(cores: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = Nodes::parse(args)?;
    let wait = if args.first().is_some_and(|mode| mode == "poll") { Wait::Poll(cores) } else { Wait::Sleep };
    let length = args.get(1).and_then(|length| length.parse().ok()).unwrap_or(0);
    let station = Station::server(nodes)?;
    station.post(INBOX, buffer(length)?)?;
    let message = station.bind(OUTBOX, buffer(length)?)?;
    server::ready("")?;
    for turn in 1.. {
        station.wait_for(INBOX, turn, wait)?;
        station.put(message, INBOX, 0, AckRequest::NoAck)?;
    }
    Ok(())
}
