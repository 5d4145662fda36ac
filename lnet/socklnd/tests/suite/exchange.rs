//! Two nodes in one process exchange messages over real sockets.

use crate::common::{Got, Node, S, drive, idle_pair, memory, pattern, settle};
use lnet_api::{Errno, Lnd};
use lnet_proto::Body;

/// Returns the match bits of a PUT, by which the tests number their messages.
fn bits_of(got: &Got) -> u64 {
    let Body::Put { match_bits, .. } = got.header.body else { panic!("{:?}", got.header) };
    match_bits.0
}

/// lnet-wire 23: the side that first has something to send opens all three connections, the other
/// none.
// Covers: S-204, S-206
#[test]
fn three_connections_are_made_by_the_side_that_sends_first() {
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3);
    b.put_bytes(a.id(), b"y", 0);
    drive(&[&a, &b], || a.received() == 1 && b.received() == 1);
    settle(&[&a, &b]);
    assert_eq!((a.counters().rx.connects, a.counters().rx.accepts), (3, 0));
    assert_eq!((b.counters().rx.connects, b.counters().rx.accepts), (0, 3));
}

/// The rest of a large payload goes from the socket directly to its destination.
// Covers: S-210
#[test]
fn bulk_is_not_copied() {
    const COUNT: usize = 20;
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3);
    let bytes = memory(&pattern(3, 1 << 20), 1);
    for number in 0..COUNT {
        a.put(b.id(), &bytes, 0);
        drive(&[&a, &b], || b.received() == number + 2);
    }
    let counters = b.counters().rx;
    assert_eq!(counters.bytes_copied + counters.bytes_direct, (COUNT << 20) as u64 + 1);
    assert!(counters.bytes_copied * 50 < counters.bytes_direct, "{counters:?}");
}

/// The bytes of small messages that queue behind each other leave and arrive together.
#[test]
fn small_messages_share_system_calls() {
    const COUNT: usize = 64;
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3);
    settle(&[&a, &b]);
    let before = b.counters().tx.calls;
    for number in 0..COUNT {
        a.get(b.id(), 16, number as u64);
    }
    drive(&[&a, &b], || a.received() == COUNT);
    // Each GET was answered within the poll that received it: all replies left at its end.
    assert!(b.counters().tx.calls - before <= 4, "{:?}", b.counters());
}

/// A thread that polls without pause reads from the connection that delivered last. It queries the
/// system for events now and then, and once before it sleeps.
#[test]
fn a_spinning_thread_finds_what_others_send() {
    const SPINS: u64 = 400;
    const ASKS_EVERY: u64 = 8;
    let (a, b, c) = (Node::new(), Node::new(), Node::new());
    let both = [&b, &c];
    for node in both {
        node.put_bytes(a.id(), b"x", 0);
    }
    let connected = || both.iter().all(|node| node.counters().rx.connects == 3);
    drive(&[&a, &b, &c], || connected() && a.received() == 2);
    settle(&[&a, &b, &c]);
    let mut now_ns = a.now_ns();
    let mut spin = || {
        now_ns += 1;
        let poll = |shard| a.lnd.poll(shard, now_ns, lnet_api::POLL_BUDGET).work;
        (0..a.lnd.shards()).map(poll).sum::<usize>()
    };
    for (number, node) in [&b, &b, &c, &b].into_iter().enumerate() {
        for _ in 0..SPINS {
            spin();
        }
        let before = a.counters().rx;
        let idle: usize = (0..SPINS).map(|_| spin()).sum();
        let after = a.counters().rx;
        assert_eq!((idle, after.messages), (0, before.messages));
        // A shard that has received nothing, perhaps the listener's, queries the system at each
        // poll.
        let asks_seldom = after.polls - before.polls <= SPINS / ASKS_EVERY + 1;
        assert!(asks_seldom || a.lnd.shards() > 1, "{after:?}");
        // The first message after a poll leaves at once.
        node.poll();
        node.put_bytes(a.id(), b"y", number as u64);
        assert!((0..ASKS_EVERY).any(|_| spin() > 0 && a.received() == 3 + number), "{:?}", a.counters());
    }
    // The thread does not sleep while data waits that came between two queries.
    for _ in 0..SPINS {
        spin();
    }
    c.poll();
    c.put_bytes(a.id(), b"z", 0);
    drive(&[&a], || a.received() == 7);
}

