//! Rate limit for log lines that peers, or repeated failures, could cause in any number: one line
//! per kind in ten seconds.

use parking_lot::Mutex;

const NS_PER_S: u64 = 1_000_000_000;

/// The minimum interval between two lines of a kind.
const PAUSE_NS: u64 = 10 * NS_PER_S;

/// The rate limit of one kind of line: when the next line may be written, and the number suppressed
/// since the last.
#[derive(Debug, Default)]
pub struct RateLimitedLog(Mutex<RateLimitedLogState>);

#[derive(Debug, Default)]
struct RateLimitedLogState {
    next_ns: u64,
    suppressed: u64,
}

impl RateLimitedLog {
    /// Returns `None` if the line is suppressed, else the number of lines suppressed since the last
    /// one.
    #[must_use]
    pub fn say(&self, now_ns: u64) -> Option<u64> {
        let mut state = self.0.lock();
        if now_ns < state.next_ns {
            state.suppressed += 1;
            return None;
        }
        state.next_ns = now_ns.saturating_add(PAUSE_NS);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_back_is_counted() {
        let rate_limited_log = RateLimitedLog::default();
        let said: Vec<_> = (0..25).map(|second| rate_limited_log.say(second * NS_PER_S)).collect();
        let reported: Vec<_> =
            said.iter().enumerate().filter_map(|(at, suppressed)| Some((at, (*suppressed)?))).collect();
        assert_eq!(reported, [(0, 0), (10, 9), (20, 9)]);
    }
}
