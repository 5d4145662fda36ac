//! The end of a world: every operation must end, and every object must be released.

use lnet_api::LNet;

use super::World;
use super::node::WorldNode;
use crate::kit::world::check_credits;

/// The steps within which a world without further trouble must come to rest.
const MOST_STEPS: u64 = 1_000_000;

impl World {
    /// Ends all operations and releases all objects.
    ///
    /// # Errors
    /// The operation that does not end, or the object that is not released.
    pub(super) fn end_all(&mut self) -> Result<(), String> {
        self.settling = true;
        self.net.end_faults();
        self.end_leases(|_, _| true);
        for node in 0..self.nodes.len() {
            for portal in World::portals() {
                self.set_lazy(node, portal, false);
                self.check()?;
            }
        }
        self.drain()?;
        // After this time the answers that have not come are late.
        self.extra_ns += self.scenario.transaction_timeout_ns + 1;
        for node in 0..self.nodes.len() {
            self.advance(node);
            self.check()?;
        }
        self.drain()?;
        for node in 0..self.nodes.len() {
            self.watch.model.lock().check_quiet(node);
            let left = self.nodes[node].engine.counters().msgs_alloc;
            if left > 0 {
                return Err(format!("node {node}: {left} messages never end"));
            }
            let WorldNode { engine, up, .. } = &self.nodes[node];
            check_credits(engine, up).map_err(|error| format!("node {node} is quiet, but {error}"))?;
            self.clear(node)?;
            self.audit(node)?;
        }
        (0..self.nodes.len()).try_for_each(|node| self.kill(node))
    }

    fn drain(&mut self) -> Result<(), String> {
        for _ in 0..MOST_STEPS {
            if !self.net.has_traffic() {
                return Ok(());
            }
            self.let_happen();
            self.check()?;
        }
        Err("the network never comes to rest".to_owned())
    }

    /// Unlinks all buffers of a node; after that its EQs are unused.
    fn clear(&mut self, node: usize) -> Result<(), String> {
        let mes = self.watch.model.lock().mes(node);
        for (id, handle, _) in mes {
            self.unlink_one_me(node, id, handle);
            self.check()?;
        }
        let mds = self.watch.model.lock().mds(node);
        for (id, handle) in mds {
            self.unlink_one_md(node, id, handle);
            self.check()?;
        }
        let left = self.nodes[node].engine.counters().rst_alloc;
        if left > 0 {
            return Err(format!("node {node}: {left} answers are expected for ever"));
        }
        self.nodes[node].polled.clear();
        for eq in std::mem::take(&mut self.nodes[node].eqs) {
            let result = self.nodes[node].engine.eq_free(eq);
            result.map_err(|error| format!("node {node}: an MD is left behind: {error}"))?;
        }
        Ok(())
    }
}
