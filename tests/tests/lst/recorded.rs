//! Recorded sessions of kernel nodes: each kind of node gives the recorded replies, and the raw
//! console's requests are the recorded ones.

use std::collections::HashSet;

use nlx_testkit::until;
use nlx_tests::judge::frame::GET;
use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::data::{LENGTH_MAX, SIMPLE, filled};
use nlx_tests::judge::lst::message::service;
use nlx_tests::judge::lst::recorded::{Exchange, exchanges, masked};
use nlx_tests::judge::lst::sha256::sha256;
use nlx_tests::judge::lst::{Lst, Sender, TestFields};
use nlx_tests::judge::wire::Order;

use crate::place::{Place, Tested, list};

/// The recorded sessions between one console and one node.
const ALONE: [&str; 4] = [
    include_str!("../../vectors/tcp-lst-ping.json"),
    include_str!("../../vectors/tcp-lst-read.json"),
    include_str!("../../vectors/tcp-lst-write.json"),
    include_str!("../../vectors/tcp-lst-console.json"),
];
/// A session that expires at the second of two nodes.
const EXPIRY: &str = include_str!("../../vectors/tcp-lst-expiry.json");
/// A node with two consoles.
const BUSY: &str = include_str!("../../vectors/tcp-lst-busy.json");
/// The order of the two consoles' requests: the first one's session is made, the second one is
/// refused and uses force, the first one is refused, the second one ends its session.
const BUSY_ORDER: [usize; 9] = [0, 6, 7, 1, 2, 3, 4, 5, 8];

/// Returns the exchanges of each recorded node, in order; all have replies.
fn recorded() -> Vec<Vec<Exchange>> {
    let mut all: Vec<_> = ALONE.iter().map(|json| exchanges(json).unwrap()).collect();
    let expiry = exchanges(EXPIRY).unwrap();
    let first = expiry[0].request.message.dest;
    let (one, mut other): (Vec<_>, Vec<_>) =
        expiry.into_iter().partition(|exchange| exchange.request.message.dest == first);
    // The PINGs of the test client are in a stream of their own, and came before the session's end.
    other.sort_by_key(|exchange| exchange.service == service::RMSN);
    let busy = exchanges(BUSY).unwrap();
    all.extend([one, other, BUSY_ORDER.map(|at| busy[at].clone()).to_vec()]);
    assert!(all.iter().flatten().all(|exchange| exchange.reply.is_some()));
    all
}

#[test]
fn elided_data_have_the_recorded_hash() {
    let data = sha256(&filled(LENGTH_MAX as usize, SIMPLE, Order::Little));
    let all = recorded();
    let moved = all.iter().flatten().filter(|exchange| exchange.service == service::BRW);
    let hashes: Vec<_> = moved
        .map(|exchange| exchange.fetched.as_ref().or(exchange.bulk.as_ref()).unwrap().sha256.clone())
        .collect();
    assert_eq!(hashes, vec![Some(data); 4]);
}

// Covers: S-313
#[test]
fn each_node_gives_the_recorded_replies() {
    for (number, exchanges) in recorded().into_iter().enumerate() {
        for place in [Place::raw(), Place::nlx(1)] {
            replay(&place, number, &exchanges);
        }
    }
}

/// Sends the recorded requests, with a node that is there in place of the recorded destinations.
fn replay(place: &Place, number: usize, exchanges: &[Exchange]) {
    let server = place.server();
    let mut console = place.console(Order::Little);
    for exchange in exchanges {
        let asked = Lst::received(&exchange.request.message.payload).unwrap();
        let bulk = match &exchange.bulk {
            Some(_) if exchange.service == service::TEST => {
                Bulk::Offer(list(Order::Little, &vec![server.nid; asked.at(78) as usize]))
            }
            Some(bulk) if bulk.message.kind == GET => {
                Bulk::Offer(filled(bulk.message.sink() as usize, SIMPLE, Order::Little))
            }
            Some(bulk) => Bulk::Await(bulk.message.length as usize),
            None => Bulk::None,
        };
        let due = Lst::received(&exchange.reply.as_ref().unwrap().message.payload).unwrap();
        settle(place, exchange.service, &asked, &due);
        let at = format!("recording {number}, {}, service {}", place.name(), exchange.service);
        let answer = console.call_bulk(exchange.service, asked.clone(), bulk);
        let answer = answer.unwrap_or_else(|error| panic!("{at}: {error}"));
        let [due, found] = [&due, &answer.reply].map(|reply| masked(exchange.service, &asked, reply));
        assert_eq!(found, due, "{at}");
        // That of a WRITE is in the REPLY to the GET.
        let hash = exchange.bulk.as_ref().and_then(|bulk| bulk.sha256.as_ref());
        assert!(hash.is_none_or(|hash| *hash == sha256(&answer.bulk)), "{at}: the data of a READ differ");
    }
}

/// Waits until as much runs at a node of nlx as a recorded reply says: its test clients take the time
/// that they take.
fn settle(place: &Place, to: u64, asked: &Lst, due: &Lst) {
    let Tested::Nlx { test, .. } = &place.node else { return };
    let due = match to {
        _ if due.status() != 0 => return,
        service::STAT => due.at(48),
        service::BATCH if asked.at(56) == 3 => due.at(44),
        _ => return,
    };
    until("as much runs as was recorded", || {
        let clients = test.clients();
        let running = clients.iter().filter(|client| client.instance.running() > 0);
        let mut of_batch = running.clone().filter(|client| client.batch == asked.wide(48));
        let found = match asked.at(60) as usize {
            _ if to == service::STAT => running.map(|client| client.batch).collect::<HashSet<_>>().len(),
            0 => of_batch.count(),
            test => of_batch
                .find(|client| client.test == test)
                .map_or(0, |client| client.instance.running() as usize),
        };
        found == due as usize
    });
}

/// Builds a request with the fields of a recorded one.
fn rebuilt(to: u64, asked: &Lst) -> Lst {
    let at = if to == service::TEST { 40 } else { 32 };
    let sender = Sender { order: Order::Little, features: asked.features(), sid: asked.sid_at(at) };
    let fields = TestFields {
        batch: asked.wide(56),
        service: asked.at(64),
        repeats: asked.at(68),
        concurrency: asked.at(72),
        is_client: asked.bytes[76],
        destinations: asked.at(78),
    };
    let built = match to {
        service::DEBUG => sender.debug(),
        service::MKSN => sender.mksn(asked.at(48), &asked.text(52)),
        service::RMSN => sender.rmsn(),
        service::STAT => sender.stat(),
        service::BATCH => sender.batch(asked.wide(48), asked.at(56), asked.at(60), asked.at(64)),
        service::TEST if asked.at(64) == 11 => {
            let built = sender.test_brw(&fields, asked.short(82), asked.short(84), asked.at(86));
            built.u64(32, asked.wide(32))
        }
        service::TEST => sender.test(&fields).u64(32, asked.wide(32)),
        service::BRW => sender.brw(asked.at(40), asked.at(44), asked.at(48)).u64(32, asked.wide(32)),
        _ => sender.ping(asked.at(36)).u64(40, asked.wide(40)).u64(48, asked.wide(48)),
    };
    built.u64(24, asked.reply_id())
}

#[test]
fn the_requests_of_the_raw_console_are_the_recorded_ones() {
    for exchange in recorded().into_iter().flatten() {
        let asked = Lst::received(&exchange.request.message.payload).unwrap();
        assert_eq!(rebuilt(exchange.service, &asked).bytes, asked.bytes, "service {}", exchange.service);
    }
}
