use super::*;

/// Many threads, private and exclusive: no update is lost, and the exclusive side sees consistent
/// data.
// Covers: S-304
#[test]
fn threads_lose_nothing_with_one_two_and_four_partitions() {
    const ROUNDS: u64 = 2000;
    for partitions in [1, 2, 4] {
        let table = CptTable::virtual_parts(partitions).unwrap();
        // Each part counts its own updates; `shared` counts the exclusive rounds.
        let lock = PercptLock::new(&table, |_| 0u64, 0u64);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let lock = &lock;
                scope.spawn(move || {
                    let mut seen = 0;
                    for round in 0..ROUNDS {
                        let mut part = lock.lock((thread + round as usize) % partitions);
                        *part += 1;
                        assert!(*part.shared() >= seen, "what is shared never goes back");
                        seen = *part.shared();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS / 20 {
                        let mut all = lock.lock_all();
                        let (parts, rounds) = all.split();
                        *rounds += 1;
                        parts.for_each(|part| *part += 1);
                    }
                });
            }
        });
        let mut all = lock.lock_all();
        let exclusive = 2 * (ROUNDS / 20);
        assert_eq!(*all.shared(), exclusive);
        assert_eq!(
            all.parts_mut().map(|part| *part).sum::<u64>(),
            4 * ROUNDS + exclusive * partitions as u64
        );
    }
}

/// lnet-semantics 23: while all are locked no newcomer gets a lock, and a waiting exclusive holder
/// keeps others out.
// Covers: S-304
#[test]
fn newcomers_stay_out_while_all_are_locked() {
    let lock = PercptLock::with_partitions(2, |cpt| cpt, ());
    let all = lock.lock_all();
    assert!(lock.try_lock(0).is_none() && lock.try_lock(1).is_none());
    drop(all);
    let one = lock.lock(1);
    assert_eq!((*one, one.partition()), (1, 1));
    assert!(lock.try_lock(0).is_some(), "another partition");
    assert!(lock.try_lock(1).is_none(), "the same partition");
    // While a thread collects the locks, free partitions are closed too.
    let collecting = lock.close();
    assert!(lock.try_lock(0).is_none());
    drop(collecting);
    assert!(lock.try_lock(0).is_some());
}

/// The private locks of partitions are on separate cache lines.
// Covers: S-304
#[test]
fn private_locks_share_no_cache_line() {
    let lock = PercptLock::with_partitions(4, |_| 0u8, ());
    let places: Vec<usize> = lock.slots.iter().map(|slot| std::ptr::from_ref(slot).addr()).collect();
    let line = std::mem::align_of::<CachePadded<u8>>();
    assert!(line >= 64 && places.windows(2).all(|pair| pair[1] - pair[0] >= line));
    assert!(places.iter().all(|place| place % line == 0));
}
