//! Corks: batching of the messages that a thread sends.
//!
//! A system call per message costs more than everything else about a small one. Callers batch sends
//! with [`corked`]; an LND that can join messages queues them with [`leave_to_uncork`] instead of
//! writing each. A cork belongs to one thread: no other thread is involved, and no message waits
//! once [`corked`] has returned.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Maximum number of connections that can wait under a cork. Messages on further ones are sent at
/// once.
pub const CORKED_MAX: usize = 64;

/// Maximum number of rounds in which the end of a cork flushes messages that its own completions
/// have sent. Messages of later rounds are sent at once.
const ROUNDS_MAX: usize = 8;

thread_local! {
    /// The number of nested [`corked`] calls of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static WAITING: RefCell<Vec<Arc<dyn Flush>>> = const { RefCell::new(Vec::new()) };
}

/// A connection, or another object with queued messages.
pub trait Flush {
    /// Sends the queued messages. The thread that queued the messages calls this, without a lock.
    fn flush(&self);
}

/// Runs `send`. Messages that it sends may wait for the end of the call, and are then sent
/// together, also after a panic. In nested calls they wait for the end of the outermost one.
///
/// ```
/// use lnet_api::{LNet, LNetError, Put, corked};
///
/// fn send_all(lnet: &dyn LNet, puts: &[Put]) -> Result<(), LNetError> {
///     corked(|| puts.iter().try_for_each(|put| lnet.put(put)))
/// }
/// ```
pub fn corked<R>(send: impl FnOnce() -> R) -> R {
    let _cork = Cork::new();
    send()
}

/// For LNDs: returns whether messages of this thread may wait on `connection`. If so, the end of
/// the cork flushes the connection; otherwise the LND writes at once.
pub fn leave_to_uncork<F: Flush + 'static>(connection: &Arc<F>) -> bool {
    DEPTH.get() > 0 && note(connection)
}

fn note<F: Flush + 'static>(connection: &Arc<F>) -> bool {
    // During the thread's exit the list is gone: nothing would flush the connection then.
    let noted = WAITING.try_with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        let address = Arc::as_ptr(connection).addr();
        // The messages of a batch often go to one peer, so the search begins with the latest
        // connection.
        if waiting.iter().rev().any(|known| Arc::as_ptr(known).addr() == address) {
            return true;
        }
        if waiting.len() == CORKED_MAX {
            return false;
        }
        if waiting.capacity() == 0 {
            waiting.reserve_exact(CORKED_MAX);
        }
        waiting.push(connection.clone());
        true
    });
    noted.unwrap_or(false)
}

/// A cork of the thread, which ends when this is dropped. Private, because a leaked one would hold
/// messages for ever.
struct Cork;

impl Cork {
    fn new() -> Cork {
        DEPTH.set(DEPTH.get() + 1);
        Cork
    }
}

impl Drop for Cork {
    fn drop(&mut self) {
        let outermost = DEPTH.get() == 1;
        let nothing_waits = outermost && (0..ROUNDS_MAX).any(|_| !flush_all());
        DEPTH.set(DEPTH.get() - 1);
        if outermost && !nothing_waits {
            flush_all();
        }
    }
}

/// Flushes the connections that waited at the time of the call, oldest first; returns whether there
/// were any.
fn flush_all() -> bool {
    let count = WAITING.try_with(|waiting| waiting.borrow().len()).unwrap_or(0);
    for _ in 0..count {
        // The list is not borrowed during the flush, because completions may send.
        let next = WAITING.with_borrow_mut(|waiting| waiting.remove(0));
        next.flush();
    }
    count > 0
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A test connection: its queued messages, and the number of writes.
    #[derive(Default)]
    struct Wire {
        waiting: AtomicUsize,
        writes: AtomicUsize,
        /// The number of completions, of those to come, that still send a message.
        answers: AtomicUsize,
        me: std::sync::OnceLock<std::sync::Weak<Wire>>,
    }

    impl Wire {
        fn new(answers: usize) -> Arc<Wire> {
            let wire = Arc::new(Wire { answers: AtomicUsize::new(answers), ..Wire::default() });
            wire.me.get_or_init(|| Arc::downgrade(&wire));
            wire
        }

        fn send(self: &Arc<Wire>) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            if !leave_to_uncork(self) {
                self.flush();
            }
        }

        /// Returns the number of queued messages and the number of writes.
        fn state(&self) -> (usize, usize) {
            (self.waiting.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
        }
    }

    impl Flush for Wire {
        fn flush(&self) {
            if self.waiting.swap(0, Ordering::Relaxed) == 0 {
                return;
            }
            self.writes.fetch_add(1, Ordering::Relaxed);
            let answer = |left: usize| left.checked_sub(1);
            if self.answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, answer).is_ok() {
                let me = self.me.get().and_then(std::sync::Weak::upgrade);
                me.expect("the test holds it").send();
            }
        }
    }

    #[test]
    fn what_is_sent_under_a_cork_leaves_with_one_write_for_each_connection() {
        let wires = [Wire::new(0), Wire::new(0)];
        corked(|| {
            (0..16).for_each(|number| wires[number % 2].send());
            assert_eq!(wires.each_ref().map(|wire| wire.state()), [(8, 0); 2]);
        });
        assert_eq!(wires.each_ref().map(|wire| wire.state()), [(0, 1); 2]);
        wires[0].send();
        assert_eq!(wires[0].state(), (0, 2), "without a cork nothing waits");
    }

    #[test]
    fn the_outermost_cork_counts() {
        let wire = Wire::new(0);
        corked(|| {
            corked(|| wire.send());
            assert_eq!(wire.state(), (1, 0));
            wire.send();
        });
        assert_eq!(wire.state(), (0, 1));
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let wire = Wire::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            corked(|| {
                wire.send();
                panic!("in the middle of a batch");
            });
        }));
        assert!(panicked.is_err());
        assert_eq!(wire.state(), (0, 1));
        wire.send();
        assert_eq!(wire.state(), (0, 2), "the thread has no cork any more");
    }

    #[test]
    fn what_completions_send_leaves_too_however_much_it_is() {
        for answers in [1, ROUNDS_MAX, 100] {
            let wire = Wire::new(answers);
            corked(|| wire.send());
            assert_eq!(wire.state(), (0, answers + 1));
        }
    }

    #[test]
    fn more_connections_than_can_wait_are_written_at_once() {
        let wires: Vec<_> = (0..CORKED_MAX + 10).map(|_| Wire::new(0)).collect();
        corked(|| {
            wires.iter().for_each(|wire| wire.send());
            let waiting = wires.iter().filter(|wire| wire.state() == (1, 0)).count();
            assert_eq!(waiting, CORKED_MAX);
        });
        assert!(wires.iter().all(|wire| wire.state() == (0, 1)));
    }

    #[test]
    fn each_thread_has_a_cork_of_its_own() {
        let wire = Wire::new(0);
        corked(|| {
            wire.send();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let own = Wire::new(0);
                    own.send();
                    assert_eq!(own.state(), (0, 1), "it has no cork");
                    corked(|| own.send());
                    own.state()
                });
                assert_eq!(other.join().expect("the other thread does not panic"), (0, 2));
            });
            assert_eq!(wire.state(), (1, 0), "the other's end is not this one's");
        });
        assert_eq!(wire.state(), (0, 1));
    }
}
