//! Clients that fill their quotas and leave, one after the other: `departures ENTRIES ARENA_MIB`.

use std::convert::Infallible;

use nlx_tests::client::Client;

use crate::matches::fill;
use crate::{Target, number, say};

/// Bytes of a page.
const PAGE: usize = 4096;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [entries, mebibytes] = *args else { return Err("ENTRIES ARENA_MIB are missing".into()) };
    let (entries, mebibytes) = (number::<u32>(entries)?, number::<u64>(mebibytes)?);
    for departures in 0_u64.. {
        let Ok(mut client) = Client::connect(&target.socket, "departures") else { continue };
        let filled = fill(target, &mut client, entries);
        let arena = client.arena(mebibytes << 20, false);
        if let Ok(arena) = &arena {
            (0..arena.memory.len()).step_by(PAGE).for_each(|at| arena.memory.write(at, &[1; 8]));
        }
        let refused = filled.map(|(_, refused)| refused);
        let word = if departures == 0 { "full" } else { "did" };
        say(&format!("{word} {departures}: refused {refused:?}, arena {}", arena.is_ok()));
    }
    Err("it has departed too often".into())
}
