//! Clients that fill their quotas and leave, one after the other: `departures ENTRIES MEBIBYTES`.

use std::convert::Infallible;

use nlx_tests::client::Client;

use crate::matches::fill;
use crate::{Target, number, say};

/// The maximum size of an arena in MiB.
const ARENA_MIB: u64 = 16;

/// The size of a page in bytes.
const PAGE: usize = 4096;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [entries, mebibytes] = *args else { return Err("ENTRIES MEBIBYTES are missing".into()) };
    let (entries, mebibytes) = (number::<u32>(entries)?, number::<u64>(mebibytes)?);
    for departures in 0_u64.. {
        let Ok(mut client) = Client::connect(&target.socket, "departures") else { continue };
        let filled = fill(target, &mut client, entries);
        let arenas: Vec<_> = (0..mebibytes.div_ceil(ARENA_MIB))
            .map_while(|_| client.arena(ARENA_MIB << 20, false).ok())
            .collect();
        for arena in &arenas {
            (0..arena.memory.len()).step_by(PAGE).for_each(|at| arena.memory.write(at, &[1; 8]));
        }
        let refused = filled.map(|(_, refused)| refused);
        let word = if departures == 0 { "full" } else { "did" };
        say(&format!("{word} {departures}: refused {refused:?}, {} arenas", arenas.len()));
    }
    Err("it has departed too often".into())
}
