//! Threads that wait on one node, whose handlers block: the number that run at a time
//! (`smp/handlers-…`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use lnet_api::{AckRequest, EventKind, MdHandle, Sleeper, wait_until};
use nlx_testkit::events::on_event;

use super::station::{Station, Wait, buffer};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::nodes::Nodes;

/// Time that the handler of a message blocks, as if it waited for a disk.
const BLOCKS: Duration = Duration::from_millis(1);

/// Messages in flight to each transfer machine, so that a next one is always available.
const AHEAD: u64 = 8;

const BYTES: usize = 64;

/// The buffer of a sender.
const SENT: usize = 0;

/// One thread waits on a node of one partition.
pub(crate) fn one(round: &Round) -> Result<Sample> {
    handled(round, 1, 1)
}

/// One thread for each of `THREADS` partitions; each has a transfer machine, and a peer that sends
/// to it.
pub(crate) fn several<const THREADS: usize>(round: &Round) -> Result<Sample> {
    handled(round, THREADS, THREADS)
}

/// `THREADS` threads on a node of one partition.
pub(crate) fn unpartitioned<const THREADS: usize>(round: &Round) -> Result<Sample> {
    handled(round, THREADS, 1)
}

/// Returns the number of handled messages per second, in thousands.
fn handled(round: &Round, threads: usize, partitions: usize) -> Result<Sample> {
    let nodes = Nodes::choose()?.partitioned(partitions);
    let server = Station::server(nodes)?;
    let slow = Arc::new(AtomicU64::new(0));
    let count = slow.clone();
    let handler = on_event(move |event| {
        if event.kind == EventKind::Put {
            std::thread::sleep(BLOCKS);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    for machine in 0..threads {
        let eq = server.node.lnet().eq_alloc(handler.clone());
        server.post_for(eq.map_err(BenchError::nlx("make an event queue"))?, machine, buffer(BYTES)?)?;
    }
    let peers = nodes.partitioned(threads).peers_by_partition()?;
    let senders = peers.into_iter().map(|own| Station::start(nodes.partitioned(1), own, nodes.server));
    let senders = senders.collect::<Result<Vec<_>>>()?;
    // All connect before handlers block: while a handler runs, the thread that drives the listener
    // accepts no connection.
    let (start, over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let sleepers =
        (0..threads).map(|_| Sleeper::new().map(Arc::new)).collect::<std::result::Result<Vec<_>, _>>();
    let sleepers = sleepers.map_err(BenchError::system("make an eventfd"))?;
    std::thread::scope(|scope| {
        let (node, over, start) = (&server.node, &over, &start);
        for sleeper in &sleepers {
            scope.spawn(move || wait_until(&*node.drive(), sleeper, None, || over.load(Ordering::Relaxed)));
        }
        let sending = |(machine, sender): (usize, Station)| {
            scope.spawn(move || {
                let connected = connect(&sender, machine);
                // A sender that has failed must not make the others wait.
                start.wait();
                send(&sender, connected?, machine, || over.load(Ordering::Relaxed))
            })
        };
        let sending: Vec<_> = senders.into_iter().enumerate().map(sending).collect();
        start.wait();
        let (begun, before) = (Instant::now(), slow.load(Ordering::Relaxed));
        std::thread::sleep(round.time);
        let handled = slow.load(Ordering::Relaxed) - before;
        let seconds = begun.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let sent = sending.into_iter().map(|thread| thread.join().expect("the thread does not panic"));
        let sent = sent.collect::<Result<()>>();
        sleepers.iter().for_each(|sleeper| sleeper.wake());
        sent.map(|()| Sample::of(handled as f64 / seconds / 1e3))
    })
}

/// Sends the first message, which opens the connection, and waits for its acknowledgement.
fn connect(sender: &Station, machine: usize) -> Result<MdHandle> {
    let md = sender.bind(SENT, buffer(BYTES)?)?;
    sender.put(md, machine, 0, AckRequest::Ack)?;
    sender.wait_for(SENT, 1, Wait::Sleep)?;
    Ok(md)
}

/// Keeps [`AHEAD`] messages in flight until the end, and waits for the last of them.
fn send(sender: &Station, md: MdHandle, machine: usize, over: impl Fn() -> bool) -> Result<()> {
    let mut sent = 1;
    while !over() {
        sender.put(md, machine, 0, AckRequest::Ack)?;
        sent += 1;
        sender.wait_for(SENT, (sent + 1_u64).saturating_sub(AHEAD), Wait::Sleep)?;
    }
    sender.wait_for(SENT, sent, Wait::Sleep)
}
