//! Messages through one engine by one or two threads, with and without shared partitions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use lnet_api::{EqHandle, EventHandler};
use lnet_nid::ProcessId;
use lnet_region::IoVec;
use nlx_testkit::events::on_event;

use super::node::{self, Node};
use crate::cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Exchanges between two readings of the clock.
const BATCH: u64 = 256;

/// Largest number of threads of a measurement; the peers of each belong to one of that number of
/// partitions.
const THREADS: usize = 2;

/// Two threads, each for a separate partition: millions of exchanges a second.
pub(crate) fn two_threads(round: &Round) -> Result<Sample> {
    exchanges_of_one(round, THREADS, THREADS)
}

/// One thread with the same node.
pub(crate) fn one_thread(round: &Round) -> Result<Sample> {
    exchanges_of_one(round, 1, THREADS)
}

/// Two threads that share the only partition.
pub(crate) fn two_threads_one_partition(round: &Round) -> Result<Sample> {
    exchanges_of_one(round, THREADS, 1)
}

/// Two threads with separate nodes, which share nothing: the limit of the machine. On two
/// processors that share a core, that is less than twice the rate of one thread.
pub(crate) fn two_nodes(round: &Round) -> Result<Sample> {
    let nodes = [Node::new(THREADS)?, Node::new(THREADS)?];
    exchanges(round, &nodes.each_ref(), THREADS)
}

fn exchanges_of_one(round: &Round, threads: usize, partitions: usize) -> Result<Sample> {
    let node = Node::new(partitions)?;
    exchanges(round, &[&node, &node][..threads], partitions)
}

/// Runs one thread for each node.
fn exchanges(round: &Round, nodes: &[&Node], partitions: usize) -> Result<Sample> {
    let start = Barrier::new(nodes.len());
    let work = |number: usize| {
        let core = [round.cores.client, round.cores.server][number];
        let ready = cores::pin(core).and_then(|()| Exchange::new(nodes[number], number));
        // A thread that has failed must not make the others wait.
        start.wait();
        let mut exchange = ready?;
        lnet_cpt::with_partition(number % partitions, || {
            Timed::warm(round.time, || (0..BATCH).try_for_each(|_| exchange.step()).map(|()| BATCH))
        })
    };
    let rates = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..nodes.len()).map(|number| scope.spawn(move || work(number))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Timed>>| {
            thread.join().expect("the thread does not panic").map(Timed::millions_per_second)
        };
        threads.into_iter().map(join).collect::<Result<Vec<f64>>>()
    })?;
    Ok(Sample::of(rates.iter().sum()))
}

/// Returns a handler that counts its events.
pub(super) fn counting(events: &Arc<AtomicU64>) -> Arc<dyn EventHandler> {
    let events = events.clone();
    on_event(move |_| {
        events.fetch_add(1, Ordering::Relaxed);
    })
}

/// A thread's event queue, memory and peer.
pub(super) struct Exchange<'a> {
    node: &'a Node,
    peer: ProcessId,
    memory: IoVec,
    eq: EqHandle,
    events: Arc<AtomicU64>,
    /// Match bits that distinguish this thread's buffers from those of the others.
    bits: u64,
}

impl<'a> Exchange<'a> {
    /// Creates the objects of thread `number`. Its peer belongs to the partition of this number.
    pub(super) fn new(node: &'a Node, number: usize) -> Result<Exchange<'a>> {
        let addresses = 0x0a02_0000..;
        let mut peers = addresses.map(node::process).filter(|peer| peer.nid.cpt_of(THREADS) == number);
        let peer = peers.next().unwrap_or(ProcessId::ANY);
        let events = Arc::new(AtomicU64::new(0));
        let (eq, memory) = (node.queue(counting(&events))?, IoVec::whole(node::memory(64)?));
        Ok(Exchange { node, peer, memory, eq, events, bits: (number as u64) << 32 })
    }

    /// Receives and sends a message, with all actions of its owner: posts a buffer, which receives
    /// the PUT and is unlinked, and binds one, which is sent and unlinked. Each has its event.
    pub(super) fn step(&mut self) -> Result<()> {
        self.bits += 1;
        let before = self.events.load(Ordering::Relaxed);
        let inbox = node::open_md(self.memory.clone(), self.eq, 0);
        self.node.post(ProcessId::ANY, self.bits, node::once(inbox))?;
        self.node.arrive(self.peer, self.bits)?;
        let letter = node::own_md(self.memory.clone(), self.eq);
        let letter = self.node.bind(node::once(letter))?;
        self.node.put(letter, self.peer, self.bits)?;
        match self.events.load(Ordering::Relaxed) - before {
            2 => Ok(()),
            value => Err(BenchError::Wrong { subject: "events of two messages", value, expected: 2 }),
        }
    }
}
