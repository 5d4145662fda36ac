use lnet_api::AckRequest;

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "lnet-pingpong";

const MESSAGE: usize = 64;

/// Where messages arrive, on both sides.
const INBOX: usize = 0;
/// What messages are sent from, on both sides.
const OUTBOX: usize = 1;

/// Microseconds one way, sleeping.
pub(crate) fn sleeping(round: &Round) -> Result<Sample> {
    pingpong(round, Wait::Sleep)
}

/// Microseconds one way, polling.
pub(crate) fn polling(round: &Round) -> Result<Sample> {
    pingpong(round, Wait::Poll(round.cores))
}

fn pingpong(round: &Round, wait: Wait) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let mode = if wait == Wait::Sleep { "sleep" } else { "poll" };
    let station = Station::client(nodes)?;
    let _server = Server::start(NAME, round.cores, &nodes.args(&[&mode]))?;
    station.post(INBOX, buffer(MESSAGE)?)?;
    let message = station.bind(OUTBOX, buffer(MESSAGE)?)?;
    let mut turn = 0;
    let timed = Timed::warm(round.time, || {
        turn += 1;
        station.put(message, INBOX, 0, AckRequest::NoAck)?;
        station.wait_for(INBOX, turn, wait)?;
        Ok(1)
    })?;
    Ok(Sample::of(timed.microseconds_per_step() / 2.0))
}

pub(crate) fn serve(cores: Cores, args: &[String]) -> Result<()> {
    let (nodes, args) = Nodes::parse(args)?;
    let wait = if args.first().is_some_and(|mode| mode == "poll") { Wait::Poll(cores) } else { Wait::Sleep };
    let station = Station::server(nodes)?;
    station.post(INBOX, buffer(MESSAGE)?)?;
    let message = station.bind(OUTBOX, buffer(MESSAGE)?)?;
    server::ready("")?;
    for turn in 1.. {
        station.wait_for(INBOX, turn, wait)?;
        station.put(message, INBOX, 0, AckRequest::NoAck)?;
    }
    Ok(())
}
