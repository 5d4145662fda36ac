//! S-2: tests in which either side is killed or stopped at each named point; the other side
//! continues and finds no corruption.
//!
//! The consumer provisions, submits and takes, grows and shrinks its ring, and sleeps when there is
//! no event. The producer pushes what was submitted and wakes the consumer. One of them runs in
//! another process and ends at the point; a shared word and its exit status prove that it was this
//! point.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;
use nix::sys::signal::Signal;
use nlx_sync::{Sleeper, Waker};

use crate::oracle::{OracleOp, Sample, Sequence, Source, mix};
use crate::tests::other::{Board, MAX_SLOTS, Other, Word, inherited, words};
use crate::tests::points::{Half, Point, Trap};
use crate::{Consumer, Corruption, MIN_SLOTS, PopError, Producer, PushError, QueueWord, SharedMemory};

/// The visits to a point at which the other process ends: the first one, and one in full operation.
const VISITS: [u32; 2] = [1, 6];

/// Time limit for reaching a point. A process that has not reached its point by then never will:
/// the point is missing in the code.
const HUNG: Duration = Duration::from_secs(60);

/// Number of events that pass after a stopped process continues.
const AFTERWARDS: u64 = 500;

/// The producer's side of the test.
struct Server {
    producer: Producer<Sample, SharedMemory>,
    waker: Waker<QueueWord<SharedMemory>>,
    source: Source,
    board: Board,
}

impl Server {
    fn new(memory: SharedMemory, board: Board) -> Self {
        let waker = Waker::futex(QueueWord::consumer(memory.clone()));
        Server { producer: Producer::new(memory).unwrap(), waker, source: Source::default(), board }
    }

    /// Pushes the events of all submitted operations.
    fn turn(&mut self) {
        let shrinks = self.board.get(Word::Shrinks);
        if shrinks != self.board.get(Word::Accepted) {
            self.source.step(OracleOp::AcceptShrink, &mut self.producer);
            self.board.add(Word::Accepted, 1);
        }
        let due = self.board.get(Word::Submitted) - self.source.pushed;
        if due == 0 {
            return std::thread::yield_now();
        }
        let dice = mix(self.source.pushed);
        if dice.is_multiple_of(2) {
            self.let_it_fall_asleep();
        }
        let before = self.source.pushed;
        let op = if dice.is_multiple_of(3) { OracleOp::Push } else { OracleOp::PushIter(due as usize) };
        self.source.step(op, &mut self.producer);
        assert!(self.source.pushed > before, "there is room for what was provisioned");
        self.waker.wake().unwrap();
    }

    /// Gives the consumer some time to announce sleep, which it may use or not.
    fn let_it_fall_asleep(&self) {
        let word = QueueWord::consumer(self.producer.memory().clone());
        let backoff = Backoff::new();
        while !backoff.is_completed() && !word.as_ref().is_announced() {
            backoff.snooze();
        }
    }

    fn everything_is_pushed(&self) -> bool {
        self.source.pushed == self.board.get(Word::Submitted)
    }
}

/// The consumer's side of the test.
struct Client {
    consumer: Consumer<Sample, SharedMemory>,
    sleeper: Sleeper<QueueWord<SharedMemory>>,
    sequence: Sequence,
    board: Board,
    rounds: u64,
}

impl Client {
    fn new(memory: SharedMemory, board: Board) -> Self {
        let sleeper = Sleeper::futex(QueueWord::consumer(memory.clone()));
        let consumer = Consumer::new(memory).unwrap();
        Client { consumer, sleeper, sequence: Sequence::default(), board, rounds: 0 }
    }

