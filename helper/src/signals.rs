//! Signals to event loops of clients, which a client can make slow.
//!
//! A signal wakes all watches that the client has set on its end of the sockets, whatever their
//! number. Events come while the network is polled, or in another user's turn. So signals are
//! measured. After one for which the thread itself has used [`LONG_TURN`] of processor time, the
//! signals of this client are deferred to the sweep over all clients, which counts for its user,
//! until they are short again. An event then wakes its event loop later, by
//! [`SWEEP`](super::service::SWEEP) at the most while the user does not rest.
//!
//! The elapsed time of a signal says little, as that of a turn: the thread may have been preempted,
//! above all by the one that it has woken. A system call returns the thread's processor time; it is
//! made only for a while after a long signal to any client.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};

use super::service::{LONG_TURN, REST_MAX, WARY};

const LONG_NS: u64 = LONG_TURN.as_nanos() as u64;

/// Duration of exact measurement, so that the first long signal of a user that has rested is
/// measured, too.
const WARY_NS: u64 = (WARY.as_nanos() + REST_MAX.as_nanos()) as u64;

/// End of the period in which this process measures signals exactly.
static WARY_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Time that this thread has spent on long signals, which is not charged to the user whose turn
    /// it is.
    static EXCUSED_NS: Cell<u64> = const { Cell::new(0) };
}

/// Returns and resets the time that the calling thread has spent on long signals.
pub(super) fn take_excused_ns() -> u64 {
    EXCUSED_NS.take()
}

/// Deferred signals to one client, and the time of long ones that its user owes.
#[derive(Debug, Default)]
pub(super) struct ClientSignals {
    /// Set while signals are deferred to the sweep over all clients.
    deferred: AtomicBool,
    /// Set while some transfer machine has a deferred signal.
    pending: AtomicBool,
    /// Time of long signals for which its user has not rested yet.
    owed_ns: AtomicU64,
}

/// The clocks of the calling thread.
trait Clocks {
    fn now_ns(&self) -> u64;
    /// Returns the processor time of the thread.
    fn worked_ns(&self) -> u64;
}

struct System;

impl Clocks for System {
    fn now_ns(&self) -> u64 {
        read(ClockId::CLOCK_MONOTONIC)
    }

    fn worked_ns(&self) -> u64 {
        read(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }
}

/// Reads a clock. Every system has both clocks.
fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

impl ClientSignals {
    /// Sends a signal by `send`, which returns whether there was one to send, or defers it. Returns
    /// whether it is deferred. A caller that records a deferred signal before
    /// [`ClientSignals::note_pending`] has its record seen by the thread that
    /// [takes](ClientSignals::take_pending) the note.
    pub(super) fn send(&self, send: impl FnOnce() -> bool) -> bool {
        self.send_by(&System, &WARY_UNTIL_NS, send)
    }

    fn send_by(&self, clocks: &impl Clocks, wary_until_ns: &AtomicU64, send: impl FnOnce() -> bool) -> bool {
        if self.deferred.load(Ordering::Relaxed) {
            return true;
        }
        let began_ns = clocks.now_ns();
        let is_wary = began_ns < wary_until_ns.load(Ordering::Relaxed);
        let before_ns = is_wary.then(|| clocks.worked_ns());
        if !send() {
            return false;
        }
        let now_ns = clocks.now_ns();
        let took_ns = now_ns.saturating_sub(began_ns);
        if took_ns < LONG_NS {
            return false;
        }
        wary_until_ns.store(now_ns.saturating_add(WARY_NS), Ordering::Relaxed);
        let worked_ns = before_ns.map(|before_ns| clocks.worked_ns().saturating_sub(before_ns));
        EXCUSED_NS.set(EXCUSED_NS.get().saturating_add(worked_ns.unwrap_or(took_ns)));
        if let Some(worked_ns) = worked_ns.filter(|&worked_ns| worked_ns >= LONG_NS) {
            self.owed_ns.fetch_add(worked_ns, Ordering::Relaxed);
            self.deferred.store(true, Ordering::Relaxed);
        }
        false
    }

    /// Notes that a signal was deferred.
    pub(super) fn note_pending(&self) {
        self.pending.store(true, Ordering::Release);
    }

