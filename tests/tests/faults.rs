//! Peers that break: operations with them end with an error, and everything else continues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Read;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use nlx::{Descriptor, Domain, Errno, Event, NodeConfig, Op, Queue, Stop, TmOptions, TransferMachine};
use support::{accept, descriptor, free_port, join, lnet_message, nid4, put, read, write};

const PORTAL: u32 = 31;
const BULK: usize = 1 << 20;
/// Time limit of each wait: far longer than any operation here takes; an operation that reaches it has hung.
const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// A node with one transfer machine of id 1.
struct Side {
    domain: Domain,
    machine: TransferMachine,
    address: Ipv4Addr,
    port: u16,
}

impl Side {
    fn new(address: Ipv4Addr, port: u16) -> Side {
        let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(port);
        let domain = Domain::in_process(&config).unwrap();
        let machine = domain.transfer_machine(&name(address), TmOptions::default()).unwrap();
        Side { domain, machine, address, port }
    }

    fn event(&self, queue: Queue) -> Event {
        let event = self.machine.wait(TIME_LIMIT).unwrap().expect("an event");
        assert_eq!(event.queue, queue, "{event:?}");
        event
    }

    /// Sends a message to another node and back: the network still works.
    fn exchange(&self, with: &Side) {
        for (from, to) in [(self, with), (with, self)] {
            to.machine.start(Op::receive(to.domain.allocate(64).unwrap()).timeout(TIME_LIMIT)).unwrap();
            let mut letter = from.domain.allocate(64).unwrap();
            letter.write().unwrap()[..5].copy_from_slice(b"alive");
            let end_point = from.machine.end_point(&name(to.address)).unwrap();
            from.machine.start(Op::send(letter, &end_point).length(5).timeout(TIME_LIMIT)).unwrap();
            assert_eq!(from.event(Queue::MessageSend).status, Ok(()));
            let event = to.event(Queue::MessageReceive);
            assert_eq!(&event.message.unwrap()[..], b"alive");
        }
    }
}

fn name(address: Ipv4Addr) -> String {
    format!("{address}@tcp:12345:{PORTAL}:1")
}

/// Addresses of this test: of two nodes and a handmade peer.
fn addresses(test: u8) -> [Ipv4Addr; 3] {
    [1, 2, 3].map(|host| Ipv4Addr::new(127, 2, 10 + test, host))
}

