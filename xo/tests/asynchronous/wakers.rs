//! Wakers are foreign code, which may panic or call back.

use std::sync::atomic::{AtomicUsize, Ordering};

use nlx::{Errno, TmState};

use super::*;

/// Counts its wake-ups, and panics.
#[derive(Default)]
struct Panicking(AtomicUsize);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker that panics, as the test wants");
    }
}

#[test]
fn one_that_panics_harms_no_other() {
    let pair = Pair::over_loopback();
    let panicking = Arc::new(Panicking::default());
    let waker = Waker::from(panicking.clone());
    let mut context = Context::from_waker(&waker);
    let mut offered = pair.a.machine.start(Op::passive_receive(pair.a.empty(100)));
    let mut message = pair.a.machine.next_message();
    assert!(Pin::new(&mut offered).poll(&mut context).is_pending());
    assert!(Pin::new(&mut message).poll(&mut context).is_pending());
    offered.cancel();
    let op = pair.a.post();
    pair.a.machine.cancel(op);
    until("both wakers have panicked", || panicking.0.load(Ordering::SeqCst) >= 2);
    // Both futures got their results, and the machine goes on.
    assert_eq!(block_on(offered).unwrap_err().errno(), Errno::ECANCELED);
    assert_eq!(block_on(message).unwrap_err().errno(), Errno::ECANCELED);
    assert_eq!(pair.a.machine.state(), TmState::Started);
    pair.b.post();
    block_on(pair.a.machine.start(Op::send(pair.a.empty(1), &pair.to_b()).timeout(HUNG))).unwrap();
    block_on(pair.b.machine.next_message()).unwrap();
}

/// Starts, polls and drops operations in the event thread that wakes it.
struct Inline(std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let work = self.0.lock().unwrap().take();
        if let Some(work) = work {
            work();
        }
    }
}

#[test]
fn a_task_may_run_within_the_wake() {
    let pair = Arc::new(Pair::over_loopback());
    let (done, ended) = std::sync::mpsc::channel();
    let inner = pair.clone();
    let waker = Waker::from(Arc::new(Inline(std::sync::Mutex::new(Some(Box::new(move || {
        let offered = inner.a.machine.start(Op::passive_receive(inner.a.empty(100)));
        drop(offered);
        let own = inner.a.machine.own_end_point().clone();
        inner.a.post();
        let sending = inner.a.machine.start(Op::send(inner.a.empty(3), &own).timeout(HUNG));
        drop(inner);
        done.send(sending).unwrap();
    }))))));
    let mut offered = pair.a.machine.start(Op::passive_receive(pair.a.empty(100)));
    assert!(Pin::new(&mut offered).poll(&mut Context::from_waker(&waker)).is_pending());
    offered.cancel();
    let sending = ended.recv().unwrap();
    block_on(sending).unwrap();
    assert_eq!(block_on(pair.a.machine.next_message()).unwrap().message.len(), 3);
}
