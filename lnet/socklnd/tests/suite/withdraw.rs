//! Messages that are taken back before they have left.

use crate::common::raw::{self, CONTROL, Wire};
use crate::common::{Got, Node, S, address, config, drive, memory, nid_of, pattern, settle};
use lnet_api::{Errno, Lnd, TxToken};
use lnet_nid::ProcessId;
use lnet_socklnd::SockConfig;

const BULK: usize = 1 << 20;

fn withdraw(node: &Node, peer: ProcessId, token: u64) -> bool {
    node.lnd.withdraw(node.nid, peer, TxToken(token))
}

/// A peer that accepts connections and sends nothing, one whose connection is not accepted yet, one
/// that does not exist.
#[test]
fn a_message_that_waits_for_a_connection_is_taken_back() {
    let node = Node::new();
    for (accepts, listens) in [(true, true), (false, true), (false, false)] {
        let peer = address();
        let listener = listens.then(|| raw::listen(peer));
        let id = ProcessId::lnet(nid_of(peer));
        let payload = memory(&pattern(0, 100), 1);
        let tokens = [1, 2, 3].map(|bits| node.put(id, &payload, bits));
        let wire = listener.as_ref().filter(|_| accepts).map(|listener| Wire::accept(listener, &[&node]).0);
        assert!(withdraw(&node, id, tokens[1]), "nothing of it has left");
        assert!(!withdraw(&node, id, tokens[1]), "it is gone");
        assert!(!withdraw(&node, id, 999), "there is none");
        if listens {
            assert!(withdraw(&node, id, tokens[0]) && withdraw(&node, id, tokens[2]));
            assert!(payload.write(0..100).is_ok(), "all leases have been given back");
        } else {
            drive(&[&node], || [tokens[0], tokens[2]].iter().all(|token| node.sent(*token).is_some()));
        }
        node.later(90 * S);
        settle(&[&node]);
        assert_eq!(node.sent(tokens[1]), None, "the caller ends it");
        drop(wire);
    }
}

/// The other waiting messages are sent, and the peer receives nothing of the one taken back.
#[test]
fn the_others_are_sent_when_the_connection_stands() {
    let (node, peer) = (Node::new(), Node::new());
    let tokens = [1, 2, 3].map(|bits| node.put_bytes(peer.id(), &[bits as u8; 10], bits));
    assert!(withdraw(&node, peer.id(), tokens[1]));
    drive(&[&node, &peer], || peer.received() == 2);
    peer.with_got(|got| {
        assert_eq!(got.iter().map(Got::bytes).collect::<Vec<_>>(), [[1; 10], [3; 10]]);
    });
    assert_eq!([0, 1, 2].map(|at| node.sent(tokens[at])), [Some(Ok(())), None, Some(Ok(()))]);
    // The message has left.
    assert!(!withdraw(&node, peer.id(), tokens[0]));
}

/// A peer that stops reading: queued messages are taken back, including those that a sender has
/// taken into its batch and could not write; the partly sent message is sent to its end.
#[test]
fn a_message_in_an_outbox_is_taken_back_unless_it_has_begun() {
    let node = Node::with(SockConfig { tx_buffer_size: 4096, keepalive_s: 0, ..config() });
    let peer = address();
    let (mut wire, _) = Wire::shake_hands(peer, &node, 77, CONTROL);
    settle(&[&node]);
    let id = ProcessId::lnet(nid_of(peer));
    let bulk = memory(&pattern(0, BULK), 1);
    let tokens: Vec<u64> = (0..64).map(|number| node.put(id, &bulk, number)).collect();
    settle(&[&node]);
    // Once the socket was writable again, all queued messages are in the batch.
    wire.read(&[&node], BULK);
    settle(&[&node]);
    let late: Vec<u64> = (64..70).map(|number| node.put(id, &bulk, number)).collect();
    let left = tokens.iter().take_while(|token| node.sent(**token) == Some(Ok(()))).count();
    assert!(left > 0 && left < 64);
    let kept = late[3];
    let mut begun = Vec::new();
    for &token in tokens[left..].iter().chain(&late).filter(|token| **token != kept) {
        if !withdraw(&node, id, token) {
            begun.push(token);
        }
    }
    assert_eq!(begun, [tokens[left]], "the one that is partly gone");
    // The rest of the messages sent, the message that had begun, and the one that was not taken
    // back.
    let whole = 24 + 72 + BULK;
    wire.read(&[&node], (left + 2) * whole - BULK);
    drive(&[&node], || node.sent(kept).is_some());
    assert_eq!([node.sent(begun[0]), node.sent(kept)], [Some(Ok(())); 2]);
    settle(&[&node]);
    assert!(node.lost().is_empty());
    assert_eq!(node.engine.sent.lock().unwrap().len(), left + 2, "each ends once");
    assert!(bulk.write(0..BULK).is_ok(), "all leases have been given back");
}

/// An NI that ends finalises the remaining messages, once.
#[test]
fn nothing_is_taken_back_from_an_ni_that_has_ended() {
    let node = Node::new();
    let peer = address();
    let _listener = raw::listen(peer);
    let id = ProcessId::lnet(nid_of(peer));
    let tokens = [1, 2].map(|bits| node.put_bytes(id, b"bytes", bits));
    assert!(withdraw(&node, id, tokens[0]));
    node.lnd.shutdown(node.nid);
    assert!(!withdraw(&node, id, tokens[1]));
    assert_eq!(tokens.map(|token| node.sent(token)), [None, Some(Err(Errno::ESHUTDOWN))]);
}
