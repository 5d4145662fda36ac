//! Adaptive send coalescing.
//!
//! A system call per message costs more than everything else about a small message. Messages that a
//! polling thread sends leave together at the end of the poll. But a program also sends between two
//! polls: an event wakes it, it sends a few messages and waits again. In that case the first
//! message leaves at once, and the others wait for that thread's next poll, while past polls
//! have come soon enough. If another thread polls first, it takes them along; if no program thread
//! polls, the node's scheduler thread does. No message waits without a thread that will poll.

use std::cell::Cell;

/// The longest acceptable wait for a thread's next poll. About the time that waking an idle
/// processor takes.
const SOON_NS: u64 = 200_000;

/// The cost of a late burst, in timely bursts: a thread may lose its processor now and then.
const LATE_COST: i32 = 16;

/// The upper bound of the trust: four late bursts in a row always end coalescing.
const TRUST_MAX: i32 = 4 * LATE_COST;

/// Trust after a pause: the cause of the late bursts is most likely over, and a single late burst
/// does not prove otherwise.
const TRUST_AGAIN: i32 = TRUST_MAX / 2;

/// The first pause of coalescing after too many late bursts; each further pause doubles. Short,
/// because on a busy machine the next bursts may well be in time.
const PAUSE_MIN_NS: u64 = 10_000_000;

/// The longest pause.
const PAUSE_MAX_NS: u64 = 2048 * PAUSE_MIN_NS;

thread_local! {
    /// The LND that this thread last polled, and the number of messages sent there since.
    static BURST: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// Identifies the calling thread among the live threads.
pub(crate) fn thread_id() -> usize {
    BURST.with(|burst| std::ptr::from_ref(burst).addr())
}

/// Counts a message that the calling thread sends over `lnd`; `true` if it is not the first since
/// that thread's last poll there.
pub(crate) fn is_burst(lnd: usize) -> bool {
    let (polled, sent) = BURST.get();
    if polled != lnd {
        return false;
    }
    BURST.set((polled, sent.saturating_add(1)));
    sent > 0
}

/// Guard of a thread that polls a shard of this LND; dropping it starts a new burst.
pub(crate) struct BurstGuard(usize);

impl BurstGuard {
    pub(crate) fn new(lnd: usize) -> BurstGuard {
        BurstGuard(lnd)
    }
}

impl Drop for BurstGuard {
    fn drop(&mut self) {
        BURST.set((self.0, 0));
    }
}

/// Decides from past waiting times whether the coalescing of sends is worthwhile.
#[derive(Debug)]
pub(crate) struct SendCoalescer {
    trust: i32,
    pause_ns: u64,
    until_ns: u64,
}

impl SendCoalescer {
    /// Creates a coalescer with full trust: the first bursts of a program are its slowest, because
    /// everything they touch is cold.
    pub(crate) fn new() -> SendCoalescer {
        SendCoalescer { trust: TRUST_MAX, pause_ns: 0, until_ns: 0 }
    }

    /// Records that messages waited for at most this time.
    pub(crate) fn learn(&mut self, now_ns: u64, waited_ns: u64) {
        self.trust =
            if waited_ns > SOON_NS { self.trust - LATE_COST } else { (self.trust + 1).min(TRUST_MAX) };
        if self.trust < 0 {
            self.trust = TRUST_AGAIN;
            self.pause_ns = (2 * self.pause_ns).clamp(PAUSE_MIN_NS, PAUSE_MAX_NS);
            self.until_ns = now_ns.saturating_add(self.pause_ns);
        } else if self.trust == TRUST_MAX {
            self.pause_ns = 0;
        }
    }

    /// Returns whether messages may wait now.
    pub(crate) fn allows(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_after_a_poll_is_no_burst() {
        let lnd = 16;
        assert!(!is_burst(lnd) && !is_burst(lnd), "this thread has never polled");
        for _ in 0..2 {
            drop(BurstGuard::new(lnd));
            assert_eq!([0; 3].map(|_| is_burst(lnd)), [false, true, true]);
            assert!(!is_burst(lnd + 1), "another LND has its own count");
        }
    }

    /// Records late bursts until messages may wait no more; returns their number.
    fn late(coalescer: &mut SendCoalescer, now_ns: u64) -> i32 {
        let mut bursts = 0;
        while coalescer.allows(now_ns) {
            coalescer.learn(now_ns, SOON_NS + 1);
            bursts += 1;
        }
        bursts
    }

    #[test]
    fn who_keeps_messages_waiting_is_trusted_for_less_of_the_time_each_time() {
        let mut coalescer = SendCoalescer::new();
        let mut now_ns = 0;
        for expected_ns in (0..12).map(|doublings| PAUSE_MIN_NS << doublings).chain([PAUSE_MAX_NS]) {
            late(&mut coalescer, now_ns);
            assert!(!coalescer.allows(now_ns + expected_ns - 1));
            now_ns += expected_ns;
            assert!(coalescer.allows(now_ns));
        }
        for _ in 0..TRUST_MAX {
            coalescer.learn(now_ns, SOON_NS);
        }
        assert_eq!(
            late(&mut coalescer, now_ns),
            TRUST_MAX / LATE_COST + 1,
            "a late burst now and then is normal"
        );
        assert!(coalescer.allows(now_ns + PAUSE_MIN_NS), "trust had come back");
    }

    #[test]
    fn one_late_burst_after_a_pause_is_no_reason_for_the_next() {
        let mut coalescer = SendCoalescer::new();
        let mut now_ns = 0;
        for _ in 0..20 {
            assert!(late(&mut coalescer, now_ns) > 1);
            now_ns = coalescer.until_ns;
        }
    }

    #[test]
    fn a_program_may_start_slowly() {
        let mut coalescer = SendCoalescer::new();
        for _ in 0..TRUST_MAX / LATE_COST {
            coalescer.learn(0, SOON_NS + 1);
            assert!(coalescer.allows(0));
        }
        coalescer.learn(0, SOON_NS + 1);
        assert!(!coalescer.allows(0), "but not for long");
    }
}
