//! Peers that may push back (lnet-wire 17 and 18).
//!
//! A kernel node that gets a push from an unknown NID acknowledges it, and pushes back (measured).
//! Its discovery of the NID does not end before that push is acknowledged: if this node is gone by
//! then it takes three minutes. So a node checks here before it ends whether it still owes an ACK.

use lnet_nid::Nid;
use parking_lot::Mutex;

/// Time to wait for a peer's push after its ACK of this node's push. Kernel nodes pushed back after
/// 3 ms (measured); TCP repeats a lost segment after 200 ms, and a host may be busy. Peers that
/// know this node, and those that never push, do not push back, so the shutdown of a node may take
/// this long.
pub const PUSH_BACK_NS: u64 = 500_000_000;

/// Time for which a peer that has pushed back counts as knowing this node. A peer that restarts
/// forgets it; a host takes longer than this to restart.
const KNOWN_NS: u64 = 60_000_000_000;

/// Maximum number of remembered peers: the number of pushes in flight. A new one replaces the one
/// that was pushed to first.
const PEERS_MAX: usize = 1024;

/// The peers to which this node has pushed.
#[derive(Default)]
pub(crate) struct PushBacks(Mutex<Vec<PushBack>>);

struct PushBack {
    nid: Nid,
    /// End of the wait for the peer's push.
    until_ns: u64,
    /// Set when the peer has pushed back: it knows this node, and does not answer another push with
    /// one.
    done: bool,
}

impl PushBacks {
    /// Records the start of a push to this NID. Without memory for the record, the node does not
    /// wait for that peer to push back.
    pub(super) fn push_started(&self, nid: Nid, now_ns: u64) {
        let peers = &mut *self.0.lock();
        if let Some(known) = peers.iter_mut().find(|peer| peer.nid == nid) {
            known.done &= now_ns < known.until_ns.saturating_add(KNOWN_NS);
            known.until_ns = now_ns.saturating_add(PUSH_BACK_NS);
            return;
        }
        if peers.len() >= PEERS_MAX
            && let Some(first) = (0..peers.len()).min_by_key(|index| peers[*index].until_ns)
        {
            peers.swap_remove(first);
        }
        if peers.try_reserve(1).is_ok() {
            peers.push(PushBack { nid, until_ns: now_ns.saturating_add(PUSH_BACK_NS), done: false });
        }
    }

    /// Restarts the wait: the NID has acknowledged a push.
    pub(super) fn acknowledged(&self, nid: Nid, now_ns: u64) {
        if let Some(known) = self.0.lock().iter_mut().find(|peer| peer.nid == nid) {
            known.until_ns = now_ns.saturating_add(PUSH_BACK_NS);
        }
    }

    /// Ends the wait after a failed push: the NID has not received it, or is gone.
    pub(super) fn failed(&self, nid: Nid) {
        self.0.lock().retain(|peer| peer.nid != nid || peer.done);
    }

    /// Ends the wait for the peers with NIDs of a node that has pushed to this one.
    pub(super) fn pushed_back(&self, is_its: impl Fn(Nid) -> bool) {
        self.0.lock().iter_mut().filter(|peer| is_its(peer.nid)).for_each(|peer| peer.done = true);
    }

    /// Returns whether a peer may still push back.
    pub(crate) fn awaited(&self, now_ns: u64) -> bool {
        self.0.lock().iter().any(|peer| !peer.done && now_ns < peer.until_ns)
    }

    /// Returns the time after which no peer pushes back any more; 0 without pushes.
    pub(crate) fn until_ns(&self) -> u64 {
        self.0.lock().iter().map(|peer| peer.until_ns).max().unwrap_or(0)
    }
}
