//! `Sync` without end over many connections: `flood CONNECTIONS`.

use std::convert::Infallible;
use std::time::Duration;

use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;
use nlx_tests::client::wire::{self, kind};

use crate::{Target, number, say};

/// Requests of a connection in each turn.
const TURN: u64 = 8;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [connections] = *args else { return Err("CONNECTIONS is missing".into()) };
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let count = number::<usize>(connections)?;
    let clients: Vec<Client> =
        (0..count).map_while(|_| Client::connect(&target.socket, "flood").ok()).collect();
    if clients.is_empty() {
        return Err("the helper accepts no connection".into());
    }
    let (mut id, mut answers, mut is_full) = (1, 0_u64, false);
    loop {
        for client in &clients {
            for _ in 0..TURN {
                id += 1;
                if client.socket.try_send(&wire::packet(kind::SYNC, id, &[])).is_err() {
                    break;
                }
            }
            while client.socket.is_readable(Duration::ZERO).unwrap_or(false) {
                match client.socket.receive(Duration::ZERO) {
                    Ok(Some(_)) => answers += 1,
                    // The helper has cut the client off.
                    _ => break,
                }
            }
        }
        if !is_full && answers > 0 {
            is_full = true;
            say(&format!("full {} connections", clients.len()));
        }
    }
}
