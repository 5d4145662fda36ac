//! Limits of requests per second, of a connection and of a user.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashMap;
use nlx_fallible::{NoMemory, TryArc};
use parking_lot::Mutex;

use crate::accounts::UserId;

/// A rate limit: a number per second on average, and a second's worth at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// Time that one request uses.
    each_ns: u64,
    /// Time at which all admitted requests will have used up their time.
    paid_ns: u64,
}

/// Time by which a client may be ahead.
const BURST_NS: u64 = 1_000_000_000;

impl Rate {
    pub(super) fn per_second(count: u32) -> Rate {
        Rate { each_ns: BURST_NS / u64::from(count.max(1)), paid_ns: 0 }
    }

    /// Admits a request, or returns the time from which it may come.
    pub(super) fn take(&mut self, now_ns: u64) -> Result<(), u64> {
        let paid_ns = self.paid_ns.max(now_ns).saturating_add(self.each_ns);
        if paid_ns - now_ns > BURST_NS.max(self.each_ns) {
            return Err(paid_ns - BURST_NS.max(self.each_ns));
        }
        self.paid_ns = paid_ns;
        Ok(())
    }

    /// Refunds a request that was admitted.
    pub(super) fn give_back(&mut self) {
        self.paid_ns = self.paid_ns.saturating_sub(self.each_ns);
    }
}

/// A rate limit for all connections of a user, whichever threads serve them. It orders no other
/// access.
#[derive(Debug)]
pub(super) struct SharedRate {
    each_ns: u64,
    paid_ns: AtomicU64,
}

impl SharedRate {
    pub(super) fn per_second(count: u32) -> SharedRate {
        SharedRate { each_ns: Rate::per_second(count).each_ns, paid_ns: AtomicU64::new(0) }
    }

    /// Admits a request, or returns the time from which it may come.
    pub(super) fn take(&self, now_ns: u64) -> Result<(), u64> {
        let mut later_ns = 0;
        let taken = self.paid_ns.fetch_update(Relaxed, Relaxed, |paid_ns| {
            let mut rate = Rate { each_ns: self.each_ns, paid_ns };
            match rate.take(now_ns) {
                Ok(()) => Some(rate.paid_ns),
                Err(at_ns) => {
                    later_ns = at_ns;
                    None
                }
            }
        });
        taken.map(drop).map_err(|_| later_ns)
    }

    /// Refunds a request that was admitted.
    pub(super) fn give_back(&self) {
        self.paid_ns.fetch_sub(self.each_ns, Relaxed);
    }

    /// Returns whether all admitted requests have used up their time: a new rate would be equal.
    fn is_over(&self, now_ns: u64) -> bool {
        self.paid_ns.load(Relaxed) <= now_ns
    }
}

/// The rates of all users except root.
pub(super) struct UserRates {
    per_second: u32,
    /// Rates of users that have connections, or had some lately. An unused one is kept until its
    /// time is over, so that a new connection does not give the user another second's worth.
    rates: Mutex<HashMap<UserId, TryArc<SharedRate>, foldhash::fast::RandomState>>,
}

impl UserRates {
    pub(super) fn per_second(per_second: u32) -> UserRates {
        UserRates { per_second, rates: Mutex::default() }
    }

