//! Several transfer machines of one node, each with a thread that takes its events and handles each
//! message (the rows `smp/xo-…`, `smp/helper-…` and `smp/busy-…`). A peer sends to each machine;
//! each message is answered.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use nlx::{Buffer, Domain, Event, Machine, Op, Queue, TmOptions, TransferMachine};

use super::pair::{self, PORTAL};
use super::party::{MESSAGE, Party, RECEIVE_BUFFERS, RECEIVE_BYTES, receive};
use crate::cores;

use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::ours::helper::process::Helper;
use crate::ours::nodes::Nodes;
use crate::ours::spin::steps;
use crate::server::STEP_TIMEOUT;

/// Time that the handler of a message blocks, as if it waited for a disk.
const BLOCKS: Duration = Duration::from_millis(1);

/// Dependent steps of the handler that computes: some hundred microseconds.
const STEPS: u64 = 100_000;

/// Messages in flight to each machine, so that a next one is always available.
const AHEAD: u64 = 8;

/// Bytes of a message, and of its answer.
const BYTES: usize = 64;

/// The content of a sender's last message.
const END: &[u8] = b"end";

/// The work of a message's handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Block,
    Compute,
}

impl Work {
    fn run(self) {
        match self {
            Work::Block => std::thread::sleep(BLOCKS),
            Work::Compute => compute(),
        }
    }
}

/// Computes a handler's work. Never inlined, so that handlers and their anchor run the same code.
#[inline(never)]
fn compute() {
    black_box(steps(black_box(1), STEPS));
}

/// Delivery of events to the machines' threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Threads of the program wait.
    Waiting,
    /// Event threads call back.
    Callbacks,
    /// Threads of the program wait; the node is a helper's.
    Helper,
}

/// `MACHINES` machines of a node with one partition for each, with one waiting thread each;
/// handlers block. Thousands of messages a second.
pub(crate) fn waiting<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    handled(round, MACHINES, MACHINES, By::Waiting, Work::Block)
}

/// [`waiting`] on a node of one partition.
pub(crate) fn waiting_unpartitioned<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    handled(round, MACHINES, 1, By::Waiting, Work::Block)
}

/// [`waiting`] with callbacks.
pub(crate) fn called<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    handled(round, MACHINES, MACHINES, By::Callbacks, Work::Block)
}

/// [`called`] on a node of one partition.
pub(crate) fn called_unpartitioned<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    handled(round, MACHINES, 1, By::Callbacks, Work::Block)
}

/// [`waiting`] through a helper whose node has `MACHINES` partitions.
pub(crate) fn helped<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    handled(round, MACHINES, MACHINES, By::Helper, Work::Block)
}

/// [`helped`] with a node of one partition.
pub(crate) fn helped_unpartitioned<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    handled(round, MACHINES, 1, By::Helper, Work::Block)
}

/// [`waiting`] with handlers that compute, on all cores. Needs one core more than machines, for the
/// peers.
pub(crate) fn busy<const MACHINES: usize>(round: &Round) -> Result<Sample> {
    let count = cores::count()?;
    if count <= MACHINES {
        return Err(cores::lacks(count, &format!("{MACHINES} busy handlers and their peers need more")));
    }
    roaming(|| handled(round, MACHINES, MACHINES, By::Waiting, Work::Compute))
}

/// One thread that only computes the work of a handler. Thousands of handlers' work a second.
pub(crate) fn computing(round: &Round) -> Result<Sample> {
    let work = || {
        compute();
        Ok(1)
    };
    let timed = roaming(|| Timed::warm(round.time, work))?;
    Ok(Sample::of(timed.millions_per_second() * 1e3))
}

/// Runs `work` on a thread that may use all processors, as may the threads that it starts.
fn roaming<R: Send>(work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| cores::roam().and_then(|()| work()));
        thread.join().expect("the thread does not panic")
    })
}

/// Returns the number of handled messages per second, in thousands.
fn handled(round: &Round, machines: usize, partitions: usize, by: By, work: Work) -> Result<Sample> {
    let nodes = Nodes::choose()?.partitioned(partitions);
    let helper = (by == By::Helper).then(|| Helper::start(round.cores, nodes, nodes.server)).transpose()?;
    let domain = match &helper {
        Some(helper) => helper.domain()?,
        None => pair::in_process(nodes, nodes.server)?,
    };
    let handler = Arc::new(Handler { work, domain, count: AtomicU64::new(0), failure: Mutex::new(None) });
    let names = (1..=machines).map(|id| format!("{}@tcp:12345:{PORTAL}:{id}", nodes.server));
    let names: Vec<String> = names.collect();
    let receivers = names.iter().map(|name| handler.machine(name, by)).collect::<Result<Vec<_>>>()?;
    let peers = nodes.partitioned(machines).peers_by_partition()?;
    let sender = |(own, to): (_, &String)| {
        let domain = pair::in_process(nodes.partitioned(1), own)?;
        Party::start(domain, &format!("{own}@tcp:12345:{PORTAL}:1"), to)
    };
    let mut senders = peers.into_iter().zip(&names).map(sender).collect::<Result<Vec<_>>>()?;
    let (start, over) = (Barrier::new(machines + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let waiting = receivers.iter().filter(|_| by != By::Callbacks);
        let waiting: Vec<_> = waiting.map(|tm| scope.spawn(|| handler.serve(tm))).collect();
        let sending = senders.iter_mut().map(|sender| {
            scope.spawn(|| {
                let connected = exchange(sender, 1);
                // A sender that has failed must not make the others wait.
                start.wait();
                connected.and_then(|()| send(sender, &over))
            })
        });
        let sending: Vec<_> = sending.collect();
        start.wait();
        let (begun, before) = (Instant::now(), handler.count());
        std::thread::sleep(round.time);
        let (count, seconds) = (handler.count() - before, begun.elapsed().as_secs_f64());
        over.store(true, Ordering::Relaxed);
        let outcomes = joined(sending).and(joined(waiting));
        let failure = handler.failure.lock().expect("no holder panics").take();
        failure.map_or(outcomes, Err)?;
        Ok(Sample::of(count as f64 / seconds / 1e3))
    })
}

