//! Every interleaving of kill and puts: exactly one call is told that the last reference is gone, and it sees what all
//! others did before.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lnet-cpt --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{BIAS, PercptRef};

struct Object {
    refs: PercptRef,
    /// Written by each user in its own field, read by whoever retires the object; loom checks the order.
    used: [UnsafeCell<bool>; 2],
    retired: [UnsafeCell<bool>; 1],
}

// SAFETY: test only; loom reports each access to the cells that is not ordered.
unsafe impl Sync for Object {}

fn object() -> Arc<Object> {
    Arc::new(Object {
        refs: PercptRef::with_partitions(2),
        used: [UnsafeCell::new(false), UnsafeCell::new(false)],
        retired: [UnsafeCell::new(false)],
    })
}

fn retire(object: &Object) {
    for used in &object.used {
        used.with(|used| {
            // SAFETY: a read that loom checks against all writes.
            unsafe { used.read() }
        });
    }
    object.retired[0].with_mut(|retired| {
        // SAFETY: a write that loom checks against all other accesses.
        assert!(!unsafe { retired.replace(true) }, "retired twice")
    });
}

/// S-311. Both references are taken in partition 0 and given back in one each, so that a slot goes negative.
fn kill_while_two_give_back(bias: i64) {
    let object = object();
    assert!(object.refs.get(0) && object.refs.get(0));
    let users: Vec<_> = (0..2)
        .map(|user| {
            let object = object.clone();
            thread::spawn(move || {
                object.used[user].with_mut(|used| {
                    // SAFETY: a write that loom checks against all other accesses.
                    unsafe { used.write(true) }
                });
                let last = object.refs.put(user);
                last.then(|| retire(&object)).is_some()
            })
        })
        .collect();
    let killed_last = object.refs.kill_with(bias);
    if killed_last {
        retire(&object);
    }
    let told = users.into_iter().map(|user| usize::from(user.join().unwrap())).sum::<usize>();
    assert_eq!(told + usize::from(killed_last), 1, "told exactly once");
    assert!(object.refs.is_zero());
}

#[test]
fn loom_the_last_reference_is_told_once() {
    loom::model(|| kill_while_two_give_back(BIAS));
}

/// The model notices a kill that does not keep the collected count from zero.
#[test]
#[should_panic]
fn loom_notices_a_kill_without_bias() {
    loom::model(|| kill_while_two_give_back(0));
}

/// S-311. A get that races with the kill either counts or is refused.
#[test]
fn loom_a_late_get_counts_or_is_refused() {
    loom::model(|| {
        let object = object();
        let user = {
            let object = object.clone();
            thread::spawn(move || object.refs.get(1).then(|| object.refs.put(0)).unwrap_or(false))
        };
        let killed_last = object.refs.kill();
        let put_last = user.join().unwrap();
        assert!(killed_last != put_last);
        assert!(!object.refs.get(0) && !object.refs.kill());
    });
}
