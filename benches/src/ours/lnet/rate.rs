//! Small PUTs, acknowledged or answered, 64 in flight.

use lnet_api::AckRequest;

use super::station::{Station, Wait, buffer};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "lnet-rate";
pub(crate) const ANSWERING: &str = "lnet-answering";

const MESSAGE: usize = 64;

/// Largest number of PUTs without an acknowledgement or answer.
pub(crate) const WINDOW: u64 = 64;

/// The buffer that receives PUTs, on both sides; the client's events of acknowledged PUTs count for
/// it too.
const INBOX: usize = 0;
/// The buffer that PUTs are sent from, if its events are not counted.
const OUTBOX: usize = 1;

/// Acknowledged PUTs of 64 bytes, 64 in flight, each to a separate offset of the server's buffer:
/// millions per second.
pub(crate) fn puts(round: &Round) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let station = Station::client(nodes)?;
    let server = Server::start(NAME, round.cores, &nodes.args(&[]))?;
    let message = station.bind(INBOX, buffer(MESSAGE)?)?;
    let mut sent = 0;
    meter::rate(round.time, &server, || {
        let acked = station.ended(INBOX);
        while sent < acked + WINDOW {
            station.put(message, INBOX, slot_offset(sent), AckRequest::Ack)?;
            sent += 1;
        }
        station.wait_for(INBOX, acked + 1, Wait::Default)?;
        Ok(station.ended(INBOX) - acked)
    })
}

/// PUTs of 64 bytes, 64 in flight, each answered by a PUT: millions per second.
pub(crate) fn answered_puts(round: &Round) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let station = Station::client(nodes)?;
    let server = Server::start(ANSWERING, round.cores, &nodes.args(&[]))?;
    station.post(INBOX, buffer(WINDOW as usize * MESSAGE)?)?;
    let message = station.bind(OUTBOX, buffer(MESSAGE)?)?;
    let mut sent = 0;
    meter::rate(round.time, &server, || {
        let answered = station.ended(INBOX);
        while sent < answered + WINDOW {
            station.put(message, INBOX, slot_offset(sent), AckRequest::NoAck)?;
            sent += 1;
        }
        station.wait_for(INBOX, answered + 1, Wait::Default)?;
        Ok(station.ended(INBOX) - answered)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let station = Station::server(Nodes::parse(args)?.0)?;
    station.post(INBOX, buffer(WINDOW as usize * MESSAGE)?)?;
    server::ready("")?;
    station.serve(Wait::Default)
}

pub(crate) fn serve_answers(_: Cores, args: &[String]) -> Result<()> {
    let station = Station::server(Nodes::parse(args)?.0)?;
    station.post(INBOX, buffer(WINDOW as usize * MESSAGE)?)?;
    let message = station.bind(OUTBOX, buffer(MESSAGE)?)?;
    server::ready("")?;
    for answered in 0.. {
        station.wait_for(INBOX, answered + 1, Wait::Default)?;
        station.put(message, INBOX, slot_offset(answered), AckRequest::NoAck)?;
    }
    Ok(())
}

/// Returns the offset of a message in the target's buffer.
fn slot_offset(number: u64) -> u32 {
    (number % WINDOW) as u32 * MESSAGE as u32
}
