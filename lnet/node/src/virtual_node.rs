//! Further LNet nodes in one process, for simulations of many nodes.

use std::sync::Arc;

use lnet::{Counters, Engine, FaultId, FaultRule};
use lnet_api::{Clock, LNet, LNetError};
use lnet_nid::Nid;

use crate::drive::NodeDrive;

/// A further LNet node: an engine and one TCP NID of its own, on the LND, the threads and the clock
/// of a [`Node`](crate::Node) ([`Node::virtual_node`](crate::Node::virtual_node)).
///
/// A peer cannot distinguish it from a node in a process of its own: it answers pings for itself,
/// and it counts its own messages. It costs memory, a listening socket and its connections, and no
/// thread, so a process can have thousands. Messages between two virtual nodes also travel over
/// TCP. Its NI ends when it is dropped; drop it before the node.
///
/// ```
/// use lnet_node::{Node, NodeConfig};
///
/// let node = Node::start(&NodeConfig::new().accept_port(21_986))?;
/// let [one, other] = ["127.0.0.9@tcp", "127.0.0.10@tcp"].map(str::parse);
/// let (one, other) = (node.virtual_node(one?)?, node.virtual_node(other?)?);
/// assert_ne!(one.nid(), other.nid());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VirtualNode {
    engine: Arc<Engine>,
    nid: Nid,
    drive: Arc<NodeDrive>,
}

impl VirtualNode {
    /// Takes an engine whose NI has started.
    pub(crate) fn new(engine: Arc<Engine>, nid: Nid, drive: Arc<NodeDrive>) -> VirtualNode {
        VirtualNode { engine, nid, drive }
    }

    /// Returns the NID of the virtual node, which it keeps until it is dropped.
    #[must_use]
    pub fn nid(&self) -> Nid {
        self.nid
    }

    /// Returns its LNet. The threads that drive the [`Node`](crate::Node) deliver its events.
    #[must_use]
    pub fn lnet(&self) -> Arc<dyn LNet> {
        self.engine.clone()
    }

    /// Returns a function that reads its counters.
    pub fn counters(&self) -> impl Fn() -> Counters + Send + Sync + use<> {
        let engine = self.engine.clone();
        move || engine.counters()
    }

    /// Adds a rule by which messages that arrive at it are lost or delayed.
    ///
    /// # Errors
    /// ENOMEM beyond the limit of rules, EINVAL for an invalid rule.
    pub fn add_fault(&self, rule: FaultRule) -> Result<FaultId, LNetError> {
        self.engine.add_fault(rule)
    }

    /// Sets its time, ends operations whose deadline has passed, and releases delayed messages. Must
    /// be called at least once a second: the node's threads do this for the node alone.
    pub fn advance(&self) {
        self.engine.advance(self.drive.now_ns());
    }
}

impl Drop for VirtualNode {
    fn drop(&mut self) {
        // This cannot fail: no other code removes its NI.
        let _ = self.engine.remove_ni(self.nid);
    }
}
