//! Whether a peer lives that takes nothing (lnet-semantics 11, lnet-wire 28 and 38).
//!
//! A node that holds back more than it takes into memory reads nothing more from its peer, for as long as it takes. To its peer it looks
//! like one that hangs: over TCP its system goes on answering, over verbs its device. So it shows that its program runs: while it holds
//! messages on connections, it sends the peer a NOOP in each [period](sign_period_ns), on every connection (over verbs one, until it hears from
//! the peer: who waits for something answers it). And who cannot send gives
//! nobody up who was heard within the timeout, on any connection of that peer. What has not begun to leave ends by its own deadline.
//!
//! LNet's kernel nodes send no such signs, and give up whoever takes nothing for the timeout.

use crate::timers::SHORT_PART;

/// Signs of life in the short part of a timeout: some may be late.
const SIGNS_PER_SHORT_PART: u64 = 4;

/// How often a node that holds messages back shows its peer that it lives.
#[must_use]
pub const fn sign_period_ns(timeout_ns: u64) -> u64 {
    timeout_ns / (SHORT_PART * SIGNS_PER_SHORT_PART)
}

/// For how long nothing has been heard of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// Less than the short part of the timeout.
    None,
    /// Longer, but this node may not have listened.
    Doubted,
    /// The [short part](SHORT_PART) of the timeout, which ends a connection if messages to others wait for its credits.
    Short,
    /// The timeout.
    Whole,
}

/// Since when it is doubted that a peer lives, of which nothing is heard.
///
/// What is old when this node looks may be so because this node has slept, and what came meanwhile is not read yet. So a doubt
/// stands for some periods in which a living peer shows itself before anything follows from it, and this node is awake.
#[derive(Debug, Default)]
pub struct Doubt {
    since_ns: Option<u64>,
    looked_ns: u64,
}

/// In so many periods a living peer shows itself: over verbs it may have to hear first that it is waited for.
const PERIODS_OF_DOUBT: u64 = 2;

/// Connections are looked at four times in a timeout. A node that has not looked for twice as long as that has slept.
const SLEPT_PART: u64 = 2;

impl Doubt {
    /// There is no reason to doubt: something can be sent.
    pub fn end(&mut self) {
        self.since_ns = None;
    }

    /// How long a peer has been silent that was heard last at `heard_ns`, and when that changes if it stays so.
    pub fn look(&mut self, now_ns: u64, heard_ns: u64, timeout_ns: u64) -> (Silence, u64) {
        let short_ns = heard_ns.saturating_add(timeout_ns / SHORT_PART);
        if short_ns > now_ns {
            self.end();
            return (Silence::None, short_ns);
        }
        let slept = now_ns.saturating_sub(self.looked_ns) > timeout_ns / SLEPT_PART;
        self.looked_ns = now_ns;
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
        assert_eq!(doubt.look(399, 0, TIMEOUT), (Silence::None, 400));
        assert_eq!(doubt.look(400, 0, TIMEOUT), (Silence::Doubted, 600), "some periods more");
        assert_eq!(doubt.look(599, 0, TIMEOUT), (Silence::Doubted, 600));
        assert_eq!(doubt.look(600, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.look(900, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.look(1300, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.look(1599, 0, TIMEOUT), (Silence::Short, 1600));
        assert_eq!(doubt.look(1600, 0, TIMEOUT).0, Silence::Whole);
        assert_eq!(doubt.look(1601, 1600, TIMEOUT), (Silence::None, 2000), "it was heard");
    }

    /// What was heard last is old, and nobody has looked since.
    #[test]
    fn who_has_slept_waits_for_a_sign() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.look(50_000, 0, TIMEOUT), (Silence::Doubted, 50_200));
        assert_eq!(doubt.look(50_200, 50_050, TIMEOUT), (Silence::None, 50_450), "there it is");
        assert_eq!(doubt.look(90_000, 50_050, TIMEOUT), (Silence::Doubted, 90_200));
        assert_eq!(doubt.look(90_200, 50_050, TIMEOUT).0, Silence::Whole);
        assert_eq!(doubt.look(91_100, 50_050, TIMEOUT), (Silence::Doubted, 91_300), "it has slept again");
        doubt.end();
        assert_eq!(doubt.look(91_300, 50_050, TIMEOUT).0, Silence::Doubted, "it begins anew");
    }

    /// A living peer shows itself several times before it is doubted.
    #[test]
    fn signs_come_in_time() {
        for timeout_ns in [1_000_000_000, 50_000_000_000] {
            assert!(3 * sign_period_ns(timeout_ns) < timeout_ns / SHORT_PART);
        }
    }
}
