//! The checks of a world that run between its steps.

use lnet_api::{Errno, LNet};

use super::World;
use super::operations::Operation;
use crate::kit::Transport;
use crate::kit::transport::COMMON_ERRNOS;

/// The number of checks per audit of the internal tables of a node.
const AUDIT_EVERY: usize = 8;

/// Further errors for operations of a dead node: its descriptors are closed.
const DEAD_ERRNOS: &[Errno] = &[Errno::EBADF];

impl<T: Transport> World<T> {
    /// Takes all events, checks them against the table, and occasionally audits one node.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            self.take_events(node)?;
            self.check_held(node)?;
        }
        if let Some(wrong) = self.net.wrong() {
            return Err(wrong);
        }
        self.audited += 1;
        if self.audited.is_multiple_of(AUDIT_EVERY) {
            self.audit(self.audited / AUDIT_EVERY % self.nodes.len())?;
        }
        Ok(())
    }

    pub(super) fn audit(&self, node: usize) -> Result<(), String> {
        if self.nodes[node].alive {
            T::audit(self, node)?;
        }
        self.nodes[node].engine.audit().map_err(|error| format!("node {node}: {error}"))
    }

    /// Passes a node's new events to the table.
    pub(super) fn take_events(&mut self, node: usize) -> Result<(), String> {
        let inbox = self.nodes[node].inbox.clone();
        let called = std::mem::take(&mut *inbox.called.lock());
        for (number, result) in called {
            self.called(number, result)?;
        }
        let events = std::mem::take(&mut *inbox.events.lock());
        let (party, now_ns) = (self.party(node), self.net.now_ns());
        let dead_errnos = if self.nodes[node].alive { &[] } else { DEAD_ERRNOS };
        let errnos = &[COMMON_ERRNOS, T::ERRNOS, dead_errnos].concat();
        for event in events {
            self.trace(|| {
                let (number, side) =
                    (event.user_ptr >> 1, ["initiator", "target"][event.user_ptr as usize & 1]);
                let end = if event.unlinked { ", its last" } else { "" };
                format!("node {node}: operation {number}, {side}: {:?} {:?}{end}", event.kind, event.status)
            });
            self.table.event(party, &event, now_ns, errnos)?;
        }
        self.forget_finished(node);
        Ok(())
    }

    /// Unlinks the buffers of the oldest operations that have ended. Until then, events on these
    /// buffers would reveal late messages.
    fn forget_finished(&mut self, node: usize) {
        const KEPT: usize = 200;
        let excess = self.table.operations.len().saturating_sub(KEPT);
        if excess == 0 {
            return;
        }
        let party = self.party(node);
        let over = |operation: &&mut Operation| operation.ended && operation.to == party;
        let oldest = self.table.operations.values_mut().take(excess).filter(over);
        let mes: Vec<_> = oldest.filter_map(|operation| operation.me.take()).collect();
        for me in mes {
            let _ = self.nodes[node].engine.me_unlink(me);
        }
    }
}
