use super::party::Party;
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::lnet::rate::WINDOW;
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "xo-rate";

const MESSAGE: usize = 64;

/// Messages of 64 bytes, 64 in flight, each answered by a message: millions per second.
pub(crate) fn answered_messages(round: &Round) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let mut party = Party::client(nodes)?;
    let server = Server::start(NAME, round.cores, &nodes.args(&[]))?;
    let mut unanswered = 0;
    meter::rate(round.time, &server, || {
        party.say_anything(WINDOW - unanswered, MESSAGE)?;
        unanswered = WINDOW;
        let mut answers = 0;
        party.next_some(|_| answers += 1)?;
        unanswered -= answers;
        Ok(answers)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let mut party = Party::server(Nodes::parse(args)?.0)?;
    server::ready("")?;
    let mut unanswered = 0;
    loop {
        party.next_some(|_| unanswered += 1)?;
        party.say_anything(unanswered, MESSAGE)?;
        unanswered = 0;
    }
}
