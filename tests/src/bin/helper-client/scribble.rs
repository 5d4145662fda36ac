//! A client that overwrites all memory that it shares with the helper, and a harmless one that
//! causes the same load.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{Pair, mix};
use nlx_tests::client::points::Points;

use crate::roles::nid;
use crate::say;

/// The size in bytes of the memory that the harmless client overwrites: about what the other one
/// shares.
const SHARED: usize = 3 << 20;

/// The number of words written between two checks whether the work has ended.
const BURST: u64 = 4096;

/// The time limit of a wait. A client that corrupts the memory it uses often waits for an event
/// that never comes; it gives up soon and reconnects.
const TIME_LIMIT: Duration = Duration::from_millis(50);

/// Rounds of a connection, if it lasts that long.
const ROUNDS: u32 = 200;

/// Connects again and again, after the helper has cut off each connection.
pub(crate) fn scribble(socket: &str, address: &str) -> Result<(), String> {
    let (path, nid) = (Path::new(socket), nid(address)?);
    // It panics on values that it has corrupted itself.
    std::panic::set_hook(Box::new(|_| {}));
    say("ready");
    let mut seed = u64::from(std::process::id());
    for life in 0_usize.. {
        // Until the helper has closed the previous connection, it may refuse the next.
        let Ok(pair) = Pair::connect([path; 2], [nid; 2], "scribble", Points::harmless()) else { continue };
        let shared = pair.sides.each_ref().map(|side| {
            [&side.arena.memory, &side.client.ring.queue.memory, &side.tm.events.queue.memory]
                .map(Clone::clone)
        });
        // Each kind of memory separately, and all together.
        let corrupted: Vec<Memory> = match life % 4 {
            3 => shared.into_iter().flatten().collect(),
            kind => {
                shared.into_iter().map(|[arena, ring, events]| [arena, ring, events][kind].clone()).collect()
            }
        };
        seed = work_beside(pair, &corrupted, seed);
    }
    Ok(())
}

/// Causes the same load for the helper, the processor and its caches.
pub(crate) fn busy(socket: &str, address: &str) -> Result<(), String> {
    let (path, nid) = (Path::new(socket), nid(address)?);
    let memory = [Memory::private(SHARED).map_err(|errno| errno.to_string())?];
    say("ready");
    let mut seed = u64::from(std::process::id());
    loop {
        let pair = Pair::connect([path; 2], [nid; 2], "busy", Points::harmless())?;
        seed = work_beside(pair, &memory, seed);
    }
}

/// Runs two clients that work for each other until an error, while a thread overwrites memory.
fn work_beside(mut pair: Pair, memories: &[Memory], mut seed: u64) -> u64 {
    pair.sides.iter_mut().for_each(|side| side.client.patience = TIME_LIMIT);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            // It receives wrong bytes, and continues.
            pair.careless = true;
            let _ = (0..ROUNDS).try_for_each(|_| pair.round());
        });
        let over = &over;
        let spoil = scope.spawn(move || {
            while !over.load(Relaxed) {
                write_anything_anywhere(memories, seed);
                seed += BURST;
            }
            seed
        });
        let _ = work.join();
        over.store(true, Relaxed);
        spoil.join().unwrap_or_default()
    })
}

fn write_anything_anywhere(memories: &[Memory], seed: u64) {
    for number in 0..BURST {
        let dice = mix(seed + number);
        let memory = &memories[(dice % memories.len() as u64) as usize];
        let at = (mix(dice) as usize % memory.len()) & !7;
        // Plausible values of a queue's words, and others.
        let value = match dice >> 60 {
            0..4 => 0,
            4..8 => dice >> 40 & 0x1ff,
            8..10 => u64::MAX,
            _ => mix(dice ^ at as u64),
        };
        memory.word(at).store(value, Relaxed);
    }
}
