use lnet_api::AckRequest;

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "lnet-rate";

const MESSAGE: usize = 64;

/// PUTs without an acknowledgement, at the most.
const WINDOW: u64 = 64;

/// The one buffer of each side.
const SLOT: usize = 0;

/// Acknowledged PUTs of 64 bytes, 64 in flight, each to a place of its own in the server's buffer: millions per second.
pub(crate) fn puts(round: &Round) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let station = Station::client(nodes)?;
    let _server = Server::start(NAME, round.cores, &nodes.args(&[]))?;
    let message = station.bind(SLOT, buffer(MESSAGE)?)?;
    let mut sent = 0_u64;
    let timed = Timed::warm(round.time, || {
        let acked = station.ended(SLOT);
        while sent < acked + WINDOW {
            let place = (sent % WINDOW) as u32 * MESSAGE as u32;
            station.put(message, SLOT, place, AckRequest::Ack)?;
            sent += 1;
        }
        station.wait_for(SLOT, acked + 1, Wait::Sleep)?;
        Ok(station.ended(SLOT) - acked)
    })?;
    Ok(Sample::of(timed.millions_per_second()))
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let station = Station::server(Nodes::parse(args)?.0)?;
    station.post(SLOT, buffer(WINDOW as usize * MESSAGE)?)?;
    server::ready("")?;
    station.serve()
}
