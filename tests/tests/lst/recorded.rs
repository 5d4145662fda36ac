//! Recorded sessions of kernel nodes: the raw node gives the recorded replies, and the raw console's
//! requests are the recorded ones.

use nlx_tests::judge::frame::GET;
use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::data::{LENGTH_MAX, SIMPLE, filled};
use nlx_tests::judge::lst::message::service;
use nlx_tests::judge::lst::recorded::{Exchange, exchanges, masked};
use nlx_tests::judge::lst::sha256::sha256;
use nlx_tests::judge::lst::{Lst, Sender, TestFields};
use nlx_tests::judge::wire::Order;

use crate::Place;

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
    let (one, other) = expiry.into_iter().partition(|exchange| exchange.request.message.dest == first);
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

#[test]
fn the_raw_node_gives_the_recorded_replies() {
    for (number, exchanges) in recorded().into_iter().enumerate() {
        let place = Place::new(20 + number as u8);
        let mut console = place.console(Order::Little);
        for exchange in exchanges {
            let asked = Lst::received(&exchange.request.message.payload).unwrap();
            let bulk = match (&exchange.fetched, &exchange.bulk) {
                (Some(list), _) if list.sha256.is_none() => Bulk::Offer(list.message.payload.clone()),
                (_, Some(bulk)) if bulk.message.kind == GET => {
                    Bulk::Offer(filled(bulk.message.sink() as usize, SIMPLE, Order::Little))
                }
                (_, Some(bulk)) => Bulk::Await(bulk.message.length as usize),
                (_, None) => Bulk::None,
            };
            let answer = console.call_bulk(exchange.service, asked.clone(), bulk).unwrap();
            let due = Lst::received(&exchange.reply.unwrap().message.payload).unwrap();
            let [due, found] = [&due, &answer.reply].map(|reply| masked(exchange.service, &asked, reply));
            assert_eq!(found, due, "recording {number}, service {}", exchange.service);
            if exchange.bulk.is_some_and(|bulk| bulk.sha256.is_some_and(|hash| hash != sha256(&answer.bulk)))
            {
                panic!("recording {number}: the data of a READ differ");
            }
        }
    }
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
