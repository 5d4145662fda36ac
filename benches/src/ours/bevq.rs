//! The queue of buffer events between two processes.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use nlx_bev_cqueue::{Consumer, PopError, Producer, PushError, SharedMemory};

use super::spin::Spin;
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::server::{self, Server};

pub(crate) const TAKER: &str = "bevq-taker";
pub(crate) const ECHO: &str = "bevq-echo";

/// The longest event: with its stamp it fills a slot of 128 bytes.
type Event = [u64; WORDS];
const WORDS: usize = 15;

/// Slots of the queue: the same number as in the row's anchor, rtrb.
const SLOTS: u32 = crate::anchors::ring::SLOTS as u32;

/// Number of events that are taken together.
const CHUNK: usize = crate::anchors::ring::CHUNK;

/// Events between two readings of the clock.
const BATCH: u64 = 4096;

/// Number of the event that ends a stream; no other event has it.
const END: u64 = u64::MAX;

/// One event at a time. Millions of events per second.
pub(crate) fn one_by_one(round: &Round) -> Result<Sample> {
    stream(round, 1)
}

/// Events pushed and taken in chunks of 32. Millions of events per second.
pub(crate) fn in_chunks(round: &Round) -> Result<Sample> {
    stream(round, CHUNK)
}

fn stream(round: &Round, chunk: usize) -> Result<Sample> {
    let (mut producer, shared) = producer()?;
    let server = Server::start(TAKER, round.cores, &[shared.path(), chunk.to_string()])?;
    let mut spin = Spin::new(round.cores, "room for an event");
    let mut sent = 0;
    let timed = Timed::warm(round.time, || {
        if chunk == 1 {
            (sent..sent + BATCH).try_for_each(|number| push(&mut producer, number, &mut spin))?;
        } else {
            for first in (sent..sent + BATCH).step_by(chunk) {
                push_chunk(&mut producer, first..first + chunk as u64, &mut spin)?;
            }
        }
        sent += BATCH;
        Ok(BATCH)
    })?;
    push(&mut producer, END, &mut spin)?;
    server.finish()?;
    Ok(Sample::of(timed.millions_per_second()))
}

/// One event in each direction, through two queues. Nanoseconds one way.
pub(crate) fn latency(round: &Round) -> Result<Sample> {
    let (mut there, shared_there) = producer()?;
    let (memory, fd) = SharedMemory::create(SLOTS).map_err(BenchError::nlx("make a queue"))?;
    let mut back = consumer(memory)?;
    let server = Server::start(ECHO, round.cores, &[shared_there.path(), SharedQueue(fd).path()])?;
    let mut spin = Spin::new(round.cores, "an event");
    let mut turn = 0;
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            turn += 1;
            push(&mut there, turn, &mut spin)?;
            check(&pop(&mut back, turn, &mut spin)?, turn)?;
        }
        Ok(BATCH)
    })?;
    push(&mut there, END, &mut spin)?;
    server.finish()?;
    Ok(Sample::of(timed.nanoseconds_per_step() / 2.0))
}

/// Takes events until [`END`] arrives, and checks that none is missing.
pub(crate) fn take(cores: Cores, args: &[String]) -> Result<()> {
    let mut consumer = consumer(attach(args, 0)?)?;
    let chunk = args.get(1).and_then(|chunk| chunk.parse().ok()).unwrap_or(1);
    server::ready("")?;
    match chunk {
        1 => take_singly(&mut consumer, cores),
        _ => take_chunks(&mut consumer, chunk, cores),
    }
}

/// Sends each event back, until [`END`] arrives.
pub(crate) fn echo(cores: Cores, args: &[String]) -> Result<()> {
    let mut there = consumer(attach(args, 0)?)?;
    let mut back = Producer::new(attach(args, 1)?).map_err(BenchError::nlx("take the producer's half"))?;
    server::ready("")?;
    let mut spin = Spin::new(cores, "an event");
    for turn in 1.. {
        let event = pop(&mut there, turn, &mut spin)?;
        if event[0] == END {
            break;
        }
        push(&mut back, event[0], &mut spin)?;
    }
    Ok(())
}

