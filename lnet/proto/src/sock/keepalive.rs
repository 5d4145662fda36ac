//! Keepalives for a silent peer (lnet-wire 28).

use super::{Prefix, Version};

/// The minimum time between two attempts, in nanoseconds.
pub const KEEPALIVE_PAUSE_NS: u64 = 10_000_000_000;

/// Decides when to send a silent peer a NOOP without acknowledgements.
///
/// One instance serves all connections to a peer: any byte from the peer ends its silence, and the
/// NOOP is sent on its ack connection. The peer does not answer it; the socket reports a peer that
/// is gone. Times are nanoseconds since any fixed moment.
///
/// ```
/// use lnet_proto::sock::{Keepalive, Prefix, Version};
///
/// const SECOND: u64 = 1_000_000_000;
/// let mut keepalive = Keepalive::new(Version::V3, Some(30 * SECOND), 0);
/// keepalive.heard(5 * SECOND);
/// assert_eq!(keepalive.deadline_ns(), Some(35 * SECOND));
/// assert_eq!(keepalive.poll(34 * SECOND, true), None);
/// assert_eq!(keepalive.poll(35 * SECOND, true), Some(Prefix::KEEPALIVE));
/// assert_eq!(keepalive.deadline_ns(), Some(45 * SECOND));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Duration of the peer's silence before a keepalive; `None` for never.
    silence_ns: Option<u64>,
    heard_ns: u64,
    tried_ns: Option<u64>,
}

impl Keepalive {
    /// Makes the state for a peer of this version that is connected now. `silence_ns` is the
    /// tunable `keepalive`, 30 s by default; `None` turns it off. Version 2 has no keepalives.
    #[must_use]
    pub const fn new(version: Version, silence_ns: Option<u64>, now_ns: u64) -> Keepalive {
        let silence_ns = match version {
            Version::V2 => None,
            Version::V3 | Version::V4 => silence_ns,
        };
        Keepalive { silence_ns, heard_ns: now_ns, tried_ns: None }
    }

    /// Records that bytes have come from the peer.
    pub fn heard(&mut self, now_ns: u64) {
        self.heard_ns = self.heard_ns.max(now_ns);
    }

    /// Returns the time of the next call of [`Keepalive::poll`]; `None` for never.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        let silent_ns = self.heard_ns.saturating_add(self.silence_ns?);
        let pause_ns = self.tried_ns.map_or(0, |tried_ns| tried_ns.saturating_add(KEEPALIVE_PAUSE_NS));
        Some(silent_ns.max(pause_ns))
    }

    /// Returns the NOOP to send now, if one is due. If something is queued on the ack connection
    /// (`idle` is false), that replaces the keepalive: the attempt counts, and nothing is returned.
    pub fn poll(&mut self, now_ns: u64, idle: bool) -> Option<Prefix> {
        if self.deadline_ns()? > now_ns {
            return None;
        }
        self.tried_ns = Some(now_ns);
        idle.then_some(Prefix::KEEPALIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_silent_peer_hears_from_us_at_most_every_ten_seconds() {
        let mut keepalive = Keepalive::new(Version::V4, Some(30 * S), 100 * S);
        let sent: Vec<_> = (100..200).filter(|now| keepalive.poll(now * S, true).is_some()).collect();
        assert_eq!(sent, [130, 140, 150, 160, 170, 180, 190]);
        keepalive.heard(195 * S);
        let sent: Vec<_> = (200..250).filter(|now| keepalive.poll(now * S, true).is_some()).collect();
        assert_eq!(sent, [225, 235, 245]);
    }

    #[test]
    fn what_waits_to_be_sent_is_sign_enough() {
        let mut keepalive = Keepalive::new(Version::V3, Some(30 * S), 0);
        assert_eq!(keepalive.poll(30 * S, false), None);
        assert_eq!(keepalive.deadline_ns(), Some(40 * S));
        assert_eq!(keepalive.poll(39 * S, true), None);
        assert_eq!(keepalive.poll(40 * S, true), Some(Prefix::KEEPALIVE));
    }

    #[test]
    fn version_two_and_a_keepalive_of_nothing_are_silent() {
        for mut keepalive in [Keepalive::new(Version::V2, Some(1), 0), Keepalive::new(Version::V3, None, 0)] {
            assert_eq!((keepalive.deadline_ns(), keepalive.poll(u64::MAX, true)), (None, None));
        }
    }

    #[test]
    fn time_neither_overflows_nor_runs_back() {
        let mut keepalive = Keepalive::new(Version::V3, Some(u64::MAX), u64::MAX - 1);
        assert_eq!(keepalive.deadline_ns(), Some(u64::MAX));
        assert_eq!(keepalive.poll(u64::MAX, true), Some(Prefix::KEEPALIVE));
        keepalive.heard(3);
        assert_eq!(keepalive.deadline_ns(), Some(u64::MAX));
    }
}
