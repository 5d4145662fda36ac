use super::party::Party;
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "xo-pingpong";

const MESSAGE: usize = 64;

/// Microseconds one way, sleeping.
pub(crate) fn sleeping(round: &Round) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let mut party = Party::client(nodes)?;
    let server = Server::start(NAME, round.cores, &nodes.args(&[]))?;
    meter::pingpong(round.time, &server, || {
        party.say_anything(1, MESSAGE)?;
        hear(&mut party)?;
        Ok(1)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let mut party = Party::server(Nodes::parse(args)?.0)?;
    server::ready("")?;
    loop {
        hear(&mut party)?;
        party.say_anything(1, MESSAGE)?;
    }
}

/// Waits for the peer's message.
fn hear(party: &mut Party) -> Result<()> {
    let mut heard = false;
    while !heard {
        party.next(|_| heard = true)?;
    }
    Ok(())
}
