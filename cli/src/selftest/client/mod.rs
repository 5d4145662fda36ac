//! The client of the self-test. Each operation in flight has a *lane*, which owns its buffers. The
//! operation ends when each of its parts has ended: its request is sent, its bulk has moved, its
//! answer is received.

mod begin;
mod events;
mod lane;

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use nlx::{Batch, Domain, EndPoint, Event, Machine};

use super::command::{Load, Plan, Status};
use super::counters::TestCounters;
use super::data::{Part, Receives};
use super::pattern;
use super::protocol::{ECHO_BYTES, message_bytes};
use crate::failure::Failure;
use lane::Lane;

/// A client with this number of errors begins no more operations, which would show nothing new.
const ERRORS_ENOUGH: u64 = 100;

/// Interval between two checks of the lanes for timeouts.
const TICK: Duration = Duration::from_millis(20);

/// Number of lost tries that are remembered, to recognise their late answers.
const LOST_REMEMBERED: usize = 1 << 16;

pub(super) struct Client {
    domain: Domain,
    plan: Plan,
    receives: Receives,
    servers: Vec<EndPoint>,
    lanes: Vec<Lane>,
    /// Idle lanes.
    idle: VecDeque<usize>,
    /// Lanes whose operation is tried again, with the time, since the epoch.
    again: Vec<(Duration, usize)>,
    /// The requests of operations that have begun, and their lanes.
    batch: Batch,
    begun: Vec<usize>,
    sequence: u64,
    /// Number of operations begun, each counted once with all its tries.
    started: u64,
    /// Number of random numbers drawn, which the seed determines.
    drawn: u64,
    /// Time of START; all times count from it.
    epoch: Option<Instant>,
    ticked: Duration,
    /// Time at which the last operation had ended.
    finished: Option<Duration>,
    lost: HashSet<u64>,
    /// Number of lanes whose operations have not ended long after their timeout.
    missing: usize,
    counters: TestCounters,
}

impl Client {
    pub(super) fn new(domain: &Domain, plan: &Plan) -> Result<Client, Failure> {
        let in_flight = plan.in_flight as usize;
        let bytes = message_bytes(echo_bytes(plan));
        let lanes = (0..in_flight).map(|lane| Lane::new(domain, lane, bytes)).collect::<Result<_, _>>()?;
        Ok(Client {
            domain: domain.clone(),
            receives: Receives::new(domain, bytes, plan),
            servers: Vec::new(),
            lanes,
            idle: (0..in_flight).collect(),
            again: Vec::new(),
            batch: Batch::new(),
            begun: Vec::new(),
            sequence: u64::from(plan.run) << 48,
            started: 0,
            drawn: 0,
            epoch: None,
            ticked: Duration::ZERO,
            finished: None,
            lost: HashSet::new(),
            missing: 0,
            counters: TestCounters::new(),
            plan: plan.clone(),
        })
    }

    /// Returns the time since START.
    fn now(&self) -> Duration {
        self.epoch.map_or(Duration::ZERO, |epoch| epoch.elapsed())
    }

    /// Returns whether no more operations may begin.
    fn is_over(&self, now: Duration) -> bool {
        let enough = self.plan.count != 0 && self.started >= self.plan.count;
        enough || self.is_time_up(now)
    }

    /// Returns whether no further tries may begin.
    fn is_time_up(&self, now: Duration) -> bool {
        now >= self.plan.duration || self.counters.errors >= ERRORS_ENOUGH
    }

    /// Returns a random number below `end`.
    fn draw(&mut self, end: u32) -> u32 {
        self.drawn += 1;
        pattern::draw(self.plan.seed ^ u64::from(self.plan.run), self.drawn, end)
    }

    fn note_end(&mut self, now: Duration) {
        let resting = self.idle.len() + self.missing == self.lanes.len();
        if self.epoch.is_some() && self.finished.is_none() && resting && self.is_over(now) {
            self.finished = Some(now);
        }
    }
}

/// Returns the payload size of the plan's echoes.
pub(super) fn echo_bytes(plan: &Plan) -> usize {
    if plan.load == Load::Echo { plan.size as usize } else { ECHO_BYTES }
}

impl Part for Client {
    fn prepare(&mut self, machine: &Machine) -> Result<(), Failure> {
        let servers = self.plan.peers.iter().map(|address| machine.end_point(address));
        self.servers = servers.collect::<Result<_, _>>()?;
        self.receives.post(machine)
    }

    fn start(&mut self, machine: &Machine) -> Result<(), Failure> {
        self.epoch = Some(Instant::now());
        self.flush(machine)
    }

    fn event(&mut self, machine: &Machine, event: Event) -> Result<(), Failure> {
        self.handle(machine, event)
    }

    /// Begins an operation on each idle lane; their requests are sent together.
    fn flush(&mut self, machine: &Machine) -> Result<(), Failure> {
        let now = self.now();
        while self.epoch.is_some()
            && !self.is_over(now)
            && let Some(lane) = self.idle.pop_front()
        {
            self.started += 1;
            self.begin(machine, lane, now)?;
        }
        self.send_requests(machine)?;
        self.note_end(now);
        Ok(())
    }

    fn tick(&mut self, machine: &Machine) -> Result<(), Failure> {
        let now = self.now();
        if now < self.ticked + TICK {
            return Ok(());
        }
        self.ticked = now;
        for lane in 0..self.lanes.len() {
            self.check_timeouts(lane, now)?;
        }
        while let Some(at) = self.again.iter().position(|(due, _)| *due <= now) {
            let (_, lane) = self.again.swap_remove(at);
            self.retry(machine, lane)?;
        }
        self.flush(machine)
    }

    fn status(&self, from: usize) -> Status {
        Status {
            finished: self.finished.is_some(),
            elapsed: self.finished.unwrap_or_else(|| self.now()),
            ..self.counters.status(from)
        }
    }
}
