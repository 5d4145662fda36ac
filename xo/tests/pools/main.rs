//! Buffer pools, and transfer machines that are provisioned from them, over the loopback network
//! `0@lo` (MT-112 to 129).
#![cfg(feature = "in-process")]
// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use nlx::{
    Buffer, BufferPool, BufferPoolOptions, Colour, Domain, Error, Event, Machine, MachineBuilder, NodeConfig,
    Op, PoolCounts, Provision, Queue, Stop, TransferMachine,
};
use nlx_testkit::until;

#[path = "../support/helper.rs"]
mod helper;

mod faults;
mod model;
mod pool;
mod provision;
mod registrations;
mod threads;

const BYTES: usize = 4096;

const ADDRESS: &str = "0@lo:12345:31:*";

fn domain() -> Domain {
    helper::domain(module_path!(), &NodeConfig::new())
}

/// Creates a pool with this number of buffers and 10 colours.
fn pool(domain: &Domain, buffers: usize) -> BufferPool {
    let pool = domain.pool(BufferPoolOptions::new(BYTES).colours(10)).unwrap();
    assert_eq!(pool.provision(buffers).unwrap_or_default(), buffers);
    pool
}

/// Creates a domain, and in it a pool with this number of buffers.
fn with_pool(buffers: usize) -> (Domain, BufferPool) {
    let domain = domain();
    let pool = pool(&domain, buffers);
    (domain, pool)
}

fn free(pool: &BufferPool) -> usize {
    pool.counts().free
}

/// Returns the builder of a transfer machine that keeps two receive buffers of the pool posted.
fn provisioned<'a>(domain: &'a Domain, pool: &BufferPool, colour: Colour) -> MachineBuilder<'a> {
    domain.machine().pool(pool, one_message(colour))
}

/// Two buffers of one message each.
fn one_message(colour: Colour) -> Provision {
    Provision { min_receive_size: BYTES, max_messages: 1, buffers: 2, colour }
}

fn posted(machine: &Machine) -> usize {
    machine.posted(Queue::MessageReceive)
}

/// Sends bytes, and waits until they have arrived or were dropped.
struct Sender {
    tm: TransferMachine,
    buffer: Option<Buffer>,
}

impl Sender {
    fn new(domain: &Domain) -> Sender {
        let tm = domain.machine().start(ADDRESS).unwrap();
        Sender { tm, buffer: Some(domain.allocate(BYTES).unwrap()) }
    }

    fn send(&mut self, bytes: &[u8], to: &Machine) {
        let mut buffer = self.buffer.take().unwrap();
        buffer.write().unwrap()[..bytes.len()].copy_from_slice(bytes);
        let to = self.tm.end_point(&to.address().to_string()).unwrap();
        self.tm.start(Op::send(buffer, &to).length(bytes.len())).unwrap();
        let event = self.tm.wait(None).unwrap().unwrap();
        assert_eq!(event.status, Ok(()));
        self.buffer = event.buffer;
    }
}

/// Waits for the next event.
fn next(tm: &TransferMachine) -> Event {
    tm.wait(None).unwrap().expect("a wait without end brings an event")
}
