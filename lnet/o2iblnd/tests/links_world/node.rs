use std::collections::{BTreeMap, BTreeSet};

use lnet_o2iblnd::links::{AttemptOutcome, Bounds, LinkId, Links};
use lnet_proto::ib::{ConnParams, End, Known};

use super::S;

/// The properties of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeConfig {
    pub(crate) conns: u8,
    pub(crate) depth: u16,
    pub(crate) fragments: u16,
    /// The largest depth that the node's device can make.
    pub(crate) device_depth: u16,
    /// The number of requests, up to 20, that the node rejects with CONN_RACE while it connects
    /// itself, as kernel nodes of a higher NID do.
    pub(crate) races: u32,
}

impl NodeConfig {
    pub(crate) const PLAIN: NodeConfig =
        NodeConfig { conns: 1, depth: 8, fragments: 257, device_depth: 255, races: 0 };

    pub(crate) fn params(&self) -> ConnParams {
        ConnParams { queue_depth: self.depth, max_fragments: self.fragments, ..ConnParams::DEFAULT }
    }

    pub(crate) fn made(&self, params: ConnParams) -> ConnParams {
        ConnParams { queue_depth: params.queue_depth.min(self.device_depth), ..params }
    }
}

/// An established connection at a node: its number in the world, the peer's incarnation, and its
/// parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EstablishedLink {
    pub(crate) pair: u32,
    pub(crate) own: bool,
    pub(crate) life: Known,
    pub(crate) params: ConnParams,
}

pub(crate) struct Node {
    pub(crate) links: Links,
    pub(crate) config: NodeConfig,
    pub(crate) end: End,
    /// True if a message waits for a connection.
    pub(crate) waiting: bool,
    pub(crate) sent: u32,
    pub(crate) failed: u32,
    pub(crate) attempts: u32,
    pub(crate) live: BTreeMap<LinkId, EstablishedLink>,
    /// Attempts of the peer that the node accepts.
    pub(crate) accepting: BTreeMap<LinkId, EstablishedLink>,
    pub(crate) dialling: BTreeSet<LinkId>,
}

fn end(at: usize, stamp: u64) -> End {
    End { nid: format!("10.0.0.{}@o2ib", at + 1).parse().unwrap(), stamp }
}

impl Node {
    pub(crate) fn new(at: usize, config: NodeConfig, stamp: u64) -> Node {
        let own = end(at, stamp);
        let bounds = Bounds::new(config.conns, 50 * S);
        Node {
            links: Links::new(own, end(1 - at, 0).nid, config.params(), bounds),
            config,
            end: own,
            waiting: false,
            sent: 0,
            failed: 0,
            attempts: 0,
            live: BTreeMap::new(),
            accepting: BTreeMap::new(),
            dialling: BTreeSet::new(),
        }
    }

    pub(crate) fn fail(&mut self, outcome: &AttemptOutcome) {
        if *outcome == AttemptOutcome::Failed {
            self.failed += u32::from(std::mem::take(&mut self.waiting));
        }
    }
}
