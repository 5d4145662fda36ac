//! Sessions, groups and batches.

use lnet_nid::Nid;
use lnet_proto::lst::Name;

use super::{NOT_FOUND, Printed, REFUSED};
use crate::console::{
    BatchInfo, GroupInfo, NodeInfo, NodeStates, SessionInfo, TestInfo, TestKind, count_states,
};

/// The header of tables of states.
const HEADER: &str = "ACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL";

/// States of a batch, as numbers: idle and running.
const BATCH_STATES: [u32; 2] = [176, 177];

pub(super) fn new_session(to: &mut Printed, session: &SessionInfo) {
    let force = if session.force { "Yes" } else { "No" };
    to.out(format_args!(
        "SESSION: {} FEATURES: {:x} TIMEOUT: {} FORCE: {force}",
        session.name, session.features.0, session.timeout_s
    ));
}

/// Prints the session. `key` is the value of `LST_SESSION`.
#[must_use]
pub fn show_session(session: Option<&SessionInfo>, key: u32) -> Printed {
    let mut printed = Printed::default();
    let Some(session) = session else {
        printed.err(format_args!("session is not active"));
        printed.err(format_args!("No session exists"));
        printed.code = REFUSED;
        return printed;
    };
    let nid = session.sid.nid().unwrap_or(Nid::ANY);
    printed.out(format_args!(
        "{} ID: {}@{nid}, KEY: {key} FEATURES: {:x} NODES: {}",
        session.name, session.sid.stamp, session.features.0, session.nodes
    ));
    printed
}

/// Prints the names of the groups.
#[must_use]
pub fn list_groups(groups: &[GroupInfo]) -> Printed {
    names(groups.iter().map(|group| group.name), "groups")
}

/// Prints the names of the batches.
#[must_use]
pub fn list_batches(batches: &[BatchInfo]) -> Printed {
    names(batches.iter().map(|batch| batch.name), "batches")
}

fn names(names: impl Iterator<Item = Name>, objects: &str) -> Printed {
    let mut printed = Printed::default();
    let mut total = 0;
    for name in names {
        total += 1;
        printed.out(format_args!("{total}) {name}"));
    }
    match total {
        0 => not_found(),
        total => {
            printed.out(format_args!("Total {total} {objects}"));
            printed
        }
    }
}

fn not_found() -> Printed {
    Printed { errors: "Object not found\n".to_owned(), code: NOT_FOUND, ..Printed::default() }
}

/// Prints the numbers of a group's nodes by state and, if `states` has any, the nodes in these
/// states. A group that does not exist has neither.
#[must_use]
pub fn list_group(group: Option<&GroupInfo>, states: NodeStates) -> Printed {
    let mut printed = Printed::default();
    printed.out(format_args!("{HEADER}"));
    let Some(GroupInfo { name, nodes }) = group else { return printed };
    if states.is_empty() {
        printed.out(format_args!("{}\t{name}", numbers(nodes)));
        return printed;
    }
    printed.out(format_args!("Group [ {name} ]"));
    match list_nodes(&mut printed, nodes, states) {
        0 => printed.out(format_args!("No nodes found [ {name} ]")),
        total => printed.out(format_args!("Total {total} nodes [ {name} ]")),
    }
    printed
}

/// Prints a batch: its nodes in the given states or, without states, its tests. `test` is the
/// number of the only test to be printed; 0 is every test.
#[must_use]
pub fn list_batch(batch: Option<&BatchInfo>, test: u32, servers: bool, states: NodeStates) -> Printed {
    let mut printed = Printed::default();
    let Some(batch) = batch else { return not_found() };
    let tests = (1..).zip(&batch.tests).filter(|(number, _)| test == 0 || test == *number);
    if states.is_empty() {
        let state = BATCH_STATES[usize::from(batch.running)];
        printed.out(format_args!("Batch: {} Tests: {} State: {state}", batch.name, batch.tests.len()));
        table(&mut printed, &batch.clients, &batch.servers);
        for (number, test) in tests {
            test_line(&mut printed, number, test);
            table(&mut printed, &test.clients, &test.servers);
        }
        return printed;
    }
    let total = match (test, tests.map(|(_, test)| test).next()) {
        (0, _) => list_nodes(&mut printed, if servers { &batch.servers } else { &batch.clients }, states),
        (_, Some(test)) => {
            list_nodes(&mut printed, if servers { &test.servers } else { &test.clients }, states)
        }
        (_, None) => return not_found(),
    };
    printed.out(format_args!("Total {total} nodes"));
    printed
}

fn test_line(to: &mut Printed, number: u32, info: &TestInfo) {
    let kind = match info.test.kind {
        TestKind::Ping => "ping",
        TestKind::Brw(_) => "brw",
    };
    let repeats = info.test.repeats.map_or(-1, i64::from);
    let concurrency = info.test.concurrency;
    to.out(format_args!("\tTest {number}({kind}) (loop: {repeats}, concurrency: {concurrency})"));
}

/// Prints the nodes in these states and returns their number.
fn list_nodes(to: &mut Printed, nodes: &[NodeInfo], states: NodeStates) -> usize {
    let listed = nodes.iter().filter(|node| states.contains(node.state));
    listed.map(|node| to.out(format_args!("\t{}: {}", node.node, node.state))).count()
}

fn table(to: &mut Printed, clients: &[NodeInfo], servers: &[NodeInfo]) {
    to.out(format_args!("\t{HEADER}"));
    to.out(format_args!("client{}", numbers(clients)));
    to.out(format_args!("server{}", numbers(servers)));
}

/// Returns the numbers of nodes by state and their total, each behind a tab.
fn numbers(nodes: &[NodeInfo]) -> String {
    let counts = count_states(nodes).into_iter().chain([nodes.len()]);
    counts.map(|count| format!("\t{count}")).collect()
}
