//! Connections that are begun and abandoned, by more peers than an NI admits.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use lnet_o2iblnd::O2ibConfig;
use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::links::LINKS_MAX;
use nlx_testkit::lnds::{Network, S};
use nlx_testkit::warnings::Warnings;

use super::bytes::{CONNREQ, End, Record, message, number, params};
use super::stranger::{LineEvent, Scene};
use crate::Bed;

/// Reject reasons (lnet-wire 33).
const NO_RESOURCES: u8 = 2;
const FATAL: u8 = 3;

/// The number of connections of peers that an NI opens at a time.
const OPENING_MAX: usize = 1024;

const OPTIONS: ConnectOptions = ConnectOptions { retry_count: 5, rnr_retry_count: 6 };

/// A node cannot use another's NID, with the same incarnation or with another one: the owner of the
/// NID keeps its connection, and no state is kept. A rate-limited warning reports it.
#[test]
fn one_address_has_no_others_nid() {
    let scene = Scene::new();
    let warnings = Warnings::heard();
    let honest = number(scene.nodes[1].id.nid);
    let other_net = scene.own().nid + (1 << 32);
    let conn_stats = || scene.victim().lnd.conn_stats();
    let before = (conn_stats().connections, scene.victim().lnd.counters().rx.closes);
    let named = [honest, scene.own().nid + 1, scene.own().nid - 1, other_net];
    for (nid, stamp) in named.into_iter().flat_map(|nid| [0x5eed, 1].map(|stamp| (nid, stamp))) {
        let (_, event) =
            scene.ask(&message(CONNREQ, End { nid, stamp }, scene.other(), &params(8, 257, 4096)));
        let LineEvent::Rejected(Rejected::Record(record)) = event else { panic!("{nid:#x}: {event:?}") };
        assert_eq!(Record::of(&record).reason, FATAL, "{nid:#x}");
        assert_eq!((conn_stats().connections, scene.victim().lnd.counters().rx.closes), before, "{nid:#x}");
    }
    assert_eq!(scene.victim().lnd.counters().rx.refusals, 8);
    let warnings = warnings.with("its NID does not match the address");
    assert!(!warnings.is_empty());
    if let Bed::Simulated(_) = scene.bed {
        assert_eq!(warnings.len(), 1, "it takes no more than seconds: {warnings:?}");
    }
    let (line, _) = scene.connected();
    drop(line);
    scene.end();
}

/// Requests that are accepted and never established: one address has at most the number that one
/// peer may have, and no state is kept of the others. The node ends them at their deadline, and
/// serves honest peers until then.
#[test]
fn one_address_with_too_many() {
    const BEYOND: usize = 100;
    // An attempt may take a quarter of the timeout, which is more than a slow machine takes for all
    // of them.
    let scene = Scene::with(&O2ibConfig { timeout_s: 1600, ..O2ibConfig::default() });
    let warnings = Warnings::heard();
    let mut lines = Vec::new();
    let mut refused = 0;
    for _ in 0..LINKS_MAX + BEYOND {
        let (line, event) = scene.ask(&scene.request());
        match event {
            LineEvent::Accepted(_) => lines.push(line),
            LineEvent::Rejected(Rejected::Record(record)) => {
                assert_eq!(Record::of(&record).reason, NO_RESOURCES);
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((lines.len(), refused), (LINKS_MAX, BEYOND));
    let counters = scene.victim().lnd.counters().rx;
    assert_eq!((counters.refusals, counters.no_room), (BEYOND as u64, BEYOND as u64));
    let warnings = warnings.with("rejected a peer's connection request");
    assert!(warnings[0].contains("the limit of 254 connections from one address is reached"), "{warnings:?}");
    if let Bed::Simulated(_) = scene.bed {
        assert_eq!(warnings.len(), 1, "it takes no more than seconds: {warnings:?}");
    }
    scene.check_honest();
    scene.later(400 * S);
    scene.check_honest();
    let (_, event) = scene.ask(&scene.request());
    assert!(matches!(event, LineEvent::Accepted(_)), "its places are free again: {event:?}");
    drop(lines);
    scene.end();
}

/// Many addresses, each with a few attempts: all addresses together have a limit, and the attempts
/// cost what is calculated.
#[test]
fn many_addresses() {
    let scene = Scene::new();
    // The guest has too few addresses for this test.
    let Bed::Simulated(Network { net, .. }) = &scene.bed else { return };
    let addresses: Vec<Ipv4Addr> = (0..OPENING_MAX + 50)
        .map(|number| Ipv4Addr::new(10, 78, (number / 200) as u8, (number % 200) as u8))
        .collect();
    let fabric = net.host(net.add_host(addresses.clone(), true));
    let (device, channel) = (fabric.open(addresses[0]).unwrap(), fabric.channel().unwrap());
    let to = SocketAddrV4::new(scene.victim().id.nid.ipv4().unwrap(), 987);
    let began = net.now_ns();
    let mut lines: Vec<Box<dyn Endpoint>> = addresses
        .iter()
        .enumerate()
        .map(|(number, address)| dial(&channel, &device, number, SocketAddrV4::new(*address, 0), to))
        .collect();
    let (mut accepted, mut refused) = (0, 0);
    scene.until(|| {
        while let Some(cm_event) = channel.next() {
            match cm_event {
                CmEvent::Resolved(token) => {
                    let number = token.0 as usize;
                    let own = End { nid: 5 << 48 | u64::from(u32::from(addresses[number])), stamp: 1 };
                    let sizes = QueueSizes { sends: 8, receives: 8, completions: 16, pieces: 1, inline: 0 };
                    lines[number].make_queues(&sizes).unwrap();
                    let request = message(CONNREQ, own, scene.other(), &params(8, 257, 4096));
                    lines[number].connect(&request, &OPTIONS).unwrap();
                }
                CmEvent::Accepted(..) => accepted += 1,
                CmEvent::Rejected(_, Rejected::Record(record)) => {
                    assert_eq!(Record::of(&record).reason, NO_RESOURCES);
                    refused += 1;
                }
                _ => {}
            }
        }
        accepted + refused == addresses.len()
    });
    assert_eq!((accepted, refused), (OPENING_MAX, 50));
    assert!(net.now_ns() - began < 10 * S, "none of them was given up meanwhile");
    assert_eq!(scene.victim().lnd.counters().rx.no_room, 50);
    // Peers with other addresses are served, and known peers can still connect.
    scene.check_honest();
    scene.later(60 * S);
    let (_, event) = scene.ask(&scene.request());
    assert!(matches!(event, LineEvent::Accepted(_)), "there is room again: {event:?}");
    drop((lines, channel, device, fabric));
    scene.end();
}

fn dial(
    channel: &Arc<dyn Channel>,
    device: &Arc<dyn Device>,
    number: usize,
    from: SocketAddrV4,
    to: SocketAddrV4,
) -> Box<dyn Endpoint> {
    let options = DialOptions { resolve_ms: 5_000, tos: None };
    channel.dial(ChannelToken(number as u64), device, from, to, &options).unwrap()
}
