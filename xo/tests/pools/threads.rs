use std::sync::Barrier;
use std::thread;

use super::*;

/// MT-128: ten threads share fewer buffers than there are of them, half of them any, half of them their own colour, and
/// wait where none is free.
#[test]
fn ten_threads_share_five_buffers() {
    const THREADS: u32 = 10;
    let domain = domain();
    let pool = pool(&domain, 5);
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, start) = (&pool, &start);
            scope.spawn(move || {
                let colour = if thread % 2 == 0 { Colour::Any } else { Colour::Of(thread) };
                start.wait();
                for round in 0..2000u32 {
                    let mut buffer = pool.get_wait(colour, None).unwrap().unwrap();
                    // Nobody else has it meanwhile.
                    let mine = [thread.to_le_bytes(), round.to_le_bytes()].concat();
                    buffer.write().unwrap()[..8].copy_from_slice(&mine);
                    assert!(free(pool) < 5);
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(buffer.read().unwrap()[..8], mine[..]);
                }
            });
        }
    });
    assert_eq!(pool.counts(), PoolCounts { free: 5, total: 5 });
}

/// Growing and shrinking meanwhile: the counts stay those of the buffers that are there.
#[test]
fn a_pool_grows_and_shrinks_in_use() {
    let domain = domain();
    let pool = pool(&domain, 4);
    let work = |colour: u32| {
        for _ in 0..500 {
            drop(pool.get_wait(Colour::Of(colour), None).unwrap());
        }
    };
    let change = || {
        let mut changes = 0;
        for _ in 0..500 {
            changes += pool.provision(1).unwrap() as isize - isize::from(pool.prune());
        }
        changes
    };
    let changes = thread::scope(|scope| {
        let workers = [0, 1].map(|colour| scope.spawn(move || work(colour)));
        let changes = change();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        changes
    });
    let counts = pool.counts();
    assert_eq!((counts.free, counts.total as isize), (counts.total, 4 + changes));
}
