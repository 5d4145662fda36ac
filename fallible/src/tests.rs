//! Tests of the fallible pointers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicUsize;

use super::*;

/// A value that counts its drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_value_is_dropped_with_its_last_strong_reference() {
    let drops = AtomicUsize::new(0);
    let first = TryArc::try_new(Counted(&drops)).unwrap();
    let (second, weak) = (first.clone(), TryArc::downgrade(&first));
    assert!(TryArc::ptr_eq(&first, &second));
    assert_eq!((TryArc::strong_count(&first), weak.strong_count()), (2, 2));
    drop(first);
    let third = weak.upgrade().unwrap();
    drop((second, third));
    assert_eq!((drops.load(Relaxed), weak.strong_count()), (1, 0));
    assert!(weak.upgrade().is_none() && weak.clone().upgrade().is_none());
}

#[test]
fn the_last_reference_gives_the_value() {
    let drops = AtomicUsize::new(0);
    let first = TryArc::new(Counted(&drops));
    let second = first.clone();
    let weak = TryArc::downgrade(&first);
    let first = TryArc::try_unwrap(first).err().unwrap();
    drop(first);
    let value = TryArc::try_unwrap(second).ok().unwrap();
    assert!(weak.upgrade().is_none() && drops.load(Relaxed) == 0);
    drop(value);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn slices_and_objects_keep_their_values_and_drop_each_once() {
    #[repr(align(64))]
    struct Wide<'a>(u8, #[allow(dead_code, reason = "it is only ever dropped")] Counted<'a>);

    let drops = AtomicUsize::new(0);
    for count in [0, 1, 5] {
        drops.store(0, Relaxed);
        let values: Vec<Wide<'_>> = (0..count).map(|number| Wide(number, Counted(&drops))).collect();
        let slice = TryArc::try_from_vec(values).unwrap();
        let other = slice.clone();
        drop(slice);
        assert!(other.iter().map(|wide| wide.0).eq(0..count));
        assert!(other.iter().all(|wide| std::ptr::from_ref(wide).is_aligned()));
        drop(other);
        assert_eq!(drops.load(Relaxed), usize::from(count));
    }
    trait Named {
        fn name(&self) -> u8;
    }
    impl Named for Wide<'_> {
        fn name(&self) -> u8 {
            let Wide(number, _) = self;
            *number
        }
    }
    drops.store(0, Relaxed);
    let object: TryArc<dyn Named + '_> = {
        let wide = TryArc::try_new(Wide(7, Counted(&drops))).unwrap();
        unsize!(wide => dyn Named + '_)
    };
    assert_eq!((object.name(), object.clone().name(), drops.load(Relaxed)), (7, 7, 0));
    drop(object);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn references_in_many_threads_drop_the_value_once() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..200 {
        DROPS.store(0, Relaxed);
        let first = TryArc::new(Counted(&DROPS));
        let weak = TryArc::downgrade(&first);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (strong, weak) = (first.clone(), weak.clone());
                scope.spawn(move || {
                    drop(strong);
                    drop(weak.upgrade());
                });
            }
            drop(first);
        });
        assert_eq!((DROPS.load(Relaxed), weak.strong_count()), (1, 0));
    }
}

#[test]
fn boxes_vectors_and_texts_hold_what_they_were_given() {
    assert_eq!(*try_box(5).unwrap(), 5);
    try_box(()).unwrap();
    let collected = try_collect((0..5).map(Ok::<_, NoMemory>)).unwrap();
    assert_eq!(collected, [0, 1, 2, 3, 4]);
    assert_eq!(text_of(&format_args!("{}-{}", 1, 2)), "1-2");
}
