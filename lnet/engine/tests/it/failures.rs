//! Messages that cannot be sent, missing answers, lost peers.

use lnet_api::EventKind::{Ack, Get, Put, Reply, Send};
use lnet_api::{AckRequest, Errno, LNet, Md, MdOptions, Threshold, Unlink, Upcalls};
use lnet_nid::ProcessId;

use super::common::*;

const TIMEOUT_NS: u64 = 150_000_000_000;

#[test]
fn a_request_that_cannot_be_sent_ends_its_descriptor_with_the_send_event() {
    for (now, request) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)] {
        let (network, a) = one_node();
        if now {
            *network.sending.lock() = Sending::Fail(Errno::EHOSTUNREACH);
        }
        let target = ProcessId::lnet(nid(3));
        match request {
            0 => a.put(a.bind(&memory(8), 1), target, 1, AckRequest::NoAck),
            1 => a.put(a.bind(&memory(8), 2), target, 1, AckRequest::Ack),
            _ => a.get(a.bind(&memory(8), 2), target, 1),
        }
        .unwrap();
        if !now {
            network.fail(0, Errno::EHOSTUNREACH);
        }
        assert_eq!(brief(&a.events()), [(Send, Err(Errno::EHOSTUNREACH), true)]);
        assert!(a.is_quiet());
        assert_eq!(a.engine.counters().errors, 1);
    }
}

#[test]
fn no_way_to_the_target_is_ehostunreach_and_changes_nothing() {
    let (network, a) = one_node();
    let md = a.bind(&memory(8), 1);
    let elsewhere = ProcessId::lnet("10.77.0.3@tcp1".parse().unwrap());
    assert_eq!(a.put(md, elsewhere, 1, AckRequest::NoAck).unwrap_err().errno(), Errno::EHOSTUNREACH);
    assert_eq!(a.get(md, ProcessId::ANY, 1).unwrap_err().errno(), Errno::EHOSTUNREACH);
    let from = |source, target| {
        let (portal, match_bits) = (portal(), lnet_nid::MatchBits(1));
        a.engine.get(&lnet_api::Get { source, md, target, portal, match_bits, offset: 0 })
    };
    assert_eq!(from(Some(nid(9)), ProcessId::lnet(nid(3))).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    assert_eq!(from(Some(a.nid), elsewhere).unwrap_err().errno(), Errno::EHOSTUNREACH);
    a.put(md, ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), true)]);
}

#[test]
fn a_payload_that_is_lost_ends_in_an_error_and_no_ack() {
    let (network, a, b) = two_nodes();
    b.expect(1, &memory(8), MdOptions::OP_PUT);
    a.put(a.bind(&pattern(8, 1), 2), b.id(), 1, AckRequest::Ack).unwrap();
    let put = network.take(0).unwrap();
    let (token, receiver) = network.arrive_header(&put).unwrap();
    receiver.finalize_rx(token, Err(Errno::ECONNRESET));
    assert_eq!(brief(&b.events()), [(Put, Err(Errno::ECONNRESET), true)]);
    assert!(b.is_quiet() && network.queue.lock().is_empty());

    b.expect(2, &pattern(8, 1), MdOptions::OP_GET);
    a.get(a.bind(&memory(8), 2), b.id(), 2).unwrap();
    network.step();
    let reply = network.take(0).unwrap();
    let (token, receiver) = network.arrive_header(&reply).unwrap();
    receiver.finalize_rx(token, Err(Errno::EIO));
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Reply, Err(Errno::EIO), true)]);
}

#[test]
fn a_reply_that_cannot_be_sent_shows_in_the_get_event() {
    let (network, a, b) = two_nodes();
    b.expect(2, &pattern(8, 1), MdOptions::OP_GET);
    a.get(a.bind(&memory(8), 2), b.id(), 2).unwrap();
    network.step();
    network.fail(0, Errno::ECONNRESET);
    assert_eq!(brief(&b.events()), [(Get, Err(Errno::ECONNRESET), true)]);
    assert!(b.is_quiet());
}

