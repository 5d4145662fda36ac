//! When messages may wait for company.
//!
//! A system call per message costs more than everything else about a small message. What a polling thread sends leaves
//! together at the end of the poll. But a program also sends between two polls: it is woken by an event, sends a few
//! messages and waits again. There the first message leaves at once, and the others wait for that thread's next poll, as
//! long as experience shows that it comes soon. Whoever else polls first takes them along, and if nobody does, the
//! node's scheduler thread: no message waits without somebody who will come.

use std::cell::Cell;

/// A thread that sends and does not poll again within this time keeps its messages waiting too long. About what it takes
/// to wake a processor that has gone idle.
const SOON_NS: u64 = 200_000;

/// What one burst that waited too long costs, in bursts that did not: a thread may lose its processor now and then.
const LATE_COST: i32 = 16;

/// No good past outweighs more than four late bursts in a row.
const TRUST_MAX: i32 = 4 * LATE_COST;

/// Trust after a pause: what made the last bursts late is most likely over, and one late burst does not mean that it is
/// not.
const TRUST_AGAIN: i32 = TRUST_MAX / 2;

/// How long messages leave at once when too many have waited too long, at first. It doubles each time. Short, for on a
/// busy machine the next bursts may well be in time.
const PAUSE_MIN_NS: u64 = 10_000_000;

/// How long at the most.
const PAUSE_MAX_NS: u64 = 2048 * PAUSE_MIN_NS;

thread_local! {
    /// The LND of which this thread has last polled a shard, and how many messages it has sent there since.
    static BURST: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// Names the calling thread among those alive.
pub(crate) fn thread_id() -> usize {
    BURST.with(|burst| std::ptr::from_ref(burst).addr())
}

/// Counts a message that the calling thread sends over `lnd`; `true` if it is not the first since that thread's last poll
/// there.
pub(crate) fn is_burst(lnd: usize) -> bool {
    let (polled, sent) = BURST.get();
    if polled != lnd {
        return false;
    }
    BURST.set((polled, sent.saturating_add(1)));
    sent > 0
}

/// The calling thread polls a shard of this LND until it is dropped.
pub(crate) struct BurstOver(usize);

impl BurstOver {
    pub(crate) fn new(lnd: usize) -> BurstOver {
        BurstOver(lnd)
    }
}

impl Drop for BurstOver {
    fn drop(&mut self) {
        BURST.set((self.0, 0));
    }
}

/// Learns from how long messages have waited whether they may.
#[derive(Debug)]
pub(crate) struct SendCoalescer {
    trust: i32,
    pause_ns: u64,
    until_ns: u64,
}

impl SendCoalescer {
    /// Trusts that threads come back soon: the first bursts of a program are its slowest, for everything they touch is
    /// new to them.
    pub(crate) fn new() -> SendCoalescer {
        SendCoalescer { trust: TRUST_MAX, pause_ns: 0, until_ns: 0 }
    }

    /// Messages have waited for at most this time.
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

    /// Whether messages may wait now.
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
            drop(BurstOver::new(lnd));
            assert_eq!([0; 3].map(|_| is_burst(lnd)), [false, true, true]);
            assert!(!is_burst(lnd + 1), "another LND has its own count");
        }
    }

    /// Late bursts, until messages may wait no more.
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
        assert_eq!(late(&mut coalescer, now_ns), TRUST_MAX / LATE_COST + 1, "now and then anybody is late");
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
