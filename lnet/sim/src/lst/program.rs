//! The random commands of a console.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Check, Direction, Features, Name};
use nlx_lst::console::{
    AddTest, BrwTest, Console, ConsoleOperation, Distribution, GroupInfo, GroupUpdate, NewSession,
    NodeAnswer, NodeStates, Query, Report, Stat, Target, TestKind,
};

use crate::Rng;

/// Names of groups and of batches; a console uses few, so that commands meet.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Seconds without a command after which a console ends its session: the second of them expires
/// while the world lets time pass.
const TIMEOUTS_S: [u32; 2] = [300, 60];

/// The answers of a report's nodes: an errno, or none for success.
pub(super) type Answers = Vec<(ProcessId, Result<(), nlx_lst::console::NodeFailure>)>;

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or(Name::EMPTY)
}

/// Returns a random command. Most commands can succeed; the console refuses the others.
pub(super) fn command(console: &Console, nodes: &[ProcessId], stamp: i64, rng: &mut Rng) -> ConsoleOperation {
    let session = console.session();
    if session.is_none() || rng.chance(100) {
        return ConsoleOperation::NewSession(NewSession {
            name: name("simulated"),
            stamp,
            timeout_s: rng.pick(&TIMEOUTS_S),
            force: rng.chance(4_000),
            features: Features::BULK_LENGTH,
        });
    }
    if session.is_some_and(|session| session.expired) || rng.chance(300) {
        return ConsoleOperation::EndSession;
    }
    let groups = console.groups();
    if groups.is_empty() || (groups.len() < NAMES.len() && rng.chance(1_500)) {
        let mut some: Vec<ProcessId> = nodes.iter().copied().filter(|_| rng.chance(6_000)).collect();
        if some.is_empty() {
            some.push(nodes[rng.index(nodes.len())]);
        }
        return ConsoleOperation::AddGroup { name: name(rng.pick(&NAMES)), nodes: some };
    }
    let group = |rng: &mut Rng| groups[rng.index(groups.len())].name;
    let of_group = |rng: &mut Rng| Target::Group(group(rng));
    match rng.below(12) {
        0 => return ConsoleOperation::Ping { target: of_group(rng), timeout_s: 5 },
        1 => return ConsoleOperation::ShowError { targets: vec![of_group(rng)] },
        2 => return update(group(rng), &groups, rng),
        3 if rng.chance(3_000) => return ConsoleOperation::DelGroup { name: group(rng) },
        4 if rng.chance(3_000) => return ConsoleOperation::AddBatch { name: name(rng.pick(&NAMES)) },
        5 => return stat(vec![of_group(rng)], rng),
        _ => {}
    }
    let batches = console.batches();
    let batch = &batches[rng.index(batches.len())];
    let (name, is_empty) = (batch.name, batch.tests.is_empty());
    match rng.below(6) {
        _ if is_empty => ConsoleOperation::AddTest(test(name, group(rng), group(rng), rng)),
        0 => ConsoleOperation::AddTest(test(name, group(rng), group(rng), rng)),
        1 if batch.running => ConsoleOperation::Stop { batch: name, force: rng.chance(5_000) },
        1..5 if !batch.running => ConsoleOperation::Run { batch: name, timeout_s: 0 },
        2 => stat(vec![of_group(rng)], rng),
        _ => {
            let (servers, test) = (rng.chance(1_000), rng.below(3) as u32);
            ConsoleOperation::Query(Query {
                batch: name,
                test,
                servers,
                timeout_s: 5,
                count: Some(2),
                delay_s: 1,
            })
        }
    }
}

fn test(batch: Name, from: Name, to: Name, rng: &mut Rng) -> AddTest {
    let direction = rng.pick(&[Direction::READ, Direction::WRITE]);
    let check = rng.pick(&[Check::NONE, Check::SIMPLE, Check::FULL]);
    let brw = BrwTest { direction, check, length: rng.pick(&[8, 4096, 12_296]), offset: 0 };
    AddTest {
        batch,
        from,
        to,
        kind: if rng.chance(3_000) { TestKind::Ping } else { TestKind::Brw(brw) },
        repeats: rng.pick(&[Some(1), Some(20), None]),
        concurrency: rng.between((1, 3)) as u32,
        distribution: Distribution { clients: 1, servers: 1 },
    }
}

fn stat(targets: Vec<Target>, rng: &mut Rng) -> ConsoleOperation {
    ConsoleOperation::Stat(Stat {
        targets,
        timeout_s: 5,
        delay_s: 1,
        count: Some(rng.between((1, 2)) as u32),
    })
}

fn update(name: Name, groups: &[GroupInfo], rng: &mut Rng) -> ConsoleOperation {
    let members = groups.iter().find(|group| group.name == name).map_or(&[][..], |group| &group.nodes);
    let first = members.first().map(|info| info.node);
    let update = match rng.below(3) {
        0 => GroupUpdate::Refresh,
        1 => GroupUpdate::Clean(NodeStates::ALL),
        _ => GroupUpdate::Remove(first.into_iter().collect()),
    };
    ConsoleOperation::UpdateGroup { name, update }
}

fn convert<T>(nodes: &[NodeAnswer<T>]) -> Answers {
    nodes
        .iter()
        .map(|node| (node.node, node.answer.as_ref().map(|_| ()).map_err(|failure| *failure)))
        .collect()
}

/// Returns the answers in a report.
pub(super) fn answers(report: &Report) -> Answers {
    match report {
        Report::Session(_) | Report::Batch { .. } | Report::Stopping { .. } => Vec::new(),
        Report::Group { nodes, .. }
        | Report::Test { nodes, .. }
        | Report::Run { nodes, .. }
        | Report::Stop { nodes, .. }
        | Report::End { nodes } => convert(nodes),
        Report::Query(query) => convert(&query.nodes),
        Report::Stat(targets) => targets.iter().flat_map(|target| convert(&target.nodes)).collect(),
        Report::Errors(targets) => targets.iter().flat_map(|target| convert(&target.nodes)).collect(),
        Report::Ping(target) => convert(&target.nodes),
    }
}

/// Returns the nodes that a command must have a result for, where the command alone decides that;
/// `None` if it also depends on the answers of its first steps.
pub(super) fn expected(operation: &ConsoleOperation, console: &Console) -> Option<Vec<ProcessId>> {
    let group_of = |target: &Target| match target {
        Target::Group(name) => console.groups().into_iter().find(|group| group.name == *name),
        _ => None,
    };
    let members = |target: &Target| -> Vec<ProcessId> {
        group_of(target).into_iter().flat_map(|group| group.nodes).map(|info| info.node).collect()
    };
    match operation {
        ConsoleOperation::Ping { target, .. } => Some(members(target)),
        ConsoleOperation::ShowError { targets } | ConsoleOperation::Stat(Stat { targets, .. }) => {
            Some(targets.iter().flat_map(members).collect())
        }
        ConsoleOperation::Run { batch, .. } => {
            let batches = console.batches();
            let found = batches.iter().find(|info| info.name == *batch)?;
            Some(found.clients.iter().map(|info| info.node).collect())
        }
        _ => None,
    }
}
