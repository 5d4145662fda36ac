//! Zero-copy acks (lnet-wire 26).
//!
//! A sender that transmits pages without copying them puts a *cookie* on the message and keeps the
//! pages until the receiver acknowledges it. Every cookie received must be acknowledged, or the
//! peer closes all connections after its timeout.

use crate::ProtoError;

use super::{Prefix, PrefixKind};

/// The value of a field without a cookie.
pub const COOKIE_NONE: u64 = 0;

/// The cookie of a keepalive; the numbers above it are cookies to acknowledge.
pub const COOKIE_KEEPALIVE: u64 = 1;

/// The limit for runs of consecutive cookies in an [`AckQueue`].
///
/// A peer has at most its send credits (8 by default, a few hundred when tuned) of messages in
/// flight, and each needs at most one run.
pub const ACK_RUNS_MAX: usize = 1024;

/// The acknowledgements in a message.
///
/// Cookies come from the peer and a range may span nearly all 64-bit numbers: look each outstanding
/// cookie up with [`Acks::contains`] instead of walking the range, and compare [`Acks::count`] with
/// the number found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acks {
    /// The message acknowledges nothing.
    None,
    /// The message is a keepalive, and acknowledges nothing.
    Keepalive,
    /// The message acknowledges this cookie.
    One(u64),
    /// The message acknowledges these two cookies, the greater one first.
    Two(u64, u64),
    /// The message acknowledges every cookie from the first to the second, both included.
    Range(u64, u64),
}

impl Acks {
    /// Returns the acknowledgements in this message.
    #[must_use]
    pub fn of(prefix: &Prefix) -> Acks {
        match (prefix.kind, prefix.zc_req, prefix.zc_ack) {
            (PrefixKind::Lnet, _, COOKIE_NONE) => Acks::None,
            (PrefixKind::Lnet, _, COOKIE_KEEPALIVE) => Acks::Keepalive,
            (PrefixKind::Lnet, _, cookie) => Acks::One(cookie),
            (PrefixKind::Noop, COOKIE_NONE, COOKIE_NONE) => Acks::None,
            (PrefixKind::Noop, COOKIE_NONE | COOKIE_KEEPALIVE, COOKIE_KEEPALIVE) => Acks::Keepalive,
            (PrefixKind::Noop, COOKIE_NONE, cookie) => Acks::One(cookie),
            (PrefixKind::Noop, first, second) if first == second => Acks::One(first),
            (PrefixKind::Noop, first, second) if first > second => Acks::Two(first, second),
            (PrefixKind::Noop, first, second) => Acks::Range(first, second),
        }
    }

    /// Returns whether this cookie is acknowledged.
    #[must_use]
    pub fn contains(&self, cookie: u64) -> bool {
        match *self {
            Acks::None | Acks::Keepalive => false,
            Acks::One(one) => cookie == one,
            Acks::Two(first, second) => cookie == first || cookie == second,
            Acks::Range(first, last) => (first..=last).contains(&cookie),
        }
    }

    /// Returns the number of acknowledged cookies. If one of them is not outstanding, the peer
    /// breaks the protocol.
    #[must_use]
    pub fn count(&self) -> u64 {
        match *self {
            Acks::None | Acks::Keepalive => 0,
            Acks::One(_) => 1,
            Acks::Two(..) => 2,
            Acks::Range(first, last) => (last - first).saturating_add(1),
        }
    }

    /// Returns the NOOP with these acknowledgements; `None` for [`Acks::None`].
    #[must_use]
    pub fn to_noop(self) -> Option<Prefix> {
        let (zc_req, zc_ack) = match self {
            Acks::None => return None,
            Acks::Keepalive => (COOKIE_NONE, COOKIE_KEEPALIVE),
            Acks::One(cookie) => (COOKIE_NONE, cookie),
            Acks::Two(first, second) | Acks::Range(first, second) => (first, second),
        };
        Some(Prefix { kind: PrefixKind::Noop, csum: 0, zc_req, zc_ack })
    }
}

/// The cookies of one peer that are to be acknowledged, sent in the fewest possible NOOPs.
///
/// A NOOP holds a run of consecutive cookies or any two cookies, so a queue of *r* runs of two or
/// more and *s* single cookies needs *r* + ⌈*s*/2⌉ NOOPs.
#[derive(Clone, Debug, Default)]
pub struct AckQueue {
    /// Runs (first, last) in ascending order, with a gap between any two.
    runs: Vec<(u64, u64)>,
}

impl AckQueue {
    /// Makes an empty queue.
    #[must_use]
    pub const fn new() -> AckQueue {
        AckQueue { runs: Vec::new() }
    }

