//! A whole session in one command, and the language of scripts, over scripted nodes.

use lnet_proto::lst::{Check, LnetCounters, LstService};
use nlx_lst::command::{Command, Defaults, Plan, parse, script_lines};
use nlx_lst::console::{ConsoleOperation, NodeState, Report, TestKind};

use crate::world::{Reaction, SECOND_NS, World, name};

fn defaults() -> Defaults {
    Defaults { name: name("root@host"), stamp: 5, ..Defaults::default() }
}

fn plan(line: &str) -> Plan {
    let Some(Command::Plan(plan)) = parse(line, &defaults()).unwrap() else { panic!("{line}") };
    plan
}

#[test]
fn a_plan_runs_from_the_session_to_its_end() {
    let plan = plan(
        "run --from 10.0.0.[1-2]@tcp --to 10.0.0.3@tcp brw read size=1M check=simple concurrency=8 --duration 30",
    );
    let TestKind::Brw(brw) = plan.kind else { panic!() };
    assert_eq!((brw.length, brw.check, plan.concurrency), (1 << 20, Check::SIMPLE, 8));
    let mut world = World::empty([1, 2, 3]);
    world.node(3).traffic = LnetCounters { sent: 100, bytes_sent: 50 << 20, ..LnetCounters::default() };
    let mut measured = Vec::new();
    for operation in plan.operations() {
        let report = world.run(operation).unwrap();
        measured.extend(world.progress.drain(..).filter(|report| matches!(report, Report::Stat(_))));
        measured.extend(Some(report).filter(|report| matches!(report, Report::Stat(_))));
    }
    assert_eq!(measured.len(), 30);
    for report in &measured {
        let Report::Stat(targets) = report else { panic!() };
        let servers = targets[1].summary(|rates| rates.bytes_sent).unwrap();
        assert_eq!((servers.total, servers.average), (f64::from(50 << 20), f64::from(50 << 20)));
    }
    assert_eq!(world.now_ns / SECOND_NS, 30);
    let to_server: Vec<LstService> = world.requests_to(3).iter().map(|request| request.service()).collect();
    assert_eq!(to_server[..2], [LstService::MakeSession, LstService::Test]);
    assert_eq!(to_server[2..34], [LstService::Stat; 32]);
    assert_eq!(to_server[34..], [LstService::RemoveSession]);
    assert!(world.nodes.values().all(|node| node.session.is_none()));
    assert_eq!(world.console.session(), None);
}

#[test]
fn a_plan_may_have_a_node_on_both_sides() {
    let plan =
        plan("run --from 10.0.0.1@tcp --to 10.0.0.[1-2]@tcp --distribute 1:2 ping --duration 5 --interval 2");
    let mut world = World::empty([1, 2]);
    let mut last = None;
    for operation in plan.operations() {
        last = Some(world.run(operation).unwrap());
    }
    assert!(matches!(last, Some(Report::End { .. })));
    // Three intervals of two seconds cover five.
    assert_eq!(world.now_ns / SECOND_NS, 6);
    let list = world.sent.iter().find_map(|rpc| rpc.destinations.as_ref()).unwrap();
    assert_eq!(list.bytes.len(), 24);
}

/// One client and one server die while the batch runs: the others are measured, stopped and freed.
#[test]
fn a_plan_of_a_thousand_nodes_survives_the_death_of_two() {
    let plan = plan(
        "run --from 10.0.[1-2].[1-250]@tcp --to 10.0.[3-4].[1-250]@tcp --distribute 2:3 ping --duration 3",
    );
    let numbers = (1..=4).flat_map(|third| (1..=250).map(move |fourth| third << 8 | fourth));
    let mut world = World::empty(numbers);
    let (client, server) = (1 << 8 | 7, 3 << 8 | 7);
    let mut failures = Vec::new();
    for operation in plan.operations() {
        let is_run = matches!(operation, ConsoleOperation::Run { .. });
        let report = world.run(operation).unwrap();
        if is_run {
            for dead in [client, server] {
                world.script(dead, |_| Reaction::Silent);
            }
        }
        failures.push(match report {
            Report::Stat(targets) => targets.iter().map(|target| 500 - target.results().count()).sum(),
            Report::Errors(targets) => targets.iter().map(|target| 500 - target.results().count()).sum(),
            Report::Group { nodes, .. }
            | Report::Test { nodes, .. }
            | Report::Run { nodes, .. }
            | Report::Stop { nodes, .. }
            | Report::End { nodes } => nodes.iter().filter(|node| node.answer.is_err()).count(),
            Report::Session(_) => 0,
            other => panic!("{other:?}"),
        });
    }
    // Session, groups, test, run; stat; stop, which waits for the client; errors; end without both.
    assert_eq!(failures, [0, 0, 0, 0, 0, 2, 1, 2, 0]);
    let held: Vec<_> = world.nodes.iter().filter(|(_, node)| node.session.is_some()).collect();
    assert!(held.iter().map(|(id, _)| **id).eq([client, server].map(crate::world::node)));
    let tests = world.sent.iter().filter(|rpc| rpc.service == LstService::Test);
    assert_eq!(
        tests.filter_map(|rpc| rpc.destinations.as_ref()).map(|list| list.bytes.len()).sum::<usize>(),
        500 * 3 * 12
    );
}

#[test]
fn a_script_of_administrators_is_run() {
    let script = "#!/bin/bash\n\
        export LST_SESSION=$$\n\
        lst new_session --timeout 100 read_write   # the session\n\
        lst add_group servers 10.0.0.[3,4]@tcp\n\
        lst add_group readers 10.0.0.1@tcp,10.0.0.2@tcp\n\
        \n\
        lst add_batch bulk_rw\n\
        lst add_test --batch bulk_rw --loop 3 --concurrency 2 --from readers \\\n  --to servers 'brw' read check=\"simple\" size=4K\n\
        lst run bulk_rw\n\
        lst stat servers readers --count 2 --delay 1\n\
        sleep 2\n\
        lst stop bulk_rw\n\
        lst end_session\n";
    let mut world = World::empty([1, 2, 3, 4]);
    let mut lists = Vec::new();
    for (number, line) in script_lines(script) {
        match parse(&line, &defaults()).unwrap_or_else(|error| panic!("line {number}: {error}")) {
            Some(Command::Operation { operation, .. }) => {
                world.run(operation).unwrap_or_else(|error| panic!("line {number}: {error}"));
                lists.push(number);
            }
            Some(Command::Sleep { seconds }) => world.pass(world.now_ns + u64::from(seconds) * SECOND_NS),
            None => {}
            other => panic!("{other:?}"),
        }
        if number == 11 {
            assert!(world.console.batches()[1].running);
            assert_eq!(
                (world.console.session().unwrap().timeout_s, world.state(4)),
                (100, NodeState::Active)
            );
        }
    }
    assert_eq!(lists, [3, 4, 5, 7, 8, 10, 11, 13, 14]);
    assert_eq!(world.console.session(), None);
}
