//! What is printed, and the return codes (lst 12.1), row by row.

use lnet_proto::lst::{LnetCounters, SessionId, Statistics};
use nlx_lst::command::{Command, Defaults, View, parse};
use nlx_lst::console::{ConsoleError, ConsoleOperation};
use nlx_lst::print::{self, Printed};

use crate::world::{Reaction, World, name};

/// Runs a line as a command-line tool does, and returns everything that it prints.
fn lst(world: &mut World, line: &str) -> (String, String, u8) {
    let defaults = Defaults { name: name("root@host"), stamp: 1234, ..Defaults::default() };
    let command = parse(line, &defaults).unwrap_or_else(|error| panic!("{line}: {error}")).unwrap();
    let Printed { output, errors, code } = match command {
        Command::Operation { operation, view } => operate(world, operation, &view),
        Command::ShowSession => print::show_session(world.console.session().as_ref(), 77),
        Command::ListGroup { groups, .. } if groups.is_empty() => print::list_groups(&world.console.groups()),
        Command::ListGroup { groups, states } => {
            let all = world.console.groups();
            print::list_group(all.iter().find(|group| group.name == groups[0]), states)
        }
        Command::ListBatch { batch: None, .. } => print::list_batches(&world.console.batches()),
        Command::ListBatch { batch, test, servers, states } => {
            let all = world.console.batches();
            print::list_batch(all.iter().find(|found| Some(found.name) == batch), test, servers, states)
        }
        other => panic!("{other:?}"),
    };
    (output, errors, code)
}

fn operate(world: &mut World, operation: ConsoleOperation, view: &View) -> Printed {
    let result: Result<_, ConsoleError> = world.run(operation.clone());
    let mut all = Printed::default();
    for interim in world.progress.drain(..) {
        let Printed { output, errors, .. } = print::report(&interim, view);
        all.output += &output;
        all.errors += &errors;
    }
    let last = match result {
        Ok(report) => print::report(&report, view),
        Err(error) => print::error(&operation, &error),
    };
    Printed { output: all.output + &last.output, errors: all.errors + &last.errors, code: last.code }
}

/// The line prints this and succeeds.
fn prints(world: &mut World, line: &str, output: &str) {
    assert_eq!(lst(world, line), (output.to_owned(), String::new(), 0), "{line}");
}

/// The line fails with this code, and its errors begin with these lines.
fn fails(world: &mut World, line: &str, errors: &[&str], code: u8) {
    let (_, printed, found) = lst(world, line);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((&lines[..errors.len()], found), (errors, code), "{line}: {printed}");
}

/// A session with a client, a server, and a batch with a test of them.
fn tested() -> World {
    let mut world = World::empty([10, 11, 12]);
    for line in [
        "new_session main",
        "add_group c 10.0.0.10@tcp",
        "add_group s 10.0.0.11@tcp",
        "add_batch b1",
        "add_test --batch b1 --loop 2 --from c --to s ping",
    ] {
        assert_eq!(lst(&mut world, line).2, 0, "{line}");
    }
    world
}

#[test]
fn sessions() {
    let mut world = World::empty([]);
    fails(&mut world, "show_session", &["session is not active", "No session exists"], 255);
    prints(&mut world, "end_session", "");
    prints(&mut world, "new_session main", "SESSION: main FEATURES: 1 TIMEOUT: 300 FORCE: No\n");
    let refused =
        ["new session creation failed", "Operation not supported", "  session main is open: end it first"];
    fails(&mut world, "new_session other", &refused, 255);
    prints(&mut world, "show_session", "main ID: 1234@10.0.0.9@tcp, KEY: 77 FEATURES: 1 NODES: 0\n");
    prints(&mut world, "end_session", "");
    let forced = "SESSION: root@host FEATURES: 1 TIMEOUT: 60 FORCE: Yes\n";
    prints(&mut world, "new_session --force --timeout 60", forced);
}

