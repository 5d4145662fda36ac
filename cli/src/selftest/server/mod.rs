//! The server of the self-test: answers echoes, and moves bulk to and from the clients' passive
//! buffers.

mod transfer;

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use nlx::{Batch, Buffer, Descriptor, Domain, EndPoint, Event, Machine, Op, OpId, Queue};

use super::client::echo_bytes;
use super::command::{Plan, Status};
use super::counters::TestCounters;
use super::data::{Part, Receives};
use super::protocol::{Direction, Head, Kind, MessageError, message_bytes, read_offer};
use crate::failure::Failure;

/// With `--spoil`, one of this number of operations is corrupted, so that most of the self-test
/// still works.
const SPOIL_EACH: u64 = 8;

/// Operations in progress are limited to this multiple of the clients' operations in flight: those
/// of lost tries count until their timeouts have passed.
const UNDER_WAY: usize = 4;

/// Additional operations: a client may receive an answer before this side gets the event of its
/// sending.
const UNREPORTED: usize = 256;

pub(super) struct Server {
    domain: Domain,
    plan: Plan,
    receives: Receives,
    message_bytes: usize,
    /// Idle buffers for answers, and for bulk. Both lists grow to the number of the clients'
    /// operations in flight.
    answers: Vec<Buffer>,
    bulk: Vec<Buffer>,
    /// Answers since the last flush, which are sent together.
    batch: Batch,
    /// Number of answers that are being sent.
    answering: usize,
    transfers: HashMap<OpId, Transfer>,
    /// Transfers that begin later, in order.
    delayed: VecDeque<(Instant, Transfer)>,
    epoch: Option<Instant>,
    counters: TestCounters,
}

/// A bulk transfer of this side.
struct Transfer {
    head: Head,
    client: EndPoint,
    /// The client's passive buffers: one, or two of an exchange.
    offer: Vec<Descriptor>,
    /// Set if bytes go to the client: those of a read, and those of an exchange once they have
    /// arrived.
    returns: bool,
    /// Time of the request.
    asked: Instant,
}

impl Server {
    pub(super) fn new(domain: &Domain, plan: &Plan) -> Server {
        let message_bytes = message_bytes(echo_bytes(plan));
        Server {
            domain: domain.clone(),
            receives: Receives::new(domain, message_bytes, plan),
            message_bytes,
            answers: Vec::new(),
            bulk: Vec::new(),
            batch: Batch::new(),
            answering: 0,
            transfers: HashMap::new(),
            delayed: VecDeque::new(),
            epoch: None,
            counters: TestCounters::new(),
            plan: plan.clone(),
        }
    }

    fn stream(&self, direction: Direction) -> u64 {
        direction.stream(self.plan.seed)
    }

    fn message(&mut self, machine: &Machine, mut event: Event) -> Result<(), Failure> {
        let buffer = event.buffer.take();
        match (event.message.take(), event.sender.take()) {
            (Some(message), Some(client)) => self.request(machine, &message, client)?,
            _ => self.counters.fail(|| format!("a receive buffer ended with {:?}", event.status)),
        }
        self.receives.repost(machine, buffer)
    }

    fn request(&mut self, machine: &Machine, bytes: &[u8], client: EndPoint) -> Result<(), Failure> {
        let (head, body) = match Head::split(bytes) {
            Ok(split) => split,
            Err(error) => {
                self.counters.fail(|| format!("an invalid request: {error}"));
                return Ok(());
            }
        };
        if self.in_progress() >= UNDER_WAY * self.plan.in_flight as usize + UNREPORTED {
            // A client requests more than agreed, and answering each request could take any amount
            // of memory.
            self.counters.fail(|| "a request beyond those that may be in flight".into());
            return Ok(());
        }
        match (head.kind, read_offer(body)) {
            (Kind::Echo, _) => self.echo(&head, body, &client),
            (Kind::Write | Kind::Read | Kind::Exchange, Ok(offer))
                if offer.len() == buffers_of(head.kind) =>
            {
                let asked = Instant::now();
                let transfer = Transfer { head, client, offer, returns: head.kind == Kind::Read, asked };
                if self.plan.delay.is_zero() {
                    return self.transfer(machine, transfer);
                }
                self.delayed.push_back((asked + self.plan.delay, transfer));
                Ok(())
            }
            _ => self.refuse(&head, &client, "a request with contradictory fields"),
        }
    }

