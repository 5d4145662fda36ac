//! Commands, their options and defaults (lst 12).

use lnet_proto::lst::{Check, Direction, Features, Name};
use nlx_lst::command::{Command, Defaults, QueryView, StatView, View, parse};
use nlx_lst::console::{
    AddTest, BrwTest, ConsoleOperation, Distribution, GroupUpdate, NewSession, NodeState, NodeStates, Query,
    Stat, Target, TestKind,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn defaults() -> Defaults {
    Defaults { name: name("root@host"), stamp: 9, features: Features::BULK_LENGTH }
}

fn command(line: &str) -> Command {
    parse(line, &defaults()).unwrap_or_else(|error| panic!("{line}: {error}")).unwrap()
}

fn operation(line: &str) -> ConsoleOperation {
    let Command::Operation { operation, .. } = command(line) else { panic!("{line}") };
    operation
}

fn view(line: &str) -> View {
    let Command::Operation { view, .. } = command(line) else { panic!("{line}") };
    view
}

fn test(line: &str) -> AddTest {
    let ConsoleOperation::AddTest(test) = operation(&format!("add_test --from c --to s {line}")) else {
        panic!()
    };
    test
}

fn error(line: &str) -> String {
    parse(line, &defaults()).unwrap_err().to_string()
}

#[test]
fn sessions_have_their_defaults() {
    let session = NewSession {
        name: name("root@host"),
        stamp: 9,
        timeout_s: 300,
        force: false,
        features: Features::BULK_LENGTH,
    };
    assert_eq!(operation("lst new_session"), ConsoleOperation::NewSession(session));
    let named = NewSession { name: name("main"), timeout_s: 60, force: true, ..session };
    for line in ["new_session --timeout 60 --force main", "new_session main --force --timeout=60"] {
        assert_eq!(operation(line), ConsoleOperation::NewSession(named));
    }
    assert_eq!(operation("end_session"), ConsoleOperation::EndSession);
    assert_eq!(command("show_session"), Command::ShowSession);
    assert_eq!(command("sleep 3"), Command::Sleep { seconds: 3 });
}

#[test]
fn lines_without_a_command_are_none() {
    for line in ["", "# new_session", "lst", "export LST_SESSION=$$", "LST_SESSION=12"] {
        assert_eq!(parse(line, &defaults()), Ok(None), "{line}");
    }
}

#[test]
fn groups() {
    let nodes: Vec<_> = ["12345-10.0.0.1@tcp", "12345-10.0.0.2@tcp"].map(|node| node.parse().unwrap()).into();
    let line = "add_group c 10.0.0.1@tcp 10.0.0.2@tcp";
    assert_eq!(operation(line), ConsoleOperation::AddGroup { name: name("c"), nodes: nodes.clone() });
    assert_eq!(view(line), View::AddGroup { nodes: "10.0.0.1@tcp 10.0.0.2@tcp".to_owned() });
    assert_eq!(operation("del_group c"), ConsoleOperation::DelGroup { name: name("c") });
    let update = |update| ConsoleOperation::UpdateGroup { name: name("c"), update };
    assert_eq!(operation("update_group c --refresh"), update(GroupUpdate::Refresh));
    let cleaned = |states| update(GroupUpdate::Clean(states));
    for (word, states) in [
        ("active", NodeState::Active.into()),
        ("busy", NodeState::Busy.into()),
        ("down", NodeState::Down.into()),
        ("unknown", NodeState::Unknown.into()),
        ("invalid", NodeStates::INVALID),
    ] {
        assert_eq!(operation(&format!("update_group c --clean {word}")), cleaned(states));
    }
    assert_eq!(operation("update_group c --remove 10.0.0.[1-2]"), update(GroupUpdate::Remove(nodes)));
    let listed = |groups: &[&str], states| Command::ListGroup {
        groups: groups.iter().map(|group| name(group)).collect(),
        states,
    };
    assert_eq!(command("list_group"), listed(&[], NodeStates::default()));
    assert_eq!(command("list_group --all c s"), listed(&["c", "s"], NodeStates::ALL));
    let states = NodeStates::from(NodeState::Busy) | NodeState::Down.into();
    assert_eq!(command("list_group c --busy --down"), listed(&["c"], states));
}

#[test]
fn tests_have_their_defaults() {
    let ping = AddTest {
        batch: name("batch"),
        from: name("c"),
        to: name("s"),
        kind: TestKind::Ping,
        repeats: None,
        concurrency: 1,
        distribution: Distribution { clients: 1, servers: 1 },
    };
    assert_eq!(test("ping"), ping);
    assert_eq!(test("ping --loop -1"), ping);
    let brw = BrwTest { direction: Direction::READ, check: Check::NONE, length: 4096, offset: 0 };
    assert_eq!(test("brw"), AddTest { kind: TestKind::Brw(brw), ..ping });
    let full = AddTest {
        batch: name("b"),
        repeats: Some(7),
        concurrency: 8,
        distribution: Distribution { clients: 2, servers: 3 },
        kind: TestKind::Brw(BrwTest {
            direction: Direction::WRITE,
            check: Check::FULL,
            length: 65536,
            offset: 8,
        }),
        ..ping
    };
    let line = "--batch b --loop 7 --concurrency 8 --distribute 2:3 brw write size=64k check=full off=8";
    assert_eq!(test(line), full);
}

#[test]
fn parameters_of_bulk_tests() {
    let transfer = |line: &str| match test(&format!("brw {line}")).kind {
        TestKind::Brw(brw) => (brw.length, brw.check),
        TestKind::Ping => panic!("{line}"),
    };
    for (word, length) in [("size=1", 1), ("size=16K", 16384), ("size=1m", 1 << 20), ("size=1M", 1 << 20)] {
        assert_eq!(transfer(word), (length, Check::NONE));
    }
    for (word, check) in [
        ("check=none", Check::NONE),
        ("check=simple", Check::SIMPLE),
        ("check=full", Check::FULL),
        ("check=discard", Check::DISCARD),
        ("skip_rx_copy", Check::DISCARD),
    ] {
        assert_eq!(transfer(word), (4096, check));
    }
}

#[test]
fn batches() {
    let batch = name("batch");
    assert_eq!(operation("add_batch b"), ConsoleOperation::AddBatch { name: name("b") });
    assert_eq!(operation("run"), ConsoleOperation::Run { batch, timeout_s: 0 });
    assert_eq!(operation("run b --timeout 9"), ConsoleOperation::Run { batch: name("b"), timeout_s: 9 });
    assert_eq!(operation("stop --force b"), ConsoleOperation::Stop { batch: name("b"), force: true });
    let query = Query { batch, test: 0, servers: false, timeout_s: 5, count: Some(1), delay_s: 5 };
    assert_eq!(operation("query"), ConsoleOperation::Query(query));
    assert_eq!(view("query"), View::Query(QueryView::default()));
    let query = Query { test: 2, servers: true, timeout_s: 7, count: Some(3), delay_s: 4, ..query };
    let line = "query --test 2 --server --timeout 7 --loop 3 --delay 4 --idle";
    assert_eq!(operation(line), ConsoleOperation::Query(query));
    assert_eq!(view(line), View::Query(QueryView { idle: true, ..QueryView::default() }));
    assert_eq!(view("query --all"), View::Query(QueryView { active: true, idle: true, error: true }));
    let list = |batch, test, servers, states| Command::ListBatch { batch, test, servers, states };
    assert_eq!(command("list_batch"), list(None, 0, false, NodeStates::default()));
    let states = NodeStates::INVALID;
    assert_eq!(command("list_batch b --test 3 --server --invalid"), list(Some(name("b")), 3, true, states));
}

#[test]
fn measurements() {
    let stat = Stat { targets: vec![Target::Group(name("c"))], timeout_s: 5, delay_s: 5, count: None };
    assert_eq!(operation("stat c"), ConsoleOperation::Stat(stat.clone()));
    assert_eq!(view("stat c"), View::Stat(StatView::default()));
    let nodes = vec!["12345-10.0.0.1@tcp".parse().unwrap(), "12345-10.0.0.2@tcp".parse().unwrap()];
    let targets = vec![Target::Group(name("c")), Target::Group(name("s")), Target::Nodes(nodes.clone())];
    let stat = Stat { targets: targets.clone(), timeout_s: 6, delay_s: 2, count: Some(3) };
    let line = "stat c 10.0.0.1@tcp s 10.0.0.2@tcp --timeout 6 --delay 2 --count 3 --bw --max --mbs --write";
    assert_eq!(operation(line), ConsoleOperation::Stat(stat));
    let shown = StatView {
        rate: false,
        bandwidth: true,
        received: true,
        sent: false,
        average: false,
        minimum: false,
        maximum: true,
        mbs: true,
    };
    assert_eq!(view(line), View::Stat(shown));
    assert_eq!(operation("show_error c s 10.0.0.[1-2]@tcp"), ConsoleOperation::ShowError { targets });
    assert_eq!(view("show_error --session c"), View::Errors { session_only: true });
    let ping = |target, timeout_s| ConsoleOperation::Ping { target, timeout_s };
    assert_eq!(operation("ping --session"), ping(Target::Session, 5));
    assert_eq!(operation("ping --group c --timeout 9"), ping(Target::Group(name("c")), 9));
    let batch = |servers| Target::Batch { name: name("b"), servers };
    assert_eq!(operation("ping --batch b"), ping(batch(false), 5));
    assert_eq!(operation("ping --server --batch b"), ping(batch(true), 5));
    assert_eq!(operation("ping --nodes 10.0.0.[1-2]@tcp"), ping(Target::Nodes(nodes), 5));
}

#[test]
fn plans_have_their_defaults() {
    let Command::Plan(plan) = command("run --from 10.0.0.1@tcp --to 10.0.0.2@tcp ping") else { panic!() };
    assert_eq!((plan.duration_s, plan.interval_s, plan.concurrency), (10, 1, 1));
    assert_eq!(
        (plan.session.name, plan.session.timeout_s, plan.session.force),
        (name("root@host"), 300, false)
    );
    let line = "run --from 10.0.0.1 --from 10.0.0.2 --to 10.0.0.3,10.0.0.4 --force --concurrency 4 brw concurrency=9";
    let Command::Plan(plan) = command(line) else { panic!() };
    assert_eq!((plan.from.len(), plan.to.len(), plan.concurrency, plan.session.force), (2, 2, 4, true));
    assert!(error("run --from 10.0.0.1 ping").contains("--to"));
    assert!(error("run --from 10.0.0.1 --to 10.0.0.2").contains("ping or brw"));
    assert!(error("run --from 10.0.0.1 --to 10.0.0.2 ping --interval 11").contains("1 to 10 s"));
    assert!(error("run --from 10.0.0.1 --to 10.0.0.2 ping --duration 0").contains("interval"));
}

#[test]
fn options_may_be_cut_to_a_unique_beginning() {
    let ConsoleOperation::AddTest(test) = operation("add_test --fr c --to s --conc 4 --dist 1:2 ping") else {
        panic!()
    };
    assert_eq!((test.from, test.concurrency, test.distribution.servers), (name("c"), 4, 2));
    // Both --from and --force begin so.
    assert!(error("run --f 1 --to 10.0.0.1 --from 10.0.0.1 ping").contains("--f"));
}

/// Each error names the word and what was expected.
#[test]
fn errors_name_the_word() {
    for (line, parts) in [
        ("lst frobnicate", vec!["\"frobnicate\"", "new_session"]),
        ("new_session --colour", vec!["\"--colour\"", "--timeout"]),
        ("new_session --timeout", vec!["value of --timeout is missing"]),
        ("new_session --timeout soon", vec!["\"soon\"", "number"]),
        ("new_session --timeout -1", vec!["\"-1\"", "number"]),
        ("new_session --timeout 4294967296", vec!["\"4294967296\"", "number"]),
        ("new_session --force=yes", vec!["\"--force=yes\"", "no value"]),
        ("new_session a b", vec!["\"b\"", "no further word"]),
        ("new_session 0123456789012345678901234567890x", vec!["1 to 31 bytes"]),
        ("end_session now", vec!["\"now\""]),
        ("end_session --force", vec!["\"--force\"", "no options"]),
        ("add_group", vec!["the name of a group is missing"]),
        ("add_group c", vec!["list of nodes"]),
        ("add_group c 10.0.0.300@tcp", vec!["300"]),
        ("update_group c", vec!["--refresh, --clean, --remove"]),
        ("update_group c --refresh --clean busy", vec!["one of"]),
        ("update_group c --clean happy", vec!["\"happy\"", "active, busy"]),
        ("add_test --from c ping", vec!["--to is missing"]),
        ("add_test --from c --to s", vec!["ping or brw is missing"]),
        ("add_test --from c --to s pong", vec!["\"pong\"", "ping or brw"]),
        ("add_test --from c --to s ping read", vec!["\"read\""]),
        ("add_test --from c --to s brw append", vec!["\"append\"", "read, write"]),
        ("add_test --from c --to s brw size=1G", vec!["\"1G\"", "1M"]),
        ("add_test --from c --to s brw size=99999M", vec!["\"99999M\""]),
        ("add_test --from c --to s brw check=most", vec!["\"most\"", "simple"]),
        ("add_test --from c --to s --distribute 2 ping", vec!["\"2\"", "CLIENTS:SERVERS"]),
        ("add_test --from c --to s --distribute 2:x ping", vec!["\"2:x\""]),
        ("add_test --from c --to s --loop many ping", vec!["\"many\"", "-1"]),
        ("stat", vec!["group", "missing"]),
        ("ping", vec!["--session, --group"]),
        ("ping --session --group c", vec!["one of"]),
        ("sleep", vec!["number of seconds"]),
        ("sleep x", vec!["\"x\""]),
    ] {
        let error = error(line);
        for part in parts {
            assert!(error.contains(part), "{line}: {error}: {part}");
        }
    }
}