#[test]
fn groups() {
    let mut world = World::empty([10, 11, 12]);
    lst(&mut world, "new_session main");
    fails(&mut world, "list_group", &["Object not found"], 234);
    prints(&mut world, "add_group c 10.0.0.10@tcp", "10.0.0.10@tcp are added to session\n");
    prints(&mut world, "add_group s 10.0.0.[11]@tcp", "10.0.0.[11]@tcp are added to session\n");
    prints(&mut world, "list_group", "1) c\n2) s\nTotal 2 groups\n");
    let header = "ACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\n";
    prints(&mut world, "list_group c", &format!("{header}\t1\t0\t0\t0\t1\tc\n"));
    let all = "Group [ c ]\n\t12345-10.0.0.10@tcp: Active\nTotal 1 nodes [ c ]\n";
    prints(&mut world, "list_group --all c", &format!("{header}{all}"));
    prints(&mut world, "list_group --busy c", &format!("{header}Group [ c ]\nNo nodes found [ c ]\n"));
    prints(&mut world, "list_group --all nosuch", header);
    fails(&mut world, "add_group c 10.0.0.12@tcp", &["group already exists"], 255);
    world.node(12).session = Some((SessionId { nid4: 5, stamp: 6 }, name("theirs")));
    let refused = [
        "operation create session failed on 12345-10.0.0.12@tcp: Device or resource busy",
        "No nodes added successfully, deleting group n",
        "Group is deleted",
    ];
    fails(&mut world, "add_group n 10.0.0.12@tcp", &refused, 253);
    lst(&mut world, "add_group n 10.0.0.[11-12]@tcp");
    let refused = "operation Updating group failed on 12345-10.0.0.12@tcp: Device or resource busy";
    fails(&mut world, "update_group n --refresh", &[refused], 253);
    prints(&mut world, "update_group n --clean busy", "");
    prints(&mut world, "list_group n", &format!("{header}\t1\t0\t0\t0\t1\tn\n"));
    prints(&mut world, "del_group n", "");
}

#[test]
fn batches_and_tests() {
    let mut world = tested();
    fails(&mut world, "add_batch b1", &["batch already exists"], 255);
    let added = "Test was added successfully\n";
    prints(&mut world, "add_test --batch b1 --loop 2 --from c --to s ping", added);
    let unknown = ["Can't find test in current session"];
    fails(&mut world, "add_test --batch b1 --from x --to s ping", &unknown, 255);
    fails(&mut world, "add_test --batch x --from c --to s ping", &unknown, 255);
    prints(&mut world, "list_batch", "1) batch\n2) b1\nTotal 2 batches\n");
    let table = "\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\nclient\t1\t0\t0\t0\t1\nserver\t1\t0\t0\t0\t1\n";
    let test = |number| format!("\tTest {number}(ping) (loop: 2, concurrency: 1)\n{table}");
    let head = |state| format!("Batch: b1 Tests: 2 State: {state}\n{table}");
    prints(&mut world, "list_batch b1", &format!("{}{}{}", head(176), test(1), test(2)));
    prints(&mut world, "run b1", "b1 is running now\n");
    prints(&mut world, "list_batch --test 2 b1", &format!("{}{}", head(177), test(2)));
    prints(&mut world, "list_batch --all b1", "\t12345-10.0.0.10@tcp: Active\nTotal 1 nodes\n");
    prints(&mut world, "list_batch --all --server b1", "\t12345-10.0.0.11@tcp: Active\nTotal 1 nodes\n");
    let running = ["Invalid parameters list in command line"];
    fails(&mut world, "add_test --batch b1 --from c --to s ping", &running, 255);
    let used = ["Failed to update group: Device or resource busy", "  group c is used by a test of batch b1"];
    fails(&mut world, "update_group c --refresh", &used, 255);
    fails(&mut world, "del_group s", &["Failed to delete group: Device or resource busy"], 255);
    world.node(10).drain = 2;
    prints(&mut world, "stop b1", "1 batch in stopping\n1 batch in stopping\nBatch is stopped\n");
    prints(&mut world, "stop --force b1", "Batch is stopped\n");
    let missing = ["Failed to get count of nodes from nosuch: No such file or directory"];
    fails(&mut world, "run nosuch", &missing, 255);
    lst(&mut world, "end_session");
    let none = ["Failed to get count of nodes from b1: No such process"];
    fails(&mut world, "run b1", &none, 255);
}

