//! Cuts, deaths, lack of descriptors, misbehaving peers, and NIs that are added and removed.

use std::sync::Arc;

use lnet_api::Lnd;

use super::node::Node;
use super::{Later, World};
use crate::kit::Transport;

const MS: u64 = 1_000_000;

impl<T: Transport> World<T> {
    pub(super) fn make_trouble(&mut self) -> Result<(), String> {
        let node = self.rng.index(self.nodes.len());
        let other = (node + 1 + self.rng.index(self.nodes.len() - 1)) % self.nodes.len();
        match self.rng.below(20) {
            0..3 => self.cut(node, other),
            3 => self.isolate(node),
            4..6 => self.die(node, false),
            6..8 => self.die(node, true),
            8..11 => self.change_ni(node),
            11..13 => self.change_per_peer(node),
            13 => {
                self.trace(|| format!("connections between node {node} and node {other} are reset"));
                self.net.reset(node, other);
                Ok(())
            }
            14 | 15 => self.send_to_sleep(node),
            _ => T::make_trouble(self, node),
        }
    }

    fn cut(&mut self, a: usize, b: usize) -> Result<(), String> {
        let duration_ns = self.rng.pick(&[10 * MS, 2_000 * MS, 30_000 * MS, 120_000 * MS]);
        self.trace(|| format!("node {a} and node {b} are cut off for {duration_ns} ns"));
        self.seen.nodes.cuts += 1;
        self.net.cut(a, b, Some(duration_ns));
        if self.rng.chance(7_000) {
            self.net.cut(b, a, Some(duration_ns));
        }
        Ok(())
    }

