//! Messages that a lazy portal holds and that are received into memory, while their payload
//! arrives.

use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;

use crate::common::raw::{self, BULK_IN, CONTROL, Wire};
use crate::common::{Node, Order, address, drive, memory, pattern, settle};
use lnet_api::{Errno, Lnd, PayloadTarget, RxToken};

const INCARNATION: u64 = 78;

/// The length of a message in bytes, greater than the read-ahead.
const LENGTH: usize = 200_000;

/// The number of bytes that arrive first.
const FIRST: usize = 90_000;

/// Returns a node that has received half a message of [`LENGTH`] bytes with this zero-copy cookie
/// into memory, its peer, the connection, and the bytes still to be sent.
fn half_way(cookie: u64) -> (Node, Ipv4Addr, Wire, Vec<u8>) {
    let node = Node::new();
    let peer = address();
    let (mut wire, _) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    node.engine.orders.lock().unwrap().push_back(Order::Delay);
    let put = raw::put(peer, node.nid.ipv4().unwrap(), cookie, 1, &pattern(4, LENGTH));
    let (first, rest) = put.split_at(put.len() - (LENGTH - FIRST));
    wire.send_all(&[&node], first);
    drive(&[&node], || node.with_got(|got| got.len() == 1));
    settle(&[&node]);
    assert_eq!((node.lnd.held(), node.counters().rx.held_in_memory), (1, 0));
    assert!(node.lnd.held_bytes() >= LENGTH);
    (node, peer, wire, rest.to_vec())
}

/// Lets the engine resume the message, into memory whose content is checked at the end.
fn resume(node: &Node) {
    let place = memory(&[0; LENGTH], 3);
    let sink = place.write(0..LENGTH).unwrap();
    let rx = node.with_got(|got| got[0].rx);
    node.engine.got.lock().unwrap()[0].memory = Some(place);
    node.lnd.resume(rx, Some(PayloadTarget { token: RxToken(0), sink: Some(sink) }));
}

fn result(node: &Node) -> Option<Result<(), Errno>> {
    node.with_got(|got| got[0].result)
}

/// Checks that no held message is counted.
fn nothing_is_held(node: &Node) {
    assert_eq!((node.lnd.held(), node.lnd.held_bytes()), (0, 0));
}

/// Breaks another connection of the same peer, which ends this one.
fn lose(node: &Node, peer: Ipv4Addr) {
    let (other, _) = Wire::shake_hands(peer, node, INCARNATION, BULK_IN);
    drop(other);
    drive(&[node], || node.lost().len() == 1);
}

/// The bytes behind the message show that its payload was received to its end.
// Covers: S-109
#[test]
fn a_buffer_that_is_posted_while_the_payload_comes_gets_all_of_it() {
    for wanted in [true, false] {
        let (node, peer, mut wire, rest) = half_way(0);
        if wanted {
            resume(&node);
        } else {
            node.lnd.resume(node.with_got(|got| got[0].rx), None);
        }
        settle(&[&node]);
        assert_eq!(result(&node), None, "half of it is missing");
        wire.send_all(&[&node], &rest);
        wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 2, b"behind"));
        drive(&[&node], || node.with_got(|got| got.get(1).is_some_and(|got| got.bytes() == b"behind")));
        assert_eq!(result(&node), wanted.then_some(Ok(())));
        assert!(node.with_got(|got| got[0].bytes() == if wanted { pattern(4, LENGTH) } else { vec![] }));
        nothing_is_held(&node);
        assert_eq!(node.counters().rx.held_lost, 0);
    }
}

/// The engine forgets an incomplete message.
// Covers: S-109
#[test]
fn a_connection_that_is_lost_while_the_payload_comes_takes_the_message_along() {
    let (node, peer, _wire, _) = half_way(0);
    lose(&node, peer);
    assert_eq!(*node.engine.forgotten.lock().unwrap(), [0]);
    nothing_is_held(&node);
    assert_eq!((node.counters().rx.held_lost, node.counters().rx.held_in_memory), (1, 0));
    assert_eq!(result(&node), None);
}

/// The end of the connection of a message that is resumed: the buffer has been posted, and the rest
/// does not arrive. The buffer is free again.
// Covers: S-109
#[test]
fn a_posted_buffer_reports_that_the_rest_is_lost() {
    for before in [true, false] {
        let (node, peer, _wire, _) = half_way(0);
        if before {
            resume(&node);
            settle(&[&node]);
            lose(&node, peer);
        } else {
            // The engine has already resumed the message when the driver reports that it is lost.
            node.engine.resumes_meanwhile.store(true, std::sync::atomic::Ordering::Relaxed);
            lose(&node, peer);
            resume(&node);
        }
        drive(&[&node], || node.received() == 1);
        assert_eq!(result(&node), Some(Err(Errno::ECONNRESET)));
        nothing_is_held(&node);
        assert_eq!(node.counters().rx.held_lost, 1);
        let place = node.engine.got.lock().unwrap()[0].memory.take().unwrap();
        assert!(place.write(0..LENGTH).is_ok(), "the lease has been given back");
    }
}

/// lnet-wire 26: the sender may reuse its memory once the payload is in this node's memory, and not
/// before; one acknowledgement.
#[test]
fn a_zero_copy_request_is_acknowledged_when_the_payload_is_in_memory() {
    let (node, peer, mut wire, rest) = half_way(7);
    wire.send_all(&[&node], &rest[..rest.len() - 1]);
    settle(&[&node]);
    assert_eq!(node.counters().rx.held_in_memory, 0);
    assert_eq!(wire.0.read(&mut [0; 24]).unwrap_err().kind(), ErrorKind::WouldBlock, "it is too early");
    wire.send(&rest[rest.len() - 1..]);
    assert_eq!(wire.read(&[&node], 24), raw::noop(0, 7));
    assert_eq!((node.counters().rx.held_in_memory, result(&node)), (1, None));
    resume(&node);
    drive(&[&node], || node.received() == 1);
    assert!(node.with_got(|got| got[0].bytes() == pattern(4, LENGTH)));
    // The next acknowledgement is that of the next request.
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 8, 2, b"next"));
    assert_eq!(wire.read(&[&node], 24), raw::noop(0, 8));
    nothing_is_held(&node);
}

/// A wrong checksum means that the stream is corrupt, and the message with it, whether its buffer
/// has been posted or not.
#[test]
fn a_message_with_a_wrong_checksum_does_not_come_into_memory() {
    for posted in [false, true] {
        let node = Node::new();
        let peer = address();
        let (mut wire, _) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
        node.engine.orders.lock().unwrap().push_back(Order::Delay);
        let mut put = raw::put(peer, node.nid.ipv4().unwrap(), 0, 1, &pattern(4, LENGTH));
        put[4..8].copy_from_slice(&0x1234_u32.to_le_bytes());
        let (first, rest) = put.split_at(put.len() - 1);
        wire.send_all(&[&node], first);
        drive(&[&node], || node.with_got(|got| got.len() == 1));
        if posted {
            resume(&node);
            settle(&[&node]);
        }
        wire.send(rest);
        drive(&[&node], || node.lost().len() == 1);
        assert_eq!(node.lost()[0].1, Errno::EIO);
        assert_eq!(result(&node), posted.then_some(Err(Errno::EIO)));
        assert_eq!(*node.engine.forgotten.lock().unwrap(), if posted { vec![] } else { vec![0] });
        nothing_is_held(&node);
        assert_eq!((node.counters().rx.held_lost, node.counters().rx.held_in_memory), (1, 0));
    }
}
