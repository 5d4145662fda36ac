use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use super::*;

/// Ten threads share five buffers, half of them with any colour, half of them with their colour,
/// and wait when none is free.
// Covers: MT-128
#[test]
fn ten_threads_share_five_buffers() {
    const THREADS: u32 = 10;
    let (_domain, pool) = with_pool(5);
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, start) = (&pool, &start);
            scope.spawn(move || {
                let colour = if thread % 2 == 0 { Colour::Any } else { Colour::Of(thread) };
                start.wait();
                for round in 0..2000u32 {
                    let mut buffer = pool.get_wait(colour, None).unwrap().unwrap();
                    // No other thread has it meanwhile.
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

/// The pool grows and shrinks while it is used: the counts match the existing buffers.
#[test]
fn a_pool_grows_and_shrinks_in_use() {
    let (_domain, pool) = with_pool(4);
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

/// Machines with callbacks share a pool that is too small for them, while other threads hold their
/// messages: in the end every buffer is in its pool, and every message was received or counted as
/// dropped.
// Covers: MT-121
#[test]
fn machines_share_a_pool_under_load() {
    const MESSAGES: u64 = 3000;
    let (domain, pool) = with_pool(7);
    let taken = Arc::new(AtomicU64::new(0));
    let (hand, handed) = mpsc::channel::<Event>();
    let tms = [0, 1, 2].map(|colour| {
        let (hand, taken) = (hand.clone(), taken.clone());
        let callback = move |_: &Machine, mut event: Event| {
            taken.fetch_add(u64::from(event.message.is_some()), Ordering::Relaxed);
            // Some buffers are dropped here, before or after their message, and others in another
            // thread.
            drop(event.buffer.take_if(|_| event.offset == 0));
            drop(hand.send(event));
        };
        let colour = Colour::Of(colour);
        let provision = Provision { min_receive_size: BYTES / 2, max_messages: 2, buffers: 3, colour };
        domain.machine().pool(&pool, provision).callbacks(callback).start(ADDRESS).unwrap()
    });
    drop(hand);
    let holder = thread::spawn(move || {
        let mut held = VecDeque::new();
        for event in handed {
            held.push_back(event);
            drop((held.len() > 4).then(|| held.pop_front()));
        }
    });
    thread::scope(|scope| {
        for tm in &tms {
            let mut sender = Sender::new(&domain);
            scope.spawn(move || (0..MESSAGES).for_each(|number| sender.send(&number.to_le_bytes(), tm)));
        }
    });
    let dropped = || tms.iter().map(|tm| tm.dropped_messages()).sum::<u64>();
    let sent = MESSAGES * tms.len() as u64;
    until("each message is taken or dropped", || taken.load(Ordering::Relaxed) + dropped() == sent);
    for tm in &tms {
        tm.stop(Stop::Abort, None).unwrap();
    }
    let dropped = dropped();
    drop(tms);
    holder.join().unwrap();
    assert_eq!(taken.load(Ordering::Relaxed) + dropped, MESSAGES * 3);
    assert_eq!(pool.counts(), PoolCounts { free: 7, total: 7 });
}