#[test]
fn an_endless_bulk_test_in_a_list() {
    let mut world = tested();
    lst(&mut world, "add_test --batch b1 --from c --to s --concurrency 4 brw write size=64k");
    let (output, ..) = lst(&mut world, "list_batch b1 --test 2");
    assert!(output.contains("\tTest 2(brw) (loop: -1, concurrency: 4)\n"), "{output}");
}

#[test]
fn queries() {
    let mut world = tested();
    prints(&mut world, "query b1", "b1 [0] is stopped\n");
    lst(&mut world, "run b1");
    prints(&mut world, "query b1 --test 1", "b1 [1] is running\n");
    let node = "12345-10.0.0.10@tcp [Active]";
    prints(&mut world, "query --all b1", &format!("b1 [0] is running\n{node}: Running\n"));
    prints(&mut world, "query --idle b1", "b1 [0] is running\n");
    lst(&mut world, "stop b1");
    prints(&mut world, "query --idle b1", &format!("b1 [0] is stopped\n{node}: Idle\n"));
    prints(&mut world, "query --active --loop 2 --delay 1 b1", "b1 [0] is stopped\nb1 [0] is stopped\n");
    world.script(10, |_| Reaction::Silent);
    let (output, _, code) = lst(&mut world, "query --error b1");
    assert_eq!((&output[..], code), (&format!("b1 [0] is stopped\n{node}: Connection timed out\n")[..], 254));
}

#[test]
fn rates() {
    let mut world = tested();
    world.node(10).traffic =
        LnetCounters { received: 1232, sent: 616, bytes_received: 2_621_440, ..LnetCounters::default() };
    let rates = "[LNet Rates of c]\n\
        [R] Avg: 616      RPC/s Min: 616      RPC/s Max: 616      RPC/s\n\
        [W] Avg: 308      RPC/s Min: 308      RPC/s Max: 308      RPC/s\n";
    let bandwidth = "[LNet Bandwidth of c]\n\
        [R] Avg: 1.25     MiB/s Min: 1.25     MiB/s Max: 1.25     MiB/s \n\
        [W] Avg: 0.00     MiB/s Min: 0.00     MiB/s Max: 0.00     MiB/s \n";
    let options = "--count 1 --delay 2";
    prints(&mut world, &format!("stat c {options}"), &format!("{rates}{bandwidth}"));
    prints(&mut world, &format!("stat c --bw --rate {options}"), &format!("{rates}{bandwidth}"));
    prints(&mut world, &format!("stat c --rate {options}"), rates);
    let line = "[LNet Rates of c]\n[W] Avg: 308      RPC/s\n";
    prints(&mut world, &format!("stat c --rate --read --avg {options}"), line);
    let line = "[LNet Bandwidth of c]\n[R] Min: 1.31     MB/s  Max: 1.31     MB/s  \n";
    prints(&mut world, &format!("stat c --bw --mbs --write --min --max {options}"), line);
    fails(&mut world, "stat nosuch", &["Can't find stat in current session"], 255);
    world.node(10).session = None;
    fails(&mut world, "stat c --count 1", &["Failed to stat on 1 nodes"], 253);
    world.script(11, |_| Reaction::Silent);
    fails(&mut world, "stat s --count 1", &["Failed to stat on 1 nodes"], 254);
}

