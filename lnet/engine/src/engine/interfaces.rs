//! NIs are added and removed while others carry traffic (S-202).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{Errno, LNetError, Lnd};
use lnet_cpt::LOCAL_DISTANCE;
use lnet_nid::{Nid, ProcessId};

use super::Engine;
use crate::drops::DropReason;
use crate::message::Path;
use crate::net::{Cpts, NiDistances};
use crate::resources::Resources;
use crate::slab::Key;
use crate::work::DeferredWork;

impl Engine {
    /// Adds an NI and has its LND start it. May be called while other NIs carry traffic (S-202),
    /// but not from inside [`lnet_api::EventHandler::wake`]. Peers learn of it when they ping. Its
    /// peers are spread over all CPU partitions.
    ///
    /// # Errors
    /// The LND's error; EEXIST if there is such an NI, EINVAL if `id` names no interface, ENOMEM if
    /// there are too many.
    pub fn add_ni(&self, id: ProcessId, lnd: Arc<dyn Lnd>) -> Result<(), LNetError> {
        self.add_ni_on(id, lnd, &[])
    }

    /// Adds an NI like [`Engine::add_ni`], whose peers belong to these CPU partitions only (S-315:
    /// `tcp0(eth0)[0,2]`, `o2ib0:0(ib0)`); an empty list means all.
    ///
    /// # Errors
    /// The errors of [`Engine::add_ni`]; EINVAL for a partition that does not exist, or appears twice.
    pub fn add_ni_on(&self, id: ProcessId, lnd: Arc<dyn Lnd>, cpts: &[usize]) -> Result<(), LNetError> {
        self.add_ni_at(id, lnd, cpts, None)
    }

    /// Adds an NI like [`Engine::add_ni_on`], whose device is attached to this NUMA node. Of
    /// several NIs that lead to a peer, the engine chooses the one whose device is nearest to the
    /// partition of the message's MD (S-209, lnet-semantics 14). An NI without a NUMA node counts
    /// as near to every partition.
    ///
    /// # Errors
    /// The errors of [`Engine::add_ni_on`].
    pub fn add_ni_at(
        &self,
        id: ProcessId,
        lnd: Arc<dyn Lnd>,
        cpts: &[usize],
        numa_node: Option<usize>,
    ) -> Result<(), LNetError> {
        let _alone = self.ni_change.lock();
        if id.nid.is_any() || id.nid.is_loopback() {
            let rule = "it must name one interface of one network";
            return Err(LNetError::Invalid { field: "NID", value: u64::from(id.nid.net().id()), rule });
        }
        let partitions = self.common.partitions();
        let wrong = cpts.iter().enumerate().find(|&(at, cpt)| *cpt >= partitions || cpts[..at].contains(cpt));
        if let Some((_, &cpt)) = wrong {
            let rule = "each must be one of the node's CPU partitions, named once";
            return Err(LNetError::Invalid { field: "CPT", value: cpt as u64, rule });
        }
        let upcalls = self.this()?;
        let ni = {
            let mut net = self.net.lock_all();
            let (parts, shared) = net.split();
            shared.enter_ni(
                parts,
                (id, lnd.clone()),
                (Cpts::new(partitions, cpts), self.distances(numa_node)),
            )?
        };
        self.ni_count.fetch_add(1, Ordering::Relaxed);
        self.ping_target.publish(self);
        match lnd.startup(id, upcalls) {
            Ok(limits) => {
                self.with(|work| {
                    let mut net = self.net.lock_all();
                    let (parts, shared) = net.split();
                    shared.ni_started(parts, ni, limits, work);
                });
                tracing::info!(nid = %id.nid, "NI is up");
                Ok(())
            }
            Err(error) => {
                self.with(|work| self.ni_gone(ni, Errno::ENETDOWN, work));
                self.ping_target.publish(self);
                Err(error.into())
            }
        }
    }

    /// Returns the distance of a NUMA node from each partition.
    fn distances(&self, numa_node: Option<usize>) -> NiDistances {
        let config = &self.common.config;
        let distance = |partition| {
            let distance = numa_node.map(|node| config.partitions.distance_to_node(partition, node));
            distance.unwrap_or(LOCAL_DISTANCE).max(config.numa_range)
        };
        (0..self.common.partitions()).map(distance).collect()
    }

    /// Stops an NI and removes it (S-202). Its messages end with ESHUTDOWN. May be called from any
    /// thread that is not inside [`lnet_api::EventHandler::wake`]; see [`Lnd::shutdown`].
    ///
    /// # Errors
    /// EADDRNOTAVAIL if there is no such NI.
    pub fn remove_ni(&self, nid: Nid) -> Result<(), LNetError> {
        let _alone = self.ni_change.lock();
        let (ni, lnd) = self.with(|work| {
            let (ni, lnd) = self.net.lock(0).shared().find_ni(nid).ok_or(LNetError::NotLocal { nid })?;
            self.ni_stopping(ni, work);
            Ok::<_, LNetError>((ni, lnd))
        })?;
        self.ping_target.publish(self);
        lnd.shutdown(nid);
        self.with(|work| self.ni_gone(ni, Errno::ESHUTDOWN, work));
        tracing::info!(%nid, "NI is gone");
        Ok(())
    }

    /// Sets whether the link of an NI is up; pings report it from now on.
    pub(super) fn set_link(&self, nid: Nid, up: bool) {
        if !self.net.lock_all().split().1.set_link(nid, up) {
            return;
        }
        self.ping_target.publish(self);
        tracing::info!(%nid, up, "the link of an NI changed");
    }

    /// Prepares the stop of an NI: nothing is sent over it any more, and messages that wait end.
    fn ni_stopping(&self, ni: Key, work: &mut DeferredWork) {
        {
            let mut net = self.net.lock_all();
            let (parts, shared) = net.split();
            shared.ni_stopping(parts, ni, work);
        }
        self.drop_held(|path| path.goes_over(ni), work);
        for portal in 0..self.portals.len() {
            self.drop_delayed(portal, |path| path.goes_over(ni), DropReason::NiStopping, work);
        }
    }

    /// Ends all operations of an NI that its LND has stopped or could not start.
    fn ni_gone(&self, ni: Key, reason: Errno, work: &mut DeferredWork) {
        self.ni_stopping(ni, work);
        // The LND has finalised its messages; the engine must not wait for one that it has missed.
        for partition in 0..self.common.partitions() {
            let over_ni = |path: &Path| path.goes_over(ni);
            self.in_batches(0, work, |next, work| {
                self.posted.lock(partition).fail_receiving(over_ni, (next, reason), work)
            });
            self.in_batches(0, work, |next, work| {
                self.bound.lock(partition).fail_receiving(over_ni, (next, reason), work)
            });
            self.in_batches(0, work, |next, work| {
                self.bound.lock(partition).fail_responses(ni, (next, reason), work)
            });
        }
        let mut net = self.net.lock_all();
        let (parts, shared) = net.split();
        let gone = shared.ni_gone(parts, ni, reason, work);
        if gone.is_some() {
            self.ni_count.fetch_sub(1, Ordering::Relaxed);
        }
        drop(net);
        if !self.has_time() {
            // Delayed messages of the node to itself would wait forever.
            self.release_held(u64::MAX);
        }
        // Dropping it may drop the LND, so it happens without the lock.
        drop(gone);
    }
}
