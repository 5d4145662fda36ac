//! The session of a console: its nodes, groups, batches and tests.

use std::collections::{BTreeMap, HashSet};

use lnet_nid::ProcessId;
use lnet_proto::lst::{Features, Name, SessionId};

use super::node::Node;
use super::{
    AddTest, BatchInfo, ConsoleError, GroupInfo, NewSession, NodeInfo, NodeState, SessionInfo, TICK_NS,
    TestInfo,
};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) sid: SessionId,
    pub(super) name: Name,
    pub(super) timeout_s: u32,
    pub(super) force: bool,
    pub(super) features: Features,
    /// Whether a node has fixed the features.
    agreed: bool,
    pub(super) expired: bool,
    /// Time of the last command.
    pub(super) command_ns: u64,
    /// Time of the next check of keep-alive and timeout.
    pub(super) tick_ns: u64,
    /// The members of all groups.
    pub(super) nodes: BTreeMap<ProcessId, Node>,
    pub(super) groups: Vec<Group>,
    pub(super) batches: Vec<Batch>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Name,
    pub(super) nodes: Vec<ProcessId>,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) name: Name,
    pub(super) id: u64,
    pub(super) running: bool,
    /// It was stopped without force, and its clients may still run.
    pub(super) is_stopping: bool,
    pub(super) tests: Vec<Test>,
    /// Number of tests that were ever begun; the next one's serial.
    pub(super) serials: usize,
    /// What each node has of the batch, in the order in which it was added there. A query of one
    /// test names the place in this order, which is the node's own count (lst 6).
    pub(super) instances: BTreeMap<ProcessId, Vec<Instance>>,
}

#[derive(Debug)]
pub(super) struct Test {
    pub(super) add: AddTest,
    pub(super) serial: usize,
}

/// A client or server of a test at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) serial: usize,
    pub(super) is_client: bool,
}

impl Batch {
    pub(super) fn new(name: Name, id: u64) -> Batch {
        Batch {
            name,
            id,
            running: false,
            is_stopping: false,
            tests: Vec::new(),
            serials: 0,
            instances: BTreeMap::new(),
        }
    }

    /// Returns whether a node is a client of one of its tests.
    pub(super) fn has_client(&self, node: ProcessId) -> bool {
        self.instances.get(&node).into_iter().flatten().any(|instance| instance.is_client)
    }

    /// Notes that a node has added its part of a test.
    pub(super) fn note_instance(&mut self, node: ProcessId, instance: Instance) {
        self.instances.entry(node).or_default().push(instance);
    }
}

impl Session {
    pub(super) fn new(new: &NewSession, sid: SessionId, batch: Batch, now_ns: u64) -> Session {
        Session {
            sid,
            name: new.name,
            timeout_s: new.timeout_s,
            force: new.force,
            features: new.features,
            agreed: false,
            expired: false,
            command_ns: now_ns,
            tick_ns: now_ns + TICK_NS,
            nodes: BTreeMap::new(),
            groups: Vec::new(),
            batches: vec![batch],
        }
    }

    /// Compares the features of a node that has joined with those of the session. The first node
    /// fixes them (lst 10.4). Returns whether they fit.
    pub(super) fn agree(&mut self, features: Features) -> bool {
        if !self.agreed {
            (self.agreed, self.features) = (true, features);
        }
        self.features == features
    }

    pub(super) fn group(&self, name: Name) -> Result<&Group, ConsoleError> {
        let found = self.groups.iter().find(|group| group.name == name);
        found.ok_or_else(|| ConsoleError::NotFound { object: "group", name: name.to_string() })
    }

    pub(super) fn batch(&self, name: Name) -> Result<&Batch, ConsoleError> {
        let found = self.batches.iter().find(|batch| batch.name == name);
        found.ok_or_else(|| ConsoleError::NotFound { object: "batch", name: name.to_string() })
    }

