//! MT-219: a client that corrupts shared memory is detected, and other clients do not notice.

use std::sync::Arc;

use nlx_core::OperationKind;
use nlx_driver_proto::{Entry, Request, Submission};
use nlx_helper::{Host, Violation};
use nlx_kcore::Anomalies;
use zerocopy::FromZeros;

use crate::client::{Client, ROOT, Tm, USER, operation, spoil};
use crate::worlds::loopback;

/// Offsets of the consumer's words in a queue's memory.
const CONSUMED: usize = 128;
const SLOTS: usize = 136;

/// Two clients that send messages to each other, of which the second is honest.
struct Pair {
    host: Arc<Host>,
    liar: Client,
    honest: Client,
    tms: [Tm; 2],
    arenas: [u32; 2],
}

impl Pair {
    fn new() -> Pair {
        let host = loopback();
        let (mut liar, mut honest) = (Client::connect(&host, USER), Client::connect(&host, ROOT));
        let tms = [liar.start("0@lo:12345:40:*", 8), honest.start("0@lo:12345:40:*", 8)];
        let arenas = [liar.arena(4096).handle, honest.arena(4096).handle];
        Pair { host, liar, honest, tms, arenas }
    }

    /// Has the honest client send itself a message, and checks that it arrives.
    fn honest_goes_on(&mut self) {
        let arena = self.arenas[1];
        let (from, to) = (self.honest.register(0, arena, 0, 64), self.honest.register(1, arena, 64, 64));
        let tm = &mut self.tms[1];
        let to_itself = OperationKind::Send { length: 8, to: tm.address };
        let receive = OperationKind::Receive { min_receive_size: 64, max_messages: 1 };
        self.honest.operate(tm, to, receive, 0);
        self.honest.operate(tm, from, to_itself, 0);
        let mut ended =
            [tm.event().unwrap(), tm.event().unwrap()].map(|event| (event.buffer(), event.status()));
        ended.sort_by_key(|(buffer, _)| *buffer);
        assert_eq!(ended, [(from, Ok(())), (to, Ok(()))]);
        for buffer in [from, to] {
            self.honest.push(&Entry::Deregister { buffer });
        }
        self.honest.drain().unwrap();
        assert_eq!(self.honest.session.check(), Ok(()));
    }

    /// Starts sends of the liar, until it is detected.
    fn lie(&mut self, sends: u32) -> Result<(), Violation> {
        for place in 0..sends {
            let buffer = self.liar.register(place, self.arenas[0], 0, 8);
            let send = OperationKind::Send { length: 8, to: self.tms[0].address };
            self.liar.push(&operation(&self.tms[0], buffer, send, 0));
            self.liar.drain()?;
        }
        self.liar.session.check()
    }
}

/// A client that provisions less than its operations need: the queue is full, and an event is lost.
// Covers: MT-219
#[test]
fn a_client_that_lies_about_its_room_is_cut_off() {
    let mut pair = Pair::new();
    let address = pair.tms[0].address;
    assert_eq!(pair.lie(1), Ok(()), "a new queue has room for one event");
    assert_eq!(pair.lie(2), Err(Violation::EventQueue { address }));
    pair.honest_goes_on();
    pair.liar = Client::connect(&pair.host, USER);
    assert!(!pair.host.sweep(), "it has left nothing");
    assert_eq!(pair.host.status().faults, Anomalies::default(), "nobody else's fault");
    pair.honest_goes_on();
}

/// A client that writes impossible counts into the event queue.
// Covers: MT-219
#[test]
fn a_client_that_spoils_its_event_queue_is_cut_off() {
    for (place, word) in
        [(CONSUMED, u64::MAX), (CONSUMED, 7), (SLOTS, 1), (SLOTS, 0), (SLOTS, u32::MAX.into())]
    {
        let mut pair = Pair::new();
        let address = pair.tms[0].address;
        assert_eq!(pair.lie(1), Ok(()));
        pair.tms[0].events.provision(2).unwrap();
        spoil(&pair.tms[0].memory, place, &word.to_ne_bytes()[..if place == SLOTS { 4 } else { 8 }]);
        assert_eq!(pair.lie(2), Err(Violation::EventQueue { address }), "{word} at {place}");
        pair.honest_goes_on();
    }
}

/// Invalid entries of the ring, and a ring that points outside its memory.
// Covers: MT-219
#[test]
fn a_client_that_spoils_its_ring_is_cut_off() {
    let mut pair = Pair::new();
    pair.liar.ring.push(Submission::new_zeroed()).unwrap();
    assert!(matches!(pair.liar.drain(), Err(Violation::Entry(_))));
    pair.honest_goes_on();

    let mut pair = Pair::new();
    // The stamp of the first slot: event 1, followed by a slot that does not exist.
    let slots = pair.liar.ring.max_slots() as usize;
    let stamp = (640 + 4 * slots).next_multiple_of(128) + 120;
    spoil(&pair.liar.ring_memory, stamp, &(1u64 << 32 | 0xffff_ffff).to_ne_bytes());
    // The contents of the slot are not an entry.
    assert!(pair.liar.drain().is_err());
    assert!(matches!(pair.liar.drain(), Err(Violation::Ring(_))));
    assert!(!pair.liar.session.prepare_sleep(), "there is something to hear");
    pair.honest_goes_on();
    assert_eq!(
        pair.liar.session.request(&[], &mut Default::default()).err().map(|v| v.errno()),
        Some(nlx_core::Errno::EPROTO)
    );
}

/// However many entries the ring has, a call carries out its budget; but a request comes after all
/// of them.
#[test]
fn a_full_ring_is_carried_out_within_the_budget() {
    let mut pair = Pair::new();
    let cancel = Entry::Cancel { tm: 1, buffer: nlx_core::BufferHandle(1 << 32), cookie: 0 };
    for _ in 0..pair.liar.ring.max_slots() - 1 {
        pair.liar.push(&cancel);
    }
    assert_eq!(pair.liar.session.drain(10), Ok(10));
    pair.liar.done(&Request::Sync);
    assert_eq!(pair.liar.session.drain(10), Ok(0), "a request empties the ring first");
}
