//! Hostile peers of a node of nlx: bytes without sense, floods, requests that no service takes. Each
//! test ends with a whole session.

use std::collections::HashSet;
use std::io::Write;

use nlx_testkit::addresses::unused;
use nlx_tests::judge::Target;
use nlx_tests::judge::active::{Answer, new_incarnation};
use nlx_tests::judge::frame::{Frame, Message, NO_HANDLE, read_frame};
use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::data::{FULL, READ, WRITE, filled, is_right};
use nlx_tests::judge::lst::message::{DATA, FRAMEWORK, REPLIES, service};
use nlx_tests::judge::lst::{Console, Lst};
use nlx_tests::judge::wire::{Nid, Order, kind};

use crate::place::{Place, begin};

/// The version of the hellos with small NIDs.
const VERSION: u32 = 3;
/// The requests of a flood.
const FLOOD: u32 = 10_000;

/// Runs a session without a batch; the node has none before and after.
fn serves(place: &Place, console: &mut Console<'_>) {
    begin(console);
    exchange(place, console);
    assert_eq!(console.call(service::RMSN, console.sender.rmsn()).unwrap().status(), 0);
}

/// Does a ping, a READ and a WRITE.
fn exchange(place: &Place, console: &mut Console<'_>) {
    let ping = console.call(service::PING, console.sender.ping(3)).unwrap();
    assert_eq!((ping.status(), ping.at(32)), (0, 3), "{}", place.name());
    let read = console.call_bulk(service::BRW, console.sender.brw(READ, 65_536, FULL), Bulk::Await(65_536));
    assert!(is_right(&read.unwrap().bulk, FULL, Order::Little));
    let data = Bulk::Offer(filled(65_536, FULL, Order::Little));
    let write = console.call_bulk(service::BRW, console.sender.brw(WRITE, 65_536, FULL), data);
    assert_eq!(write.unwrap().reply.status(), 0);
}

/// Another peer of the same node.
fn neighbour(place: &Place) -> Target {
    let own = Nid::new(unused(), 0);
    Target { own, from: own.address(), ..place.target.clone() }
}

/// Returns numbers in an order that looks random, always the same ones (xorshift).
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Random bytes of any length to all three portals get no reply; those to services are counted.
// Covers: S-313
#[test]
fn random_bytes_are_counted_and_dropped() {
    let place = Place::nlx(2);
    let mut console = place.console(Order::Little);
    begin(&mut console);
    let mut random = numbers();
    let services = [0, 1, 2, 3, 4, 5, 11, 12];
    let mut sent = 0;
    for round in 0..64 {
        for to in services {
            let length = [0, 1, 159, 160, 161, 4096, random() as usize % 400][round % 7];
            let bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            console.send_raw(service::portal(to), to, &bytes).unwrap();
            // What is no reply that the node waits for is dropped by LNet.
            console.send_raw(REPLIES, random(), &bytes).unwrap();
            sent += 1;
        }
    }
    loop {
        let stat = console.call(service::STAT, console.sender.stat()).unwrap();
        assert_eq!((stat.status(), stat.at(64)), (0, 0));
        if stat.at(76) == sent {
            break;
        }
    }
    exchange(&place, &mut console);
    assert_eq!(console.call(service::RMSN, console.sender.rmsn()).unwrap().status(), 0);
    serves(&place, &mut console);
}

/// Every field of every request at random, behind a valid head: whatever the node does, it goes on.
#[test]
fn random_fields_do_no_harm() {
    let place = Place::nlx(2);
    let mut console = place.console(Order::Little);
    let mut random = numbers();
    let services = [0, 1, 2, 3, 4, 5, 11, 12];
    let target = neighbour(&place);
    let mut hostile = Console::connect(&target, console.sender).unwrap();
    for _ in 0..64 {
        for to in services {
            let body: Vec<u8> =
                (24..160).map(|_| random() as u8 & [0xff, 3, 0][random() as usize % 3]).collect();
            // A session that it made would be in the way of the next one.
            let to = if to == service::MKSN { service::DEBUG } else { to };
            let order = [Order::Little, Order::Big][random() as usize % 2];
            let kind = service::request_type(to).unwrap();
            let request = Lst::new(order, kind, random() as u32 % 3).set(24, &body);
            hostile.send_raw(service::portal(to), to, &request.bytes).unwrap();
        }
    }
    serves(&place, &mut console);
}

/// Requests to match bits that a test node has no service for, JOIN among them, wait at its lazy
/// portals. They stall the connection of their sender, and nothing else.
// Covers: S-313
#[test]
fn requests_without_a_service_stall_their_sender_only() {
    let place = Place::nlx(2);
    for (portal, bits) in [(FRAMEWORK, service::JOIN), (FRAMEWORK, 7), (DATA, 13), (DATA, u64::MAX)] {
        let target = neighbour(&place);
        let mut console = place.console(Order::Little);
        let mut stalled = Console::connect(&target, console.sender).unwrap();
        let join = stalled.sender.join("group");
        for _ in 0..100 {
            stalled.send_raw(portal, bits, &join.bytes).unwrap();
        }
        serves(&place, &mut console);
        drop(stalled);
        let mut again = Console::connect(&target, console.sender).unwrap();
        serves(&place, &mut again);
    }
}

/// A peer that sends requests and does not read the replies; it gets them when it does.
// Covers: S-313
#[test]
fn a_flood_does_not_stop_the_service_of_others() {
    let place = Place::nlx(2);
    let mut console = place.console(Order::Little);
    begin(&mut console);
    let target = neighbour(&place);
    let sender = console.sender;
    let requests =
        [(service::PING, sender.ping(0)), (service::DEBUG, sender.debug()), (service::STAT, sender.stat())];
    for (to, request) in requests {
        let mut stream = connect(&target);
        let mut reader = stream.try_clone().unwrap();
        let (own, node) = (target.own, target.nid);
        let flood = std::thread::spawn(move || {
            for id in 1..=FLOOD {
                let bytes = request.clone().u64(24, id.into()).bytes;
                let put = Message::put(own, node, service::portal(to), to, NO_HANDLE, &bytes);
                stream.write_all(&put.bytes(VERSION, Order::Little)).unwrap();
            }
            stream
        });
        (0..10).for_each(|_| exchange(&place, &mut console));
        let mut ids = HashSet::new();
        while ids.len() < FLOOD as usize {
            match read_frame(&mut reader, VERSION, Order::Little).unwrap() {
                Frame::Lnet(message) => {
                    let reply = Lst::received(&message.payload).unwrap();
                    assert_eq!((message.portal(), reply.status()), (REPLIES, 0));
                    assert!(ids.insert(message.bits()), "two replies to {}", message.bits());
                }
                Frame::Noop(_) => {}
            }
        }
        drop(flood.join().unwrap());
        exchange(&place, &mut console);
    }
    assert_eq!(console.call(service::RMSN, console.sender.rmsn()).unwrap().status(), 0);
    serves(&place, &mut console);
}

/// Opens the connection of a peer for small messages.
fn connect(target: &Target) -> std::net::TcpStream {
    loop {
        match target.offer(&target.hello(VERSION, kind::CONTROL, new_incarnation())).unwrap() {
            Answer::Accepted(stream, _) => return stream,
            // Connections of its last incarnation are still there.
            Answer::Refused(_) => std::thread::yield_now(),
            Answer::Closed => panic!("the node closes a connection"),
        }
    }
}
