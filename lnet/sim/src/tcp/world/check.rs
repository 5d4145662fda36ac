//! What must hold at every moment.

use std::collections::BTreeMap;

use super::TcpWorld;
use crate::tcp::scenario::TcpMutant;
use crate::tcp::tap::{CONTROL, Held};

/// Tables are looked at as a whole at one check in so many.
const AUDIT_EVERY: usize = 8;

impl TcpWorld {
    /// Compares the world with what is expected of it.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            self.take_events(node)?;
            self.check_held(node)?;
        }
        if let Some(wrong) = self.net.wrong() {
            return Err(wrong);
        }
        self.audited += 1;
        if self.audited.is_multiple_of(AUDIT_EVERY) {
            let node = self.audited / AUDIT_EVERY % self.nodes.len();
            self.audit(node)?;
        }
        Ok(())
    }

    pub(super) fn audit(&mut self, node: usize) -> Result<(), String> {
        self.check_bounds(node)?;
        self.nodes[node].engine.audit().map_err(|error| format!("node {node}: {error}"))
    }

    /// What a node was told since this was last asked goes to the ledger.
    pub(super) fn take_events(&mut self, node: usize) -> Result<(), String> {
        let inbox = self.nodes[node].inbox.clone();
        let called = std::mem::take(&mut *inbox.called.lock());
        for (number, result) in called {
            self.called(number, result)?;
        }
        let events = std::mem::take(&mut *inbox.events.lock());
        let (party, now_ns) = (self.party(node), self.net.now_ns());
        for event in events {
            self.trace(|| {
                let (number, side) =
                    (event.user_ptr >> 1, ["initiator", "target"][event.user_ptr as usize & 1]);
                let end = if event.unlinked { ", its last" } else { "" };
                format!("node {node}: operation {number}, {side}: {:?} {:?}{end}", event.kind, event.status)
            });
            self.ledger.event(party, &event, now_ns)?;
        }
        self.forget_finished(node);
        Ok(())
    }

    /// Takes back the buffers of operations that have ended some time ago, so that what comes late is still noticed.
    fn forget_finished(&mut self, node: usize) {
        const KEPT: usize = 200;
        let excess = self.ledger.operations.len().saturating_sub(KEPT);
        if excess == 0 {
            return;
        }
        let party = self.party(node);
        let over = |operation: &&super::ledger::Operation| operation.ended && operation.to == party;
        let oldest = self.ledger.operations.values_mut().take(excess).filter(|it| over(&&**it));
        let mes: Vec<_> = oldest.filter_map(|operation| operation.me.take()).collect();
        for me in mes {
            use lnet_api::LNet;
            let _ = self.nodes[node].engine.me_unlink(me);
        }
    }

    /// No node has more connections to a peer than it may, and all of them are of one life.
    ///
    /// Where each of two nodes opens a connection of one type, the lower NID may have said yes to the other's before it
    /// hears that its own is taken: one more, which it keeps, for a peer that loses one connection drops them all.
    /// The other's may even be a dead one, whose end an outage keeps from arriving.
    fn check_bounds(&self, node: usize) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        let most = usize::from(self.nodes[node].most_per_peer);
        let mutant = self.scenario.mutant == Some(TcpMutant::FewerConnections);
        let most = if mutant { most - 1 } else { most };
        let held = self.net.held(self.nodes[node].host);
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        let mut lives: BTreeMap<_, Held> = BTreeMap::new();
        for one in held {
            let peer = (one.pair, one.port);
            let count = counts.entry((peer, one.conn_type)).or_default();
            *count += 1;
            let crossed = usize::from(one.pair.0 < one.pair.1);
            let bound = crossed + if one.conn_type == CONTROL { 1 } else { most };
            if *count > bound {
                return Err(format!(
                    "node {node} has {count} connections of type {} from {} to {}, but {bound} at the most",
                    one.conn_type, one.pair.0, one.pair.1
                ));
            }
            if self.scenario.mutant == Some(TcpMutant::OneIncarnation) && self.nodes[node].life > 0 {
                return Err(format!("node {node} has another incarnation: {:?}", one.lives));
            }
            let first = *lives.entry(peer).or_insert(one);
            if first.lives != one.lives {
                return Err(format!(
                    "node {node} has connections from {} to {} in two lives: {:?} and {:?}",
                    one.pair.0, one.pair.1, first.lives, one.lives
                ));
            }
        }
        Ok(())
    }
}