/// The first message leaves at once, the others are coalesced.
#[test]
fn a_burst_sent_between_two_polls_leaves_in_two_calls() {
    const COUNT: usize = 30;
    let (a, b) = idle_pair();
    let before = a.counters().tx.calls;
    let tokens: Vec<u64> = (0..COUNT).map(|number| a.put_bytes(b.id(), b"y", number as u64)).collect();
    assert_eq!(a.counters().tx.calls - before, 1);
    assert_eq!((a.sent(tokens[0]), a.sent(tokens[1])), (Some(Ok(())), None));
    assert!(!a.arm(), "a driver does not sleep over messages that wait");
    a.poll();
    assert_eq!(a.counters().tx.calls - before, 2);
    assert!(tokens.iter().all(|token| a.sent(*token) == Some(Ok(()))));
    drive(&[&a, &b], || b.received() == COUNT + 1);
}

#[test]
fn the_first_poll_sends_a_whole_burst() {
    let (a, b) = idle_pair();
    let before = a.counters().tx.calls;
    let tokens = [0; 3].map(|_| a.put_bytes(b.id(), b"y", 0));
    std::thread::scope(|scope| {
        scope.spawn(|| a.poll());
    });
    assert_eq!(a.counters().tx.calls - before, 2);
    assert!(tokens.iter().all(|token| a.sent(*token) == Some(Ok(()))));
    // The other thread might be asleep, so no message is left to it.
    let tokens = [0; 3].map(|_| a.put_bytes(b.id(), b"y", 0));
    assert!(tokens.iter().all(|token| a.sent(*token) == Some(Ok(()))));
}

/// Bulk messages do not wait, because coalescing would save nothing.
#[test]
fn large_messages_of_a_burst_leave_at_once() {
    let (a, b) = idle_pair();
    let bytes = memory(&pattern(0, 20_000), 1);
    let tokens = [0; 3].map(|_| a.put(b.id(), &bytes, 0));
    assert!(tokens.iter().all(|token| a.sent(*token) == Some(Ok(()))));
}

// Covers: S-205
#[test]
fn a_sender_in_another_thread_wakes_the_driver() {
    let (a, b) = (Node::new(), Node::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..500 {
                a.put_bytes(b.id(), &pattern(number, 3000), number);
            }
        });
        drive(&[&a, &b], || b.received() == 500);
    });
    // The first messages went on CONTROL, before there was a bulk connection; messages on two
    // connections have no order.
    b.with_got(|got| assert!(got.iter().all(|got| got.bytes() == pattern(bits_of(got), 3000))));
    let mut numbers = b.with_got(|got| got.iter().map(bits_of).collect::<Vec<_>>());
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..500));
}

#[test]
fn several_threads_send_to_one_peer() {
    const THREADS: u64 = 4;
    const COUNT: u64 = 300;
    let (a, b) = (Node::new(), Node::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, b) = (&a, &b);
            scope.spawn(move || {
                for number in 0..COUNT {
                    let seed = thread * COUNT + number;
                    a.put_bytes(b.id(), &pattern(seed, (seed as usize * 37) % 20_000), seed);
                }
            });
        }
        drive(&[&a, &b], || b.received() == (THREADS * COUNT) as usize);
    });
    b.with_got(|got| {
        for got in got {
            assert!(got.bytes() == pattern(bits_of(got), (bits_of(got) as usize * 37) % 20_000));
        }
    });
    assert!((1..=THREADS * COUNT).all(|token| a.sent(token) == Some(Ok(()))));
}

