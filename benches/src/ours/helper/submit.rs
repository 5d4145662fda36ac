//! A client's submissions to the helper, through the submission ring. An idle helper sleeps in
//! epoll on the client's doorbell, and must not be woken while it is awake.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx_bev_cqueue::{Consumer, Producer, PushError, QueueWord, SharedMemory};
use nlx_driver_proto::Submission;
use nlx_sync::{Bell, Sleeper, Waker};
use zerocopy::FromZeros;

use super::link;
use crate::anchors::packets::BATCH;
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::spin::Spin;
use crate::server::{STEP_TIMEOUT, Server};

pub(crate) const TAKER: &str = "submission-taker";
pub(crate) const ECHO: &str = "submission-echo";

/// Slots of a client's ring, and of the ring for the answers.
const SLOTS: u32 = 256;

/// Largest number of entries that the helper takes before it does other work.
const BUDGET: usize = 64;

/// Submissions between two readings of the clock.
const TURN: u64 = 1024;

/// Cookie of the submission that ends a stream; no other submission has it.
const END: u64 = u64::MAX - 1;
const LAST: Range<u64> = END..END + 1;

/// Submissions one by one, each followed by a check whether the helper sleeps: millions per second.
pub(crate) fn one_by_one(round: &Round) -> Result<Sample> {
    stream(round, 1)
}

/// Submissions in batches: millions per second.
pub(crate) fn in_batches(round: &Round) -> Result<Sample> {
    stream(round, BATCH)
}

fn stream(round: &Round, batch: usize) -> Result<Sample> {
    let server = Server::start::<&str>(TAKER, round.cores, &[])?;
    let (mut client, shared) = Client::new()?;
    let _link = link::give(server.reported(), &[shared.ring.as_fd(), shared.doorbell.as_fd()])?;
    let mut spin = Spin::new(round.cores, "room in the ring");
    let mut sent = 0;
    let sample = meter::rate(round.time, &server, || {
        for first in (sent..sent + TURN).step_by(batch) {
            client.submit(first..first + batch as u64, &mut spin)?;
        }
        sent += TURN;
        Ok(TURN)
    })?;
    client.submit(LAST, &mut spin)?;
    server.finish()?;
    Ok(sample)
}

/// One submission to a sleeping helper, and one event to a sleeping client: microseconds one way.
pub(crate) fn there_and_back(round: &Round) -> Result<Sample> {
    let server = Server::start::<&str>(ECHO, round.cores, &[])?;
    let (mut client, shared) = Client::new()?;
    let (memory, events) = SharedMemory::create(SLOTS).map_err(BenchError::nlx("make a queue"))?;
    let mut answers = consumer(memory.clone())?;
    let sleeper = Sleeper::futex(QueueWord::consumer(memory));
    let _link =
        link::give(server.reported(), &[shared.ring.as_fd(), shared.doorbell.as_fd(), events.as_fd()])?;
    let mut spin = Spin::new(round.cores, "room in the ring");
    let mut turn = 0;
    let sample = meter::pingpong(round.time, &server, || {
        client.submit(turn..turn + 1, &mut spin)?;
        let deadline = Instant::now() + STEP_TIMEOUT;
        sleeper.sleep(Some(deadline), || !answers.is_empty()).map_err(BenchError::nlx("sleep"))?;
        let answer: Submission = answers.pop().map_err(BenchError::nlx("take an answer"))?;
        turn = check(&answer, turn)?;
        Ok(1)
    })?;
    client.submit(LAST, &mut spin)?;
    server.finish()?;
    Ok(sample)
}

/// Runs the helper of [`one_by_one`] and [`in_batches`].
pub(crate) fn take(_: Cores, _: &[String]) -> Result<()> {
    let ([ring, doorbell], _link) = link::take()?;
    serve(ring, doorbell, |_| Ok(()))
}

