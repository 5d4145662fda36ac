//! A client that writes over everything that it shares with the helper, and one that does as much harm to nobody.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nlx_tests::client::memory::Memory;
use nlx_tests::client::pair::{Pair, mix};
use nlx_tests::client::points::Points;

use crate::roles::nid;
use crate::say;

/// Bytes of memory that the harmless one writes over: about what the other one shares.
const SHARED: usize = 3 << 20;

/// Words written between two looks whether it is over.
const BURST: u64 = 4096;

/// Who spoils his own memory waits in vain for much; he loses his patience soon, and begins anew.
const PATIENCE: Duration = Duration::from_millis(50);

/// Rounds of a life, if it lasts so long.
const ROUNDS: u32 = 200;

/// Lives again and again, until the helper has had enough of each.
pub(crate) fn scribble(socket: &str, address: &str) -> Result<(), String> {
    let (path, nid) = (Path::new(socket), nid(address)?);
    // It breaks its own neck now and then.
    std::panic::set_hook(Box::new(|_| {}));
    say("ready");
    let mut seed = u64::from(std::process::id());
    for life in 0_usize.. {
        // While what this client left is being cleared away there may be no room for it.
        let Ok(pair) = Pair::connect([path; 2], [nid; 2], "scribble", Points::harmless()) else { continue };
        let shared = pair.sides.each_ref().map(|side| {
            [&side.arena.memory, &side.client.ring.queue.memory, &side.tm.events.queue.memory]
                .map(Clone::clone)
        });
        // Each kind of memory by itself, and all together.
        let spoilt: Vec<Memory> = match life % 4 {
            3 => shared.into_iter().flatten().collect(),
            kind => {
                shared.into_iter().map(|[arena, ring, events]| [arena, ring, events][kind].clone()).collect()
            }
        };
        seed = work_beside(pair, &spoilt, seed);
    }
    Ok(())
}

/// As much work for the helper, the processor and its caches.
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

/// Two clients work for each other, as long as that goes well, while a thread writes over memory.
fn work_beside(mut pair: Pair, memories: &[Memory], mut seed: u64) -> u64 {
    pair.sides.iter_mut().for_each(|side| side.client.patience = PATIENCE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            // Wrong bytes are what it deserves; it goes on with them.
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
        // Numbers that a queue's words could be, and others.
        let value = match dice >> 60 {
            0..4 => 0,
            4..8 => dice >> 40 & 0x1ff,
            8..10 => u64::MAX,
            _ => mix(dice ^ at as u64),
        };
        memory.word(at).store(value, Relaxed);
    }
}
