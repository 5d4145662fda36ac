//! stat, show_error and ping (lst 8, 10.2, 10.3).

use lnet_proto::lst::{LnetCounters, LstService, SessionId, Statistics};
use nix::errno::Errno;
use nlx_lst::console::{
    ConsoleError, ConsoleOperation, NodeFailure, NodeState, Rates, Report, Stat, Summary, Target,
    TargetReport, Warning,
};
use proptest::prelude::*;

use crate::world::{Reaction, SECOND_NS, World, name, node};

fn group(text: &str) -> Target {
    Target::Group(name(text))
}

fn stat(targets: Vec<Target>, count: u32) -> Stat {
    Stat { targets, timeout_s: 5, delay_s: 2, count: Some(count) }
}

fn traffic(sent: u32, received: u32, bytes_sent: u64, bytes_received: u64) -> LnetCounters {
    LnetCounters { sent, received, bytes_sent, bytes_received, ..LnetCounters::default() }
}

fn rates(report: Report) -> Vec<TargetReport<Rates>> {
    let Report::Stat(targets) = report else { panic!("{report:?}") };
    targets
}

#[test]
fn rates_are_those_between_two_stats() {
    let mut world = World::with_groups(&[("c", &[1, 2]), ("s", &[3])]);
    world.node(1).traffic = traffic(10, 20, 1000, 4000);
    world.node(2).traffic = traffic(30, 40, 3000, 8000);
    world.node(3).traffic = traffic(5, 5, 0, 0);
    // Counters that wrap around between the two.
    world.node(2).statistics.lnet = traffic(u32::MAX - 40, u32::MAX - 50, u64::MAX - 3500, 0);
    world.sent.clear();
    let targets = rates(world.run(ConsoleOperation::Stat(stat(vec![group("c"), group("s")], 1))).unwrap());
    assert_eq!(world.services(), [LstService::Stat; 6]);
    assert_eq!(targets.iter().map(|target| target.nodes.len()).collect::<Vec<_>>(), [2, 1]);
    let first = targets[0].nodes[0].answer.unwrap();
    assert_eq!((first.interval_ms, first.sent, first.received), (2000, 5.0, 10.0));
    assert_eq!((first.bytes_sent, first.bytes_received), (500.0, 2000.0));
    let summary = targets[0].summary(|rates| rates.received).unwrap();
    assert_eq!(summary, Summary { average: 15.0, minimum: 10.0, maximum: 20.0, total: 30.0 });
    let summary = targets[0].summary(|rates| rates.bytes_sent).unwrap();
    assert_eq!(summary, Summary { average: 1000.0, minimum: 500.0, maximum: 1500.0, total: 2000.0 });
    assert_eq!(targets[1].summary(|rates| rates.bytes_sent).unwrap().maximum, 0.0);
}

#[test]
fn each_further_interval_is_one_stat() {
    let mut world = World::with_groups(&[("c", &[1])]);
    world.sent.clear();
    let began_ns = world.now_ns;
    world.run(ConsoleOperation::Stat(stat(vec![group("c")], 3))).unwrap();
    assert_eq!((world.sent.len(), world.progress.len()), (4, 2));
    assert_eq!((world.now_ns - began_ns) / SECOND_NS, 6);
}

#[test]
fn stat_without_end_is_cancelled() {
    let mut world = World::with_groups(&[("c", &[1])]);
    let endless = Stat { count: None, ..stat(vec![group("c")], 1) };
    world.begin(ConsoleOperation::Stat(endless)).unwrap();
    world.pass(world.now_ns + 1001 * SECOND_NS);
    assert_eq!(world.progress.len(), 500);
    // It is the command that keeps the session from expiring.
    assert!(!world.console.session().unwrap().expired);
    world.console.cancel(world.now_ns);
    assert_eq!(world.finish(), Err(ConsoleError::Canceled));
}

