//! The maximum of transfer machines, over many connections: `machines CONNECTIONS EACH`.

use std::convert::Infallible;

use nix::errno::Errno;
use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::wire::{self, kind, u64_at};

use crate::{Target, hold, number};

/// The portals that an ordinary user may use.
const PORTALS: std::ops::RangeInclusive<u32> = 35..=63;
/// The number of consecutive refusals after which the helper is assumed to start no more machines.
const REFUSALS_MAX: u32 = 64;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections, each] = *args else { return Err("CONNECTIONS EACH are missing".into()) };
    let (connections, each) = (number::<usize>(connections)?, number::<u32>(each)?);
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let (mut held, mut machines, mut refused) = (Vec::new(), 0, 0);
    'all: for portal in PORTALS.cycle().take(connections) {
        let Ok(mut client) = Client::connect(&target.socket, "machines") else { break };
        for _ in 0..each {
            // The queue is not mapped: this process has a limit of mappings, too.
            match client.call(kind::START_TM, &wire::start_tm(target.nid, portal, 0, 1, 0)) {
                Ok(reply) => {
                    debug_assert!(u64_at(&reply.body, 0) != 0);
                    (machines, refused) = (machines + 1, 0);
                }
                Err(Errno::EIO) => break,
                Err(_) if refused == REFUSALS_MAX => break 'all,
                Err(_) => refused += 1,
            }
        }
        held.push(client);
    }
    hold(&format!("{machines} machines over {} connections", held.len()))
}
