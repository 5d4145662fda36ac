//! Models of slots and the inbox under loom: every interleaving of a thread that brings a value, a
//! task that polls or leaves, and a close.
//!
//! Each value counts its drops: it is dropped exactly once. No task sleeps for ever (loom reports
//! that as a deadlock).
//!
//! `RUSTFLAGS="--cfg loom -C debug-assertions" cargo test -p nlx --no-default-features --release --lib model`

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::inbox::{Inbox, Ticket};
use super::slots::{CompletionSlots, TableSlot};

/// A value that counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Wakes a thread that is parked.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct Rig {
    slots: Arc<CompletionSlots<Counted>>,
    slot: Arc<TableSlot<Counted>>,
    dropped: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Rig {
        let slots = CompletionSlots::new();
        let slot = slots.take();
        Rig { slots, slot, dropped: Arc::new(AtomicUsize::new(0)) }
    }

    fn bring_in_thread(&self) -> thread::JoinHandle<()> {
        let (slot, value) = (self.slot.clone(), Counted(self.dropped.clone()));
        thread::spawn(move || drop(slot.deliver(value)))
    }

    fn close_in_thread(&self) -> thread::JoinHandle<()> {
        let slots = self.slots.clone();
        thread::spawn(move || slots.close())
    }

    /// Waits for the value as a task does.
    fn wait(&self) -> Option<Counted> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match self.slot.poll(&waker) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Checks that the value is dropped, and that the slot is free: exactly once.
    fn check_reused(&self) {
        assert_eq!(self.dropped.load(Ordering::SeqCst), 1);
        assert!(Arc::ptr_eq(&self.slot, &self.slots.take()));
        assert!(!Arc::ptr_eq(&self.slot, &self.slots.take()));
    }
}

#[test]
fn a_task_gets_its_value_and_never_sleeps_past_it() {
    loom::model(|| {
        let rig = Rig::new();
        let bringer = rig.bring_in_thread();
        assert!(rig.wait().is_some());
        bringer.join().unwrap();
        rig.check_reused();
    });
}

#[test]
fn a_task_that_moved_is_woken_where_it_is() {
    loom::model(|| {
        let rig = Rig::new();
        // The task was polled by another thread before.
        let elsewhere = rig.slot.poll(Waker::noop());
        assert!(elsewhere.is_pending());
        let bringer = rig.bring_in_thread();
        assert!(rig.wait().is_some());
        bringer.join().unwrap();
        rig.check_reused();
    });
}

#[test]
fn an_unwanted_value_is_dropped_once() {
    loom::model(|| {
        let rig = Rig::new();
        let bringer = rig.bring_in_thread();
        let _to_come = rig.slot.leave();
        bringer.join().unwrap();
        rig.check_reused();
    });
}

#[test]
fn a_task_that_polled_may_leave() {
    loom::model(|| {
        let rig = Rig::new();
        let bringer = rig.bring_in_thread();
        if rig.slot.poll(Waker::noop()).is_pending() {
            let _to_come = rig.slot.leave();
        }
        bringer.join().unwrap();
        rig.check_reused();
    });
}

#[test]
fn the_end_wakes_every_task_and_loses_no_value() {
    loom::model(|| {
        let rig = Rig::new();
        let (bringer, closer) = (rig.bring_in_thread(), rig.close_in_thread());
        let value = rig.wait();
        bringer.join().unwrap();
        closer.join().unwrap();
        drop(value);
        assert_eq!(rig.dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn what_begins_after_the_end_does_not_wait() {
    loom::model(|| {
        let slots = CompletionSlots::<Counted>::new();
        let closer = {
            let slots = slots.clone();
            thread::spawn(move || slots.close())
        };
        let slot = slots.take();
        closer.join().unwrap();
        assert!(matches!(slot.poll(Waker::noop()), Poll::Ready(None)));
    });
}

/// Takes one message, as a task does.
fn take(inbox: &Inbox<Counted>) -> Option<Counted> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut ticket = Ticket::default();
    loop {
        match inbox.poll(&mut ticket, &waker) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_message_finds_the_task_that_waits() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let dropped = Arc::new(AtomicUsize::new(0));
        let sender = {
            let (inbox, value) = (inbox.clone(), Counted(dropped.clone()));
            thread::spawn(move || inbox.push(value))
        };
        assert!(take(&inbox).is_some());
        sender.join().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_task_that_leaves_hands_on_what_it_was_woken_for() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let mut leaving = Ticket::default();
        assert!(inbox.poll(&mut leaving, Waker::noop()).is_pending());
        let staying = {
            let inbox = inbox.clone();
            thread::spawn(move || assert!(take(&inbox).is_some()))
        };
        inbox.push(Counted(Arc::new(AtomicUsize::new(0))));
        inbox.leave(&mut leaving);
        staying.join().unwrap();
    });
}

#[test]
fn the_end_wakes_the_waiters_for_messages() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<Counted>::new());
        let waiting = {
            let inbox = inbox.clone();
            thread::spawn(move || assert!(take(&inbox).is_none()))
        };
        inbox.close();
        waiting.join().unwrap();
    });
}
