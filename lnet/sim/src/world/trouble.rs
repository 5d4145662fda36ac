//! Cuts, restarts, and NIs that are added and removed.

use super::World;

impl World {
    pub(super) fn make_trouble(&mut self) {
        let node = self.rng.index(self.nodes.len());
        let other = self.rng.index(self.nodes.len());
        match self.rng.below(10) {
            0 | 1 => self.restart(node),
            2..=4 => self.change_ni(node),
            5 | 6 => {
                let duration = self.rng.pick(&[1_000_000, 100_000_000, 5_000_000_000]);
                let nids = self.nodes[node].nids.iter().zip(&self.nodes[other].nids);
                for (&a, &b) in nids.filter(|(a, b)| a != b) {
                    self.net.cut(a, b, duration);
                }
            }
            _ => {
                for (&a, &b) in self.nodes[node].nids.iter().zip(&self.nodes[other].nids) {
                    self.net.disconnect(a, b);
                }
            }
        }
    }

    /// Removes an NI that is up, or adds one that is not.
    fn change_ni(&mut self, node: usize) {
        let at = self.rng.index(self.nodes[node].nids.len());
        let nid = self.nodes[node].nids[at];
        if self.nodes[node].up.contains(&nid) {
            self.trace(|| format!("node {node}: removes {nid}"));
            self.watch.model.lock().stop_ni(node, nid);
            let result = self.nodes[node].engine.remove_ni(nid);
            self.nodes[node].up.retain(|&up| up != nid);
            self.compare("remove_ni", Ok(()), &result);
            self.watch.model.lock().ni_gone(node, nid);
            self.seen.nis_removed += 1;
        } else {
            self.trace(|| format!("node {node}: adds {nid}"));
            let result = self.start_ni(node, nid);
            self.compare("add_ni", Ok(()), &result);
            self.seen.nis_added += 1;
        }
    }
}
