//! Cuts, deaths, squeezes, strangers, and NIs that come and go.

use std::sync::Arc;

use lnet_api::Lnd;
use lnet_region::Part;
use lnet_socklnd::SockConfig;
use lnet_socklnd::sys::{Net, Options};

use super::node::TcpNode;
use super::{Later, Stranger, TcpWorld};

const MS: u64 = 1_000_000;

impl TcpWorld {
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
            14 | 15 => self.squeeze(node),
            16..18 => self.send_to_sleep(node),
            _ => self.visit(node),
        }
    }

    fn cut(&mut self, a: usize, b: usize) -> Result<(), String> {
        let duration_ns = self.rng.pick(&[10 * MS, 2_000 * MS, 30_000 * MS, 120_000 * MS]);
        self.trace(|| format!("node {a} and node {b} are cut off for {duration_ns} ns"));
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
            self.net.cut(node, other, Some(duration_ns));
            self.net.cut(other, node, Some(duration_ns));
        }
        Ok(())
    }

    /// A node dies: its program alone, or its host. It comes back at once or later.
    fn die(&mut self, node: usize, host: bool) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        self.end(node, Some(host))?;
        let delay_ns = self.rng.pick(&[0, 100 * MS, 20_000 * MS, 100_000 * MS]);
        self.plan_later(delay_ns, Later::Start(node));
        Ok(())
    }

    pub(super) fn plan_later(&mut self, delay_ns: u64, what: Later) {
        let at_ns = self.net.now_ns() + delay_ns;
        self.later.push((at_ns, what));
        self.net.at(at_ns, super::LOOK);
    }

    /// Ends a node. `None`: in good order; else by the death of its program, or of its host.
    pub(super) fn end(&mut self, node: usize, death: Option<bool>) -> Result<(), String> {
        self.trace(|| format!("node {node} ends: {death:?}"));
        match death {
            Some(true) => {
                self.seen.crashes += 1;
                self.net.crash(self.nodes[node].host);
            }
            Some(false) => {
                self.seen.killed += 1;
                self.net.kill(self.nodes[node].host);
            }
            None => {}
        }
        self.nodes[node].alive = false;
        self.nodes[node].inbox.nested.lock().clear();
        self.seen.keepalives += self.nodes[node].lnd.counters().tx.keepalives;
        for nid in std::mem::take(&mut self.nodes[node].up) {
            let removed = self.nodes[node].engine.remove_ni(nid);
            removed.map_err(|error| format!("node {node}: {nid} cannot be removed: {error}"))?;
        }
        // What the LND has listed for its next poll goes, as it would with the LND itself.
        for shard in 0..self.nodes[node].shards.len() {
            let _ = self.nodes[node].lnd.poll(shard, self.net.now_ns(), self.scenario.budget);
        }
        self.take_events(node)?;
        self.note_held(node);
        self.check_counters(node, death.is_some())?;
        let ended = self.party(node);
        let mine = self.ledger.operations.values_mut().filter(|operation| operation.from == ended);
        mine.for_each(|operation| operation.ended = true);
        self.graveyard.push(self.nodes[node].lnd.clone());
        Ok(())
    }

    pub(super) fn happen_later(&mut self, what: Later) -> Result<(), String> {
        match what {
            Later::EndSqueeze(node) => {
                self.net.limit_descriptors(self.nodes[node].host, usize::MAX);
                Ok(())
            }
            Later::Start(node) => self.restart(node),
            Later::Nested(node) => self.call_nested(node),
            Later::Lazy(node) => self.set_lazy(node, true),
        }
    }

    /// A node comes back: an empty engine, a new LND, another incarnation.
    pub(super) fn restart(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].alive {
            return Ok(());
        }
        self.trace(|| format!("node {node} comes back"));
        let (host, life) = (self.nodes[node].host, self.nodes[node].life + 1);
        self.net.start(host);
        self.net.limit_descriptors(host, usize::MAX);
        let fresh = TcpNode::start(&self.scenario, &self.net, node, host, life);
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

    /// All memory of a life of a node that is over is free.
    pub(super) fn check_memory(&mut self, node: usize, life: u64) -> Result<(), String> {
        for (number, operation) in &self.ledger.operations {
            let sides = [operation.from, operation.to];
            for (side, _) in
                sides.iter().enumerate().filter(|(_, party)| (party.node, party.life) == (node, life))
            {
                let memory = &operation.memory[side];
                let free = memory.write(0..memory.len());
                free.map_err(|error| format!("memory of operation {number}, whose node is dead: {error}"))?;
            }
        }
        let gone = |party: super::Party| party.node == node && party.life == life;
        for operation in self.ledger.operations.values_mut().filter(|operation| gone(operation.to)) {
            operation.me = None;
        }
        Ok(())
    }

    /// Removes an NI that is up, or adds one that is not.
    fn change_ni(&mut self, node: usize) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        let at = self.rng.index(self.nodes[node].nids.len());
        let nid = self.nodes[node].nids[at];
        if self.nodes[node].up.contains(&nid) {
            self.trace(|| format!("node {node}: removes {nid}"));
            self.seen.nis_removed += 1;
            self.nodes[node].interrupted = true;
            self.nodes[node].up.retain(|up| *up != nid);
            let removed = self.nodes[node].engine.remove_ni(nid);
            removed.map_err(|error| format!("node {node}: {nid} cannot be removed: {error}"))?;
            // What came over it is held no longer.
            self.note_held(node);
            nid.ip().into_iter().for_each(|ip| self.net.forget(ip));
            return self.check();
        }
        self.trace(|| format!("node {node}: adds {nid}"));
        let added = self.nodes[node].add_ni(nid);
        if let Err(error) = added {
            // Not if there is no descriptor for its listener.
            let squeezed = error.errno() == lnet_api::Errno::EMFILE;
            return if squeezed { Ok(()) } else { Err(format!("node {node} adds {nid}: {error}")) };
        }
        self.seen.nis_added += 1;
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
        self.seen.per_peer_changes += 1;
        let node = &mut self.nodes[node];
        node.lnd.set_conns_per_peer(None, count);
        node.most_per_peer = node.most_per_peer.max(count);
        Ok(())
    }

    /// No descriptor is left for a while.
    fn squeeze(&mut self, node: usize) -> Result<(), String> {
        let host = self.nodes[node].host;
        let spare = self.rng.below(3) as usize;
        let most = self.net.descriptors(host) + spare;
        let duration_ns = self.rng.pick(&[50 * MS, 1_000 * MS, 40_000 * MS]);
        self.trace(|| format!("node {node} has {spare} descriptors left for {duration_ns} ns"));
        self.net.limit_descriptors(host, most);
        self.plan_later(duration_ns, Later::EndSqueeze(node));
        Ok(())
    }

    /// A driver does not come to poll.
    fn send_to_sleep(&mut self, node: usize) -> Result<(), String> {
        let duration_ns = self.rng.pick(&[5 * MS, 500 * MS, 9_000 * MS, 80_000 * MS]);
        let until_ns = self.net.now_ns() + duration_ns;
        self.trace(|| format!("node {node} sleeps for {duration_ns} ns"));
        self.seen.sleepy += 1;
        for shard in 0..self.nodes[node].shards.len() {
            let shard_state = &mut self.nodes[node].shards[shard];
            shard_state.asleep_until_ns = until_ns;
            shard_state.poll_ns = None;
            self.plan_poll(node, shard, until_ns);
        }
        Ok(())
    }

    /// Somebody connects who says nothing, or nothing sensible.
    fn visit(&mut self, node: usize) -> Result<(), String> {
        let config: &SockConfig = &self.scenario.config;
        let Some(to) = self.nodes[node].nids[0].ip().filter(|ip| ip.is_ipv4()) else { return Ok(()) };
        let options = Options {
            nagle: false,
            tx_buffer_size: 0,
            rx_buffer_size: 0,
            keepalive_idle_s: 0,
            keepalive_count: 0,
            keepalive_intvl_s: 0,
            timeout_s: 0,
            congestion_control: None,
            tos: None,
        };
        let to = std::net::SocketAddr::new(to, config.accept_port);
        let from = std::net::IpAddr::from([10, 77, 0, 200]);
        self.trace(|| format!("a stranger visits node {node}"));
        // Nobody expects strangers to back off.
        self.net.forget(from);
        let Ok(connecting) = self.net.host(self.stranger_host).connect(from, to, &options) else {
            return Ok(());
        };
        self.seen.strangers += 1;
        let until_ns = self.net.now_ns() + self.rng.pick(&[1_000 * MS, 20_000 * MS]);
        self.net.at(until_ns, super::LOOK);
        // The connection must stand before anything can be said.
        self.run_until(self.net.now_ns() + 200 * MS)?;
        let garbage: Vec<u8> = (0..self.rng.below(100)).map(|_| self.rng.next_u64() as u8).collect();
        let request = [0x00, 0x71, 0xce, 0xac, 1, 0, 0, 0];
        let bytes = if self.rng.chance(5_000) { &request[..] } else { &garbage };
        let _ = connecting.stream.send(&[Part::new(bytes)]);
        self.strangers.push(Stranger { _stream: connecting.stream, until_ns });
        Ok(())
    }
}
