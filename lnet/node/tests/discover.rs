//! Discovery over real sockets, with nodes of raw bytes that behave like kernel nodes (lnet-wire 15
//! to 19).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, reason = "the peer is a module of this test alone")]

mod raw;

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lnet_api::Errno;
use lnet_nid::{Net, Nid, Pid};
use lnet_node::{DiscoverOptions, Features, Interrupt, NiStatus, Node, NodeConfig, PingStep, Pushed};
use nlx_testkit::{TIME_LIMIT, until};
use raw::Manners;

const PORT: u16 = 21_947;

fn node(address: Ipv4Addr) -> Node {
    Node::start(&NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(PORT)).unwrap()
}

fn nid(address: Ipv4Addr) -> Nid {
    Nid::new_v4(Net::TCP, address)
}

fn long_options(push: bool) -> DiscoverOptions {
    DiscoverOptions { timeout: TIME_LIMIT, push, ..DiscoverOptions::default() }
}

/// A kernel node holds its answer until the requester has answered its ping (lnet-measured,
/// "Messages, tcp").
#[test]
fn a_peer_that_asks_back_first_is_answered_and_then_answers() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, 1, last));
    let seen = raw::start(PORT, Manners::of(there));
    let node = node(here);
    let found = node.discover(nid(there), &long_options(true)).unwrap();
    assert_eq!(
        (found.target, found.primary, found.pid, found.sequence),
        (nid(there), nid(there), Pid::LNET, 5)
    );
    assert_eq!((found.features, &found.asked_bytes[..]), (Features(0x1e), &[272][..]));
    assert!(found.is_multi_rail() && found.is_discoverable());
    assert_eq!(
        found.nis.iter().map(|ni| (ni.nid, ni.status)).collect::<Vec<_>>(),
        [(nid(there), NiStatus::UP)]
    );
    // The list has the loopback entry and this node's own, of 16 bytes each behind a head of 16.
    assert_eq!(found.pushed, Pushed::Acknowledged { bytes: 48 });
    let counts = [&seen.pings, &seen.answers, &seen.pushes].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [1, 1, 1]);
    // The peer delays the answer to a plain ping in the same way.
    assert_eq!(node.ping(nid(there), None, TIME_LIMIT).unwrap().nids, [nid(there)]);
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_again() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, 2, last));
    let addresses: Vec<_> = (2..102).map(|last| Ipv4Addr::new(127, 47, 2, last)).collect();
    raw::start(PORT, Manners { addresses: addresses.clone(), ..Manners::of(there) });
    let found = node(here).discover(nid(there), &long_options(false)).unwrap();
    assert_eq!(
        found.nis.iter().map(|ni| ni.nid).collect::<Vec<_>>(),
        addresses.into_iter().map(nid).collect::<Vec<_>>()
    );
    assert_eq!((found.asked_bytes, found.pushed), (vec![272, 16 + 101 * 16], Pushed::NotAsked));
}

/// A ping first requests 3960 bytes, enough for 246 interfaces including the loopback, and then the
/// length that the answer has.
#[test]
fn a_ping_asks_again_for_a_list_that_does_not_fit() {
    for (net, count, asked) in [(8, 245, 1), (9, 246, 2), (10, 250, 2)] {
        let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, net, last));
        let addresses: Vec<_> = (2..2 + count).map(|last| Ipv4Addr::new(127, 47, net, last)).collect();
        let seen = raw::start(PORT, Manners { addresses: addresses.clone(), ..Manners::of(there) });
        let answer = node(here).ping(nid(there), None, TIME_LIMIT).unwrap();
        assert_eq!(answer.nids, addresses.into_iter().map(nid).collect::<Vec<_>>());
        assert_eq!(seen.pings.load(Ordering::SeqCst), asked, "{count} NIDs");
    }
}

#[test]
fn a_list_that_never_ends_is_given_up() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, 3, last));
    // Whatever length is requested, the peer claims a longer list than it sends.
    raw::start(PORT, Manners { claims_more: 1, ..Manners::of(there) });
    let failure = node(here).discover(nid(there), &long_options(false)).unwrap_err();
    assert_eq!((failure.step, failure.errno), (PingStep::Content, Errno::EPROTO), "{failure}");
}

#[test]
fn a_node_without_discovery_gets_no_push() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, 4, last));
    let other = Ipv4Addr::new(127, 47, 4, 3);
    let addresses = vec![there, other];
    let seen =
        raw::start(PORT, Manners { features: 0x06, addresses, asks_first: false, ..Manners::of(there) });
    let found = node(here).discover(nid(there), &long_options(true)).unwrap();
    assert!(!found.is_multi_rail() && !found.is_discoverable());
    assert_eq!((found.primary, found.nis.len(), found.pushed), (nid(there), 2, Pushed::NotCapable));
    assert_eq!(seen.pushes.load(Ordering::SeqCst), 0);
}

/// When the total time has passed, the failure has the step without an answer.
#[test]
fn a_step_without_an_answer_is_named() {
    let here = Ipv4Addr::new(127, 47, 5, 1);
    let node = node(here);
    let cases = [
        (Manners { answers_pings: false, ..Manners::of(Ipv4Addr::new(127, 47, 5, 2)) }, PingStep::Answer),
        (Manners { acknowledges_pushes: false, ..Manners::of(Ipv4Addr::new(127, 47, 5, 3)) }, PingStep::Push),
    ];
    for (manners, step) in cases {
        let there = manners.addresses[0];
        raw::start(PORT, manners);
        let options = DiscoverOptions { timeout: Duration::from_secs(2), ..long_options(true) };
        let failure = node.discover(nid(there), &options).unwrap_err();
        assert_eq!((failure.step, failure.errno), (step, Errno::ETIMEDOUT), "{failure}");
    }
}

#[test]
fn an_interrupt_ends_it() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, 6, last));
    let seen = raw::start(PORT, Manners { answers_pings: false, ..Manners::of(there) });
    let (node, interrupt) = (node(here), std::sync::Arc::new(Interrupt::new().unwrap()));
    let raiser = std::thread::spawn({
        let interrupt = interrupt.clone();
        move || {
            until("a ping arrives", || seen.pings.load(Ordering::SeqCst) > 0);
            interrupt.raise();
        }
    });
    let failure = node.discover_unless(&interrupt, nid(there), &long_options(false)).unwrap_err();
    raiser.join().unwrap();
    assert_eq!((failure.step, failure.errno), (PingStep::Interrupted, Errno::EINTR));
}

#[test]
fn nlx_discovers_nlx_and_itself() {
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 47, 7, last));
    let (asking, asked) = (node(here), node(there));
    let found = asking.discover(nid(there), &long_options(true)).unwrap();
    assert_eq!(
        (found.primary, found.features, found.pushed),
        (nid(there), Features(0x1e), Pushed::Acknowledged { bytes: 48 })
    );
    assert_eq!(asked.discover(Nid::LOOPBACK, &long_options(true)).unwrap().primary, nid(there));
    assert_eq!(asked.discover(nid(there), &long_options(true)).unwrap().nis[0].nid, nid(there));
    let nowhere = asking.discover("10.0.0.1@tcp9".parse().unwrap(), &long_options(false)).unwrap_err();
    assert_eq!((nowhere.step, nowhere.errno), (PingStep::Route, Errno::EHOSTUNREACH));
}
