//! Every order of the possible events of an operation, compared with a plain model (S-411, S-414;
//! [`crate::bed::expected`]).

use std::collections::BTreeSet;

use lnet_api::Errno;
use nlx_core::{OperationKind, Queue};

use super::bed;
use crate::bed::*;

/// A possible next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The sending of its message ends with this result.
    Leave(Result<(), Errno>),
    /// A message for it begins to arrive: a PUT, a GET, the REPLY.
    Begin,
    /// That message is complete, or was lost.
    Finish(Result<(), Errno>),
    /// An ACK, requested or not.
    Ack,
    Cancel,
}

/// Messages that begin to arrive at one operation, including late ones.
const ARRIVALS: u32 = 2;
const CANCELS: u32 = 2;

/// One operation in flight.
struct Course<'a, W: World> {
    bed: &'a Bed<W>,
    kind: OperationKind,
    /// The message that it sends.
    message: Option<SentMessage>,
    left: bool,
    /// The buffer that it exposes.
    passive: Option<Passive>,
    arriving: Option<Finish<'a>>,
    arrivals: u32,
    acks: u32,
    cancels: u32,
    trace: Vec<Trace>,
    events: Vec<ClientEvent>,
}

impl<'a, W: World> Course<'a, W> {
    fn start(bed: &'a Bed<W>, kind: OperationKind) -> Course<'a, W> {
        let descriptor = bed.submit(kind).unwrap().descriptor;
        Course {
            bed,
            kind,
            message: bed.world.outgoing().pop(),
            left: false,
            passive: descriptor.map(|descriptor| Passive(passive_of(&descriptor))),
            arriving: None,
            arrivals: 0,
            acks: 0,
            cancels: 0,
            trace: Vec::new(),
            events: Vec::new(),
        }
    }

    fn has_ended(&self) -> bool {
        self.events.last().is_some_and(|event| event.last)
    }

    fn choices(&self) -> Vec<Step> {
        let (lost, broken) = (Err(Errno::EHOSTUNREACH), Err(Errno::EIO));
        let mut choices = Vec::new();
        if self.message.is_some() && !self.left {
            choices.extend([Step::Leave(Ok(())), Step::Leave(lost)]);
        }
        if self.arriving.is_some() {
            choices.extend([Step::Finish(Ok(())), Step::Finish(broken)]);
        } else if self.arrivals < ARRIVALS && self.next_arrival().is_some() {
            choices.push(Step::Begin);
        }
        if self.acks == 0 && self.message.is_some() {
            choices.push(Step::Ack);
        }
        if self.cancels < CANCELS {
            choices.push(Step::Cancel);
        }
        choices
    }

    fn next_arrival(&self) -> Option<Arriving> {
        match (self.kind.queue(), &self.passive, &self.message) {
            (Queue::MessageReceive, ..) => Some(self.bed.message(&peer(), 100)),
            (Queue::PassiveBulkReceive, Some(passive), _) => Some(passive.put(&peer(), 200)),
            (Queue::PassiveBulkSend, Some(passive), _) => Some(passive.get(&peer(), LENGTH)),
            (Queue::ActiveBulkReceive, _, Some(message)) => Some(message.reply(pattern(1, 300))),
            _ => None,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Leave(result) => {
                self.left = true;
                self.bed.world.leave(self.message.as_ref().expect("it sends"), result);
            }
            Step::Begin => {
                self.arrivals += 1;
                let message = self.next_arrival().expect("something arrives");
                self.arriving = self.bed.world.arrive(&message);
            }
            Step::Finish(result) => self.arriving.take().expect("it has begun")(result),
            Step::Ack => {
                self.acks += 1;
                let noise = self.message.as_ref().expect("it sends").ack();
                self.bed.world.arrive(&noise).into_iter().for_each(|finish| finish(Ok(())));
            }
            Step::Cancel => {
                self.cancels += 1;
                let cancelled = self.bed.tm.cancel(self.bed.buffer, COOKIE);
                assert_eq!(cancelled.is_ok(), !self.has_ended(), "{cancelled:?}");
                self.trace.extend(cancelled.is_ok().then_some(Trace::Cancelled));
            }
        }
        self.trace.extend(self.bed.spy.take_events().into_iter().map(Trace::Said));
        self.events.extend(
            std::iter::from_fn(|| self.bed.tm.event_get().unwrap()).map(|event| ClientEvent::by(&event)),
        );
    }

    /// Checks the client's events and the reserved room.
    fn check(&self, hit: &mut BTreeSet<&'static str>) {
        let mut note = |row| {
            hit.insert(row);
        };
        let (wanted, faults) = expected(self.kind.queue(), &self.trace, &mut note);
        assert_eq!((&self.events, 0), (&wanted, faults), "{:?}", self.trace);
        let reserved = if self.has_ended() { 0 } else { self.kind.events_max() as usize };
        assert_eq!(self.bed.tm.needed(), reserved);
    }

    /// Ends the operation, whatever its state, and checks its events.
    fn end(mut self, hit: &mut BTreeSet<&'static str>) {
        if !self.has_ended() {
            self.step(Step::Cancel);
        }
        if self.arriving.is_some() {
            self.step(Step::Finish(Ok(())));
        }
        if self.message.is_some() && !self.left {
            self.step(Step::Leave(Ok(())));
        }
        self.check(hit);
        assert_eq!(self.events.iter().filter(|event| event.last).count(), 1, "{:?}", self.trace);
        assert!(self.has_ended());
    }
}

/// Runs each course of an operation, and each prefix of one; returns their number.
fn explore<W: World>(
    bed: &Bed<W>,
    kind: OperationKind,
    path: &mut Vec<Step>,
    hit: &mut BTreeSet<&'static str>,
) -> usize {
    let mut course = Course::start(bed, kind);
    for &step in path.iter() {
        course.step(step);
        course.check(hit);
    }
    // Late steps after the end are explored once only: their effect is independent of the course
    // before.
    let choices = course.choices();
    course.end(hit);
    let mut courses = 1;
    for choice in choices {
        path.push(choice);
        courses += explore(bed, kind, path, hit);
        path.pop();
    }
    courses
}

/// Returns the rows of the table that an operation of this queue passes through in every world.
fn rows_of(queue: Queue) -> &'static [&'static str] {
    match queue {
        Queue::MessageReceive => &["UNLINK", "receive: PUT", "receive: PUT, last"],
        Queue::MessageSend => &["PUT: SEND"],
        Queue::ActiveBulkSend => &[
            "PUT: ACK",
            "PUT: ACK, more to come",
            "PUT: SEND after ACK",
            "PUT: SEND failed",
            "PUT: SEND, more to come",
            "UNLINK",
        ],
        Queue::PassiveBulkReceive => &["UNLINK", "passive receive: PUT"],
        Queue::PassiveBulkSend => &["UNLINK", "passive send: GET"],
        Queue::ActiveBulkReceive => &[
            "GET: REPLY",
            "GET: REPLY, more to come",
            "GET: SEND after REPLY",
            "GET: SEND failed",
            "GET: SEND, more to come",
            "UNLINK",
        ],
    }
}

/// Leaving, arriving, failing and cancelling in every order, at every point.
// Covers: S-407, S-411, S-414, MT-20, MT-21, MT-22, MT-23, MT-24, MT-25, MT-26, MT-27, MT-28, MT-29
// Covers: MT-30, MT-31, MT-32, MT-33, MT-34, MT-35, MT-36, MT-37, MT-38, MT-39, MT-40, MT-41, MT-42
// Covers: MT-212
#[test]
fn every_order_of_events_tells_the_client_what_the_table_says() {
    for kind in every_operation() {
        let bed = bed();
        let mut hit = BTreeSet::new();
        let courses = explore(&bed, kind, &mut Vec::new(), &mut hit);
        let rows: BTreeSet<_> = rows_of(kind.queue()).iter().copied().collect();
        println!("{}: {courses} courses, {hit:?}", kind.queue());
        assert!(hit.is_superset(&rows), "{}: {:?}", kind.queue(), rows.difference(&hit));
        assert!(!hit.contains("anything else"), "{}", kind.queue());
        bed.assert_no_faults();
        bed.assert_idle();
    }
}