#[test]
fn no_further_round_begins_after_a_cancelled_one() {
    let mut world = World::with_groups(&[("c", &[1])]);
    world.sent.clear();
    world.begin(ConsoleOperation::Stat(stat(vec![group("c")], 1))).unwrap();
    world.pass(world.now_ns);
    assert_eq!(world.sent.len(), 1);
    world.console.cancel(world.now_ns);
    assert_eq!(world.finish(), Err(ConsoleError::Canceled));
    assert_eq!((world.sent.len(), world.aborted.len(), world.console.is_busy()), (1, 1, false));
}

#[test]
fn a_node_that_does_not_answer_has_no_rates() {
    let mut world = World::with_groups(&[("c", &[1, 2, 3])]);
    world.script(2, |_| Reaction::Silent);
    let mut asked = 0;
    world.script(3, move |_| {
        asked += 1;
        if asked == 1 { Reaction::Fails(Errno::ECANCELED) } else { Reaction::Normal }
    });
    let began_ns = world.now_ns;
    let targets = rates(world.run(ConsoleOperation::Stat(stat(vec![group("c")], 1))).unwrap());
    let failures: Vec<_> = targets[0].nodes.iter().map(|node| node.answer.err()).collect();
    let failed = |errno| Some(NodeFailure::Rpc(errno));
    assert_eq!(failures, [None, failed(Errno::ETIMEDOUT), failed(Errno::ENODATA)]);
    // Two STATs, each given up after 5 s; the node stays ACTIVE (lst 12.1).
    assert_eq!(((world.now_ns - began_ns) / SECOND_NS, world.aborted.len()), (10, 2));
    assert_eq!(world.state(2), NodeState::Active);
    assert_eq!(targets[0].results().count(), 1);
}

#[test]
fn a_foreign_session_in_any_reply_makes_a_node_busy() {
    let mut world = World::with_groups(&[("c", &[1, 2])]);
    world.node(1).session = Some((SessionId { nid4: 5, stamp: 6 }, name("theirs")));
    world.node(2).session = None;
    let targets = rates(world.run(ConsoleOperation::Stat(stat(vec![group("c")], 1))).unwrap());
    let found: Vec<_> = targets[0].nodes.iter().map(|node| (node.state, node.answer.err())).collect();
    let refused = Some(NodeFailure::Refused(Errno::ESRCH));
    assert_eq!(found, [(NodeState::Busy, refused), (NodeState::Unknown, refused)]);
    assert_eq!((world.state(1), world.state(2)), (NodeState::Busy, NodeState::Unknown));
}

#[test]
fn errors_are_shown_and_a_dead_node_is_down_after_ten_seconds() {
    let mut world = World::with_groups(&[("c", &[1, 2])]);
    world.node(1).statistics = Statistics { brw_errors: 2, rpcs_expired: 1, ..Statistics::default() };
    world.script(2, |_| Reaction::Silent);
    let began_ns = world.now_ns;
    let report = world.run(ConsoleOperation::ShowError { targets: vec![group("c")] }).unwrap();
    let Report::Errors(targets) = report else { panic!() };
    let shown = targets[0].nodes[0].answer.unwrap();
    assert_eq!((shown.brw_errors, shown.ping_errors, shown.rpcs_expired), (2, 0, 1));
    assert_eq!(targets[0].nodes[1].answer, Err(NodeFailure::Rpc(Errno::ETIMEDOUT)));
    assert_eq!(((world.now_ns - began_ns) / SECOND_NS, world.state(2)), (10, NodeState::Down));
}

#[test]
fn zombie_sessions_are_warned_of() {
    let mut world = World::with_groups(&[("c", &[1])]);
    world.node(1).statistics.zombie_sessions = 1;
    world.run(ConsoleOperation::ShowError { targets: vec![group("c")] }).unwrap();
    assert_eq!(world.warnings, [Warning::Zombies { node: node(1), sessions: 1 }]);
}

