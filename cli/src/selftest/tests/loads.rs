//! The loads of Motr's net test (motr-transport 10).

use super::*;

/// The console's whole sequence, without traffic; all nodes answer every step.
// Covers: MT-164
#[test]
fn a_stub_answers_every_step() {
    let mut participants = participants(1, 1);
    for _ in 0..3 {
        let finding = run(&mut participants, &plan(Load::Stub, 1));
        assert_eq!((finding.clients.len(), finding.servers.len()), (1, 1));
        assert_eq!(sum(&finding.clients, |status| status.operations), 0);
    }
}

/// Messages of 4096 bytes and less, in steps of 511, come back unchanged, in the server's pattern.
// Covers: MT-153
#[test]
fn echoes_of_every_size() {
    let mut participants = participants(1, 1);
    for size in (1..=4096).rev().step_by(511) {
        let finding = run(&mut participants, &Plan { count: 5, ..plan(Load::Echo, size) });
        assert_whole(&finding, 5);
        assert_eq!(sum(&finding.clients, |status| status.verified_bytes), 5 * u64::from(size));
    }
}

/// Two descriptors in one message; the server reads one buffer and writes the same bytes into the
/// other. The only lane is idle again and again.
// Covers: MT-132, MT-154
#[test]
fn bulk_there_and_back() {
    let mut participants = participants(1, 1);
    let finding = run(&mut participants, &Plan { count: 9, in_flight: 1, ..plan(Load::Exchange, 30 << 10) });
    assert_whole(&finding, 9);
    let bytes = 9 * (30 << 10);
    assert_eq!(sum(&finding.clients, |status| status.verified_bytes), bytes);
    assert_eq!(sum(&finding.servers, |status| status.verified_bytes), bytes);
}

/// 8 servers and 8 clients, 8 messages in flight of each, 4096 messages of 4 KiB. Each side
/// receives exactly what the other has sent. All lanes of a client are idle at first, and each again
/// after each of its operations.
// Covers: MT-133, MT-134, MT-165
#[test]
fn messages_between_many_nodes() {
    let mut participants = participants(8, 8);
    let finding = run(&mut participants, &Plan { count: 512, ..plan(Load::Echo, 4096) });
    assert_whole(&finding, 4096);
    let Finding { clients, servers, .. } = &finding;
    for (from, to) in [(clients, servers), (servers, clients)] {
        assert_eq!(sum(from, |status| status.messages_sent), 4096);
        assert_eq!(sum(to, |status| status.messages_received), 4096);
    }
    assert!(servers.iter().all(|status| status.operations == 512), "the load is shared alike");
}

/// 2 servers and 2 clients, 8 in flight, 64 transfers of 1 MiB, each there and back.
// Covers: MT-166
#[test]
fn bulk_between_several_nodes() {
    let mut participants = participants(2, 2);
    let finding = run(&mut participants, &Plan { count: 32, ..plan(Load::Exchange, 1 << 20) });
    assert_whole(&finding, 64);
    let Finding { clients, servers, .. } = &finding;
    assert_eq!(sum(clients, |status| status.messages_sent), sum(servers, |status| status.messages_received));
    for side in [clients, servers] {
        assert_eq!(sum(side, |status| status.bulk_sent), 64);
        assert_eq!(sum(side, |status| status.bulk_received), 64);
    }
}

/// 4 KiB, 16 in flight of a client, for at most 5 s.
// Covers: MT-178, MT-185
#[test]
fn a_ping_test() {
    let mut participants = participants(1, 1);
    let limits = Plan { count: 10_000, duration: Duration::from_secs(5), ..plan(Load::Echo, 4096) };
    let finding = run(&mut participants, &Plan { in_flight: 16, ..limits });
    let operations = sum(&finding.clients, |status| status.operations);
    assert!(operations > 0);
    assert_whole(&finding, operations);
}

/// 1 MiB, 32 in flight.
// Covers: MT-179, MT-186
#[test]
fn a_bulk_test() {
    let mut participants = participants(1, 1);
    let finding =
        run(&mut participants, &Plan { in_flight: 32, count: 128, ..plan(Load::Exchange, 1 << 20) });
    assert_whole(&finding, 128);
}

/// One client, one server, the console on the loopback, portal 42 for everything, and fixed ids.
// Covers: MT-180
#[test]
fn fixed_addresses() {
    let domain = Domain::in_process(&NodeConfig::new()).unwrap();
    let at = |id: u32| format!("0@lo:12345:42:{id}");
    let mut participants = Participants::at(&domain, &at(298), &[at(300)], &[at(318)]).unwrap();
    participants.console.data = [vec![at(326)], vec![at(334)]];
    for load in [Load::Echo, Load::Exchange] {
        let finding = run(&mut participants, &plan(load, 4096));
        assert_whole(&finding, 64);
        assert_eq!(
            (&finding.server_addresses[..], &finding.client_addresses[..]),
            (&[at(326)][..], &[at(334)][..])
        );
    }
}

/// A test that is stopped ends without waiting for its time, and its results are valid.
#[test]
fn a_test_that_is_stopped_tells_what_it_has() {
    struct Impatient<'a>(&'a mut Nodes, bool);
    impl TestObserver for Impatient<'_> {
        fn check(&mut self) -> Result<(), Failure> {
            self.0.check()
        }
        fn is_stopped(&self) -> bool {
            self.1
        }
        fn round(&mut self, clients: &[Status]) {
            self.1 = clients.iter().any(|status| status.operations > 0);
        }
    }
    let Participants { console, nodes, .. } = &mut participants(1, 2);
    let endless = Plan { count: 0, ..plan(Load::Mixed, 4096) };
    let finding = console.test(&endless, &mut Impatient(nodes, false)).unwrap();
    assert!(!finding.complete);
    assert!(sum(&finding.clients, |status| status.operations) > 0);
    assert_eq!(sum(&finding.clients, |status| status.errors + status.lost), 0);
    // Another test can begin right away.
    let again = console.test(&plan(Load::Mixed, 4096), &mut NodesObserver(nodes)).unwrap();
    assert_whole(&again, 2 * 64);
}
