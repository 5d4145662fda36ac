//! Groups: MKSN to nodes that join the session, RMSN to nodes that leave it.

use std::collections::HashSet;

use lnet_nid::ProcessId;
use lnet_proto::lst::{Name, RequestBody};
use nix::errno::Errno;

use super::node::Node;
use super::session::{Group, Session};
use super::steps::{AfterStep, Round, Step, StepEnd};
use super::transaction::Outgoing;
use super::{
    Console, ConsoleError, GROUPS_MAX, GroupOutcome, GroupUpdate, MEMBERS_MAX, NODES_MAX, NodeState,
    NodeStates, Report,
};

impl Session {
    /// Returns a MKSN to each of the nodes that is not ACTIVE.
    fn admission(&self, nodes: &[ProcessId]) -> Round {
        let (sid, force, name) = (self.sid, u32::from(self.force), self.name);
        let invited = nodes.iter().filter(|node| !self.is_active(**node));
        let body = RequestBody::MakeSession { sid, force, name };
        Round::new(invited.map(|node| Outgoing::new(*node, body)).collect())
    }

    /// Returns a RMSN to each of the nodes. ESRCH is success: the node has no session.
    pub(super) fn removal(&self, nodes: Vec<ProcessId>) -> Round {
        let body = RequestBody::RemoveSession { sid: self.sid };
        let outgoing = nodes.into_iter().map(|node| Outgoing::new(node, body)).collect();
        Round { forgives: Some(Errno::ESRCH), ..Round::new(outgoing) }
    }

    /// Makes a group, or adds a node to one. Nodes that are new to the session are UNKNOWN.
    pub(super) fn put_group(&mut self, name: Name, nodes: Vec<ProcessId>, now_ns: u64) {
        for &node in &nodes {
            self.nodes.entry(node).or_insert_with(|| Node::new(now_ns));
        }
        match self.groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.nodes.extend(nodes),
            None => self.groups.push(Group { name, nodes }),
        }
    }

    /// Refuses nodes that would exceed the limits in this group, which may be new.
    pub(super) fn refuse_growth(&self, name: Name, nodes: &[ProcessId]) -> Result<(), ConsoleError> {
        if self.group(name).is_err() && self.groups.len() >= GROUPS_MAX {
            return Err(ConsoleError::TooMany { what: "groups", limit: GROUPS_MAX });
        }
        let new = nodes.iter().filter(|node| !self.nodes.contains_key(node)).count();
        if self.nodes.len() + new > NODES_MAX {
            return Err(ConsoleError::TooMany { what: "nodes", limit: NODES_MAX });
        }
        let members: usize = self.groups.iter().map(|group| group.nodes.len()).sum();
        match members + nodes.len() > MEMBERS_MAX {
            true => Err(ConsoleError::TooMany { what: "members of groups", limit: MEMBERS_MAX }),
            false => Ok(()),
        }
    }

    fn delete_group(&mut self, name: Name) {
        self.groups.retain(|group| group.name != name);
        self.drop_ungrouped();
    }
}

impl Console {
    pub(super) fn add_group(
        &mut self,
        name: Name,
        mut nodes: Vec<ProcessId>,
        now_ns: u64,
    ) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        if session.group(name).is_ok() {
            return Err(ConsoleError::Exists { object: "group", name });
        }
        let mut seen = HashSet::new();
        nodes.retain(|node| seen.insert(*node));
        super::check::group(name, &nodes)?;
        session.refuse_growth(name, &nodes)?;
        session.put_group(name, nodes.clone(), now_ns);
        Ok(AfterStep::Send(Step::AddGroup(name), session.admission(&nodes)))
    }

    /// Ends [`Step::AddGroup`]. A group without an ACTIVE node is deleted again.
    pub(super) fn group_added(&mut self, name: Name, ended: StepEnd) -> Report {
        let nodes = ended.successes();
        let mut outcome = GroupOutcome::AddedWithoutNodes;
        if let Some(session) = &mut self.session {
            let joined = nodes.iter().any(|node| node.answer.is_ok());
            let members = session.group(name).map_or(&[][..], |group| &group.nodes);
            if joined || members.iter().any(|node| session.is_active(*node)) {
                outcome = GroupOutcome::Added;
            } else {
                session.delete_group(name);
            }
        }
        Report::Group { name, outcome, nodes }
    }

    pub(super) fn del_group(&mut self, name: Name) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let nodes = session.group(name)?.nodes.clone();
        session.refuse_used(name)?;
        Ok(session.leave(name, nodes, GroupOutcome::Deleted))
    }

    pub(super) fn update_group(
        &mut self,
        name: Name,
        update: GroupUpdate,
    ) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let members = session.group(name)?.nodes.clone();
        session.refuse_used(name)?;
        let leaving = match update {
            GroupUpdate::Refresh => {
                return Ok(AfterStep::Send(Step::Refresh(name), session.admission(&members)));
            }
            GroupUpdate::Clean(states) => session.in_states(&members, states),
            GroupUpdate::Remove(nodes) => listed(name, &members, nodes)?,
        };
        Ok(session.leave(name, leaving, GroupOutcome::Shrunk))
    }

    /// Ends [`Step::Remove`].
    pub(super) fn nodes_removed(
        &mut self,
        name: Name,
        nodes: &[ProcessId],
        outcome: GroupOutcome,
        ended: StepEnd,
    ) -> Report {
        if let Some(session) = &mut self.session {
            let leaving: HashSet<&ProcessId> = nodes.iter().collect();
            if let Some(group) = session.groups.iter_mut().find(|group| group.name == name) {
                group.nodes.retain(|node| !leaving.contains(node));
            }
            session.groups.retain(|group| group.name != name || !group.nodes.is_empty());
            session.drop_ungrouped();
        }
        Report::Group { name, outcome, nodes: ended.successes() }
    }
}

impl Session {
    fn in_states(&self, nodes: &[ProcessId], states: NodeStates) -> Vec<ProcessId> {
        nodes.iter().filter(|node| states.contains(self.state(**node))).copied().collect()
    }

    /// Removes nodes from a group: those that are ACTIVE and in no other group get a RMSN.
    fn leave(&self, group: Name, nodes: Vec<ProcessId>, outcome: GroupOutcome) -> AfterStep {
        let others = self.groups.iter().filter(|other| other.name != group);
        let kept: HashSet<&ProcessId> = others.flat_map(|other| &other.nodes).collect();
        let ended = nodes.iter().filter(|node| !kept.contains(node));
        let ended = ended.filter(|node| self.state(**node) == NodeState::Active).copied().collect();
        AfterStep::Send(Step::Remove { group, nodes, outcome }, self.removal(ended))
    }
}

/// Returns the members of a group that are on the list; refuses nodes that are no members.
fn listed(group: Name, members: &[ProcessId], list: Vec<ProcessId>) -> Result<Vec<ProcessId>, ConsoleError> {
    let known: HashSet<&ProcessId> = members.iter().collect();
    if let Some(&node) = list.iter().find(|node| !known.contains(node)) {
        return Err(ConsoleError::NotMember { node, group });
    }
    let list: HashSet<ProcessId> = list.into_iter().collect();
    Ok(members.iter().filter(|node| list.contains(node)).copied().collect())
}
