use super::pair::{self, Pair, Way};
use super::party::Party;
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::helper::process::Helper;
use crate::server;

pub(crate) const NAME: &str = "xo-pingpong";

const MESSAGE: usize = 64;

/// Microseconds one way, sleeping.
pub(crate) fn sleeping(round: &Round) -> Result<Sample> {
    by(round, Way::InProcess)
}

/// The same by any way.
pub(crate) fn by(round: &Round, way: Way) -> Result<Sample> {
    beside(round, way, |_| Ok(()))
}

/// The same through helpers, beside something else that the client's helper has to do.
pub(crate) fn beside<T>(round: &Round, way: Way, other: impl FnOnce(&Helper) -> Result<T>) -> Result<Sample> {
    let (mut pair, _other) = Pair::beside(round, way, NAME, other)?;
    let pids = pair.pids();
    meter::pingpong(round.time, &pids, || {
        pair.party.say_anything(1, MESSAGE)?;
        hear(&mut pair.party)?;
        Ok(1)
    })
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let mut party = pair::served(args)?;
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
