//! Log lines of which others, or bad luck, could cause any number: each kind is written once in ten seconds.

use parking_lot::Mutex;

const NS_PER_S: u64 = 1_000_000_000;

/// The time from one line to the next of its kind.
const PAUSE_NS: u64 = 10 * NS_PER_S;

/// When something was last said, and what was kept back since.
#[derive(Debug, Default)]
pub struct RateLimitedLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next_ns: u64,
    unsaid: u64,
}

impl RateLimitedLog {
    /// Whether to say it now, and how often it has been kept back since it was said last.
    #[must_use]
    pub fn say(&self, now_ns: u64) -> Option<u64> {
        let mut state = self.0.lock();
        if now_ns < state.next_ns {
            state.unsaid += 1;
            return None;
        }
        state.next_ns = now_ns.saturating_add(PAUSE_NS);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_back_is_counted() {
        let rate_limited_log = RateLimitedLog::default();
        let said: Vec<_> = (0..25).map(|second| rate_limited_log.say(second * NS_PER_S)).collect();
        let heard: Vec<_> =
            said.iter().enumerate().filter_map(|(at, unsaid)| Some((at, (*unsaid)?))).collect();
        assert_eq!(heard, [(0, 0), (10, 9), (20, 9)]);
    }
}
