//! The whole stack over the loopback network `0@lo`: every operation, through the client's
//! interface (MT-211, S-417).

// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use nlx::{
    Buffer, Domain, Errno, Event, NodeConfig, Op, OpId, Queue, Started, Stop, TmOptions, TransferMachine,
};
use nlx_testkit::buffers::pattern;
use nlx_testkit::{TIME_LIMIT, until};

#[path = "../support/helper.rs"]
mod helper;

mod batches;
mod buffers;
mod callbacks;
mod cancelling;
mod large;
mod large_races;
mod operations;
mod panics;
mod reentrance;
mod stopping;
mod timeouts;

const PORTAL: u32 = 31;

/// A domain with only the loopback network, and two transfer machines.
struct Pair {
    domain: Domain,
    a: TransferMachine,
    b: TransferMachine,
}

impl Pair {
    fn new() -> Pair {
        let domain = domain();
        let (a, b) = (machine(&domain), machine(&domain));
        Pair { domain, a, b }
    }

    /// Allocates a buffer, and fills it with these bytes.
    fn filled(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.domain.allocate(bytes.len()).unwrap();
        buffer.write().unwrap().copy_from_slice(bytes);
        buffer
    }

    fn empty(&self, bytes: usize) -> Buffer {
        self.domain.allocate(bytes).unwrap()
    }

    /// Sends a message from `a` to `b`, and takes the event of the send.
    fn send(&self, bytes: &[u8]) {
        let to = self.a.end_point(&self.b.address().to_string()).unwrap();
        let op = self.a.start(Op::send(self.filled(bytes), &to)).unwrap().op;
        let event = next(&self.a);
        assert_eq!((event.op, event.queue, event.status), (op, Queue::MessageSend, Ok(())));
    }
}

fn domain() -> Domain {
    helper::domain(module_path!(), &NodeConfig::new())
}

fn machine(domain: &Domain) -> TransferMachine {
    domain.transfer_machine(&format!("0@lo:12345:{PORTAL}:*"), TmOptions::default()).unwrap()
}

/// Waits for the next event without limit.
fn next(tm: &TransferMachine) -> Event {
    tm.wait(None).unwrap().expect("a wait without end brings an event")
}

/// Takes the next event, which must be the last one of this operation.
fn end_of(tm: &TransferMachine, op: OpId) -> Event {
    let event = next(tm);
    assert!(event.is_last());
    assert_eq!(event.op, op);
    event
}
