//! Many threads at once: events of one MD never overlap, the one with `unlinked` is the last, and
//! no event is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;

use lnet_api::{AckRequest, Event, LNet, Md, MdOptions, Threshold, Unlink};
use lnet_nid::ProcessId;
use nlx_testkit::events::on_event;

use super::common::*;

const THREADS: usize = 4;
const ROUNDS: usize = 2_000;

/// For each user pointer: the number of events, a flag that one is being delivered, and a flag that
/// the last one has come.
struct Checker {
    slots: Vec<MdRecord>,
    ended: AtomicUsize,
}

#[derive(Default)]
struct MdRecord {
    inside: AtomicBool,
    ended: AtomicBool,
    events: AtomicU32,
}

impl Checker {
    fn check(&self, event: &Event) {
        let slot = &self.slots[event.user_ptr as usize];
        assert!(!slot.inside.swap(true, Ordering::SeqCst), "two events of one MD at once");
        assert!(!slot.ended.load(Ordering::SeqCst), "an event after the last one");
        slot.events.fetch_add(1, Ordering::SeqCst);
        if event.unlinked {
            slot.ended.store(true, Ordering::SeqCst);
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
        slot.inside.store(false, Ordering::SeqCst);
    }
}

// Covers: S-311
#[test]
fn puts_gets_and_unlinks_race_and_every_descriptor_ends_once() {
    let (network, a, b) = two_nodes();
    let slots = (0..THREADS * ROUNDS).map(|_| MdRecord::default()).collect();
    let checker = Arc::new(Checker { slots, ended: AtomicUsize::new(0) });
    let checks = checker.clone();
    let eq = a.engine.eq_alloc(on_event(move |event| checks.check(event))).unwrap();
    let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
    let open = Md { threshold: Threshold::Infinite, eq: None, ..b.md(&memory(8), options, 0) };
    b.engine.md_attach(b.post(1), open, Unlink::Retain).unwrap();
    let busy = AtomicUsize::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, b, busy) = (&a, &b, &busy);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    one_operation(a, b, eq, thread * ROUNDS + round);
                }
                busy.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while network.step() || busy.load(Ordering::SeqCst) > 0 {
                    thread::yield_now();
                }
            });
        }
    });
    network.run();
    // Messages that found memory in use at the target were dropped; this ends the wait for their
    // answers.
    a.engine.advance(1 << 60);
    while a.engine.counters().rst_alloc > 0 {
        a.engine.advance(1 << 60);
    }
    assert_eq!(checker.ended.load(Ordering::SeqCst), THREADS * ROUNDS);
    assert!(checker.slots.iter().all(|slot| slot.events.load(Ordering::SeqCst) <= 2));
    assert!(a.is_quiet() && b.is_quiet());
    a.engine.eq_free(eq).unwrap();
}

fn one_operation(a: &Node, b: &Node, eq: lnet_api::EqHandle, number: usize) {
    let (threshold, target) = (if number.is_multiple_of(3) { 1 } else { 2 }, b.id());
    let md = Md { user_ptr: number as u64, eq: Some(eq), ..a.md(&memory(8), MdOptions::empty(), threshold) };
    let md = a.engine.md_bind(md, Unlink::Auto).unwrap();
    let target = ProcessId::new(target.nid, target.pid);
    match number % 3 {
        0 => a.put(md, target, 1, AckRequest::NoAck),
        1 => a.put(md, target, 1, AckRequest::Ack),
        _ => a.get(md, target, 1),
    }
    .unwrap();
    if number.is_multiple_of(5) {
        // The MD may have ended already.
        let _ = a.engine.md_unlink(md);
    }
}