// Covers: S-201
#[test]
fn finalising_twice_or_with_a_wrong_token_does_nothing() {
    let (network, a, b) = two_nodes();
    a.put(a.bind(&pattern(8, 1), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    let tx = network.take(0).unwrap().tx.unwrap();
    let token = tx.token;
    a.engine.finalize_rx(lnet_api::RxToken(token.0), Ok(()));
    a.finalize(tx);
    a.engine.finalize_tx(token, Ok(()));
    a.engine.finalize_get(token, Ok(3));
    a.engine.finalize_tx(lnet_api::TxToken(u64::MAX), Ok(()));
    assert_eq!(brief(&a.events()), [(Send, Ok(()), true)]);
    // The failures do not give the peer additional credits.
    for _ in 0..20 {
        a.put(a.bind(&memory(8), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), LIMITS.peer_credits as usize);
}

#[test]
fn answers_that_stay_away_end_with_etimedout_at_their_deadline() {
    let (network, a, b) = two_nodes();
    let start = 1_000;
    a.engine.advance(start);
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    a.put(a.bind(&memory(8), 2), b.id(), 1, AckRequest::Ack).unwrap();
    network.lose(0);
    network.lose(0);
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false); 2]);
    a.engine.advance(start + TIMEOUT_NS - 1);
    assert_eq!((a.events(), a.engine.counters().rst_alloc), (vec![], 2));
    a.engine.advance(start + TIMEOUT_NS);
    let events = a.events();
    let late = Err(Errno::ETIMEDOUT);
    assert_eq!(brief(&events), [(Reply, late, true), (Ack, late, true)]);
    assert!(events.iter().all(|event| event.mlength == 0 && event.initiator == b.id()));
    assert_eq!(a.engine.counters().response_timeout_count, 2);
    assert!(a.is_quiet());
}

#[test]
fn a_late_answer_to_a_message_still_being_sent_ends_with_that_message() {
    let (network, a, b) = two_nodes();
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    a.engine.advance(TIMEOUT_NS);
    assert_eq!(a.events(), []);
    network.step();
    assert_eq!(brief(&a.events()), [(Send, Err(Errno::ETIMEDOUT), true)]);
    assert!(a.is_quiet());
}

#[test]
fn an_answer_in_time_stops_the_clock() {
    let (network, a, b) = two_nodes();
    b.expect(1, &pattern(8, 1), MdOptions::OP_GET);
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    network.run();
    a.events();
    a.engine.advance(2 * TIMEOUT_NS);
    assert_eq!((a.events(), a.engine.counters().response_timeout_count), (vec![], 0));
}

#[test]
fn untracked_answers_have_no_deadline() {
    let (network, a, b) = two_nodes();
    let md = a.md(&memory(8), MdOptions::NO_TRACK_RESPONSE, 2);
    let md = a.engine.md_bind(md, Unlink::Auto).unwrap();
    a.get(md, b.id(), 1).unwrap();
    network.lose(0);
    a.engine.advance(100 * TIMEOUT_NS);
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    a.engine.md_unlink(md).unwrap();
    assert!(a.is_quiet());
}

#[test]
fn the_next_deadline_is_returned() {
    let network = Network::new();
    let node = lnet::Engine::new(partitioned(lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1)));
    assert_eq!(node.advance(7), None);
    let a = Node::new(&network, 2);
    let interval = lnet::ADVANCE_INTERVAL_NS;
    assert_eq!(a.engine.advance(7), Some(7 + interval));
    a.get(a.bind(&memory(8), 2), ProcessId::lnet(nid(3)), 1).unwrap();
    let near = 7 + TIMEOUT_NS - 5;
    assert_eq!(a.engine.advance(near), Some(7 + TIMEOUT_NS));
    // A clock that goes backwards has no effect.
    assert_eq!(a.engine.advance(8), Some(7 + TIMEOUT_NS));
    assert_eq!(a.engine.advance(near + 5), Some(near + 5 + interval));
}

#[test]
fn many_late_answers_end_in_several_calls() {
    let network = Network::new();
    *network.sending.lock() = Sending::Now;
    let a = Node::new(&network, 2);
    let many = 5000;
    for _ in 0..many {
        a.get(a.bind(&memory(8), 2), ProcessId::lnet(nid(3)), 1).unwrap();
    }
    a.events();
    let mut calls = 0;
    while a.engine.advance(TIMEOUT_NS) == Some(TIMEOUT_NS) {
        calls += 1;
    }
    assert!(calls > 0);
    assert_eq!(brief(&a.events()), vec![(Reply, Err(Errno::ETIMEDOUT), true); many]);
    assert!(a.is_quiet());
}