    /// Returns whether a deferred signal has been noted since the last call.
    pub(super) fn take_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::AcqRel)
    }

    /// Returns and resets the time of long signals for which the user has not rested yet.
    pub(super) fn take_owed_ns(&self) -> u64 {
        if self.owed_ns.load(Ordering::Relaxed) == 0 { 0 } else { self.owed_ns.swap(0, Ordering::Relaxed) }
    }

    /// Sends deferred signals. Each of `sends` sends one, and returns whether there was one to
    /// send. Stops after a long one; the rest is pending again then. If all were short, later
    /// signals are not deferred.
    pub(super) fn send_deferred<S: FnOnce() -> bool>(&self, sends: impl IntoIterator<Item = S>) {
        self.send_deferred_by(&System, sends);
    }

    fn send_deferred_by<S: FnOnce() -> bool>(
        &self,
        clocks: &impl Clocks,
        sends: impl IntoIterator<Item = S>,
    ) {
        let (began_ns, mut has_sent) = (clocks.worked_ns(), false);
        for send in sends {
            if !send() {
                continue;
            }
            has_sent = true;
            if clocks.worked_ns().saturating_sub(began_ns) >= LONG_NS {
                return self.note_pending();
            }
        }
        if has_sent {
            self.deferred.store(false, Ordering::Relaxed);
        }
    }

    /// Sets the state after a long signal.
    #[cfg(test)]
    pub(super) fn defer(&self, owed_ns: u64) {
        self.owed_ns.store(owed_ns, Ordering::Relaxed);
        self.deferred.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Clocks that advance only by the time of a signal.
    #[derive(Default)]
    struct Still {
        now_ns: Cell<u64>,
        worked_ns: Cell<u64>,
    }

    impl Clocks for Still {
        fn now_ns(&self) -> u64 {
            self.now_ns.get()
        }

        fn worked_ns(&self) -> u64 {
            self.worked_ns.get()
        }
    }

    impl Still {
        /// Simulates a signal of this duration, with a part of it as processor time.
        fn pass(&self, took_ms: u64, worked_ms: u64) -> bool {
            self.now_ns.set(self.now_ns.get() + took_ms * MS);
            self.worked_ns.set(self.worked_ns.get() + worked_ms * MS);
            true
        }
    }

    /// The signals of a client, and those of other clients.
    #[derive(Default)]
    struct World {
        clocks: Still,
        wary_until_ns: AtomicU64,
        signals: ClientSignals,
    }

    impl World {
        /// Sends a signal. Returns whether it is deferred, and the time that the turn is excused
        /// for.
        fn send(&self, signals: &ClientSignals, took_ms: u64, worked_ms: u64) -> (bool, u64) {
            let deferred =
                signals.send_by(&self.clocks, &self.wary_until_ns, || self.clocks.pass(took_ms, worked_ms));
            (deferred, take_excused_ns() / MS)
        }
    }

    #[test]
    fn signals_are_left_after_one_in_which_the_thread_has_worked_for_long() {
        let world = &World::default();
        let (signals, clocks) = (&world.signals, &world.clocks);
        take_excused_ns();
        // The first long signal of any client starts the exact measurement.
        assert_eq!(world.send(&ClientSignals::default(), 500, 500), (false, 500));
        assert_eq!(world.send(signals, 9, 9), (false, 0));
        // Another thread had the processor.
        assert_eq!(world.send(signals, 500, 9), (false, 9));
        assert!(!signals.deferred.load(Ordering::Relaxed) && signals.take_owed_ns() == 0);
        assert_eq!(world.send(signals, 50, 40), (false, 40));
        assert_eq!(signals.take_owed_ns(), 40 * MS);
        assert_eq!(signals.take_owed_ns(), 0);
        // From now on they are not sent here.
        assert!(signals.send_by(clocks, &world.wary_until_ns, || unreachable!("it is left")));
        // Other clients' signals are.
        assert_eq!(world.send(&ClientSignals::default(), 1, 1), (false, 0));
    }

    #[test]
    fn signals_are_measured_for_a_while() {
        let world = World::default();
        assert!(!world.send(&world.signals, 50, 50).0);
        world.clocks.pass(WARY_NS / MS, 0);
        assert!(!world.send(&world.signals, 50, 50).0);
        assert!(!world.signals.deferred.load(Ordering::Relaxed));
        world.clocks.pass(WARY_NS / MS - 1, 0);
        assert!(!world.send(&world.signals, 50, 50).0);
        assert!(world.signals.deferred.load(Ordering::Relaxed));
        // A check that finds no sleeper costs nothing.
        let other = ClientSignals::default();
        other.send_by(&world.clocks, &world.wary_until_ns, || !world.clocks.pass(50, 50));
        assert!(!other.deferred.load(Ordering::Relaxed));
    }

    #[test]
    fn signals_that_were_left_are_sent_until_one_is_long() {
        let world = World::default();
        let (signals, clocks) = (&world.signals, &world.clocks);
        signals.defer(0);
        signals.note_pending();
        assert!(signals.take_pending() && !signals.take_pending());
        let mut sent = Vec::new();
        let mut send = |worked_ms: &[u64]| {
            sent.clear();
            signals.send_deferred_by(
                clocks,
                worked_ms.iter().map(|&worked_ms| {
                    sent.push(worked_ms);
                    move || worked_ms > 0 && clocks.pass(worked_ms, worked_ms)
                }),
            );
            sent.len()
        };
        assert_eq!(send(&[1, 0, 20, 1]), 3);
        assert!(signals.take_pending() && signals.deferred.load(Ordering::Relaxed));
        // No thread slept, so the time of this check proves nothing.
        assert_eq!(send(&[0, 0]), 2);
        assert!(!signals.take_pending() && signals.deferred.load(Ordering::Relaxed));
        assert_eq!(send(&[1, 0, 2]), 3);
        assert!(!signals.take_pending() && !signals.deferred.load(Ordering::Relaxed));
    }
}
