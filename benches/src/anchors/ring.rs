//! The ring of the crate `rtrb`: the anchor of nlx's queue.

use std::hint::black_box;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::cores::{self, Cores};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// An event with the payload of the longest event of nlx's queue. Aligned to one cache line, which
/// suits rtrb better than two; an event therefore has 128 bytes.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Event([u64; 15]);

impl Event {
    fn number(number: u64) -> Event {
        Event([number; 15])
    }
}

/// Slots: all of them fit into a core's second-level cache, as those of nlx's queue do.
pub(crate) const SLOTS: usize = 1024;

/// Number of events that are moved together.
pub(crate) const CHUNK: usize = 32;

/// Events between two readings of the clock.
const BATCH: u64 = 4096;

/// Number of the event that ends a stream; no other event has it.
const END: u64 = u64::MAX;

/// rtrb between two threads, one event at a time. Millions of events per second.
pub(crate) fn one_by_one(round: &Round) -> Result<Sample> {
    stream(round, push_singly, pop_singly)
}

/// rtrb between two threads, in chunks of 32. Millions of events per second.
pub(crate) fn in_chunks(round: &Round) -> Result<Sample> {
    stream(round, push_chunks, pop_chunks)
}

/// One event in each direction between two threads, through two rings. Nanoseconds one way.
pub(crate) fn latency(round: &Round) -> Result<Sample> {
    let (mut there, there_out) = RingBuffer::new(SLOTS);
    let (back_in, mut back) = RingBuffer::new(SLOTS);
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || echo(there_out, back_in, round.cores));
        let mut turn = 0;
        let timed = Timed::warm(round.time, || {
            for _ in 0..BATCH {
                turn += 1;
                push_one(&mut there, Event::number(turn), round.cores);
                check(&pop_one(&mut back, round.cores), turn)?;
            }
            Ok(BATCH)
        });
        push_one(&mut there, Event::number(END), round.cores);
        echo.join().expect("the echo does not panic")?;
        Ok(Sample::of(timed?.nanoseconds_per_step() / 2.0))
    })
}

/// Sends each event back, until [`END`] arrives.
fn echo(mut there: Consumer<Event>, mut back: Producer<Event>, cores: Cores) -> Result<()> {
    cores::pin(cores.server)?;
    loop {
        let event = pop_one(&mut there, cores);
        if event.0[0] == END {
            return Ok(());
        }
        push_one(&mut back, Event::number(event.0[0]), cores);
    }
}

/// Pushes [`BATCH`] events whose numbers follow `sent`.
type Push = fn(&mut Producer<Event>, sent: u64, Cores);

/// Takes events until [`END`] arrives, and checks that none is missing.
type Pop = fn(&mut Consumer<Event>, Cores) -> Result<()>;

fn stream(round: &Round, push: Push, pop: Pop) -> Result<Sample> {
    let (mut producer, mut consumer) = RingBuffer::new(SLOTS);
    std::thread::scope(|scope| {
        let taker = scope.spawn(move || {
            cores::pin(round.cores.server)?;
            pop(&mut consumer, round.cores)
        });
        let mut sent = 0;
        let timed = Timed::warm(round.time, || {
            push(&mut producer, sent, round.cores);
            sent += BATCH;
            Ok(BATCH)
        });
        push_one(&mut producer, Event::number(END), round.cores);
        taker.join().expect("the consumer does not panic")?;
        Ok(Sample::of(timed?.millions_per_second()))
    })
}

#[inline(always)]
fn pop_one(consumer: &mut Consumer<Event>, cores: Cores) -> Event {
    loop {
        match consumer.pop() {
            Ok(event) => return event,
            Err(_) => cores.relax(),
        }
    }
}

#[inline(always)]
fn push_one(producer: &mut Producer<Event>, event: Event, cores: Cores) {
    while producer.push(event).is_err() {
        cores.relax();
    }
}

fn push_singly(producer: &mut Producer<Event>, sent: u64, cores: Cores) {
    for number in sent..sent + BATCH {
        push_one(producer, Event::number(number), cores);
    }
}

fn pop_singly(consumer: &mut Consumer<Event>, cores: Cores) -> Result<()> {
    let mut expected = 0;
    loop {
        match consumer.pop() {
            Ok(event) if black_box(&event).0[0] == END => return Ok(()),
            Ok(event) => expected = check(&event, expected)?,
            Err(_) => cores.relax(),
        }
    }
}

fn push_chunks(producer: &mut Producer<Event>, sent: u64, cores: Cores) {
    for first in (sent..sent + BATCH).step_by(CHUNK) {
        let chunk = loop {
            match producer.write_chunk_uninit(CHUNK) {
                Ok(chunk) => break chunk,
                Err(_) => cores.relax(),
            }
        };
        chunk.fill_from_iter((first..first + CHUNK as u64).map(Event::number));
    }
}

fn pop_chunks(consumer: &mut Consumer<Event>, cores: Cores) -> Result<()> {
    let mut expected = 0;
    let mut taken = [Event::number(0); CHUNK];
    loop {
        let count = consumer.pop_partial_slice(&mut taken).0.len();
        if count == 0 {
            cores.relax();
        }
        for event in black_box(&taken[..count]) {
            if event.0[0] == END {
                return Ok(());
            }
            expected = check(event, expected)?;
        }
    }
}

/// Checks an event's number; returns that of the next event.
fn check(event: &Event, expected: u64) -> Result<u64> {
    if event.0[0] != expected {
        return Err(BenchError::Wrong { subject: "the number of an event", value: event.0[0], expected });
    }
    Ok(expected + 1)
}
