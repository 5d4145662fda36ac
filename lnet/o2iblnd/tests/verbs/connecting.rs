//! Connections that are made, rejected, or fail.

use std::net::{Ipv4Addr, SocketAddrV4};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;

use crate::common::*;

/// A CONNREQ has the largest size that a request can carry; zeros follow shorter data.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn private_data_goes_both_ways() {
    let host = new_host();
    let (active, passive) = (node(&host, 0), node(&host, 1));
    let (listening, _listener) = passive.listen();
    let target = passive.at(SERVICE);
    let connreq: Vec<u8> = (1..=56).collect();
    let source = active.address;
    let mut active = connect(active, target, &connreq);

    let CmEvent::Request { listener, request } = passive.cm_event() else { panic!("no request") };
    assert_eq!((listener, request.target(), *request.source().ip()), (listening, target, source));
    assert_eq!(request.private_data()[..56], connreq);
    let mut endpoint = passive.channel.adopt(ChannelToken(7), request).expect("adopting");
    endpoint.make_queues(&SIZES).expect("queues");
    endpoint.accept(&connreq[..40], &OPTIONS).expect("accepting");

    let answer = active.established();
    assert_eq!(answer[..40], connreq[..40]);
    assert!(answer[40..].iter().all(|byte| *byte == 0), "{answer:?}");
    let established = passive.cm_event();
    assert!(matches!(established, CmEvent::Established(ChannelToken(7))), "{}", describe(&established));
}

/// A shard can adopt a request that another has received, because only the peer determines the
/// shard.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn another_channel_takes_a_request() {
    let host = new_host();
    let (active, hearing, taking) = (node(&host, 0), node(&host, 1), node(&host, 1));
    let (_, _listener) = hearing.listen();
    let mut active = connect(active, hearing.at(SERVICE), b"hello");
    let request = hearing.request();
    let mut endpoint = taking.channel.adopt(ChannelToken(7), request).expect("adopting");
    endpoint.make_queues(&SIZES).expect("queues");
    endpoint.accept(b"welcome", &OPTIONS).expect("accepting");
    active.established();
    let established = taking.cm_event();
    assert!(matches!(established, CmEvent::Established(ChannelToken(7))), "{}", describe(&established));
    active.endpoint.disconnect();
    let ended = taking.cm_event();
    assert!(matches!(ended, CmEvent::Disconnected(ChannelToken(7))), "{}", describe(&ended));
    assert!(hearing.next_event().is_none());
}

/// The record of a reject reaches the peer, before and after the request is adopted; without one it
/// is empty.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn rejects_bring_their_record() {
    let host = new_host();
    let passive = node(&host, 1);
    let (_, _listener) = passive.listen();
    let record: Vec<u8> = (1..=24).collect();
    let answers: [&dyn Fn(Box<dyn ConnRequest>); 2] = [&|request| request.reject(&record), &|request| {
        passive.channel.adopt(token(), request).expect("adopting").reject(&record)
    }];
    for answer in answers {
        let active = connect(node(&host, 0), passive.at(SERVICE), b"hello");
        answer(passive.request());
        match active.node.cm_event() {
            CmEvent::Rejected(of, Rejected::Record(data)) => {
                assert_eq!(of, active.token);
                let (start, rest) = data.split_at(record.len());
                assert_eq!(start, record);
                assert!(rest.iter().all(|byte| *byte == 0), "{data:?}");
            }
            other => panic!("{}", describe(&other)),
        }
    }
}

/// A reject without a record cannot be distinguished from a port without a listener.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_request_that_is_dropped_is_rejected_without_a_record() {
    let host = new_host();
    let passive = node(&host, 1);
    let (_, _listener) = passive.listen();
    let active = connect(node(&host, 0), passive.at(SERVICE), b"hello");
    drop(passive.request());
    let answer = active.node.cm_event();
    let CmEvent::Rejected(of, Rejected::NoListener) = answer else { panic!("{}", describe(&answer)) };
    assert_eq!(of, active.token);
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn no_listener() {
    let host = new_host();
    let target = SocketAddrV4::new(ADDRESSES[1], SERVICE);
    let active = connect(node(&host, 0), target, b"hello");
    let answer = active.node.cm_event();
    let CmEvent::Rejected(of, Rejected::NoListener) = answer else { panic!("{}", describe(&answer)) };
    assert_eq!(of, active.token);
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn the_address_does_not_exist() {
    let host = new_host();
    let node = node(&host, 0);
    // Without ARP the address seems reachable: a route to any address is resolved.
    link(&["arp", "on"]);
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 99), SERVICE);
    let dial = DialOptions { resolve_ms: 500, tos: Some(8) };
    let _endpoint =
        node.channel.dial(ChannelToken(7), &node.device, node.at(0), to, &dial).expect("dialling");
    loop {
        match node.cm_event() {
            CmEvent::Failed(ChannelToken(7), Errno::ETIMEDOUT | Errno::EHOSTUNREACH) => break,
            // The device may report this setting as an event.
            CmEvent::Device { .. } => (),
            other => panic!("{}", describe(&other)),
        }
    }
}

