//! Direct reads for a thread that polls without pause.
//!
//! A thread that never sleeps queries the system repeatedly for events, and then for the bytes. If
//! all data comes on one connection, the first call is wasted (500 ns in the path of each message).
//! Such a thread reads directly from the connection that delivered last, and queries events now and
//! then. Threads that sleep between messages, or do other work between two polls, always query.

use lnet_lnd::shard_table::ShardKey;

/// Number of polls without arming (which precedes every sleep) after which the thread counts as
/// spinning. A sleeping thread polls two or three times for each sleep.
const SPINNING: u32 = 32;

/// Polls further apart than this are not spinning: data that waits for some of them waits too long.
/// About the longest spin before a sleep that is worth its cost.
const PAUSE_NS: u64 = 20_000;

/// A spinning thread queries the events in one of this number of polls: other data waits for a few
/// more reads that find nothing, about the time that handling one message takes.
const ASKS_EVERY: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct PollSpin {
    /// Polls since the shard was armed, or since the last pause; wraps around above [`SPINNING`].
    polls: u32,
    /// The connection that delivered last.
    last: Option<ShardKey>,
}

impl PollSpin {
    /// Starts a poll. Returns the connection to read from directly instead of querying events;
    /// `None` if events are to be queried.
    pub(super) fn begin(&mut self, since_last_ns: u64) -> Option<ShardKey> {
        if since_last_ns > PAUSE_NS {
            self.polls = 0;
        }
        self.polls += 1;
        if self.polls == SPINNING + ASKS_EVERY {
            self.polls = SPINNING;
        }
        self.last.filter(|_| self.polls > SPINNING)
    }

    /// Records a connection that has delivered bytes.
    pub(super) fn delivered(&mut self, key: ShardKey) {
        self.last = Some(key);
    }

    /// Prepares arming the shard. Returns whether the last poll has queried events: otherwise there
    /// may be unseen ones.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.polls) <= SPINNING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_always_asks() {
        let mut spin = PollSpin::default();
        spin.delivered(ShardKey(7));
        for _ in 0..10 {
            assert!((0..SPINNING).all(|_| spin.begin(1).is_none()));
            assert!(spin.end(), "the system was asked just before");
        }
    }

    #[test]
    fn who_spins_asks_now_and_then_and_once_before_it_sleeps() {
        let mut spin = PollSpin::default();
        spin.delivered(ShardKey(7));
        let asks = (0..SPINNING + 10 * ASKS_EVERY).filter(|_| spin.begin(1).is_none()).count();
        assert_eq!(asks as u32, SPINNING + 10);
        spin.begin(1);
        assert!(!spin.end());
        assert!(spin.begin(1).is_none() && spin.end());
    }

    #[test]
    fn nothing_is_read_before_something_was_delivered() {
        let mut spin = PollSpin::default();
        assert!((0..10 * SPINNING).all(|_| spin.begin(1).is_none()));
    }

    #[test]
    fn who_pauses_asks() {
        let mut spin = PollSpin::default();
        spin.delivered(ShardKey(7));
        assert!((0..10 * SPINNING).all(|_| spin.begin(PAUSE_NS + 1).is_none()));
        assert!((0..10 * SPINNING).any(|_| spin.begin(PAUSE_NS).is_some()));
        assert!(spin.begin(PAUSE_NS + 1).is_none() && spin.end());
    }
}