    /// Submits an operation, takes its events, and changes the size of the ring. Returns `false` if
    /// `is_over` becomes true first.
    fn round(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        self.rounds += 1;
        let dice = mix(self.rounds);
        let events = 1 + dice % 5;
        self.step(OracleOp::Provision(events as u32));
        self.board.add(Word::Submitted, events);
        let target = self.sequence.seen + events;
        while self.sequence.seen < target {
            // The sleep has a deadline, because the producer may be dead.
            let soon = Instant::now() + Duration::from_millis(5);
            self.sleeper.sleep(Some(soon), || !self.consumer.is_empty()).unwrap();
            self.step(
                [OracleOp::Pop, OracleOp::Drain(3), OracleOp::Forget(2)]
                    [(mix(dice + self.sequence.seen) % 3) as usize],
            );
            if is_over() {
                return false;
            }
        }
        self.step(OracleOp::Release(events as u32));
        if dice % 16 < 4 && self.consumer.slots() + 3 < MAX_SLOTS {
            self.step(OracleOp::Grow(3));
        }
        if dice % 16 > 8 { self.shrink(is_over) } else { true }
    }

    fn shrink(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        self.step(OracleOp::Shrink(MIN_SLOTS));
        self.board.add(Word::Shrinks, 1);
        while self.board.get(Word::Accepted) != self.board.get(Word::Shrinks) {
            if is_over() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn step(&mut self, op: OracleOp) {
        self.sequence.step(op, &mut self.consumer);
    }

    /// Takes the waiting events, and checks that no more come.
    fn take_all(&mut self) {
        let expected = self.sequence.seen + u64::from(self.consumer.ready());
        self.step(OracleOp::Drain(usize::MAX));
        assert_eq!(self.sequence.seen, expected);
        assert_eq!(self.consumer.pop(), Err(PopError::Empty));
        assert!(self.sequence.seen <= self.board.get(Word::Submitted));
    }
}

/// Iterates over each point of this half, and each visit to it.
fn visits(half: Half) -> impl Iterator<Item = (Point, u32)> {
    let points = Point::ALL.iter().filter(move |(_, whose)| *whose == half);
    points.flat_map(|&(point, _)| VISITS.map(|nth| (point, nth)))
}

/// The process that is to end at a point.
struct TrappedProcess {
    other: Other,
    board: Board,
    point: Point,
    since: Instant,
}

impl TrappedProcess {
    fn start(role: &str, (point, nth): (Point, u32), signal: Signal) -> (Self, SharedMemory) {
        let words = format!("{} {nth} {}", point as usize, signal as i32);
        let (other, memory, board) = Other::start_with(&format!("killed::{role}"), &words);
        (TrappedProcess { other, board, point, since: Instant::now() }, memory)
    }

    /// Returns whether the process has reached the point.
    fn is_hit(&mut self) -> bool {
        let point = self.point;
        match self.board.get(Word::Hit) {
            0 => {
                // The process may have reached the point and died between the two checks.
                assert!(!self.other.has_ended() || self.board.get(Word::Hit) != 0, "ended before {point:?}");
                assert!(self.since.elapsed() < HUNG, "the process does not reach {point:?}");
                false
            }
            hit => {
                assert_eq!(hit, 1 + point as u64, "{point:?}");
                true
            }
        }
    }
}

fn died_there(other: &mut Other) {
    assert_eq!(other.finish().signal(), Some(Signal::SIGKILL as i32));
}

// Covers: S-2
#[test]
fn a_producer_outlives_a_consumer_killed_at_any_point() {
    for visit in visits(Half::Consumer) {
        let (mut trapped, memory) = TrappedProcess::start("client", visit, Signal::SIGKILL);
        let mut server = Server::new(memory, trapped.board.clone());
        while !trapped.is_hit() {
            server.turn();
        }
        died_there(&mut trapped.other);
        server.turn();
        fills_to_the_brim(&mut server, trapped.point);
    }
}

/// Checks that, after the consumer has ended, the ring takes events until it is full, or until the
/// producer detects a shrink that it has not accepted.
fn fills_to_the_brim(server: &mut Server, point: Point) {
    let untold = matches!(point, Point::ShrinkPublished | Point::ShrinkDiscarded);
    let mut pushes = (0..=MAX_SLOTS).map(|_| server.producer.push([0; 15]));
    match pushes.find_map(Result::err).expect("a ring is full some time") {
        PushError::Full { .. } => assert_eq!(server.producer.free(), Ok(0)),
        error => assert!(
            untold && matches!(error, PushError::Corrupt(Corruption::Shrunk { .. })),
            "{point:?}: {error}"
        ),
    }
}

// Covers: S-2
#[test]
fn a_consumer_outlives_a_producer_killed_at_any_point() {
    for visit in visits(Half::Producer) {
        let (mut trapped, memory) = TrappedProcess::start("server", visit, Signal::SIGKILL);
        let mut client = Client::new(memory, trapped.board.clone());
        while client.round(|| trapped.is_hit()) {}
        died_there(&mut trapped.other);
        client.take_all();
        client.step(OracleOp::Provision(50));
    }
}

// Covers: S-2
#[test]
fn a_producer_goes_on_while_a_consumer_is_stopped_at_any_point() {
    for visit in visits(Half::Consumer) {
        let (mut trapped, memory) = TrappedProcess::start("client", visit, Signal::SIGSTOP);
        let mut server = Server::new(memory, trapped.board.clone());
        while !trapped.is_hit() {
            server.turn();
        }
        trapped.other.stands_still();
        // Every submitted operation has room, although the consumer has ended.
        while !server.everything_is_pushed() {
            server.turn();
        }
        trapped.other.go_on();
        let goal = server.source.pushed + AFTERWARDS;
        while server.source.pushed < goal {
            server.turn();
            trapped.other.check();
        }
        trapped.board.add(Word::Finish, 1);
        while !trapped.other.has_ended() {
            server.turn();
        }
        assert!(trapped.other.finish().success(), "{:?}", trapped.point);
    }
}

// Covers: S-2
#[test]
fn a_consumer_goes_on_while_a_producer_is_stopped_at_any_point() {
    for visit in visits(Half::Producer) {
        let (mut trapped, memory) = TrappedProcess::start("server", visit, Signal::SIGSTOP);
        let mut client = Client::new(memory, trapped.board.clone());
        while client.round(|| trapped.is_hit()) {}
        trapped.other.stands_still();
        client.take_all();
        client.step(OracleOp::Grow(1));
        let stopped_at = client.sequence.seen;
        trapped.other.go_on();
        // The interrupted round continues: its events arrive, and the producer may accept a shrink.
        while client.sequence.seen < trapped.board.get(Word::Submitted)
            || trapped.board.get(Word::Accepted) != trapped.board.get(Word::Shrinks)
        {
            client.step(OracleOp::Pop);
            trapped.other.check();
        }
        let needed = client.consumer.needed();
        client.step(OracleOp::Release(needed));
        while client.sequence.seen < stopped_at + AFTERWARDS {
            assert!(
                client.round(|| trapped.other.has_ended()),
                "{:?}: the other process has failed",
                trapped.point
            );
        }
        trapped.board.add(Word::Finish, 1);
        assert!(trapped.other.finish().success(), "{:?}", trapped.point);
    }
}

// The code that runs in the other process.

fn arm() -> Board {
    let board = Board::inherited();
    let words = words();
    let [point, nth, signal] =
        words.split(' ').map(|word| word.parse::<u32>().unwrap()).collect::<Vec<_>>()[..]
    else {
        panic!("three numbers are expected, not {words:?}")
    };
    let (point, _) = Point::ALL[point as usize];
    Trap::arm(point, nth, Signal::try_from(signal as i32).unwrap(), board.clone());
    board
}

#[test]
#[ignore = "started by a_producer_outlives_a_consumer_killed_at_any_point and others"]
fn client() {
    let board = arm();
    let mut client = Client::new(inherited(), board.clone());
    while client.round(|| board.get(Word::Finish) != 0) {}
    // The events of the interrupted round still arrive.
    while client.sequence.seen < board.get(Word::Submitted) {
        client.step(OracleOp::Pop);
        std::thread::yield_now();
    }
    client.take_all();
}

#[test]
#[ignore = "started by a_consumer_outlives_a_producer_killed_at_any_point and others"]
fn server() {
    let board = arm();
    let mut server = Server::new(inherited(), board.clone());
    while board.get(Word::Finish) == 0 {
        server.turn();
    }
}
