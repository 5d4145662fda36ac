//! What kernel nodes die of is not sent (lst 13).

use lnet_proto::lst::{Check, Direction, Features, LstService, RequestBody};
use nix::errno::Errno;
use nlx_lst::console::{
    AddTest, BrwTest, ConsoleError, ConsoleOperation, Distribution, Hazard, NewSession, Report, TestKind,
};

use crate::add_test::brw;
use crate::world::{World, name, new_session, parsed, ping_test};

fn hazard(world: &mut World, test: AddTest) -> Hazard {
    let sent = world.sent.len();
    let error = world.run(ConsoleOperation::AddTest(test)).unwrap_err();
    assert_eq!((world.sent.len(), error.errno()), (sent, Errno::EINVAL), "{error}");
    let ConsoleError::Hazard(hazard) = error else { panic!("{error:?}") };
    hazard
}

#[test]
fn transfers_that_kill_kernel_nodes_are_refused() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    let good = BrwTest { direction: Direction::READ, check: Check::NONE, length: 4096, offset: 0 };
    let late = "2.15.62, 2.16 and later";
    let table = [
        (BrwTest { direction: Direction(0), ..good }, "0", late),
        (BrwTest { direction: Direction(3), ..good }, "3", late),
        (BrwTest { check: Check(0), ..good }, "0", late),
        (BrwTest { check: Check(5), ..good }, "5", late),
        (BrwTest { length: 0, ..good }, "0", late),
        (BrwTest { length: (1 << 20) + 8, ..good }, "1048584", late),
        (BrwTest { length: 4100, ..good }, "4100", "all releases from 2.12 to today"),
        (BrwTest { length: 1, ..good }, "1", "all releases from 2.12 to today"),
        (BrwTest { offset: 8, ..good }, "8", "2.16 and later"),
        (BrwTest { offset: 4096, ..good }, "4096", "2.16 and later"),
    ];
    for (transfer, value, releases) in table {
        let hazard = hazard(&mut world, AddTest { kind: TestKind::Brw(transfer), ..ping_test("c", "s") });
        assert_eq!((&hazard.value[..], hazard.releases), (value, releases), "{transfer:?}");
        let text = hazard.to_string();
        for part in [value, hazard.what, hazard.limit, releases] {
            assert!(text.contains(part), "{text} names {part}");
        }
    }
    for length in [8, 4104, 1 << 20] {
        let kind = TestKind::Brw(BrwTest { length, ..good });
        world.run(ConsoleOperation::AddTest(AddTest { kind, ..ping_test("c", "s") })).unwrap();
    }
}

#[test]
fn without_the_feature_a_transfer_is_whole_pages() {
    let mut world = World::empty([1, 2]);
    world
        .run(ConsoleOperation::NewSession(NewSession { features: Features::NONE, ..new_session("old") }))
        .unwrap();
    world.add_group("c", &[1]);
    world.add_group("s", &[2]);
    let transfer = BrwTest { direction: Direction::READ, check: Check::NONE, length: 4104, offset: 0 };
    let hazard = hazard(&mut world, AddTest { kind: TestKind::Brw(transfer), ..ping_test("c", "s") });
    assert_eq!(hazard.value, "4104");
}

#[test]
fn more_servers_for_a_client_than_a_page_has_room_for_are_refused() {
    let servers: Vec<u32> = (100..100 + 1024).collect();
    let mut world = World::with_groups(&[("c", &[1]), ("s", &servers)]);
    let spread =
        |servers| AddTest { distribution: Distribution { clients: 1, servers }, ..ping_test("c", "s") };
    for count in [342, 682, 1024] {
        let hazard = hazard(&mut world, spread(count));
        assert_eq!((hazard.value, hazard.releases), (count.to_string(), "all releases"));
    }
    let report = world.run(ConsoleOperation::AddTest(spread(341))).unwrap();
    assert!(matches!(report, Report::Test { number: Some(1), .. }));
    let list = world.sent.last().unwrap().destinations.as_ref().unwrap();
    assert_eq!(list.bytes.len(), 12 * 341);
}

#[test]
fn discard_is_probed_at_servers_in_a_batch_that_is_never_run() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2, 3])]);
    world.sent.clear();
    let test = AddTest { kind: brw(Check::DISCARD), ..ping_test("c", "s") };
    let report = world.run(ConsoleOperation::AddTest(test)).unwrap();
    assert!(matches!(report, Report::Test { number: Some(1), .. }));
    let requests: Vec<_> = world.sent.iter().map(parsed).collect();
    let probes: Vec<_> = requests[..2]
        .iter()
        .map(|request| match request.body {
            RequestBody::Test(test) => test,
            ref other => panic!("{other:?}"),
        })
        .collect();
    for probe in &probes {
        assert!(probe.is_client && probe.brw(Features::BULK_LENGTH).check == Check::DISCARD);
        assert_eq!((probe.batch, probe.destinations, probe.concurrency, probe.repeats), (2, 1, 1, 1));
    }
    assert_eq!(requests.len(), 2 + 2 + 1);
    // A second test needs no probe.
    world.sent.clear();
    world.run(ConsoleOperation::AddTest(test)).unwrap();
    assert_eq!(world.sent.len(), 3);
    world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    let run = world.sent.last().map(parsed).unwrap();
    assert!(matches!(run.body, RequestBody::Batch { batch: 1, .. }));
}

#[test]
fn discard_is_refused_for_a_server_that_does_not_know_it() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2, 3])]);
    world.node(3).discards = false;
    world.sent.clear();
    let test = AddTest { kind: brw(Check::DISCARD), ..ping_test("c", "s") };
    let Err(ConsoleError::Hazard(hazard)) = world.run(ConsoleOperation::AddTest(test)) else { panic!() };
    assert!(hazard.value.contains("12345-10.0.0.3@tcp"), "{hazard}");
    assert_eq!(hazard.releases, "2.15.62 to 2.17.57");
    assert_eq!((world.services(), world.console.batches()[0].tests.len()), (vec![LstService::Test; 2], 0));
}

#[test]
fn a_session_without_time_or_with_unknown_features_is_refused() {
    let mut world = World::empty([]);
    for session in [
        NewSession { timeout_s: 0, ..new_session("a") },
        NewSession { features: Features(2), ..new_session("a") },
    ] {
        let error = world.run(ConsoleOperation::NewSession(session)).unwrap_err();
        assert_eq!((error.errno(), world.console.session()), (Errno::EINVAL, None));
    }
}
