//! Replies with descriptors that nobody reads: `unread CONNECTIONS`.

use std::convert::Infallible;

use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::pair::PORTAL;
use nlx_tests::client::wire::{self, kind};

use crate::{Target, hold, number};

/// Requests of a connection: more than its socket has room for answers.
const REQUESTS: u64 = 64;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections] = *args else { return Err("CONNECTIONS is missing".into()) };
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut held = Vec::new();
    for _ in 0..number::<usize>(connections)? {
        let Ok(mut client) = Client::connect(&target.socket, "unread") else { break };
        let Ok(tm) = client.start_tm(target.nid, PORTAL, 1) else { break };
        for id in 0..REQUESTS {
            let packet = wire::packet(kind::TM_DESCRIPTOR, id, &tm.handle.to_le_bytes());
            if client.socket.try_send(&packet).is_err() {
                break;
            }
        }
        held.push((client, tm));
    }
    hold(&format!("{} connections", held.len()))
}