#[test]
fn losing_a_peer_ends_what_it_still_owed() {
    let (network, a) = one_node();
    let (lost, other) = (ProcessId::lnet(nid(3)), ProcessId::lnet(nid(4)));
    let get = a.bind(&memory(8), 2);
    let put = a.bind(&memory(8), 2);
    let elsewhere = a.bind(&memory(8), 2);
    a.get(get, lost, 1).unwrap();
    a.put(put, lost, 1, AckRequest::Ack).unwrap();
    a.get(elsewhere, other, 1).unwrap();
    for _ in 0..3 {
        network.lose(0);
    }
    let unsent = a.bind(&memory(8), 2);
    a.get(unsent, lost, 1).unwrap();
    a.events();
    a.engine.peer_lost(a.nid, lost, Errno::ECONNRESET);
    let events = a.events();
    let reset = Err(Errno::ECONNRESET);
    assert_eq!(brief(&events), [(Reply, reset, true), (Ack, reset, true)]);
    assert_eq!(events.iter().map(|event| event.md).collect::<Vec<_>>(), [get, put]);
    // Requests that have not left do not count as lost: the network reports their failure.
    assert_eq!(a.engine.counters().rst_alloc, 2);
    network.fail(0, Errno::ECONNRESET);
    assert_eq!(brief(&a.events()), [(Send, reset, true)]);
    a.engine.peer_lost(a.nid, lost, Errno::ECONNRESET);
    a.engine.peer_lost(a.nid, ProcessId::lnet(nid(77)), Errno::ECONNRESET);
    a.engine.peer_lost(nid(9), lost, Errno::ECONNRESET);
    assert_eq!(a.events(), []);
    a.engine.md_unlink(elsewhere).unwrap();
    assert!(a.is_quiet());
}

/// A lost peer or NI ends more operations than the engine ends while it holds a lock once, and
/// others remain before them.
#[test]
fn losing_a_peer_or_an_ni_ends_thousands() {
    const MANY: usize = 2500;
    for ni_goes in [false, true] {
        let (network, a) = one_node();
        let peer = ProcessId::lnet(nid(3));
        let unsent = 2;
        for sent in (0..unsent + MANY).map(|number| number >= unsent) {
            a.get(a.bind(&memory(8), 2), peer, 1).unwrap();
            if sent {
                network.lose(unsent);
            }
        }
        a.events();
        if ni_goes {
            a.engine.remove_ni(a.nid).unwrap();
        } else {
            a.engine.peer_lost(a.nid, peer, Errno::ESHUTDOWN);
        }
        let events = brief(&a.events());
        let replies = events.iter().filter(|event| **event == (Reply, Err(Errno::ESHUTDOWN), true));
        assert_eq!(replies.count(), MANY);
        let sends = if ni_goes { unsent } else { 0 };
        assert_eq!(events.len(), MANY + sends);
        assert_eq!(a.engine.counters().rst_alloc, (unsent - sends) as u64);
    }
}

#[test]
fn a_lost_peer_leaves_descriptors_for_more_operations_alone() {
    let (network, a) = one_node();
    let lost = ProcessId::lnet(nid(3));
    let md = Md { threshold: Threshold::Infinite, ..a.md(&memory(8), MdOptions::empty(), 0) };
    let md = a.engine.md_bind(md, Unlink::Auto).unwrap();
    a.put(md, lost, 1, AckRequest::Ack).unwrap();
    a.put(md, ProcessId::lnet(nid(4)), 1, AckRequest::Ack).unwrap();
    network.lose(0);
    network.lose(0);
    a.events();
    a.engine.peer_lost(a.nid, lost, Errno::ENETDOWN);
    assert_eq!(brief(&a.events()), [(Ack, Err(Errno::ENETDOWN), false)]);
    assert_eq!(a.engine.counters().rst_alloc, 1);
    a.engine.md_unlink(md).unwrap();
    assert_eq!(a.events().len(), 1);
    assert!(a.is_quiet());
}

// motr-transport 5.8: Motr saves the result of a REPLY that comes before its SEND, and uses it when
// the SEND ends the MD.
#[test]
fn a_reply_that_came_before_its_send_event_keeps_its_success_when_the_peer_is_lost() {
    let (network, a, b) = two_nodes();
    b.expect(1, &pattern(8, 1), MdOptions::OP_GET);
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    let mut get = network.take(0).unwrap();
    let tx = get.tx.take().unwrap();
    network.arrive(get);
    network.run();
    a.engine.peer_lost(a.nid, b.id(), Errno::ECONNRESET);
    a.finalize(tx);
    assert_eq!(brief(&a.events()), [(Reply, Ok(()), false), (Send, Ok(()), true)]);
}
