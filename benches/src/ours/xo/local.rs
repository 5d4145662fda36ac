//! Bulk transfers of a transfer machine to itself.

use nlx::Buffer;

use super::pair::in_process;
use super::party::Party;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::ours::nodes::Nodes;

const LENGTH: usize = 1 << 20;

/// A buffer that a transfer machine stages and reads itself, through the loopback network: GB/s.
pub(crate) fn get(round: &Round) -> Result<Sample> {
    let mut party = alone()?;
    let mut pair = vec![party.buffer(LENGTH)?, party.buffer(LENGTH)?];
    let timed = Timed::warm(round.time, || {
        transfer(&mut party, &mut pair)?;
        Ok(1)
    })?;
    Ok(Sample::of(timed.steps as f64 * LENGTH as f64 / timed.seconds / 1e9))
}

/// Moves the content of one buffer of the pair to the other; both come back.
fn transfer(party: &mut Party, pair: &mut Vec<Buffer>) -> Result<()> {
    let (Some(target), Some(source)) = (pair.pop(), pair.pop()) else { return Ok(()) };
    let offer = party.offer(source)?;
    party.fetch(target, &offer)?;
    while pair.len() < 2 {
        pair.extend(party.next(|_| ())?);
    }
    Ok(())
}

/// Returns a transfer machine that sends to itself.
fn alone() -> Result<Party> {
    let nodes = Nodes::choose()?;
    let own = format!("{}@tcp:12345:31:1", nodes.client);
    Party::start(in_process(nodes, nodes.client)?, &own, &own)
}
