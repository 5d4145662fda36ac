//! The uses of Motr's `m0lnetping` (motr-transport 11).

use super::*;

/// Both roles in one process; messages, and bulk both ways.
// Covers: MT-168, MT-188
#[test]
fn both_roles_in_one_process() {
    let mut participants = participants(1, 1);
    for load in [Load::Echo, Load::Read, Load::Write, Load::Exchange, Load::Mixed] {
        assert_whole(&run(&mut participants, &plan(load, 30 << 10)), 64);
    }
}

/// Up to 32 clients with separate loops, at dynamic ids; the sums are right.
// Covers: MT-171
#[test]
fn many_clients() {
    for clients in [1, 5, 32] {
        let mut participants = participants(1, clients);
        let finding = run(&mut participants, &Plan { count: 20, in_flight: 2, ..plan(Load::Mixed, 4096) });
        assert_whole(&finding, u64::from(clients) * 20);
        let mut addresses = finding.client_addresses.clone();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), clients as usize);
    }
}

/// Bulk of any size up to 1 MiB.
// Covers: MT-172
#[test]
fn bulk_of_every_size() {
    let mut participants = participants(1, 1);
    for size in [1, 7, 4095, 4096, 4097, 30 << 10, (1 << 20) - 1, 1 << 20] {
        for load in [Load::Read, Load::Write, Load::Exchange] {
            let finding = run(&mut participants, &Plan { count: 4, in_flight: 2, ..plan(load, size) });
            assert_whole(&finding, 4);
            assert_eq!(sum(&finding.clients, |status| status.bytes), 4 * u64::from(size));
        }
    }
}

/// Automatic and synchronous delivery have the same result.
// Covers: MT-173
#[test]
fn callbacks_and_waits_come_to_the_same() {
    let totals = [Delivery::Wait, Delivery::Callback].map(|delivery| {
        let mut participants = participants(1, 2);
        let finding = run(&mut participants, &Plan { delivery, count: 200, ..plan(Load::Mixed, 8192) });
        assert_whole(&finding, 400);
        let counts = |nodes: &[Status]| {
            [
                sum(nodes, |status| status.bytes),
                sum(nodes, |status| status.messages_sent),
                sum(nodes, |status| status.bulk_sent),
                sum(nodes, |status| status.bulk_received),
            ]
        };
        (counts(&finding.clients), counts(&finding.servers))
    });
    // The same seed gives the same operations.
    assert_eq!(totals[0], totals[1]);
}

/// From one to many messages in a receive buffer, none is lost.
// Covers: MT-174
#[test]
fn several_messages_share_a_buffer() {
    for messages in [1, 2, 7, 64, 1024] {
        let mut participants = participants(1, 2);
        let finding = run(&mut participants, &Plan { messages, count: 300, ..plan(Load::Echo, 200) });
        assert_whole(&finding, 600);
    }
}

/// A server that waits longer than the client's timeout before it moves bulk. The client's bulk
/// times out, is tried again, and is lost at last; the server finds no buffer, and counts it too.
// Covers: MT-175
#[test]
fn a_server_that_is_too_slow() {
    for load in [Load::Write, Load::Read, Load::Exchange] {
        let mut participants = participants(1, 1);
        let timeout = Duration::from_millis(200);
        let slow = Plan { timeout, delay: 5 * timeout, tries: 3, count: 4, in_flight: 2, ..plan(load, 4096) };
        let finding = run(&mut participants, &slow);
        let client = &finding.clients[0];
        assert_eq!((client.operations, client.errors), (0, 0), "{}", client.first_error);
        assert_eq!((client.lost, client.retries), (4 * 3, 4 * 2));
        let server = &finding.servers[0];
        // A PUT to a buffer that is gone completes without an error.
        let noticed = if load == Load::Read { 0 } else { 1 };
        assert!(server.lost >= noticed, "{server:?}");
        // A client with a longer timeout succeeds with the same delay.
        let patient = Plan { timeout: Duration::from_secs(20), delay: timeout, ..slow };
        assert_whole(&run(&mut participants, &patient), 4);
    }
}
