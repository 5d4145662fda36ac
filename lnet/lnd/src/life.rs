//! Liveness of a peer that takes no messages (lnet-semantics 11, lnet-wire 28 and 38).
//!
//! A node that holds back more than it takes into memory stops reading from its peer, without a
//! time limit. To the peer it looks like a node that hangs: over TCP its system still answers, over
//! verbs its device. So it sends signs of life: while it holds messages on connections, it sends
//! the peer a NOOP in each [period](sign_period_ns), on every connection (over verbs on one, until
//! something arrives from the peer: a peer that waits for something answers it). A node that cannot
//! send does not give up a peer from which something arrived within the timeout, on any connection.
//! Messages that have not begun to leave end by their own deadline.
//!
//! LNet's kernel nodes send no such signs, and give up a peer that takes nothing for the timeout.

use crate::pass_timer::SHORT_PART;

/// Signs of life in the short part of a timeout. More than one, as some may be late.
const SIGNS_PER_SHORT_PART: u64 = 4;

/// Returns the interval at which a node that holds messages back sends signs of life to its peer.
#[must_use]
pub const fn sign_period_ns(timeout_ns: u64) -> u64 {
    timeout_ns / (SHORT_PART * SIGNS_PER_SHORT_PART)
}

/// The duration of a peer's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// The silence is shorter than the short part of the timeout.
    None,
    /// The silence is longer, but this node may not have been reading.
    Doubted,
    /// The silence has reached the [short part](SHORT_PART) of the timeout, which ends a connection
    /// if messages to others wait for its credits.
    Short,
    /// The silence has reached the timeout.
    Whole,
}

/// The doubt whether a silent peer still runs, and its duration.
///
/// The last receipt may look old only because this node has slept, and what arrived meanwhile is
/// not read yet. So a doubt must last for some periods in which a live peer sends a sign, while
/// this node is awake, before anything follows from it.
#[derive(Debug, Default)]
pub struct Doubt {
    since_ns: Option<u64>,
    checked_ns: u64,
}

/// The number of periods in which a live peer sends a sign: over verbs it may first have to receive
/// something that shows that its answer is awaited.
const PERIODS_OF_DOUBT: u64 = 2;

/// Connections are checked four times in a timeout. A node that has not checked for twice as long
/// as that has slept.
const SLEPT_PART: u64 = 2;

impl Doubt {
    /// Ends the doubt, because something can be sent.
    pub fn end(&mut self) {
        self.since_ns = None;
    }

    /// Returns how long a peer has been silent whose last message arrived at `heard_ns`, and the
    /// time at which the result changes if nothing arrives.
    pub fn silence(&mut self, now_ns: u64, heard_ns: u64, timeout_ns: u64) -> (Silence, u64) {
        let short_ns = heard_ns.saturating_add(timeout_ns / SHORT_PART);
        if short_ns > now_ns {
            self.end();
            return (Silence::None, short_ns);
        }
        let slept = now_ns.saturating_sub(self.checked_ns) > timeout_ns / SLEPT_PART;
        self.checked_ns = now_ns;
        let since_ns = self.since_ns.filter(|_| !slept).unwrap_or(now_ns);
        self.since_ns = Some(since_ns);
        let stands_ns = since_ns.saturating_add(PERIODS_OF_DOUBT * sign_period_ns(timeout_ns));
        let whole_ns = heard_ns.saturating_add(timeout_ns);
        if stands_ns > now_ns {
            (Silence::Doubted, stands_ns)
        } else if whole_ns > now_ns {
            (Silence::Short, whole_ns)
        } else {
            (Silence::Whole, u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: u64 = 1600;

    #[test]
    fn silence_grows_by_parts_of_the_timeout() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.silence(399, 0, TIMEOUT), (Silence::None, 400));
        assert_eq!(doubt.silence(400, 0, TIMEOUT), (Silence::Doubted, 600), "some periods more");
        assert_eq!(doubt.silence(599, 0, TIMEOUT), (Silence::Doubted, 600));
        assert_eq!(doubt.silence(600, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.silence(900, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.silence(1300, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.silence(1599, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.silence(1600, 0, TIMEOUT).0, Silence::Whole);
        assert_eq!(doubt.silence(1601, 1600, TIMEOUT), (Silence::None, 2000), "something has arrived");
    }

    /// The last receipt is old because the node slept: there was no check since.
    #[test]
    fn who_has_slept_waits_for_a_sign() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.silence(50_000, 0, TIMEOUT), (Silence::Doubted, 50_200));
        assert_eq!(doubt.silence(50_200, 50_050, TIMEOUT), (Silence::None, 50_450), "there it is");
        assert_eq!(doubt.silence(90_000, 50_050, TIMEOUT), (Silence::Doubted, 90_200));
        assert_eq!(doubt.silence(90_200, 50_050, TIMEOUT).0, Silence::Whole);
        assert_eq!(doubt.silence(91_100, 50_050, TIMEOUT), (Silence::Doubted, 91_300), "it has slept again");
        doubt.end();
        assert_eq!(doubt.silence(91_300, 50_050, TIMEOUT).0, Silence::Doubted, "it begins anew");
    }

    /// A live peer sends several signs before it is doubted.
    #[test]
    fn signs_come_in_time() {
        for timeout_ns in [1_000_000_000, 50_000_000_000] {
            assert!(3 * sign_period_ns(timeout_ns) < timeout_ns / SHORT_PART);
        }
    }
}