#[test]
fn errors_of_nodes() {
    let mut world = tested();
    prints(&mut world, "show_error c s", "c:\nTotal 0 error nodes in c\ns:\nTotal 0 error nodes in s\n");
    world.node(10).statistics = Statistics { brw_errors: 2, ..Statistics::default() };
    world.node(11).statistics = Statistics { rpcs_dropped: 3, ..Statistics::default() };
    let client = "12345-10.0.0.10@tcp: [Session 2 brw errors, 0 ping errors]";
    let server = "12345-10.0.0.11@tcp: [Session 0 brw errors, 0 ping errors]";
    let output = format!(
        "c:\n{client} [RPC: 0 errors, 0 dropped, 0 expired]\nTotal 1 error nodes in c\n\
         s:\n{server} [RPC: 0 errors, 3 dropped, 0 expired]\nTotal 1 error nodes in s\n"
    );
    prints(&mut world, "show_error c s", &output);
    let output = format!("c:\n{client}\nTotal 1 error nodes in c\ns:\nTotal 0 error nodes in s\n");
    prints(&mut world, "show_error --session c s", &output);
    fails(&mut world, "show_error nosuch", &["Can't find show_error in current session"], 255);
    world.node(10).session = None;
    let refused = "Framework failure, can't show error on 12345-10.0.0.10@tcp";
    fails(&mut world, "show_error c", &[refused], 253);
    world.script(11, |_| Reaction::Silent);
    let dead = "RPC failure, can't show error on 12345-10.0.0.11@tcp";
    fails(&mut world, "show_error s", &[dead], 254);
    fails(&mut world, "show_error s c", &[dead, refused], 254);
    fails(&mut world, "show_error c s", &[refused, dead], 254);
}

#[test]
fn pings() {
    let mut world = tested();
    let client = "\t12345-10.0.0.10@tcp: Active [session: main id: 10.0.0.9@tcp]\n";
    let server = "\t12345-10.0.0.11@tcp: Active [session: main id: 10.0.0.9@tcp]\n";
    prints(&mut world, "ping --group c", client);
    prints(&mut world, "ping --batch b1", client);
    prints(&mut world, "ping --batch b1 --server", server);
    prints(&mut world, "ping --nodes 10.0.0.11@tcp", server);
    prints(&mut world, "ping --session", &format!("{client}{server}"));
    world.script(11, |_| Reaction::Silent);
    let (output, _, code) = lst(&mut world, "ping --group s");
    assert_eq!((&output[..], code), ("\t12345-10.0.0.11@tcp: Active [session: Unknown id: <?>]\n", 254));
}

/// The server dies under a running batch: the table at the end of lst 12.1.
#[test]
fn a_server_that_dies() {
    let mut world = tested();
    lst(&mut world, "run b1");
    world.script(11, |_| Reaction::Silent);
    assert_eq!(lst(&mut world, "stat s --count 1").2, 254);
    assert_eq!(lst(&mut world, "ping --group s").2, 254);
    let active = "ACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\n\t1\t0\t0\t0\t1\ts\n";
    prints(&mut world, "list_group s", active);
    assert_eq!(lst(&mut world, "show_error s").2, 254);
    prints(&mut world, "list_group s", "ACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\n\t0\t0\t1\t0\t1\ts\n");
    // Run, query and stop concern only the client.
    prints(&mut world, "run b1", "b1 is running now\n");
    prints(&mut world, "query b1", "b1 [0] is running\n");
    prints(&mut world, "stop b1", "Batch is stopped\n");
    fails(&mut world, "update_group s --refresh", &["Failed to update group: Device or resource busy"], 255);
    let before_ns = world.now_ns;
    prints(&mut world, "end_session", "");
    assert_eq!(world.now_ns - before_ns, world.node(10).delay_ns);
}

#[test]
fn values_that_kill_nodes() {
    let mut world = tested();
    let text = "the size is 4100, must be a multiple of 8 bytes: nodes of all releases from 2.12 to today \
        would stop with an assertion";
    fails(&mut world, "add_test --batch b1 --from c --to s brw size=4100", &[text], 255);
}
