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
        // The descriptor is made with the first answer, which is read: those that are not read are copies of it.
        if client.call(kind::TM_DESCRIPTOR, &tm.handle.to_le_bytes()).is_err() {
            break;
        }
        held.push((client, tm));
    }
    // Only now: who waits for answers that do not come gets no further connection.
    for (client, tm) in &held {
        let ask =
            |id| client.socket.try_send(&wire::packet(kind::TM_DESCRIPTOR, id, &tm.handle.to_le_bytes()));
        let _ = (0..REQUESTS).try_for_each(ask);
    }
    hold(&format!("{} connections", held.len()))
}
