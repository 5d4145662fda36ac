//! 200 peers, each with a different NID, that all exchange with one node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::Command;

use support::peer::{PORT, Peer, address, hung_unless};

const PROCESSES: usize = 4;
const NODES: usize = 50;
const PEERS: usize = PROCESSES * NODES;

/// The connections of a peer: CONTROL, BULK_IN and BULK_OUT.
const CONNECTIONS: usize = 3;

/// The limit of the memory of one connection: its receive buffer (64 KiB), and the same for
/// everything else.
const CONNECTION_BYTES: u64 = 128 << 10;

/// Operations of every kind both ways with each of 200 peers, and their costs: three descriptors
/// and some memory each, which are released when the peers are gone.
// Covers: S-204, S-206
#[test]
fn two_hundred_peers_exchange_with_one_node() {
    let mut hub = Peer::start(address(), "partitions=2");
    let quiet = (hub.descriptors("socket:"), hub.resident_bytes());
    let mut crowd: Vec<Peer> = (0..PROCESSES)
        .map(|_| {
            let addresses: Vec<_> = (0..NODES).map(|_| address()).collect();
            let program = Command::new(env!("CARGO_BIN_EXE_nlx-peer"));
            Peer::spawn(program, &addresses, &format!("port={PORT}"))
        })
        .collect();
    let hub_nid = hub.nid();
    let list = |number: usize, side: u64| format!("seed={} count=18 max=4097", 2 * number as u64 + side);
    let mut expected = Vec::new();
    let mut running = Vec::new();
    for_each(&mut crowd, |number, process, node| {
        let nid = process.nid_of(node);
        let here = hub.tell(0, "expect", &format!("{} from={nid}", list(number, 0)));
        let there = process.tell(node, "expect", &format!("{} from={hub_nid}", list(number, 1)));
        hub.wait(0, "posted", here);
        process.wait(node, "posted", there);
        expected.push((here, there));
    });
    for_each(&mut crowd, |number, process, node| {
        let there = process.tell(node, "run", &format!("{} to={hub_nid}", list(number, 0)));
        let here = hub.tell(0, "run", &format!("{} to={}", list(number, 1), process.nid_of(node)));
        running.push((here, there));
    });
    for_each(&mut crowd, |number, process, node| {
        let (here, there) = running[number];
        for done in [hub.wait(0, "done", here), process.wait(node, "done", there)] {
            assert_eq!(done.number("failed"), 0, "{done:?}");
        }
        hub.wait(0, "done", expected[number].0);
        process.wait(node, "done", expected[number].1);
    });
    // A peer that lost a race connects again for the rest of its set.
    let connections = |hub: &Peer| hub.descriptors("socket:") - quiet.0;
    hung_unless("full sets", || {
        crowd.iter_mut().for_each(|process| drop(process.ask(0, "ping", &format!("to={hub_nid}"), "pinged")));
        connections(&hub) == CONNECTIONS * PEERS
    });
    let grown = hub.resident_bytes().saturating_sub(quiet.1);
    let most = (CONNECTIONS * PEERS) as u64 * CONNECTION_BYTES;
    assert!(grown < most, "{grown} bytes for {PEERS} peers, more than {most}");

    crowd.truncate(1);
    hung_unless("the connections of the gone are closed", || {
        hub.answers(&mut crowd[0]);
        connections(&hub) == CONNECTIONS * NODES
    });
}

/// Calls `act` for each node of each process, with its index among all.
fn for_each(crowd: &mut [Peer], mut act: impl FnMut(usize, &mut Peer, usize)) {
    for (at, process) in crowd.iter_mut().enumerate() {
        (0..NODES).for_each(|node| act(at * NODES + node, process, node));
    }
}