    fn isolate(&mut self, node: usize) -> Result<(), String> {
        let duration_ns = self.rng.pick(&[1_000 * MS, 90_000 * MS]);
        self.trace(|| format!("the link of node {node} is down for {duration_ns} ns"));
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.seen.nodes.cuts += 1;
            self.net.cut(node, other, Some(duration_ns));
            self.net.cut(other, node, Some(duration_ns));
        }
        Ok(())
    }

    /// Kills a node, either only its program or its host, and plans its restart, at once or later.
    fn die(&mut self, node: usize, host: bool) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        self.end(node, Some(host))?;
        let delay_ns = self.rng.pick(&[0, 100 * MS, 20_000 * MS, 100_000 * MS]);
        self.plan_later(delay_ns, Later::Start(node));
        Ok(())
    }

    pub(crate) fn plan_later(&mut self, delay_ns: u64, what: Later) {
        let at_ns = self.net.now_ns() + delay_ns;
        self.later.push((at_ns, what));
        self.net.at(at_ns, super::LOOK);
    }

    /// Ends a node. `None` shuts it down; `Some(host)` kills its host or its program.
    pub(super) fn end(&mut self, node: usize, death: Option<bool>) -> Result<(), String> {
        self.trace(|| format!("node {node} ends: {death:?}"));
        match death {
            Some(true) => {
                self.seen.nodes.crashes += 1;
                self.net.crash(self.nodes[node].host);
            }
            Some(false) => {
                self.seen.nodes.killed += 1;
                self.net.kill(self.nodes[node].host);
            }
            None => {}
        }
        self.nodes[node].alive = false;
        self.nodes[node].inbox.nested.lock().clear();
        for nid in std::mem::take(&mut self.nodes[node].up) {
            let removed = self.nodes[node].engine.remove_ni(nid);
            removed.map_err(|error| format!("node {node}: {nid} cannot be removed: {error}"))?;
        }
        // The poll discards the work that the LND has listed for it, as dropping the LND would.
        for shard in 0..self.nodes[node].shards.len() {
            let _ = self.nodes[node].lnd.poll(shard, self.net.now_ns(), self.scenario.budget);
        }
        self.take_events(node)?;
        self.note_held(node);
        T::check_ended(self, node, death.is_some())?;
        let ended = self.party(node);
        let mine = self.table.operations.values_mut().filter(|operation| operation.from == ended);
        mine.for_each(|operation| operation.ended = true);
        self.graveyard.push(self.nodes[node].lnd.clone());
        Ok(())
    }

    pub(super) fn happen_later(&mut self, what: Later) -> Result<(), String> {
        match what {
            Later::EndTrouble(node) => {
                T::end_trouble(self, node);
                Ok(())
            }
            Later::Start(node) => self.restart(node),
            Later::Nested(node) => self.call_nested(node),
            Later::Lazy(node) => self.set_lazy(node, true),
        }
    }

    /// Restarts a node: with an empty engine, a new LND, and another incarnation.
    pub(super) fn restart(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].alive {
            return Ok(());
        }
        self.trace(|| format!("node {node} comes back"));
        let (host, life) = (self.nodes[node].host, self.nodes[node].life + 1);
        self.net.start(host);
        T::end_trouble(self, node);
        let fresh = Node::start(&self.scenario, &self.net, node, host, life);
        let fresh = fresh.map_err(|error| format!("node {node} comes back: {error}"))?;
        let dead = std::mem::replace(&mut self.nodes[node], fresh);
        let holders = Arc::strong_count(&dead.engine) - 1;
        drop(dead);
        if holders > 0 {
            return Err(format!("the engine that node {node} had is still held, {holders} times"));
        }
        self.check_memory(node, life - 1)?;
        self.plan_advance(node, self.net.now_ns());
        self.look(node);
        Ok(())
    }

    /// Checks that all memory of an ended incarnation of a node is free.
    pub(super) fn check_memory(&mut self, node: usize, life: u64) -> Result<(), String> {
        for (number, operation) in &self.table.operations {
            let sides = [operation.from, operation.to];
            for (side, _) in
                sides.iter().enumerate().filter(|(_, party)| (party.node, party.life) == (node, life))
            {
                let memory = &operation.memory[side];
                let free = memory.write(0..memory.len());
                free.map_err(|error| format!("memory of operation {number}, whose node is dead: {error}"))?;
            }
        }
        let gone = |party: super::operations::Party| party.node == node && party.life == life;
        for operation in self.table.operations.values_mut().filter(|operation| gone(operation.to)) {
            operation.me = None;
        }
        Ok(())
    }

    /// Removes an NI that is up, or adds one that is not.
    pub(crate) fn change_ni(&mut self, node: usize) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        let at = self.rng.index(self.nodes[node].nids.len());
        let nid = self.nodes[node].nids[at];
        if self.nodes[node].up.contains(&nid) {
            self.trace(|| format!("node {node}: removes {nid}"));
            self.seen.nodes.nis_removed += 1;
            self.nodes[node].interrupted = true;
            self.nodes[node].up.retain(|up| *up != nid);
            let removed = self.nodes[node].engine.remove_ni(nid);
            removed.map_err(|error| format!("node {node}: {nid} cannot be removed: {error}"))?;
            // Messages that arrived over the NI are not held any longer.
            self.note_held(node);
            T::ni_removed(self, nid);
            return self.check();
        }
        self.trace(|| format!("node {node}: adds {nid}"));
        let added = self.nodes[node].add_ni(nid);
        if let Err(error) = added {
            let excused = T::NI_ERRNOS.contains(&error.errno());
            return if excused { Ok(()) } else { Err(format!("node {node} adds {nid}: {error}")) };
        }
        self.seen.nodes.nis_added += 1;
        self.look(node);
        Ok(())
    }

    pub(super) fn add_missing_nis(&mut self, node: usize) -> Result<(), String> {
        for nid in self.nodes[node].nids.clone() {
            if !self.nodes[node].up.contains(&nid) {
                let added = self.nodes[node].add_ni(nid);
                added.map_err(|error| format!("node {node} adds {nid}: {error}"))?;
            }
        }
        self.look(node);
        Ok(())
    }

    fn change_per_peer(&mut self, node: usize) -> Result<(), String> {
        let count = self.rng.pick(&[1, 2, 4]);
        self.trace(|| format!("node {node}: conns_per_peer is {count}"));
        self.seen.nodes.per_peer_changes += 1;
        let node = &mut self.nodes[node];
        node.lnd.set_conns_per_peer(None, count);
        node.most_per_peer = node.most_per_peer.max(count);
        Ok(())
    }

    /// Makes a driver sleep for a while.
    fn send_to_sleep(&mut self, node: usize) -> Result<(), String> {
        let duration_ns = self.rng.pick(&[5 * MS, 500 * MS, 9_000 * MS, 80_000 * MS]);
        let until_ns = self.net.now_ns() + duration_ns;
        self.trace(|| format!("node {node} sleeps for {duration_ns} ns"));
        self.seen.nodes.sleepy += 1;
        for shard in 0..self.nodes[node].shards.len() {
            let shard_state = &mut self.nodes[node].shards[shard];
            shard_state.asleep_until_ns = until_ns;
            shard_state.poll_ns = None;
            self.plan_poll(node, shard, until_ns);
        }
        Ok(())
    }
}