/// Runs the helper of [`there_and_back`].
pub(crate) fn echo(_: Cores, _: &[String]) -> Result<()> {
    let ([ring, doorbell, events], _link) = link::take()?;
    let memory = attach(events)?;
    let mut answers = Producer::new(memory.clone()).map_err(BenchError::nlx("take the producer's half"))?;
    let waker = Waker::futex(QueueWord::consumer(memory));
    serve(ring, doorbell, |submission| {
        answers.push(*submission).map_err(BenchError::nlx("answer"))?;
        waker.wake().map(drop).map_err(BenchError::nlx("wake the client"))
    })
}

/// Takes submissions until [`END`] arrives, and checks that none is missing.
fn serve(ring: OwnedFd, doorbell: OwnedFd, mut answer: impl FnMut(&Submission) -> Result<()>) -> Result<()> {
    let memory = attach(ring)?;
    let mut consumer = consumer(memory.clone())?;
    let word = QueueWord::consumer(memory);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(BenchError::system("make an epoll"))?;
    let rung = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
    epoll.add(&doorbell, rung).map_err(BenchError::system("listen to the doorbell"))?;
    let mut expected = 0;
    loop {
        let before = expected;
        for submission in consumer.drain(BUDGET) {
            if submission.cookie.get() == END {
                return Ok(());
            }
            expected = check(&submission, expected)?;
            answer(&submission)?;
        }
        if expected != before {
            continue;
        }
        word.as_ref().announce();
        if consumer.is_empty() {
            let timeout = EpollTimeout::try_from(STEP_TIMEOUT).unwrap_or(EpollTimeout::MAX);
            epoll.wait(&mut [EpollEvent::empty()], timeout).map_err(BenchError::system("sleep"))?;
        }
        word.as_ref().withdraw();
    }
}

/// The descriptors that a client gives the helper.
struct SharedDescriptors {
    ring: OwnedFd,
    doorbell: OwnedFd,
}

struct Client {
    ring: Producer<Submission, SharedMemory>,
    waker: Waker<QueueWord<SharedMemory>>,
}

impl Client {
    fn new() -> Result<(Client, SharedDescriptors)> {
        let (memory, ring) = SharedMemory::create(SLOTS).map_err(BenchError::nlx("make a ring"))?;
        let rings = Bell::new().map_err(BenchError::system("make a doorbell"))?;
        let doorbell = rings.try_clone().map_err(BenchError::system("copy a doorbell"))?.into();
        let producer = Producer::new(memory.clone()).map_err(BenchError::nlx("take the producer's half"))?;
        let client = Client { ring: producer, waker: Waker::ringing(QueueWord::consumer(memory), rings) };
        Ok((client, SharedDescriptors { ring, doorbell }))
    }

    /// Pushes submissions with these cookies, and rings unless the helper is awake.
    fn submit(&mut self, cookies: Range<u64>, spin: &mut Spin) -> Result<()> {
        let last = cookies.end;
        let mut submissions = cookies.map(numbered).peekable();
        while submissions.peek().is_some() {
            match self.ring.push_iter(submissions.by_ref()) {
                Ok(_) => {}
                Err(PushError::Full { .. }) => spin.turn(last)?,
                Err(error) => return Err(BenchError::nlx("submit")(error)),
            }
        }
        self.waker.wake().map(drop).map_err(BenchError::nlx("ring the doorbell"))
    }
}

fn numbered(cookie: u64) -> Submission {
    Submission { cookie: cookie.into(), ..Submission::new_zeroed() }
}

/// Checks a submission's cookie; returns that of the next submission.
fn check(submission: &Submission, expected: u64) -> Result<u64> {
    match submission.cookie.get() {
        cookie if cookie == expected => Ok(expected + 1),
        value => Err(BenchError::Wrong { subject: "the cookie of a submission", value, expected }),
    }
}

fn consumer(memory: SharedMemory) -> Result<Consumer<Submission, SharedMemory>> {
    let mut consumer = Consumer::new(memory).map_err(BenchError::nlx("take the consumer's half"))?;
    consumer.provision(SLOTS - 1).map_err(BenchError::nlx("make room"))?;
    Ok(consumer)
}

fn attach(fd: OwnedFd) -> Result<SharedMemory> {
    SharedMemory::attach(fd).map_err(BenchError::nlx("attach a queue"))
}
