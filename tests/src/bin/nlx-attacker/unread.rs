//! Replies with descriptors that the client does not read: `unread CONNECTIONS`.

use std::convert::Infallible;

use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::pair::PORTAL;
use nlx_tests::client::wire::{self, kind};

use crate::{Target, hold, number};

/// Requests of a connection: more answers than fit into its socket.
const REQUESTS: u64 = 64;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections] = *args else { return Err("CONNECTIONS is missing".into()) };
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut held = Vec::new();
    for _ in 0..number::<usize>(connections)? {
        let Ok(mut client) = Client::connect(&target.socket, "unread") else { break };
        let Ok(tm) = client.start_tm(target.nid, PORTAL, 1) else { break };
        // The first answer, which is read, creates the descriptor: those that are not read are
        // copies of it.
        if client.call(kind::TM_DESCRIPTOR, &tm.handle.to_le_bytes()).is_err() {
            break;
        }
        held.push((client, tm));
    }
    // After all connections are made: a user with waiting answers gets no further connection.
    for (client, tm) in &held {
        let ask =
            |id| client.socket.try_send(&wire::packet(kind::TM_DESCRIPTOR, id, &tm.handle.to_le_bytes()));
        let _ = (0..REQUESTS).try_for_each(ask);
    }
    hold(&format!("{} connections", held.len()))
}