// The loops below do not pass an event to another function: copying an event through the stack once
// more doubles the instructions, and a core only looks a limited number of instructions ahead for
// the next event's cache lines. The anchors' loops are written in the same way.

fn take_singly(consumer: &mut Consumer<Event, SharedMemory>, cores: Cores) -> Result<()> {
    let mut spin = Spin::new(cores, "an event");
    let mut expected = 0;
    loop {
        match consumer.pop() {
            Ok(event) if black_box(&event)[0] == END => return Ok(()),
            Ok(event) => expected = check(&event, expected)?,
            Err(PopError::Empty) => spin.turn(expected)?,
            Err(error) => return Err(BenchError::nlx("take an event")(error)),
        }
    }
}

fn take_chunks(consumer: &mut Consumer<Event, SharedMemory>, chunk: usize, cores: Cores) -> Result<()> {
    let mut spin = Spin::new(cores, "events");
    let mut expected = 0;
    loop {
        let before = expected;
        for event in consumer.drain(chunk) {
            if black_box(&event)[0] == END {
                return Ok(());
            }
            expected = check(&event, expected)?;
        }
        if expected == before {
            spin.turn(expected)?;
        }
    }
}

/// Pushes the event with this number.
#[inline(always)]
fn push(producer: &mut Producer<Event, SharedMemory>, number: u64, spin: &mut Spin) -> Result<()> {
    while let Err(error) = producer.push([number; WORDS]) {
        match error {
            PushError::Full { .. } => spin.turn(number)?,
            error => return Err(BenchError::nlx("push an event")(error)),
        }
    }
    Ok(())
}

/// Pushes the events with these numbers.
#[inline(always)]
fn push_chunk(
    producer: &mut Producer<Event, SharedMemory>,
    numbers: Range<u64>,
    spin: &mut Spin,
) -> Result<()> {
    let count = (numbers.end - numbers.start) as usize;
    let mut events = numbers.map(|number| [number; WORDS]);
    let mut pushed = 0;
    while pushed < count {
        match producer.push_iter(events.by_ref()) {
            Ok(some) => pushed += some,
            Err(PushError::Full { .. }) => spin.turn(pushed as u64)?,
            Err(error) => return Err(BenchError::nlx("push events")(error)),
        }
    }
    Ok(())
}

#[inline(always)]
fn pop(consumer: &mut Consumer<Event, SharedMemory>, turn: u64, spin: &mut Spin) -> Result<Event> {
    loop {
        match consumer.pop() {
            Ok(event) => return Ok(event),
            Err(PopError::Empty) => spin.turn(turn)?,
            Err(error) => return Err(BenchError::nlx("take an event")(error)),
        }
    }
}

/// Checks an event's number; returns that of the next event.
fn check(event: &Event, expected: u64) -> Result<u64> {
    if event[0] == expected {
        return Ok(expected + 1);
    }
    Err(BenchError::Wrong { subject: "the number of an event", value: event[0], expected })
}

fn producer() -> Result<(Producer<Event, SharedMemory>, SharedQueue)> {
    let (memory, fd) = SharedMemory::create(SLOTS).map_err(BenchError::nlx("make a queue"))?;
    let producer = Producer::new(memory).map_err(BenchError::nlx("take the producer's half"))?;
    Ok((producer, SharedQueue(fd)))
}

/// Returns the consumer's half, with room in all slots but the divider.
fn consumer(memory: SharedMemory) -> Result<Consumer<Event, SharedMemory>> {
    let mut consumer = Consumer::new(memory).map_err(BenchError::nlx("take the consumer's half"))?;
    consumer.provision(SLOTS - 1).map_err(BenchError::nlx("make room for events"))?;
    Ok(consumer)
}

/// A queue's descriptor, which another process attaches.
struct SharedQueue(OwnedFd);

impl SharedQueue {
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Attaches the queue whose path is argument `index`.
fn attach(args: &[String], index: usize) -> Result<SharedMemory> {
    let path = args.get(index).map_or("", String::as_str);
    let file = OpenOptions::new().read(true).write(true).open(path);
    let fd = OwnedFd::from(file.map_err(BenchError::system("open the client's queue"))?);
    SharedMemory::attach(fd).map_err(BenchError::nlx("attach a queue"))
}
