//! Whole tests in one process: a console, servers and clients over the loopback.

mod commands;
mod loads;
mod lossy;
mod programs;
mod refusals;

use std::time::Duration;

use nlx::{Domain, NodeConfig};

use super::command::{Delivery, Load, Plan, Role, Status};
use super::console::{Finding, TestObserver};
use super::participants::{Nodes, Participants};
use crate::failure::Failure;

/// Returns a plan that a test adapts: its only limits are for a test that hangs.
pub(super) fn plan(load: Load, size: u32) -> Plan {
    Plan {
        role: Role::Client,
        load,
        delivery: Delivery::Wait,
        address: String::new(),
        peers: Vec::new(),
        run: 0,
        size,
        in_flight: 8,
        duration: Duration::from_secs(60),
        count: 64,
        timeout: Duration::from_secs(20),
        tries: 1,
        messages: 64,
        delay: Duration::ZERO,
        seed: 1,
        faults: String::new(),
        spoil: false,
    }
}

/// Checks that the nodes run.
struct NodesObserver<'a>(&'a mut Nodes);

impl TestObserver for NodesObserver<'_> {
    fn check(&mut self) -> Result<(), Failure> {
        self.0.check()
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn round(&mut self, _: &[Status]) {}
}

fn participants(servers: u32, clients: u32) -> Participants {
    let domain = Domain::in_process(&NodeConfig::new()).unwrap();
    Participants::new(&domain, Vec::new(), servers, clients).unwrap()
}

fn run(participants: &mut Participants, plan: &Plan) -> Finding {
    let Participants { console, nodes, .. } = participants;
    let finding = console.test(plan, &mut NodesObserver(nodes)).unwrap();
    assert!(finding.complete);
    finding
}

fn sum(nodes: &[Status], field: fn(&Status) -> u64) -> u64 {
    nodes.iter().map(field).sum()
}

/// Checks that all operations succeeded, and that both sides count them.
fn assert_whole(finding: &Finding, operations: u64) {
    let Finding { clients, servers, .. } = finding;
    for status in clients.iter().chain(servers) {
        assert_eq!((status.errors, status.lost, status.late), (0, 0, 0), "{}", status.first_error);
    }
    assert_eq!(sum(clients, |status| status.operations), operations);
    assert_eq!(sum(servers, |status| status.operations), operations);
    for status in clients {
        assert_eq!(status.latencies.iter().map(|(_, count)| count).sum::<u64>(), status.operations);
    }
}
