//! A connection allocates nothing after it is made.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conn_world;

use conn_world::{NEVER, link, message, pieces};
use lnet_o2iblnd::conn::{Conn, Limits, Own, ReceivedMessage};
use lnet_proto::ib::Link;
use nlx_testkit::heap::{COUNTING, WatchedHeap, allocations};

#[global_allocator]
static HEAP: WatchedHeap = COUNTING;

const LENGTH: u32 = 1 << 20;
const LIMITS: Limits =
    Limits { depth: 8, high_water: 4, sends: 8, works: 2080, messages: 256, keepalive_ns: NEVER };

/// Sends queued messages from one side to the other and back, until none is left. Messages are not
/// encoded.
fn talk(conns: &mut [Conn<u64>; 2], links: &[Link; 2], ended: &mut usize) {
    let memory = pieces(LENGTH);
    loop {
        let mut idle = true;
        for (at, link) in links.iter().enumerate() {
            let [a, b] = &mut *conns;
            let (from, to) = if at == 0 { (a, b) } else { (b, a) };
            while let Some(emit) = from.next(0) {
                idle = false;
                let message = message(link, emit.credits, emit.kind, (0, LENGTH), &memory);
                let (receipt, received) = to.received(&message).unwrap();
                let id = emit.id.bits();
                to.reposted(receipt);
                *ended += usize::from(from.completed(id).unwrap().is_some());
                match received {
                    ReceivedMessage::Nothing | ReceivedMessage::Immediate => {}
                    ReceivedMessage::PutReq(key) => {
                        to.attach(key, 1).unwrap();
                        to.ack(key, LENGTH, NEVER).unwrap();
                    }
                    ReceivedMessage::GetReq(key) => to.done(key, Ok(LENGTH), 256, NEVER).unwrap(),
                    ReceivedMessage::PutAck { put, length } => to.done(put, Ok(length), 256, NEVER).unwrap(),
                    ReceivedMessage::Ended(_) => *ended += 1,
                }
            }
        }
        if idle {
            return;
        }
    }
}

#[test]
fn a_connection_allocates_nothing_after_it_is_made() {
    let mut conns = [Conn::new(&LIMITS, 0), Conn::new(&LIMITS, 0)];
    let links = [link(0), link(1)];
    let mut ended = 0;
    let mut round = |round: u64| {
        // All queues are at their limits; one message of each round is withdrawn.
        for item in 0..u64::from(LIMITS.messages) {
            let own = [Own::Immediate, Own::Put { length: LENGTH }, Own::Get { length: LENGTH }];
            conns[0].queue(own[item as usize % 3], NEVER, item).unwrap();
        }
        assert!(conns[0].queue(Own::Immediate, NEVER, round).is_err());
        assert_eq!(conns[0].withdraw(|item| *item == round), Some(round));
        talk(&mut conns, &links, &mut ended);
        assert_eq!(conns[0].late(0), None);
    };
    assert_eq!(allocations(|| (0..100).for_each(&mut round)).1, 0);
    // All messages ended but the withdrawn ones, and also the sinks of the PUTs.
    assert_eq!(ended, 100 * 255 + 85 * 100 - (0..100).filter(|round| round % 3 == 1).count());
}
