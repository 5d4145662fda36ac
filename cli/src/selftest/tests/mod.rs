//! Whole tests in one process: a console, servers and clients over the loopback.

mod loads;
mod lossy;
mod programs;
mod refusals;

use std::time::Duration;

use nlx::{Domain, NodeConfig};

use super::command::{Delivery, Load, Plan, Role, Status};
use super::console::{Finding, Watch};
use super::world::{Nodes, World};
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
struct Alive<'a>(&'a mut Nodes);

impl Watch for Alive<'_> {
    fn check(&mut self) -> Result<(), Failure> {
        self.0.check()
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn round(&mut self, _: &[Status]) {}
}

fn world(servers: u32, clients: u32) -> World {
    let domain = Domain::in_process(&NodeConfig::new()).unwrap();
    World::new(&domain, Vec::new(), servers, clients).unwrap()
}

fn run(world: &mut World, plan: &Plan) -> Finding {
    let World { console, nodes, .. } = world;
    let finding = console.test(plan, &mut Alive(nodes)).unwrap();
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
        assert_eq!(status.latency_ns.count(), status.operations);
        assert_eq!(status.latencies.iter().map(|(_, count)| count).sum::<u64>(), status.operations);
    }
}
