//! Peers that may push back (lnet-wire 17 and 18).
//!
//! A kernel node that is pushed to by a NID that it does not know acknowledges that, and pushes back (measured). Its own
//! discovery of the NID does not end before that push is acknowledged: if this node is gone by then it takes three
//! minutes. So whoever ends a node asks here whom it still owes an answer.

use lnet_nid::Nid;
use parking_lot::Mutex;

/// How long a push of this node's is waited for to be answered by one of the peer's, from its acknowledgement on. Kernel
/// nodes pushed back after 3 ms (measured); TCP sends a segment that was lost again after 200 ms, and a host may be busy.
/// Peers that know this node, and those that never push, do not, so that this is what ending a node may cost.
pub const PUSH_BACK_NS: u64 = 500_000_000;

/// How long a peer that has pushed back counts as knowing this node. A peer that restarts forgets it; a host takes longer
/// than this to do so.
const KNOWN_NS: u64 = 60_000_000_000;

/// The most peers that are remembered: as many as can be pushed to at a time. The one that was pushed to first makes room.
const PEERS_MAX: usize = 1024;

/// The peers that this node has pushed to.
#[derive(Default)]
pub(crate) struct PushBacks(Mutex<Vec<PushBack>>);

struct PushBack {
    nid: Nid,
    /// Until when it may push back.
    until_ns: u64,
    /// It has: it knows this node, and does not push again for a push.
    done: bool,
}

impl PushBacks {
    /// A push to this NID begins. Without memory nothing is waited for.
    pub(super) fn begun(&self, nid: Nid, now_ns: u64) {
        let peers = &mut *self.0.lock();
        if let Some(known) = peers.iter_mut().find(|peer| peer.nid == nid) {
            known.done &= now_ns < known.until_ns.saturating_add(KNOWN_NS);
            known.until_ns = now_ns.saturating_add(PUSH_BACK_NS);
            return;
        }
        if peers.len() >= PEERS_MAX
            && let Some(first) = (0..peers.len()).min_by_key(|place| peers[*place].until_ns)
        {
            peers.swap_remove(first);
        }
        if peers.try_reserve(1).is_ok() {
            peers.push(PushBack { nid, until_ns: now_ns.saturating_add(PUSH_BACK_NS), done: false });
        }
    }

    /// The NID has acknowledged a push.
    pub(super) fn acknowledged(&self, nid: Nid, now_ns: u64) {
        if let Some(known) = self.0.lock().iter_mut().find(|peer| peer.nid == nid) {
            known.until_ns = now_ns.saturating_add(PUSH_BACK_NS);
        }
    }

    /// A push to this NID has failed: it knows nothing of it, or is gone.
    pub(super) fn failed(&self, nid: Nid) {
        self.0.lock().retain(|peer| peer.nid != nid || peer.done);
    }

    /// A node has pushed to this one that has such NIDs.
    pub(super) fn heard(&self, is_its: impl Fn(Nid) -> bool) {
        self.0.lock().iter_mut().filter(|peer| is_its(peer.nid)).for_each(|peer| peer.done = true);
    }

    /// Whether a peer may still push back.
    pub(crate) fn awaited(&self, now_ns: u64) -> bool {
        self.0.lock().iter().any(|peer| !peer.done && now_ns < peer.until_ns)
    }

    /// When the last of the peers has pushed back, or will not: 0 if none was ever pushed to.
    pub(crate) fn until_ns(&self) -> u64 {
        self.0.lock().iter().map(|peer| peer.until_ns).max().unwrap_or(0)
    }
}