    fn in_progress(&self) -> usize {
        self.batch.len() + self.answering + self.transfers.len() + self.delayed.len()
    }

    fn echo(&mut self, head: &Head, body: &[u8], client: &EndPoint) -> Result<(), Failure> {
        if !head.is_echo_of(self.stream(Direction::FromClient), body) {
            return self.refuse(head, client, "an echo with wrong bytes");
        }
        let (stream, corrupts) = (self.stream(Direction::FromServer), self.corrupts(head));
        self.counters.operations += 1;
        self.counters.verified_bytes += head.length;
        self.answer(client, |answer| {
            let end = head.put_echo(stream, answer)?;
            answer[end - 1] ^= u8::from(corrupts);
            Ok(end)
        })
    }

    fn corrupts(&self, head: &Head) -> bool {
        self.plan.spoil && head.stamp.sequence.is_multiple_of(SPOIL_EACH)
    }

    fn refuse(&mut self, head: &Head, client: &EndPoint, reason: &str) -> Result<(), Failure> {
        self.counters.fail(|| format!("operation {:#x}: {reason}", head.stamp.sequence));
        self.answer_head(client, Head { kind: Kind::Bad, ..*head })
    }

    fn answer_head(&mut self, client: &EndPoint, head: Head) -> Result<(), Failure> {
        self.answer(client, |bytes| head.put(bytes))
    }

    fn answer(
        &mut self,
        client: &EndPoint,
        write: impl FnOnce(&mut [u8]) -> Result<usize, MessageError>,
    ) -> Result<(), Failure> {
        let mut buffer = match self.answers.pop() {
            Some(buffer) => buffer,
            None => self.domain.allocate(self.message_bytes)?,
        };
        let length = write(&mut buffer.write()?)?;
        self.batch.push(Op::send(buffer, client).length(length).timeout(self.plan.timeout));
        Ok(())
    }
}

/// Returns the number of buffers that a client offers.
fn buffers_of(kind: Kind) -> usize {
    if kind == Kind::Exchange { 2 } else { 1 }
}

impl Part for Server {
    fn prepare(&mut self, machine: &Machine) -> Result<(), Failure> {
        self.receives.post(machine)
    }

    fn start(&mut self, _: &Machine) -> Result<(), Failure> {
        self.epoch = Some(Instant::now());
        Ok(())
    }

    fn event(&mut self, machine: &Machine, event: Event) -> Result<(), Failure> {
        match event.queue {
            Queue::MessageReceive => self.message(machine, event),
            Queue::MessageSend => {
                if let Err(errno) = event.status {
                    self.counters.fail(|| format!("an answer ended with {errno}"));
                }
                self.answering -= 1;
                self.answers.extend(event.buffer);
                Ok(())
            }
            Queue::ActiveBulkReceive | Queue::ActiveBulkSend => self.transferred(machine, event),
            queue => Err(Failure::new(format!("received an event of queue {queue:?}, which was never used"))),
        }
    }

    /// Sends the answers.
    fn flush(&mut self, machine: &Machine) -> Result<(), Failure> {
        self.answering += self.batch.len();
        for refused in machine.submit(&mut self.batch).filter_map(Result::err) {
            self.counters.fail(|| format!("an answer was refused: {}", refused.error));
            self.answering -= 1;
            self.answers.push(refused.buffer);
        }
        Ok(())
    }

    fn tick(&mut self, machine: &Machine) -> Result<(), Failure> {
        if self.delayed.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        while self.delayed.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, transfer)) = self.delayed.pop_front()
        {
            self.transfer(machine, transfer)?;
        }
        self.flush(machine)
    }

    fn status(&self, from: usize) -> Status {
        let elapsed = self.epoch.map_or_else(Default::default, |epoch| epoch.elapsed());
        // A server never finishes by itself.
        Status { elapsed, ..self.counters.status(from) }
    }
}
