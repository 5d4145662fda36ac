//! Rate limits for changes by pushes.
//!
//! A push with other NIDs than the known ones stops all partitions for a moment, and replaces the
//! oldest list. A peer that claims new NIDs can cause that with each message. So changes are
//! limited per address, and for all addresses together. Pushes without changes are not counted. A
//! push beyond a limit is acknowledged as always; its content is ignored and counted, and the node
//! is known by the NID that it uses.

use lnet_nid::{Nid, Pid, ProcessId};
use smallvec::SmallVec;

use crate::keys::Hasher;

const NS_PER_S: u64 = 1_000_000_000;

/// Changes in a row by one address: a node's list changes with its NIs, and some hosts run several
/// nodes.
const ADDRESS_BURST: u32 = 16;

/// Changes per second by one address after that.
const ADDRESS_PER_S: u32 = 1;

/// Changes in a row by all addresses: the nodes of a large cluster that start at once.
const NODE_BURST: u32 = 8192;

/// Changes per second by all addresses after that: each costs some 10 µs, so they take at most a
/// hundredth of the time.
const NODE_PER_S: u32 = 1024;

/// Number of buckets for addresses. Addresses with equal hashes, which no peer can predict, share a
/// bucket and its limit.
const BUCKETS: usize = 1024;

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    tokens: u32,
    /// Time of the last refill.
    filled_ns: u64,
}

impl Bucket {
    fn full(burst: u32) -> Bucket {
        Bucket { tokens: burst, filled_ns: 0 }
    }

    /// Adds the tokens since the last refill.
    fn fill(&mut self, now_ns: u64, burst: u32, per_s: u32) {
        let per_token_ns = NS_PER_S / u64::from(per_s);
        let tokens = now_ns.saturating_sub(self.filled_ns) / per_token_ns;
        self.filled_ns += tokens * per_token_ns;
        self.tokens = burst.min(self.tokens.saturating_add(u32::try_from(tokens).unwrap_or(u32::MAX)));
    }
}

/// The limits on changes by pushes.
pub(super) struct PushRates {
    hasher: Hasher,
    all: Bucket,
    /// The buckets of the addresses. Allocated with the first change; without memory only the limit
    /// on all addresses applies.
    of_addresses: SmallVec<[Bucket; 0]>,
}

impl PushRates {
    pub(super) fn new() -> PushRates {
        PushRates { hasher: Hasher::default(), all: Bucket::full(NODE_BURST), of_addresses: SmallVec::new() }
    }

    /// Returns whether a change from this address may be made now, and counts the change if so.
    pub(super) fn admit(&mut self, address: Nid, now_ns: u64) -> bool {
        if self.of_addresses.is_empty() && self.of_addresses.try_reserve_exact(BUCKETS).is_ok() {
            self.of_addresses.resize(BUCKETS, Bucket::full(ADDRESS_BURST));
        }
        let hash = self.hasher.process(ProcessId::new(address, Pid::LNET), 0) as usize;
        let count = self.of_addresses.len().max(1);
        let mut unbounded = Bucket::full(1);
        let own = self.of_addresses.get_mut(hash % count).unwrap_or(&mut unbounded);
        own.fill(now_ns, ADDRESS_BURST, ADDRESS_PER_S);
        self.all.fill(now_ns, NODE_BURST, NODE_PER_S);
        let may = own.tokens > 0 && self.all.tokens > 0;
        if may {
            own.tokens -= 1;
            self.all.tokens -= 1;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use lnet_nid::Net;
    use proptest::prelude::*;

    use super::*;

    fn address(number: u32) -> Nid {
        Nid::new_numeric(Net::TCP, number)
    }

    proptest! {
        /// In any time, an address is allowed its burst and its rate, and never more.
        #[test]
        fn an_address_has_its_burst_and_its_rate(steps in proptest::collection::vec(0_u64..3_000_000_000, 1..400)) {
            let mut rates = PushRates::new();
            let (mut now_ns, mut admitted, mut asked) = (0, 0_u64, 0_u64);
            for step_ns in steps {
                now_ns += step_ns;
                admitted += u64::from(rates.admit(address(1), now_ns));
                asked += 1;
                let most = u64::from(ADDRESS_BURST) + now_ns / NS_PER_S * u64::from(ADDRESS_PER_S);
                prop_assert!(admitted <= most);
                prop_assert!(admitted >= asked.min(u64::from(ADDRESS_BURST)));
            }
        }
    }

    #[test]
    fn addresses_are_bounded_together() {
        let mut rates = PushRates::new();
        let admitted = (0..100_000).filter(|&number| rates.admit(address(number), 0)).count();
        assert_eq!(admitted, NODE_BURST as usize);
        let later = (0..100_000).filter(|&number| rates.admit(address(number), 2 * NS_PER_S)).count();
        assert_eq!(later, 2 * NODE_PER_S as usize);
    }

    #[test]
    fn one_address_leaves_the_others_theirs() {
        let mut rates = PushRates::new();
        let greedy = (0..1000).filter(|_| rates.admit(address(0), 0)).count();
        assert_eq!(greedy, ADDRESS_BURST as usize);
        // A few of these addresses share the bucket of the first one.
        let others = (1..=100).filter(|&number| rates.admit(address(number), 0)).count();
        assert!(others > 90, "{others}");
    }
}