/// The number can be changed at run time too, under traffic. If it is raised, the side that opened
/// the connections opens the missing ones; if it is lowered, existing ones stay. The number of
/// connections that a node accepts from a peer is its own setting.
// Covers: S-208
#[test]
fn conns_per_peer_can_be_changed_under_traffic() {
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3 && b.received() == 1);
    let mut sent = 0;
    let mut traffic = |count: usize| {
        for _ in 0..count {
            sent += 1;
            a.put_bytes(b.id(), &pattern(sent, 3000), sent);
            b.put_bytes(a.id(), &pattern(sent, 30), sent);
        }
        drive(&[&a, &b], || a.received() == sent as usize && b.received() == 1 + sent as usize);
    };
    b.lnd.set_conns_per_peer(None, 4);
    traffic(5);
    assert_eq!((a.counters().rx.connects, b.counters().rx.connects), (3, 0), "the passive side opens none");
    for (count, conns) in [(2, 5), (4, 9), (1, 9), (3, 9)] {
        a.lnd.set_conns_per_peer(Some(a.nid), count);
        traffic(20);
        drive(&[&a, &b], || b.counters().rx.accepts == conns);
        settle(&[&a, &b]);
        assert_eq!((a.counters().rx.connects, b.counters().rx.accepts), (conns, conns), "{count} per type");
    }
    assert!(a.lost().is_empty() && b.lost().is_empty());
    // A peer that accepts fewer connections than are offered gets no further requests until the
    // number is raised.
    b.lnd.set_conns_per_peer(None, 4);
    a.lnd.set_conns_per_peer(None, 5);
    traffic(20);
    for _ in 0..10 {
        settle(&[&a, &b]);
        a.later(2 * S);
    }
    traffic(20);
    assert_eq!(a.counters().rx.connects, 9);
    b.lnd.set_conns_per_peer(None, 6);
    a.lnd.set_conns_per_peer(None, 6);
    traffic(20);
    drive(&[&a, &b], || b.counters().rx.accepts == 13);
    assert!(a.lost().is_empty() && b.lost().is_empty());
    for node in [&a, &b] {
        assert!(node.with_got(|got| got.iter().all(|got| got.result == Some(Ok(())))));
    }
}

/// lnet-wire 24: the side that opens connections may be configured first. It is refused, and tries
/// again a second later. After three times it stops until the number is set again.
// Covers: S-208
#[test]
fn conns_per_peer_may_be_raised_on_either_side_first() {
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3);
    let refused = |count| {
        drive(&[&a, &b], || b.counters().rx.refusals == count);
        settle(&[&a, &b]);
        assert_eq!(b.counters().rx.refusals, count);
        a.later(S);
    };
    a.lnd.set_conns_per_peer(None, 2);
    for count in 1..=3 {
        refused(count);
    }
    b.lnd.set_conns_per_peer(None, 2);
    drive(&[&a, &b], || b.counters().rx.accepts == 5);

    a.lnd.set_conns_per_peer(None, 3);
    for count in 4..=7 {
        refused(count);
    }
    b.lnd.set_conns_per_peer(None, 3);
    settle(&[&a, &b]);
    assert_eq!((b.counters().rx.refusals, b.counters().rx.accepts), (7, 5), "the last word, until");
    a.lnd.set_conns_per_peer(None, 3);
    drive(&[&a, &b], || b.counters().rx.accepts == 7);
    assert_eq!((a.counters().rx.connect_failures, a.lost().len(), b.lost().len()), (0, 0, 0));
}

/// Several NIs in one node, on one address (two networks) and on several.
// Covers: S-202, S-204
#[test]
fn a_node_has_several_nis() {
    let (a, b) = (Node::new(), Node::new());
    let second = lnet_nid::Nid::new_v4("tcp1".parse().unwrap(), a.nid.ipv4().unwrap());
    let other = crate::common::nid_of(crate::common::address());
    for nid in [second, other] {
        a.lnd.startup(lnet_nid::ProcessId::lnet(nid), a.engine.clone()).unwrap();
    }
    for (number, nid) in [a.nid, other].into_iter().enumerate() {
        b.put_bytes(lnet_nid::ProcessId::lnet(nid), b"hello", 0);
        drive(&[&a, &b], || a.received() == number + 1);
    }
    // The address stays in use until its last NI is gone.
    a.lnd.shutdown(a.nid);
    drive(&[&a, &b], || b.lost().len() == 1);
    b.put_bytes(lnet_nid::ProcessId::lnet(other), b"still there", 0);
    drive(&[&a, &b], || a.received() == 3);
    a.lnd.shutdown(other);
    assert!(a.lnd.is_active());
    a.lnd.shutdown(second);
    assert!(!a.lnd.is_active());
    assert_eq!(b.lost()[0].1, Errno::ECONNRESET);
}
