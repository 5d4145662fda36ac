//! Checks that the rooms agree with each other.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;

use lnet_api::TxToken;

use super::Engine;
use crate::audit::{Audit, AuditError, check, equal, text};
use crate::message::OutgoingMessage;
use crate::names::{MdName, unpack};
use crate::net::NetPartition;
use crate::placement::Placements;
use crate::portal_state::PortalState;
use crate::resources::{Bound, Posted, Resources, Uses};

impl Engine {
    /// Checks the invariants that hold while no thread is inside the engine: the credits match the
    /// existing messages, each list and index holds exactly its objects, references between objects
    /// are mutual, counts are right.
    ///
    /// For tests and simulators. It takes all locks of the node, and time linear in the objects and
    /// portals; so do not call it from inside [`lnet_api::EventHandler::event`]. From inside any
    /// other callback, or while another thread is in the engine, it may report a state that is
    /// about to be corrected.
    ///
    /// # Errors
    /// The first invariant that does not hold, and where.
    pub fn audit(&self) -> Result<(), AuditError> {
        let held = self.held.lock();
        // The queues of portals before the partitions' locks, as in all other code.
        let blocked: Vec<_> = self.portals.iter().map(|portal| portal.blocked()).collect();
        let (mut posted, mut bound, mut net) =
            (self.posted.lock_all(), self.bound.lock_all(), self.net.lock_all());
        let (net, shared) = net.split();
        let tables = Tables {
            posted: posted.parts_mut().map(|part| &*part).collect(),
            bound: bound.parts_mut().map(|part| &*part).collect(),
            net: net.map(|part| &*part).collect(),
        };
        let nis = self.ni_count.load(Ordering::Relaxed);
        equal("the count of NIs is that of the NIs", "the node", nis, shared.count())?;
        tables.net.iter().try_for_each(|net| net.audit(shared))?;
        let exists = |ni| shared.exists(ni);
        let mut uses = Uses::default();
        for (partition, net) in tables.net.iter().enumerate() {
            for (index, message) in net.messages() {
                let location = text!("message {index} of partition {partition}");
                tables.add_use(message, location, &mut uses)?;
            }
        }
        for (portal, blocked) in blocked.iter().enumerate() {
            for (index, local) in blocked.locals() {
                let location = text!("message {index} that waits on portal {portal}");
                tables.add_use(&local.message, location, &mut uses)?;
            }
        }
        for (path, local) in held.paths() {
            let alive = path.ni().is_none_or(exists);
            check("a message is delayed as long as its NI exists", alive, format_args!("{path:?}"))?;
            if let Some(local) = local {
                tables.add_use(&local.message, "a delayed message", &mut uses)?;
            }
        }
        let mds = tables.posted.iter().map(|part| part.mds());
        mds.chain(tables.bound.iter().map(|part| part.mds())).try_for_each(|mds| mds.add_uses(&mut uses))?;
        let sent = |token: TxToken| {
            let (partition, key) = unpack(token.0);
            tables.net.get(partition)?.md_of(key)
        };
        tables.posted.iter().try_for_each(|part| part.audit(&uses, sent))?;
        tables.bound.iter().try_for_each(|part| part.audit(&uses, sent, exists))?;
        tables.audit_placements(&self.portals)?;
        let mut queues = blocked.iter().zip(&*self.portals).enumerate();
        queues.try_for_each(|(portal, (blocked, state))| blocked.audit(portal, state, exists))
    }
}

/// The data that the partitions' locks protect.
struct Tables<'a> {
    posted: Vec<&'a Posted>,
    bound: Vec<&'a Bound>,
    net: Vec<&'a NetPartition>,
}

impl Tables<'_> {
    /// Checks what each portal shares about the entries of all partitions: the published kinds, and
    /// the order.
    fn audit_placements(&self, portals: &[PortalState]) -> Audit {
        for (portal, state) in portals.iter().enumerate() {
            let published = self.posted.iter().map(|part| part.published(portal)).sum();
            let location = text!("portal {portal}");
            equal(
                "a portal has what its partitions have published",
                location,
                state.placements(),
                Placements(published),
            )?;
        }
        let mut turns = HashMap::new();
        for (partition, part) in self.posted.iter().enumerate() {
            for (portal, turn) in part.turns() {
                let owner = *turns.entry((portal, turn)).or_insert(partition);
                let location = text!("turn {turn} of portal {portal}");
                equal("entries of one turn are in one partition", location, partition, owner)?;
            }
        }
        Ok(())
    }

    /// Counts a message among those that use its MD, which must exist.
    fn add_use(&self, message: &OutgoingMessage, location: impl fmt::Display, uses: &mut Uses) -> Audit {
        let Some(MdName { location: at, key }) = message.md else { return Ok(()) };
        let index = key.index;
        let bound = self.bound.get(at.partition).filter(|_| at.bound);
        let posted = self.posted.get(at.partition).filter(|_| !at.bound);
        let mds = bound.map(|part| part.mds()).or(posted.map(|part| part.mds()));
        let exists = mds.is_some_and(|mds| mds.has(key));
        check("a message's MD exists", exists, format_args!("{location} has MD {index} of {at:?}"))?;
        if let Some(md) = bound.and_then(|part| part.response_md(message.response)) {
            let found = text!("{location} of MD {index} has one of MD {md}");
            check("a message's response is its MD's", md == index, found)?;
        }
        uses.add(at, index);
        Ok(())
    }
}