    /// Returns the request rate that all connections of a user share; `None` for root.
    ///
    /// # Errors
    /// [`NoMemory`] for a user that has none yet.
    pub(super) fn of(&self, user: UserId, now_ns: u64) -> Result<Option<TryArc<SharedRate>>, NoMemory> {
        if user == UserId::ROOT {
            return Ok(None);
        }
        let mut rates = self.rates.lock();
        if let Some(known) = rates.get(&user) {
            return Ok(Some(known.clone()));
        }
        // This keeps the rates of connected users, and of those that made requests within the last
        // second.
        rates.retain(|_, rate| TryArc::strong_count(rate) > 1 || !rate.is_over(now_ns));
        rates.try_reserve(1).map_err(|_| NoMemory)?;
        let made = TryArc::try_new(SharedRate::per_second(self.per_second))?;
        rates.insert(user, made.clone());
        Ok(Some(made))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USER: UserId = UserId(1000);
    const START_NS: u64 = 5_000_000_000;

    /// Returns the number of requests that are admitted now.
    fn take_all(rate: &SharedRate, now_ns: u64) -> u64 {
        std::iter::from_fn(|| rate.take(now_ns).ok()).count() as u64
    }

    /// A user that connects again, after its last connection has gone, gets no further requests by
    /// that.
    #[test]
    fn the_rate_of_a_user_outlives_its_connections() {
        const PER_SECOND: u64 = 100;
        let rates = UserRates::per_second(PER_SECOND as u32);
        let connect = |now_ns| rates.of(USER, now_ns).unwrap().unwrap();
        assert_eq!(take_all(&connect(START_NS), START_NS), PER_SECOND);
        for _ in 0..5 {
            // Another user's first connection drops rates that are over.
            drop(rates.of(UserId(1001), START_NS));
            assert_eq!(take_all(&connect(START_NS), START_NS), 0);
        }
        let later_ns = (1..=30).map(|tenth| START_NS + tenth * BURST_NS / 10);
        let let_in: u64 = later_ns.map(|now_ns| take_all(&connect(now_ns), now_ns)).sum();
        assert_eq!(let_in, 3 * PER_SECOND);
    }

    /// Rates of departed users are kept for their time, and dropped when another one is created.
    #[test]
    fn rates_that_are_over_are_dropped() {
        let rates = UserRates::per_second(100);
        let count = || rates.rates.lock().len();
        let connected = rates.of(USER, START_NS).unwrap().unwrap();
        for uid in 1..=50 {
            let rate = rates.of(UserId(uid), START_NS).unwrap().unwrap();
            assert_eq!(take_all(&rate, START_NS), 100);
        }
        let (soon_ns, later_ns) = (START_NS + BURST_NS - 1, START_NS + BURST_NS);
        drop(rates.of(UserId(51), soon_ns));
        assert_eq!(count(), 52);
        drop(rates.of(UserId(52), later_ns));
        assert_eq!(count(), 2, "the one that is connected, and the one that is made");
        assert!(TryArc::ptr_eq(&connected, &rates.of(USER, later_ns).unwrap().unwrap()));
        assert!(rates.of(UserId::ROOT, later_ns).unwrap().is_none());
    }

    proptest! {
        /// The shared rate of a user's connections admits what a single connection's would; a
        /// refunded request counts as never made.
        #[test]
        fn what_is_shared_is_the_same_rate(
            per_second in 1_u32..5_000,
            steps in prop::collection::vec((0_u64..2_000_000, any::<bool>()), 1..300),
        ) {
            let (mut own, shared) = (Rate::per_second(per_second), SharedRate::per_second(per_second));
            let mut now_ns = 5_000_000_000_u64;
            for (pause_ns, keeps) in steps {
                now_ns += pause_ns;
                let mut next = own;
                let taken = next.take(now_ns);
                prop_assert_eq!(taken, shared.take(now_ns));
                if keeps {
                    own = next;
                } else if taken.is_ok() {
                    // Time that has passed since is not refunded.
                    own = next;
                    own.give_back();
                    shared.give_back();
                }
            }
        }

        /// No period has more than a second's worth plus the period's own share, and a request at
        /// the returned time is admitted.
        #[test]
        fn no_stretch_of_time_has_more_than_its_share(
            per_second in 1_u32..5_000,
            pauses in prop::collection::vec(0_u64..20_000_000, 1..300),
        ) {
            let mut rate = Rate::per_second(per_second);
            let (mut now_ns, mut let_in) = (5_000_000_000_u64, Vec::new());
            for pause_ns in pauses {
                now_ns += pause_ns;
                match rate.take(now_ns) {
                    Ok(()) => let_in.push(now_ns),
                    Err(later_ns) => {
                        prop_assert!(later_ns > now_ns);
                        let mut later = rate;
                        prop_assert!(later.take(later_ns).is_ok() && rate.take(later_ns - 1).is_err());
                    }
                }
            }
            for (first, &from_ns) in let_in.iter().enumerate() {
                for (last, &to_ns) in let_in.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as u64;
                    let share = (to_ns - from_ns + BURST_NS) / rate.each_ns;
                    prop_assert!(count <= share.max(1), "{count} in {} ns", to_ns - from_ns);
                }
            }
        }
    }
}
