//! Messages that rules drop: each loses one try of one operation, and nothing else is lost.

use super::*;

/// Returns the number of messages that the rules of the node dropped. All nodes of a test here
/// share them.
fn dropped(finding: &Finding) -> u64 {
    finding.servers[0].rules.iter().map(|rule| rule.dropped).sum()
}

/// Long enough that an operation on a loaded machine does not count as lost.
const TIMEOUT: Duration = Duration::from_secs(4);

fn lossy(load: Load, faults: &str) -> Plan {
    Plan { timeout: TIMEOUT, faults: faults.into(), in_flight: 32, count: 32, ..plan(load, 5000) }
}

#[test]
fn every_loss_is_one_that_was_injected() {
    let mut participants = participants(1, 2);
    for load in [Load::Echo, Load::Read, Load::Write, Load::Exchange] {
        let finding = run(&mut participants, &lossy(load, "drop 1/10"));
        let lost = sum(&finding.clients, |status| status.lost);
        assert!(lost > 0);
        assert_eq!(lost, dropped(&finding), "{load:?}");
        // Operations that are not lost are correct.
        assert_eq!(sum(&finding.clients, |status| status.operations), 64 - lost);
        assert_eq!(sum(&finding.clients, |status| status.errors + status.late), 0);
        assert_eq!(sum(&finding.servers, |status| status.errors), 0);
    }
}

/// With further tries every operation succeeds; every lost try is counted.
#[test]
fn what_is_lost_is_tried_again() {
    let mut participants = participants(1, 1);
    let finding = run(&mut participants, &Plan { tries: 16, ..lossy(Load::Mixed, "drop every 9") });
    let client = &finding.clients[0];
    assert_eq!((client.operations, client.errors), (32, 0), "{}", client.first_error);
    assert!(client.lost > 0);
    assert_eq!((client.retries, dropped(&finding)), (client.lost, client.lost));
}

/// The rules of a test end with it, and each test counts from 0.
#[test]
fn a_test_without_rules_loses_nothing() {
    let mut participants = participants(1, 1);
    for _ in 0..2 {
        let finding = run(&mut participants, &lossy(Load::Echo, "drop every 8 put"));
        // 32 requests, and an answer to each that was not lost: 56 to 64 messages.
        assert!((7..=8).contains(&dropped(&finding)), "{}", dropped(&finding));
        assert_eq!(sum(&finding.clients, |status| status.lost), dropped(&finding));
    }
    assert_whole(&run(&mut participants, &lossy(Load::Echo, "")), 32);
}