#[test]
fn a_hang_up_in_the_middle_of_a_bulk_read_ends_it_with_an_error() {
    let [ours, other, peer] = addresses(0);
    let listener = TcpListener::bind(SocketAddr::from((peer, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (side, witness) = (Side::new(ours, port), Side::new(other, port));
    side.exchange(&witness);
    let judge = std::thread::spawn(move || {
        let (mut control, conn_type) = accept(&listener, peer);
        assert_eq!(conn_type, 1);
        let get = read(&mut control, 96);
        let mut reply = lnet_message(peer, ours, 3, BULK as u32, &get[56..72]);
        reply.extend(vec![0x5a; BULK / 3]);
        write(&mut control, &reply);
        control.shutdown(Shutdown::Both).unwrap();
    });
    let offer = descriptor(peer, PORTAL, 1, 99, 3, BULK as u64);
    let buffer = side.domain.allocate(BULK).unwrap();
    let offer = Descriptor::from_bytes(&offer).unwrap();
    side.machine.start(Op::active_receive(buffer, offer).timeout(TIME_LIMIT)).unwrap();
    let event = side.event(Queue::ActiveBulkReceive);
    judge.join().unwrap();
    assert!(
        matches!(event.status, Err(Errno::ECONNRESET | Errno::EPROTO | Errno::EIO)),
        "{:?}",
        event.status
    );
    assert_eq!(event.length, 0);
    // The client may use the memory again.
    event.buffer.expect("it was the last event").write().unwrap().fill(1);
    side.exchange(&witness);
}

#[test]
fn a_hang_up_in_the_middle_of_a_write_into_our_memory_ends_it_with_an_error() {
    let [ours, other, peer] = addresses(1);
    let port = free_port(ours);
    let (side, witness) = (Side::new(ours, port), Side::new(other, port));
    let buffer = side.domain.allocate(BULK).unwrap();
    let offer = side.machine.start(Op::passive_receive(buffer).timeout(TIME_LIMIT)).unwrap().offer;
    let match_bits = u64::from_le_bytes(offer.as_bytes()[..8].try_into().unwrap());
    let mut stranger = join(peer, ours, port);
    write(&mut stranger, &lnet_message(peer, ours, 1, BULK as u32, &put(PORTAL, match_bits)));
    write(&mut stranger, &vec![0xa5; BULK / 2]);
    drop(stranger);
    let event = side.event(Queue::PassiveBulkReceive);
    assert!(event.status.is_err(), "{event:?}");
    assert!(event.buffer.is_some());
    side.exchange(&witness);
}

#[test]
fn lengths_and_types_that_cannot_be_close_the_connection_of_that_peer_alone() {
    let [ours, other, peer] = addresses(2);
    let port = free_port(ours);
    let (side, witness) = (Side::new(ours, port), Side::new(other, port));
    side.exchange(&witness);
    let longer = u32::try_from(BULK).unwrap() + 1;
    let impossible = [
        lnet_message(peer, ours, 1, longer, &put(PORTAL, 1 << 52)),
        lnet_message(peer, ours, 3, u32::MAX, &[0; 16]),
        lnet_message(peer, ours, 0, 1, &[0; 28]),
        lnet_message(peer, ours, 2, 1, &[0; 36]),
        lnet_message(peer, ours, 4, 0, &[]),
        lnet_message(peer, ours, 77, 0, &[]),
        lnet_message(peer, other, 1, 0, &put(PORTAL, 1 << 52)),
        vec![0xc2; 24],
    ];
    for bytes in impossible {
        let mut stranger = join(peer, ours, port);
        write(&mut stranger, &bytes);
        // Closed or reset, without an answer.
        assert_eq!(stranger.read(&mut [0; 1]).unwrap_or(0), 0, "{bytes:02x?}");
        side.exchange(&witness);
    }
}

// Covers: MT-28
#[test]
fn a_message_without_a_receiver_ends_with_the_reason() {
    let [ours, _, peer] = addresses(3);
    let side = Side::new(ours, free_port(peer));
    let end_point = side.machine.end_point(&name(peer)).unwrap();
    let buffer = side.domain.allocate(64).unwrap();
    side.machine.start(Op::send(buffer, &end_point).length(64).timeout(TIME_LIMIT)).unwrap();
    let event = side.event(Queue::MessageSend);
    assert_eq!(event.status, Err(Errno::ECONNREFUSED));
    assert!(event.buffer.is_some());
    // Right after a failure the node is known to be unreachable.
    side.machine.start(Op::send(event.buffer.unwrap(), &end_point).length(64).timeout(TIME_LIMIT)).unwrap();
    assert_eq!(side.event(Queue::MessageSend).status, Err(Errno::EHOSTUNREACH));
}

// Covers: MT-175, MT-241
#[test]
fn a_peer_that_never_answers_is_given_up_at_the_operations_timeout() {
    let [ours, other, peer] = addresses(4);
    let listener = TcpListener::bind(SocketAddr::from((peer, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (side, witness) = (Side::new(ours, port), Side::new(other, port));
    let offer = Descriptor::from_bytes(&descriptor(peer, PORTAL, 1, 5, 3, 4096)).unwrap();
    let short = Duration::from_millis(300);
    side.machine
        .start(Op::active_receive(side.domain.allocate(4096).unwrap(), offer).timeout(short))
        .unwrap();
    let judge = std::thread::spawn(move || {
        let (mut control, _) = accept(&listener, peer);
        read(&mut control, 96);
        control
    });
    let event = side.event(Queue::ActiveBulkReceive);
    assert_eq!(event.status, Err(Errno::ETIMEDOUT));
    assert!(event.after >= short, "{:?}", event.after);
    side.exchange(&witness);
    // The late answer matches no request, and has no effect.
    let mut control = judge.join().unwrap();
    let mut reply = lnet_message(peer, ours, 3, 4096, &[0; 16]);
    reply.extend([0xee; 4096]);
    write(&mut control, &reply);
    assert!(event.buffer.unwrap().read().unwrap().iter().all(|&byte| byte == 0));
    side.exchange(&witness);
}

// The judge and the library encode a descriptor in the same way (MT-74).
// Covers: S-417, MT-74, MT-210
#[test]
fn a_descriptor_is_what_motr_would_write() {
    let [ours, ..] = addresses(5);
    let side = Side::new(ours, free_port(ours));
    let offer = side
        .machine
        .start(Op::passive_send(side.domain.allocate(4096).unwrap()).length(1000).timeout(TIME_LIMIT))
        .unwrap()
        .offer;
    assert_eq!(offer.as_bytes()[..], descriptor(ours, PORTAL, 1, 1, 3, 1000)[..]);
    assert_eq!(u64::from_le_bytes(offer.as_bytes()[8..16].try_into().unwrap()), nid4(ours));
    side.machine.stop(Stop::Abort, TIME_LIMIT).unwrap();
}

// Covers: MT-224
#[test]
fn a_port_in_use_and_a_nid_in_use_are_named() {
    let [ours, ..] = addresses(6);
    let holder = TcpListener::bind(SocketAddr::from((ours, 0))).unwrap();
    let port = holder.local_addr().unwrap().port();
    let config = NodeConfig::new().net(&format!("tcp({ours})")).unwrap().accept_port(port);
    let error = Domain::in_process(&config).unwrap_err();
    assert_eq!(error.errno(), Errno::EADDRINUSE);
    assert!(error.to_string().contains(&format!("{ours}:{port}")), "{error}");
    drop(holder);
    let side = Side::new(ours, port);
    let error = Domain::in_process(&config).unwrap_err();
    assert_eq!(error.errno(), Errno::EADDRINUSE);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert_eq!(side.port, port);
}
