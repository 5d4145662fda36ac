use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

proptest! {
    /// S-311: the sum follows a plain number, and the end is told once, whoever brings it about.
    #[test]
    fn the_count_agrees_with_a_plain_number(
        partitions in 1..5usize,
        steps in prop::collection::vec((any::<bool>(), 0..5usize), 0..60),
        kill_at in 0..60usize,
    ) {
        let refs = PercptRef::with_partitions(partitions);
        let (mut model, mut killed, mut told) = (0i64, false, 0);
        for (step, (take, cpt)) in steps.into_iter().enumerate() {
            if step == kill_at {
                told += usize::from(refs.kill());
                killed = true;
                prop_assert_eq!(told == 1, model == 0);
            }
            if take {
                let taken = refs.get(cpt % partitions);
                prop_assert_eq!(taken, !killed);
                model += i64::from(taken);
            } else if model > 0 {
                told += usize::from(refs.put(cpt % partitions));
                model -= 1;
            }
            prop_assert_eq!(refs.sum(), model);
            prop_assert_eq!(refs.is_zero(), model == 0);
        }
        told += usize::from(refs.kill());
        while model > 0 {
            told += usize::from(refs.put(0));
            model -= 1;
        }
        prop_assert_eq!(told, 1);
    }
}

/// S-311: threads that give back across partitions while the count is killed.
#[test]
fn threads_and_a_kill_end_in_one_last() {
    const USERS: usize = 4;
    let refs = PercptRef::with_partitions(2);
    let told = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for user in 0..USERS {
            let (refs, told) = (&refs, &told);
            scope.spawn(move || {
                while refs.get(user % 2) {
                    told.fetch_add(usize::from(refs.put((user + 1) % 2)), Ordering::Relaxed);
                }
            });
        }
        told.fetch_add(usize::from(refs.kill()), Ordering::Relaxed);
    });
    assert_eq!(told.into_inner(), 1);
    assert!(refs.is_zero());
}