fn joined(threads: Vec<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    // All threads are joined before an error is returned.
    let outcomes = threads.into_iter().map(|thread| thread.join().expect("the thread does not panic"));
    outcomes.collect::<Vec<_>>().into_iter().collect()
}

/// Sends `count` messages, and waits for their answers.
fn exchange(sender: &mut Party, count: u64) -> Result<()> {
    sender.send_messages(count, BYTES)?;
    answers(sender, count)
}

fn answers(sender: &mut Party, count: u64) -> Result<()> {
    let mut missing = count;
    while missing > 0 {
        sender.next(|_| missing -= 1)?;
    }
    Ok(())
}

/// Keeps [`AHEAD`] messages in flight until the end, then ends the machine's thread.
fn send(sender: &mut Party, over: &AtomicBool) -> Result<()> {
    sender.send_messages(AHEAD, BYTES)?;
    while !over.load(Ordering::Relaxed) {
        answers(sender, 1)?;
        sender.send_messages(1, BYTES)?;
    }
    answers(sender, AHEAD)?;
    sender.send_content(END)?;
    answers(sender, 1)
}

/// The handler of the machines' events.
struct Handler {
    work: Work,
    domain: Domain,
    count: AtomicU64,
    /// The error of a callback.
    failure: Mutex<Option<BenchError>>,
}

impl Handler {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Starts a machine that receives messages.
    fn machine(self: &Arc<Handler>, name: &str, by: By) -> Result<TransferMachine> {
        let builder = self.domain.machine().options(TmOptions::default());
        let builder = if by == By::Callbacks {
            let (handler, mut idle) = (self.clone(), Vec::new());
            builder.callbacks(move |tm, event| {
                if let Err(error) = handler.handle(tm, event, &mut idle) {
                    handler.failure.lock().expect("no holder panics").get_or_insert(error);
                }
            })
        } else {
            builder
        };
        let tm = builder.start(name).map_err(BenchError::nlx("start a transfer machine"))?;
        for _ in 0..RECEIVE_BUFFERS {
            listen(&tm, self.buffer(RECEIVE_BYTES)?)?;
        }
        Ok(tm)
    }

    /// Handles the events of a machine until its sender has sent the last message.
    fn serve(&self, tm: &TransferMachine) -> Result<()> {
        let mut idle = Vec::new();
        loop {
            let event = tm.wait(Some(STEP_TIMEOUT)).map_err(BenchError::nlx("wait for an event"))?;
            let event =
                event.ok_or(BenchError::TimedOut { event: "an event", seconds: STEP_TIMEOUT.as_secs() })?;
            if self.handle(tm, event, &mut idle)? {
                return Ok(());
            }
        }
    }

    /// Handles an event; a message is answered. `idle` has the buffers that nothing is sent from.
    /// Returns whether this was the sender's last message.
    fn handle(&self, tm: &Machine, event: Event, idle: &mut Vec<Buffer>) -> Result<bool> {
        event.status.map_err(BenchError::nlx("an operation"))?;
        let mut is_last = false;
        if let Some(message) = event.message {
            is_last = message.starts_with(END);
            // The buffer can be posted again once no message lies in it.
            drop(message);
            self.work.run();
            self.count.fetch_add(1, Ordering::Relaxed);
            let buffer = idle.pop().map_or_else(|| self.buffer(MESSAGE), Ok)?;
            let missing = BenchError::Wrong { subject: "the number of senders", value: 0, expected: 1 };
            let answered = tm.start(Op::send(buffer, &event.sender.ok_or(missing)?).length(BYTES));
            answered.map_err(BenchError::nlx("send an answer"))?;
        }
        match (event.queue, event.buffer) {
            (Queue::MessageReceive, Some(buffer)) => listen(tm, buffer)?,
            (_, buffer) => idle.extend(buffer),
        }
        Ok(is_last)
    }

    fn buffer(&self, length: usize) -> Result<Buffer> {
        self.domain.allocate(length).map_err(BenchError::nlx("allocate a buffer"))
    }
}

fn listen(tm: &Machine, buffer: Buffer) -> Result<()> {
    tm.start(receive(buffer)).map(drop).map_err(BenchError::nlx("post a receive buffer"))
}