#[test]
fn ping_shows_the_sessions_of_all_kinds_of_targets() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    world.run(ConsoleOperation::AddTest(crate::world::ping_test("c", "s"))).unwrap();
    world.nodes.insert(node(3), crate::world::Node::new());
    let batch = |servers| Target::Batch { name: name("batch"), servers };
    let targets = [
        (Target::Session, vec![1, 2]),
        (group("s"), vec![2]),
        (batch(false), vec![1]),
        (batch(true), vec![2]),
        (Target::Nodes(vec![node(3), node(1)]), vec![3, 1]),
    ];
    for (target, numbers) in targets {
        let Report::Ping(report) = world.run(ConsoleOperation::Ping { target, timeout_s: 5 }).unwrap() else {
            panic!()
        };
        assert!(report.nodes.iter().map(|node| node.node).eq(numbers.iter().map(|number| node(*number))));
        for answer in report.nodes.iter().filter(|answer| answer.node != node(3)) {
            assert_eq!((answer.answer.unwrap().name, answer.state), (name("main"), NodeState::Active));
        }
    }
    let outside = Target::Nodes(vec![node(3)]);
    let Report::Ping(report) = world.run(ConsoleOperation::Ping { target: outside, timeout_s: 5 }).unwrap()
    else {
        panic!()
    };
    assert_eq!(report.nodes[0].answer, Err(NodeFailure::Refused(Errno::ESRCH)));
    assert_eq!(report.nodes[0].state, NodeState::Unknown);
}

#[test]
fn rounds_without_end_or_pause_are_refused() {
    let mut world = World::with_groups(&[("c", &[1])]);
    let good = stat(vec![group("c")], 1);
    for wrong in [Stat { count: Some(0), ..good.clone() }, Stat { delay_s: 0, ..good.clone() }] {
        assert_eq!(world.run(ConsoleOperation::Stat(wrong)).unwrap_err().errno(), Errno::EINVAL);
    }
    let unknown = Stat { targets: vec![group("x")], ..good };
    assert_eq!(world.run(ConsoleOperation::Stat(unknown)).unwrap_err().errno(), Errno::ENOENT);
}

proptest! {
    /// Counters may wrap around between the STATs: the difference is what was added.
    #[test]
    fn rates_survive_a_wrap_around(
        start: (u32, u32, u64, u64, u32),
        added: (u32, u32, u32, u32),
        ms in 1u32..10_000_000,
    ) {
        let counters = traffic(start.0, start.1, start.2, start.3);
        let first = Statistics { session_ms: start.4, lnet: counters, ..Statistics::default() };
        let second = Statistics {
            session_ms: start.4.wrapping_add(ms),
            lnet: traffic(
                start.0.wrapping_add(added.0),
                start.1.wrapping_add(added.1),
                start.2.wrapping_add(added.2.into()),
                start.3.wrapping_add(added.3.into()),
            ),
            ..first
        };
        let rates = Rates::between(&first, &second);
        let per_second = |added: u32| f64::from(added) * 1000.0 / f64::from(ms);
        prop_assert_eq!(rates.interval_ms, ms);
        prop_assert_eq!((rates.sent, rates.received), (per_second(added.0), per_second(added.1)));
        prop_assert_eq!((rates.bytes_sent, rates.bytes_received), (per_second(added.2), per_second(added.3)));
    }

    #[test]
    fn a_summary_is_that_of_its_values(values in proptest::collection::vec(0.0..1e9f64, 0..50)) {
        let summary = Summary::of(values.iter().copied());
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        prop_assert_eq!(summary.map(|s| s.minimum), sorted.first().copied());
        prop_assert_eq!(summary.map(|s| s.maximum), sorted.last().copied());
        if let Some(summary) = summary {
            let total: f64 = values.iter().sum();
            prop_assert!((summary.total - total).abs() <= total * 1e-9);
            prop_assert!((summary.average * values.len() as f64 - total).abs() <= total * 1e-9);
        }
    }
}

#[test]
fn an_interval_of_no_length_has_no_summary() {
    let rates = Rates::between(&Statistics::default(), &Statistics::default());
    assert_eq!((rates.interval_ms, rates.sent), (0, 0.0));
    let answer = nlx_lst::console::NodeAnswer { node: node(1), state: NodeState::Active, answer: Ok(rates) };
    let report = TargetReport { target: group("c"), nodes: vec![answer] };
    assert_eq!(report.summary(|rates| rates.sent), None);
}
