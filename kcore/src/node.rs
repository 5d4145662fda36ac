//! The state that the domains of a node share: addresses in use, receivers of lost-message
//! notifications, lazy portals.
//!
//! Uniqueness over the whole host follows from two facts (S-404). All domains of a node share this
//! state, because it is found by the node itself ([`of`]). And a NID belongs to one node of the
//! host (strictly, of a network namespace): a second node, in any process, is refused the claim to
//! it, with an error that names the owner. Only `0@lo` is every node's, and nothing that is sent
//! there leaves the node.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use lnet_api::{DropWatcher, Dropped, LNet};
use nlx_core::{Address, CoreError, MatchCounter, Portal, TmId, split_match_bits};
use nlx_fallible::TryArc;
use parking_lot::{Mutex, RwLock};

use crate::event_sink::LossSink;
use crate::network::no_memory;
use crate::registry::Registry;

/// The state that the domains of one node share.
#[derive(Default)]
pub(crate) struct DomainsShared {
    pub(crate) registry: Mutex<Registry>,
    machines: RwLock<HashMap<Address, TryArc<dyn LossSink>, foldhash::fast::RandomState>>,
    /// For each portal the number of transfer machines that make it lazy. The lock is held while
    /// LNet is notified, so that LNet gets the changes in order. Nothing that LNet calls meanwhile
    /// takes this lock.
    lazy: Mutex<LazyPortals>,
}

struct LazyPortals([usize; Portal::COUNT]);

impl Default for LazyPortals {
    fn default() -> LazyPortals {
        LazyPortals([0; Portal::COUNT])
    }
}

/// Returns the state shared by this node's domains; the same object for every call while the node
/// lives.
pub(crate) fn of(lnet: &Arc<dyn LNet>) -> Arc<DomainsShared> {
    static NODES: Mutex<Nodes> = Mutex::new(Nodes(Vec::new()));
    NODES.lock().find(lnet)
}

/// The nodes of this process that have domains. Each lookup drops those that are gone.
struct Nodes(Vec<KnownNode>);

struct KnownNode {
    /// As long as this exists, no other node gets the same address in memory.
    lnet: Weak<dyn LNet>,
    /// Kept while the node lives, even without domains: LNet may still hold leftovers of a transfer
    /// machine.
    node: Arc<DomainsShared>,
}

impl Nodes {
    fn find(&mut self, lnet: &Arc<dyn LNet>) -> Arc<DomainsShared> {
        self.0.retain(|known| known.lnet.strong_count() > 0);
        let known = self.0.iter().find(|known| std::ptr::addr_eq(known.lnet.as_ptr(), Arc::as_ptr(lnet)));
        match known {
            Some(known) => known.node.clone(),
            None => {
                let node = Arc::<DomainsShared>::default();
                if let Err(error) = lnet.watch_drops(node.clone()) {
                    tracing::warn!(%error, "messages without a receive buffer will not be counted");
                }
                self.0.push(KnownNode { lnet: Arc::downgrade(lnet), node: node.clone() });
                node
            }
        }
    }
}

impl DomainsShared {
    /// Registers a transfer machine for notifications about lost messages.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn enter(&self, address: Address, losses: TryArc<dyn LossSink>) -> Result<(), CoreError> {
        let mut machines = self.machines.write();
        machines.try_reserve(1).map_err(no_memory)?;
        machines.insert(address, losses);
        Ok(())
    }

    /// Ends the notifications of a transfer machine.
    pub(crate) fn leave(&self, address: &Address) {
        self.machines.write().remove(address);
    }

    /// Counts one transfer machine more that makes this portal lazy. The first one makes LNet hold
    /// the portal's messages.
    pub(crate) fn want_lazy(&self, lnet: &dyn LNet, portal: Portal) {
        let wanted = &mut self.lazy.lock().0[portal.index()];
        *wanted += 1;
        if *wanted == 1 {
            lnet.set_lazy(portal, true);
        }
    }

    /// Counts one transfer machine less that makes this portal lazy. After the last one the portal
    /// is no longer lazy.
    pub(crate) fn unwant_lazy(&self, lnet: &dyn LNet, portal: Portal) {
        let wanted = &mut self.lazy.lock().0[portal.index()];
        *wanted -= 1;
        if *wanted == 0 {
            lnet.set_lazy(portal, false);
        }
    }
}

impl DropWatcher for DomainsShared {
    /// Counts messages for a queue of receive buffers. A bulk transfer that came too late is not
    /// counted: the owner of its buffer has got the event that ended the operation.
    fn dropped(&self, message: &Dropped) {
        let (tmid, counter) = split_match_bits(message.match_bits);
        let Ok(tmid) = TmId::new(tmid) else { return };
        if counter != MatchCounter::UNSOLICITED {
            return;
        }
        let Dropped { target, portal, .. } = *message;
        let address = Address { nid: target.nid, pid: target.pid, portal, tmid };
        let losses = self.machines.read().get(&address).cloned();
        if let Some(losses) = losses {
            losses.lost();
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use lnet_fake::FakeLnet;
    use nlx_core::StartAddress;

    use super::*;

    // Covers: S-404
    #[test]
    fn what_domains_share_is_found_by_their_node_and_goes_with_it() {
        let mut nodes = Nodes(Vec::new());
        let [first, second]: [Arc<dyn LNet>; 2] = [FakeLnet::new(&["0@lo"]), FakeLnet::new(&["0@lo"])];
        let node = nodes.find(&first);
        assert!(Arc::ptr_eq(&node, &nodes.find(&first.clone())));
        assert!(!Arc::ptr_eq(&node, &nodes.find(&second)));
        let wanted: StartAddress = "0@lo:12345:30:1".parse().unwrap();
        node.registry.lock().take(&wanted).unwrap();
        drop(node);
        assert!(nodes.find(&first).registry.lock().take(&wanted).is_err());
        drop(first);
        nodes.find(&second);
        assert_eq!(nodes.0.len(), 1);
    }
}
