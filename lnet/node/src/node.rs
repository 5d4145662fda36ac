use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lnet::{Counters, Engine};
use lnet_api::{Clock, Drive, EventFd, LNet, Lnd, Sleeper, wait_until};
use lnet_cpt::CptTable;
use lnet_nid::{Nid, ProcessId};
use lnet_socklnd::SockLnd;

use crate::drive::NodeDrive;
use crate::ping::{PingAnswer, PingFailure};
use crate::steward::Steward;
use crate::{NodeConfig, NodeError};

/// A running LNet node of this process.
pub struct Node {
    drive: Arc<NodeDrive>,
    sock: Arc<SockLnd>,
    table: Arc<CptTable>,
    nids: Vec<Nid>,
    // Dropped first in `stop`: it holds the shards' tokens while it drives.
    steward: Option<Steward>,
}

impl Node {
    /// Starts the networks of a configuration: claims the NIDs, listens, and answers pings from now on.
    ///
    /// # Errors
    /// [`NodeError`] names the network, NID or tunable and the reason; nothing is left running.
    pub fn start(config: &NodeConfig) -> Result<Node, NodeError> {
        let table = config.table()?;
        let interfaces = config.interfaces(table.partitions())?;
        let engine = Engine::new(config.engine(table.clone(), wall_clock_ns()));
        let sock = SockLnd::new(config.sock().clone()).map_err(|error| NodeError::System {
            what: format!("TCP: {}", error.what),
            errno: error.errno,
        })?;
        let sock = Arc::new(sock);
        let lnds: Vec<Arc<dyn Lnd>> = vec![sock.clone()];
        let drive = Arc::new(NodeDrive::new(engine, lnds));
        drive.engine.advance(drive.now_ns());
        let mut node = Node { drive, sock, table, nids: Vec::new(), steward: None };
        for (nid, cpts) in interfaces {
            let id = ProcessId { nid, pid: config.pid() };
            node.drive
                .engine
                .add_ni_on(id, node.sock.clone(), &cpts)
                .map_err(|source| NodeError::Start { nid, source })?;
            node.nids.push(nid);
        }
        let refuse = |source| config.refuse_partitions(source);
        node.steward = Some(Steward::start(node.drive.clone(), node.table.clone(), refuse)?);
        Ok(node)
    }

    /// The LNet API.
    pub fn lnet(&self) -> Arc<dyn LNet> {
        self.drive.engine.clone()
    }

    /// The handle by which a waiting thread drives the node.
    pub fn drive(&self) -> Arc<dyn Drive> {
        self.drive.clone()
    }

    /// The NIDs of the node, without `0@lo`, in the order of the configuration.
    pub fn nids(&self) -> &[Nid] {
        &self.nids
    }

    /// The CPU partitions that the node's state is split by (S-301, S-307): for layers above that split theirs alike.
    pub fn partitions(&self) -> &Arc<CptTable> {
        &self.table
    }

    /// LNet's counters.
    pub fn counters(&self) -> Counters {
        self.drive.engine.counters()
    }

    /// The TCP LND, for its counters and the reasons of its failures.
    pub fn tcp(&self) -> &SockLnd {
        &self.sock
    }

    /// Asks a node for its NIDs (lnet-wire 15), and drives the network until it has answered. `source` is the local NID
    /// to ask from; `None` lets LNet choose.
    ///
    /// # Errors
    /// [`PingFailure`] says which step failed, and what to try.
    pub fn ping(
        &self,
        target: Nid,
        source: Option<Nid>,
        timeout: Duration,
    ) -> Result<PingAnswer, PingFailure> {
        crate::ping::ping(self, target, source, timeout)
    }

    /// Ends the node. Messages that are being sent get `drain` to leave; what is in flight then ends with ESHUTDOWN.
    pub fn shutdown(mut self, drain: Duration) {
        if let Ok(sleeper) = EventFd::new() {
            let sleeper: Arc<dyn Sleeper> = Arc::new(sleeper);
            let deadline = self.drive.now_ns().saturating_add(drain.as_nanos() as u64);
            let engine = self.drive.engine.clone();
            wait_until(&*self.drive, &sleeper, Some(deadline), || engine.counters().msgs_alloc == 0);
        }
        self.stop();
    }

    fn stop(&mut self) {
        self.steward = None;
        for nid in std::mem::take(&mut self.nids) {
            // ENOENT alone is possible, for a NID that never came up.
            let _ = self.drive.engine.remove_ni(nid);
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.drive.engine
    }

    pub(crate) fn driver(&self) -> &NodeDrive {
        &self.drive
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("nids", &self.nids).finish_non_exhaustive()
    }
}

/// Nanoseconds since 1970: what tells one life of a node from the next (lnet-wire 5, 24).
fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