    pub(super) fn batch_mut(&mut self, name: Name) -> Option<&mut Batch> {
        self.batches.iter_mut().find(|batch| batch.name == name)
    }

    /// Refuses if a test uses the group.
    pub(super) fn refuse_used(&self, group: Name) -> Result<(), ConsoleError> {
        let uses =
            |batch: &&Batch| batch.tests.iter().any(|test| test.add.from == group || test.add.to == group);
        match self.batches.iter().find(uses) {
            Some(batch) => Err(ConsoleError::InUse { group, batch: batch.name }),
            None => Ok(()),
        }
    }

    /// Refuses if one of the nodes is not ACTIVE.
    pub(super) fn refuse_inactive(&self, nodes: &[ProcessId]) -> Result<(), ConsoleError> {
        let states = nodes.iter().map(|node| (*node, self.state(*node)));
        match states.into_iter().find(|(_, state)| *state != NodeState::Active) {
            Some((node, state)) => Err(ConsoleError::NotActive { node, state }),
            None => Ok(()),
        }
    }

    /// Returns the state of a node; UNKNOWN if it is not in the session.
    pub(super) fn state(&self, node: ProcessId) -> NodeState {
        self.nodes.get(&node).map_or(NodeState::Unknown, Node::state)
    }

    pub(super) fn is_active(&self, node: ProcessId) -> bool {
        self.state(node) == NodeState::Active
    }

    /// Removes the nodes that are in no group any more.
    pub(super) fn drop_ungrouped(&mut self) {
        let kept: HashSet<ProcessId> = self.groups.iter().flat_map(|group| &group.nodes).copied().collect();
        self.nodes.retain(|node, _| kept.contains(node));
    }

    /// Returns the nodes of the tests' groups, each once: the clients, or the servers.
    pub(super) fn batch_nodes(&self, batch: &Batch, servers: bool) -> Vec<ProcessId> {
        let mut seen = HashSet::new();
        let tests = batch.tests.iter();
        let nodes = tests.flat_map(|test| self.test_nodes(&test.add, servers));
        nodes.copied().filter(|node| seen.insert(*node)).collect()
    }

    /// Returns the clients of a test, or its servers.
    pub(super) fn test_nodes(&self, test: &AddTest, servers: bool) -> &[ProcessId] {
        let name = if servers { test.to } else { test.from };
        // A group that a test uses cannot be deleted.
        self.group(name).map_or(&[], |group| &group.nodes)
    }

    pub(super) fn info(&self) -> SessionInfo {
        SessionInfo {
            name: self.name,
            sid: self.sid,
            features: self.features,
            timeout_s: self.timeout_s,
            force: self.force,
            nodes: self.nodes.len(),
            expired: self.expired,
        }
    }

    pub(super) fn group_infos(&self) -> impl Iterator<Item = GroupInfo> + '_ {
        self.groups.iter().map(|group| GroupInfo { name: group.name, nodes: self.node_infos(&group.nodes) })
    }

    pub(super) fn batch_infos(&self) -> impl Iterator<Item = BatchInfo> + '_ {
        self.batches.iter().map(|batch| BatchInfo {
            name: batch.name,
            id: batch.id,
            running: batch.running,
            tests: batch.tests.iter().map(|test| self.test_info(test)).collect(),
            clients: self.node_infos(&self.batch_nodes(batch, false)),
            servers: self.node_infos(&self.batch_nodes(batch, true)),
        })
    }

    fn test_info(&self, test: &Test) -> TestInfo {
        TestInfo {
            test: test.add,
            clients: self.node_infos(self.test_nodes(&test.add, false)),
            servers: self.node_infos(self.test_nodes(&test.add, true)),
        }
    }

    fn node_infos(&self, nodes: &[ProcessId]) -> Vec<NodeInfo> {
        nodes.iter().map(|&node| NodeInfo { node, state: self.state(node) }).collect()
    }
}
