//! The maximum of match entries, over many connections: `matches CONNECTIONS EACH`.

use std::convert::Infallible;

use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{Entry, queue};
use nlx_tests::client::{Client, Tm};

use crate::{Target, hold, number};

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections, each] = *args else { return Err("CONNECTIONS EACH are missing".into()) };
    let (connections, each) = (number::<usize>(connections)?, number::<u32>(each)?);
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut held = Vec::new();
    for _ in 0..connections {
        let Ok(mut client) = Client::connect(&target.socket, "matches") else { break };
        match fill(target, &mut client, each) {
            Ok((tm, refused)) => held.push((client, tm, refused)),
            Err(_) => break,
        }
    }
    let refused: u64 = held.iter().map(|(.., refused)| refused).sum();
    let asked = held.len() as u64 * u64::from(each);
    hold(&format!("{} entries of {asked} over {} connections", asked.saturating_sub(refused), held.len()))
}

/// Starts up to `count` passive operations, and counts those refused.
pub(crate) fn fill(target: &Target, client: &mut Client, count: u32) -> Result<(Tm, u64), String> {
    let failed = |errno| format!("cannot fill a connection: {errno}");
    let count = count.min(client.limit(52)).min(client.limit(60)).min(client.limit(64));
    let arena = client.arena(4096, false).map_err(failed)?;
    let mut tm = client.start_tm(target.nid, PORTAL, count).map_err(failed)?;
    for number in 0..u64::from(count) {
        client.submit(&Entry::register(handle(number), arena.number, 0, 4096)).map_err(failed)?;
        let passive =
            Entry::passive(queue::PASSIVE_RECEIVE, tm.handle, handle(number), number, number + 1, 4096);
        client.operate(&mut tm, &passive).map_err(failed)?;
    }
    client.sync().map_err(failed)?;
    let mut refused = 0;
    while tm.events.take(&mut client.points).is_some() {
        refused += 1;
    }
    Ok((tm, refused))
}
