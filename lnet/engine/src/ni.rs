//! Network interfaces.

use std::sync::Arc;

use lnet_api::{Errno, Lnd, NiLimits, RxToken, TxToken};
use lnet_nid::{Nid, Portal, ProcessId};

use crate::list::List;
use crate::message::{Message, QUEUE};
use crate::partition::Partition;
use crate::slab::Slab;
use crate::work::Work;

/// The most NIs of a node. More than any host has network cards; the search for an NI looks at each.
pub(crate) const NIS_MAX: usize = 64;

/// What an NI may do before its LND has said it: LNet's defaults (lnet-semantics 28).
const STARTING_LIMITS: NiLimits = NiLimits { credits: 256, peer_credits: 8, timeout_ns: 50_000_000_000 };

/// How much longer than an attempt to send a message may wait for credits, in nanoseconds (lnet-semantics 13).
const DEADLINE_SLACK_NS: u64 = 1_000_000_000;

/// Where an NI is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its LND is starting it: messages come in and are answered, nothing else is sent.
    Starting,
    Up,
    /// Its LND is stopping it: nothing comes in or goes out.
    Stopping,
}

/// A network interface.
pub(crate) struct Ni {
    pub(crate) id: ProcessId,
    pub(crate) lnd: Arc<dyn Lnd>,
    pub(crate) limits: NiLimits,
    pub(crate) phase: Phase,
    /// Messages that may still be handed to the LND; below 0, as many are queued.
    pub(crate) credits: i64,
    pub(crate) queue: List<QUEUE>,
}

impl Ni {
    pub(crate) fn new(id: ProcessId, lnd: Arc<dyn Lnd>) -> Ni {
        let limits = STARTING_LIMITS;
        let credits = i64::from(limits.credits);
        Ni { id, lnd, limits, phase: Phase::Starting, credits, queue: List::new() }
    }

    /// Whether peers are told of it: from before it can be pinged until it stops.
    pub(crate) fn is_published(&self) -> bool {
        self.phase != Phase::Stopping
    }

    /// When a message that is sent now must have left. There are no resends, so one attempt is all it gets.
    pub(crate) fn deadline_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.limits.timeout_ns).saturating_add(DEADLINE_SLACK_NS)
    }
}

/// All NIs, in the order in which they were added.
pub(crate) struct Nis {
    slab: Slab<Ni>,
    order: Vec<u32>,
}

impl Nis {
    pub(crate) fn new() -> Nis {
        Nis { slab: Slab::new(NIS_MAX), order: Vec::new() }
    }

    /// Enters an NI; `None` if there are too many.
    pub(crate) fn enter(&mut self, ni: Ni) -> Option<u32> {
        let index = self.slab.insert(ni)?.index;
        self.order.push(index);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Ni> {
        self.order.retain(|&known| known != index);
        self.slab.take(index)
    }

    /// The NI with this NID, whatever its phase.
    pub(crate) fn find(&self, nid: Nid) -> Option<u32> {
        self.iter().find(|(_, ni)| ni.id.nid == nid).map(|(index, _)| index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Ni)> {
        self.order.iter().map(|&index| (index, &self.slab[index]))
    }

    /// The NI, if there is one at this index.
    pub(crate) fn at(&self, index: u32) -> Option<&Ni> {
        self.slab.at(index)
    }

    /// The NI at this index, which must exist.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Ni {
        &mut self.slab[index]
    }
}

impl std::ops::Index<u32> for Nis {
    type Output = Ni;

    fn index(&self, index: u32) -> &Ni {
        &self.slab[index]
    }
}

impl Partition {
    /// An LND has started an NI: its limits take the place of the ones assumed so far.
    pub(crate) fn ni_started(&mut self, index: u32, limits: NiLimits, work: &mut Work) {
        let more_for_peers = i64::from(limits.peer_credits.max(1)) - i64::from(STARTING_LIMITS.peer_credits);
        for peer in self.peers.of_ni(index) {
            self.peers.get_mut(peer).max_credits += more_for_peers;
            self.change_peer_credits(peer, more_for_peers, work);
        }
        let ni = self.nis.get_mut(index);
        ni.limits = limits;
        ni.phase = Phase::Up;
        let more = i64::from(limits.credits.max(1)) - i64::from(STARTING_LIMITS.credits);
        self.change_ni_credits(index, more, work);
    }

    /// An NI is about to be stopped: nothing is sent over it any more, and what waits ends.
    pub(crate) fn ni_stopping(&mut self, index: u32, work: &mut Work) {
        self.nis.get_mut(index).phase = Phase::Stopping;
        self.flush_queues(index, Errno::ESHUTDOWN, work);
        for portal in (0..Portal::COUNT as u32).filter_map(|portal| Portal::new(portal).ok()) {
            self.drop_delayed(portal, |delayed| delayed.inbound.ni == index, work);
        }
    }

    /// An NI's LND has stopped it, or could not start it: everything that went over it ends.
    pub(crate) fn ni_gone(&mut self, index: u32, reason: Errno, work: &mut Work) {
        self.ni_stopping(index, work);
        // The LND has finalised what it had; if it has forgotten something, that must not be waited for.
        self.end_all_of_ni(index, reason, work);
        for peer in self.peers.of_ni(index) {
            self.lose_peer(peer, reason, work);
            self.peers.forget(peer);
        }
        self.nis.remove(index);
    }

    fn end_all_of_ni(&mut self, ni: u32, reason: Errno, work: &mut Work) {
        let over_ni = |message: &Message| self.peers.at(message.peer).is_some_and(|peer| peer.ni == ni);
        let left: Vec<u32> =
            self.messages.indices().filter(|&index| over_ni(&self.messages[index])).collect();
        for index in left {
            let key = self.messages.key(index).to_u64();
            self.finalize_tx(TxToken(key), Err(reason), work);
            self.finalize_rx(RxToken(key), Err(reason), work);
        }
    }

    /// All connections to a peer are gone.
    pub(crate) fn peer_lost(&mut self, ni: Nid, peer: ProcessId, reason: Errno, work: &mut Work) {
        let found = self.nis.find(ni).and_then(|ni| self.peers.find(&self.hasher, ni, peer));
        if let Some(peer) = found {
            self.lose_peer(peer, reason, work);
        }
    }
}
