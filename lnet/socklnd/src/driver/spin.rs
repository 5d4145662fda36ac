//! Polling without pause.
//!
//! A thread that never sleeps asks the system again and again what has changed, and then asks for the bytes: the first
//! question is a waste where all that comes comes on one connection (500 ns when there is something, on the way of each
//! message). So it reads from the connection that delivered last, and asks the system now and then. Threads that sleep
//! between messages, or do something else between two polls, always ask.

use lnet_lnd::slab::Key;

/// Who has polled so often without arming once, which comes before any sleep, polls on. A sleeper polls two or three
/// times for each time it sleeps.
const SPINNING: u32 = 32;

/// Polls that follow each other more slowly than this are not spinning: what waits for some of them waits too long. About as
/// long as it pays to spin before sleeping.
const PAUSE_NS: u64 = 20_000;

/// Of so many polls of a spinning thread one asks the system: so everything else waits for some more reads that find
/// nothing, about as long as it takes to handle one message.
const ASKS_EVERY: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Spin {
    /// Since the shard was armed, or the last pause; from [`SPINNING`] on, it goes round.
    polls: u32,
    /// The connection that has delivered last.
    last: Option<Key>,
}

impl Spin {
    /// A poll begins, so long after the last one. Gives the connection to read from in place of asking the system, if it is
    /// time for that.
    pub(super) fn begin(&mut self, since_last_ns: u64) -> Option<Key> {
        if since_last_ns > PAUSE_NS {
            self.polls = 0;
        }
        self.polls += 1;
        if self.polls == SPINNING + ASKS_EVERY {
            self.polls = SPINNING;
        }
        self.last.filter(|_| self.polls > SPINNING)
    }

    /// A connection has delivered.
    pub(super) fn delivered(&mut self, key: Key) {
        self.last = Some(key);
    }

    /// The shard is to be armed. Gives whether the last poll has asked the system: else it has old news to tell.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.polls) <= SPINNING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_always_asks() {
        let mut spin = Spin::default();
        spin.delivered(Key(7));
        for _ in 0..10 {
            assert!((0..SPINNING).all(|_| spin.begin(1).is_none()));
            assert!(spin.end(), "the system was asked just before");
        }
    }

    #[test]
    fn who_spins_asks_now_and_then_and_once_before_it_sleeps() {
        let mut spin = Spin::default();
        spin.delivered(Key(7));
        let asks = (0..SPINNING + 10 * ASKS_EVERY).filter(|_| spin.begin(1).is_none()).count();
        assert_eq!(asks as u32, SPINNING + 10);
        spin.begin(1);
        assert!(!spin.end());
        assert!(spin.begin(1).is_none() && spin.end());
    }

    #[test]
    fn nothing_is_read_before_something_was_delivered() {
        let mut spin = Spin::default();
        assert!((0..10 * SPINNING).all(|_| spin.begin(1).is_none()));
    }

    #[test]
    fn who_pauses_asks() {
        let mut spin = Spin::default();
        spin.delivered(Key(7));
        assert!((0..10 * SPINNING).all(|_| spin.begin(PAUSE_NS + 1).is_none()));
        assert!((0..10 * SPINNING).any(|_| spin.begin(PAUSE_NS).is_some()));
        assert!(spin.begin(PAUSE_NS + 1).is_none() && spin.end());
    }
}