    /// Adds a cookie. A cookie that is pending already is ignored, as are [`COOKIE_NONE`] and
    /// [`COOKIE_KEEPALIVE`].
    ///
    /// # Errors
    /// [`ProtoError::AcksPending`] if [`ACK_RUNS_MAX`] separate runs are pending: the acks are not
    /// being sent, and the connection should be closed.
    pub fn push(&mut self, cookie: u64) -> Result<(), ProtoError> {
        if cookie <= COOKIE_KEEPALIVE {
            return Ok(());
        }
        // The first run that ends at or after the cookie: it contains the cookie, or lies above it.
        let at = self.runs.partition_point(|&(_, last)| last < cookie);
        let right = self.runs.get(at).map(|&(first, _)| first);
        if right.is_some_and(|first| first <= cookie) {
            return Ok(());
        }
        let meets_right = right == cookie.checked_add(1) && right.is_some();
        let meets_left = at > 0 && self.runs[at - 1].1 == cookie - 1;
        match (meets_left, meets_right) {
            (true, true) => self.runs[at - 1].1 = self.runs.remove(at).1,
            (true, false) => self.runs[at - 1].1 = cookie,
            (false, true) => self.runs[at].0 = cookie,
            (false, false) if self.runs.len() < ACK_RUNS_MAX => self.runs.insert(at, (cookie, cookie)),
            (false, false) => return Err(ProtoError::AcksPending { cookie, limit: ACK_RUNS_MAX }),
        }
        Ok(())
    }

    /// Removes the lowest cookie, and all that one NOOP can acknowledge with it.
    pub fn pop(&mut self) -> Acks {
        if self.runs.is_empty() {
            return Acks::None;
        }
        let (first, last) = self.runs.remove(0);
        if first < last {
            return Acks::Range(first, last);
        }
        match self.runs.iter().position(|&(first, last)| first == last) {
            Some(at) => Acks::Two(self.runs.remove(at).0, first),
            None => Acks::One(first),
        }
    }

    /// Removes one cookie to send as [`Prefix::zc_ack`] of an LNet message, which saves a NOOP.
    /// Returns a cookie only if it is the single one that would use a NOOP alone.
    pub fn pop_piggyback(&mut self) -> Option<u64> {
        let mut singles = self.runs.iter().enumerate().filter(|(_, (first, last))| first == last);
        let (at, _) = singles.next()?;
        if singles.count() % 2 == 1 {
            return None;
        }
        Some(self.runs.remove(at).0)
    }

    /// Returns whether there is nothing to acknowledge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noop(zc_req: u64, zc_ack: u64) -> Prefix {
        Prefix { kind: PrefixKind::Noop, csum: 0, zc_req, zc_ack }
    }

    /// lnet-wire 26, the table of directions.
    #[test]
    fn cookies_mean_what_the_table_says() {
        for (prefix, acks) in [
            (noop(0, 0), Acks::None),
            (noop(0, 1), Acks::Keepalive),
            (noop(1, 1), Acks::Keepalive),
            (noop(0, 7), Acks::One(7)),
            (noop(7, 7), Acks::One(7)),
            (noop(9, 7), Acks::Two(9, 7)),
            (noop(7, 9), Acks::Range(7, 9)),
            (noop(1, u64::MAX), Acks::Range(1, u64::MAX)),
            (Prefix { zc_req: 9, ..Prefix::LNET }, Acks::None),
            (Prefix { zc_req: 9, zc_ack: 7, ..Prefix::LNET }, Acks::One(7)),
        ] {
            assert_eq!(prefix.acks(), acks, "{prefix:?}");
        }
        assert_eq!(Acks::Range(0, u64::MAX).count(), u64::MAX);
        assert_eq!(Prefix { zc_req: 9, zc_ack: 7, ..Prefix::LNET }.wants_ack(), Some(9));
        assert_eq!((Prefix::LNET.wants_ack(), noop(9, 7).wants_ack()), (None, None));
    }

    #[test]
    fn runs_grow_meet_and_leave_in_the_fewest_noops() {
        let mut queue = AckQueue::new();
        for cookie in [5, 3, 4, 4, 9, 20, 0, 1, 30] {
            queue.push(cookie).unwrap();
        }
        let mut popped = std::iter::repeat_with(|| queue.pop()).take_while(|acks| *acks != Acks::None);
        assert_eq!(popped.next(), Some(Acks::Range(3, 5)));
        assert_eq!(popped.next(), Some(Acks::Two(20, 9)));
        assert_eq!(popped.next(), Some(Acks::One(30)));
        assert_eq!(popped.next(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn only_the_odd_single_cookie_rides_on_a_message() {
        let mut queue = AckQueue::new();
        for cookie in [5, 6, 10, 20] {
            queue.push(cookie).unwrap();
        }
        assert_eq!(queue.pop_piggyback(), None);
        queue.push(30).unwrap();
        assert_eq!(queue.pop_piggyback(), Some(10));
        assert_eq!(queue.pop_piggyback(), None);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = AckQueue::new();
        for index in 0..ACK_RUNS_MAX as u64 {
            queue.push(10 + 2 * index).unwrap();
        }
        let error = ProtoError::AcksPending { cookie: 5, limit: ACK_RUNS_MAX };
        assert_eq!(queue.push(5), Err(error));
        queue.push(9).unwrap();
        queue.push(11).unwrap();
        assert_eq!(queue.pop(), Acks::Range(9, 12));
        queue.push(5).unwrap();
    }
}