/// The peer gets the requested source port, which two connections may have at once (lnet-wire 31).
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn privileged_source_ports_are_used_again() {
    let host = new_host();
    let passive = node(&host, 1);
    let other = node(&host, 0);
    let _listeners = [passive.listen(), other.listen()];
    let active = node(&host, 0);
    for target in [&passive, &other] {
        let token = token();
        let (from, to) = (active.at(1023), target.at(SERVICE));
        let mut endpoint = active.channel.dial(token, &active.device, from, to, &DIAL).expect("dialling");
        let resolved = active.cm_event();
        assert!(matches!(resolved, CmEvent::Resolved(of) if of == token), "{}", describe(&resolved));
        endpoint.make_queues(&SIZES).expect("queues");
        endpoint.connect(b"hello", &OPTIONS).expect("connecting");
        assert_eq!(target.request().source(), from);
    }
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn addresses_that_cannot_be_had() {
    let host = new_host();
    let node = node(&host, 1);
    let (_, _listener) = node.listen();
    let again = node.channel.listen(token(), &node.device, node.at(SERVICE), 8);
    assert_eq!(again.err().expect("two listeners").errno, Errno::EADDRINUSE);
    let in_use = node.channel.dial(token(), &node.device, node.at(SERVICE), node.at(SERVICE), &DIAL);
    assert_eq!(in_use.err().expect("the listener's port").errno, Errno::EADDRINUSE);
    let nowhere = SocketAddrV4::new(Ipv4Addr::new(10, 77, 9, 9), 0);
    let foreign = node.channel.dial(token(), &node.device, nowhere, node.at(SERVICE), &DIAL);
    assert_eq!(foreign.err().expect("another's address").errno, Errno::EADDRNOTAVAIL);

    let error = |address: Ipv4Addr| host.open(address).err().expect("no device");
    assert_eq!(error(*nowhere.ip()).errno, Errno::ENODEV);
    assert!(error(*nowhere.ip()).to_string().contains("this host has no address 10.77.9.9"));
    assert_eq!(error(Ipv4Addr::LOCALHOST).errno, Errno::ENODEV);
}

/// Many connections at a time.
// Covers: S-4
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn sixty_four_connections() {
    const COUNT: usize = 64;
    let host = new_host();
    let passive = node(&host, 1);
    let (_, _listener) = passive.listen();
    let mut connections = Vec::new();
    for number in 0..COUNT as u8 {
        let mut active = connect(node(&host, 0), passive.at(SERVICE), &[number]);
        let request = passive.request();
        assert_eq!(request.private_data()[0], number);
        let accepting = node(&host, 1);
        let token = token();
        let endpoint = accepting.channel.adopt(token, request).expect("adopting");
        let mut side = Side::new(accepting, token, endpoint);
        side.endpoint.accept(&[number], &OPTIONS).expect("accepting");
        assert_eq!(active.established()[0], number);
        side.expect_established();
        connections.push((active, side));
    }
    for (number, (active, passive)) in connections.iter().enumerate() {
        active.slab.fill(0, &[number as u8; 64]);
        active.send(99, &[active.slab.piece(0, 64)], false);
        let done = passive.completions(1);
        assert_eq!(done[0], WorkCompletion { id: 0, length: 64, status: Ok(()) });
        assert_eq!(passive.slab.bytes(0, 64), [number as u8; 64]);
    }
    for (active, passive) in connections {
        active.endpoint.disconnect();
        passive.expect_disconnected();
    }
}
