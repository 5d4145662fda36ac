//! What goes wrong.

use super::node::Node;
use super::{IbWorld, LOOK};

const S: u64 = 1_000_000_000;

impl IbWorld {
    pub(super) fn make_trouble(&mut self) -> Result<(), String> {
        let node = self.rng.index(self.nodes.len());
        let other = self.rng.index(self.nodes.len());
        let hosts = (self.nodes[node].host, self.nodes[other].host);
        match self.rng.below(10) {
            0..2 if node != other => self.net.cut(hosts.0, hosts.1),
            2..4 if node != other => self.net.heal(hosts.0, hosts.1),
            4 => self.net.set_port(hosts.0, self.rng.chance(6_000)),
            5 => {
                let count = self.rng.between((1, 4)) as u8;
                self.nodes[node].lnd.set_conns_per_peer(None, count);
            }
            6 if self.nodes[node].alive => return self.restart_ni(node),
            7 if self.nodes[node].alive => {
                self.net.unplug(hosts.0);
                let until_ns = self.net.now_ns() + self.rng.between((0, S));
                self.run_until(until_ns)?;
                if self.nodes[node].up {
                    self.nodes[node].remove_ni();
                }
                self.net.plug(hosts.0);
            }
            8 if self.nodes[node].alive => self.stop(node),
            _ => self.net.set_port(hosts.0, true),
        }
        Ok(())
    }

    /// An NI goes, and comes again.
    pub(super) fn restart_ni(&mut self, node: usize) -> Result<(), String> {
        self.trace(|| format!("node {node}: its NI restarts"));
        self.seen.restarts += 1;
        if self.nodes[node].up {
            self.nodes[node].remove_ni();
        }
        // Its port may be down.
        let added = self.nodes[node].add_ni();
        self.trace(|| format!("node {node}: {added:?}"));
        for shard in 0..self.nodes[node].shards.len() {
            self.plan_poll(node, shard, self.net.now_ns());
        }
        Ok(())
    }

    /// A host loses power, or its program dies; it comes back later.
    fn stop(&mut self, node: usize) {
        self.trace(|| format!("node {node} stops"));
        let host = self.nodes[node].host;
        let party = (node, self.nodes[node].life);
        if self.rng.chance(5_000) {
            self.net.crash(host);
        } else {
            self.net.kill(host);
        }
        self.nodes[node].alive = false;
        // What its program was told in its last moment nobody knows.
        self.nodes[node].inbox.0.lock().clear();
        self.nodes[node].remove_ni();
        self.nodes[node].inbox.0.lock().clear();
        for operation in self.ledger.operations.values_mut().filter(|it| it.from == party && !it.ended) {
            (operation.ended, operation.unlinked) = (true, true);
        }
        let at_ns = self.net.now_ns() + self.rng.between((0, 20 * S));
        self.later.push((at_ns, node));
        self.net.at(at_ns, LOOK);
    }

    /// A host comes back.
    pub(super) fn start(&mut self, node: usize) -> Result<(), String> {
        let (host, life) = (self.nodes[node].host, self.nodes[node].life + 1);
        self.trace(|| format!("node {node} starts again"));
        self.net.start(host);
        self.net.plug(host);
        self.net.set_port(host, true);
        let started = Node::start(&self.scenario, &self.net, (node, host, life));
        self.nodes[node] = started.map_err(|error| format!("node {node} does not start: {error}"))?;
        self.plan_advance(node, self.net.now_ns());
        self.look_at_all();
        Ok(())
    }
}
