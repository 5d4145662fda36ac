//! Hosts: the shares of an NI's credits that the peers of one address have together.
//!
//! A peer chooses its NID, but not the address of its connections. To prevent that one host with
//! many NIDs and unread connections holds all credits of an NI, a dynamic threshold bounds the
//! credits held by messages to one address. A message gets a credit while its host holds fewer than
//! are free, or fewer than one peer may have. So one host alone has at most half of them, `n` hosts
//! with many NIDs 1/(n+1) each, and a host with one NID is not affected. Further messages wait in
//! the host's queue, and hold no credit of the NI.

use super::sending::QUEUE;
use crate::list::List;

/// Messages of a host's queue that may start when one of its credits is returned. More than one, so
/// that a host whose share has grown (others hold less) uses it.
pub(super) const RELEASES: usize = 2;

/// The peers of one address, over one NI, in one partition.
#[derive(Debug)]
pub(super) struct PeerHost {
    /// Number of peers that belong to the host.
    pub(super) peers: u32,
    /// Messages that hold a credit of the NI, or wait for one in its queue.
    pub(super) held: i64,
    /// Messages that wait until the host holds fewer credits.
    pub(super) queue: List<QUEUE>,
    /// Number of messages in `queue`.
    pub(super) waiting: usize,
}

impl PeerHost {
    pub(super) fn new() -> PeerHost {
        PeerHost { peers: 0, held: 0, queue: List::new(), waiting: 0 }
    }

    /// Returns whether the host has no peers, no credits and no waiting messages.
    pub(super) fn is_unused(&self) -> bool {
        self.peers == 0 && self.held == 0 && self.waiting == 0
    }
}

/// Returns whether a host that holds `held` credits may take another one, if `free` are free and
/// one peer may have `peer_credits`.
pub(super) fn may_take(held: i64, free: i64, peer_credits: i64) -> bool {
    held < peer_credits || held < free
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hosts take every credit that they may take and return credits, in any order. No host has
        /// more than half or one peer's credits, and while fewer than half of the credits can be
        /// held by floors, a new host gets its peer's credits.
        #[test]
        fn no_host_has_more_than_its_share(
            steps in proptest::collection::vec((0_usize..4, any::<bool>()), 1..2000),
            credits in 1_i64..300,
            peer_credits in 1_i64..20,
        ) {
            let mut held = [0_i64; 4];
            for (host, take) in steps {
                let free = credits - held.iter().sum::<i64>();
                match take {
                    true if free > 0 && may_take(held[host], free, peer_credits) => held[host] += 1,
                    false if held[host] > 0 => held[host] -= 1,
                    _ => {}
                }
                let most = peer_credits.max((credits + 1) / 2);
                prop_assert!(held.iter().all(|held| *held <= most), "{held:?} of {credits}");
            }
        }

        /// A host that takes every credit that it can get leaves half to the others.
        #[test]
        fn a_greedy_host_leaves_half(credits in 16_i64..1000) {
            let peer_credits = 8;
            let mut held = 0;
            while held < credits && may_take(held, credits - held, peer_credits) {
                held += 1;
            }
            prop_assert_eq!(held, (credits + 1) / 2);
            let mut other = 0;
            while may_take(other, credits - held - other, peer_credits) && held + other < credits {
                other += 1;
            }
            prop_assert!(other >= peer_credits.min(credits / 2));
        }
    }
}
