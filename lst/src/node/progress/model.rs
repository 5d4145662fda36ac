//! loom models of units that end while a console queries, stops and starts their test.

use std::sync::Arc;

use loom::thread;
use nlx_sync::{RuleEnd, weakened};

use super::*;

/// A test, and the errors of its units.
struct Shared {
    progress: Progress,
    errors: AtomicU32,
}

/// A unit that does up to `rpcs` RPCs, each with an error.
fn run_unit(shared: &Shared, rpcs: u32) {
    for _ in 0..rpcs {
        if shared.progress.is_stopping() {
            break;
        }
        shared.errors.fetch_add(1, Ordering::Relaxed);
    }
    shared.progress.unit_ended();
}

fn start(count: u32) -> (Arc<Shared>, Vec<thread::JoinHandle<()>>) {
    let shared = Arc::new(Shared { progress: Progress::new(), errors: AtomicU32::new(0) });
    shared.progress.start(count);
    let units = (0..count).map(|_| {
        let shared = shared.clone();
        thread::spawn(move || run_unit(&shared, 1))
    });
    let units = units.collect();
    (shared, units)
}

/// A QUERY that finds nothing running finds all errors.
fn query() {
    let (shared, units) = start(2);
    if shared.progress.running() == 0 {
        assert_eq!(shared.errors.load(Ordering::Relaxed), 2, "an error came after the end");
    }
    units.into_iter().for_each(|unit| unit.join().expect("it ends"));
    assert_eq!(shared.progress.running(), 0);
}

#[test]
fn a_query_that_finds_no_unit_finds_all_their_results() {
    loom::model(query);
}

#[test]
fn each_end_of_the_rule_is_needed() {
    for end in [RuleEnd::Store, RuleEnd::Load] {
        let outcome = std::panic::catch_unwind(|| weakened(ENDED, end, || loom::model(query)));
        assert!(outcome.is_err(), "{end:?} can be weakened");
    }
}

/// A STOP and one with force come in any order with the units' ends; the next start finds all units of
/// the run ended, and its own are not stopped.
#[test]
fn a_test_can_be_started_again_after_a_stop() {
    loom::model(|| {
        let (shared, units) = start(1);
        shared.progress.stop(true);
        shared.progress.stop(false);
        assert!(shared.progress.is_aborting(), "a later STOP without force takes nothing back");
        if shared.progress.running() == 0 {
            shared.progress.start(1);
            assert!(!shared.progress.is_stopping());
            run_unit(&shared, 1);
        }
        units.into_iter().for_each(|unit| unit.join().expect("it ends"));
        assert_eq!(shared.progress.running(), 0);
    });
}
