//! The asking side of the self-test. Each operation in flight is a *lane*: it owns the buffers it needs, and is done
//! when each of its parts has ended (its request is sent, its bulk has moved, its answer is here).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nlx::{Batch, Buffer, Domain, EndPoint, Event, NodeConfig, OpId, Queue, Refused, TransferMachine};

use super::progress::Progress;
use super::protocol::{
    ECHO_BYTES, FROM_CLIENT, FROM_SERVER, Head, Kind, MESSAGE_BYTES, check_echo, write_echo, write_offer,
};
use super::report::{PhaseReport, Report, Tally};
use super::{BULK_BYTES, CLIENT, OPERATION_TIMEOUT, PORTAL, ReceivePool, pattern};
use crate::args::SelftestArgs;
use crate::failure::Failure;

/// How long one wait for an event lasts before the bar is drawn again.
const WAIT: Duration = Duration::from_millis(100);

/// A phase with this many errors ends early: more would teach nothing.
const ERRORS_ENOUGH: u64 = 100;

struct Phase {
    name: &'static str,
    kind: Kind,
    lanes: u32,
    size: usize,
}

/// Runs all phases against the server at `address`.
///
/// `check` is asked now and then whether the server's process is still there.
pub(crate) fn run(
    args: &SelftestArgs,
    port: u16,
    address: &str,
    check: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let config =
        NodeConfig::new().net(&format!("tcp({CLIENT})"))?.accept_port(port).cpt(args.partitions.config());
    let domain = Domain::in_process(&config)?;
    let nid = domain.nids().first().copied().ok_or_else(|| Failure::new("the node has no NID"))?;
    let machine = domain.transfer_machine(&format!("{nid}:12345:{PORTAL}:*"), Default::default())?;
    let server = machine.end_point(address)?;
    let mut client = Client::new(&domain, &machine, server, args.concurrency.max(RATE_LANES))?;
    let size = args.size as usize;
    let phases = [
        Phase { name: "ping_pong", kind: Kind::Echo, lanes: 1, size: ECHO_BYTES },
        Phase {
            name: "message_rate",
            kind: Kind::Echo,
            lanes: args.concurrency.max(RATE_LANES),
            size: ECHO_BYTES,
        },
        Phase { name: "bulk_read", kind: Kind::Read, lanes: args.concurrency, size },
        Phase { name: "bulk_write", kind: Kind::Write, lanes: args.concurrency, size },
    ];
    let mut reports = Vec::new();
    for phase in phases {
        reports.push(client.phase(&phase, args, check)?);
        if client.gave_up {
            break;
        }
    }
    let (server_verified_bytes, server_good) =
        if client.gave_up { (0, false) } else { client.ask_server()? };
    let errors = reports.iter().map(|phase| phase.errors).sum::<u64>() + u64::from(!server_good);
    let complete = !client.gave_up && reports.iter().all(|phase| phase.operations > 0);
    Ok(Report {
        client: machine.address().to_string(),
        server: address.to_string(),
        passed: errors == 0 && complete,
        errors,
        verified_bytes: reports.iter().map(|phase| phase.verified_bytes).sum(),
        server_verified_bytes,
        phases: reports,
    })
}

/// Messages in flight when their rate is measured, unless more are asked for.
const RATE_LANES: u32 = 64;

/// One operation in flight.
struct Lane {
    request: Option<Buffer>,
    bulk: Option<Buffer>,
    sequence: u64,
    begun: Instant,
    /// Parts that have not ended yet; 0 when nothing is in flight.
    parts: u32,
    good: bool,
}

struct Client<'a> {
    domain: &'a Domain,
    machine: &'a TransferMachine,
    server: EndPoint,
    receives: ReceivePool,
    lanes: Vec<Lane>,
    lane_of: HashMap<OpId, usize>,
    /// The requests of operations that have begun, and their lanes.
    batch: Batch,
    begun: Vec<usize>,
    sequence: u64,
    tally: Tally,
    /// Operations have not ended long after they should have: nothing more is tried.
    gave_up: bool,
    /// The server's answer to [`Kind::Report`].
    server_report: Option<(u64, bool)>,
}

impl<'a> Client<'a> {
    fn new(
        domain: &'a Domain,
        machine: &'a TransferMachine,
        server: EndPoint,
        lanes: u32,
    ) -> Result<Client<'a>, Failure> {
        let receives = ReceivePool::post(domain, machine)?;
        let idle = || -> Result<Lane, Failure> {
            let request = Some(domain.allocate(MESSAGE_BYTES)?);
            Ok(Lane { request, bulk: None, sequence: 0, begun: Instant::now(), parts: 0, good: true })
        };
        let lanes = (0..lanes).map(|_| idle()).collect::<Result<_, _>>()?;
        Ok(Client {
            domain,
            machine,
            server,
            receives,
            lanes,
            lane_of: HashMap::new(),
            batch: Batch::new(),
            begun: Vec::new(),
            sequence: 0,
            tally: Tally::new(),
            gave_up: false,
            server_report: None,
        })
    }

    /// Keeps `phase.lanes` operations in flight for the time asked, then lets them end.
    fn phase(
        &mut self,
        phase: &Phase,
        args: &SelftestArgs,
        check: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<PhaseReport, Failure> {
        self.tally = Tally::new();
        let mut progress = Progress::new(phase.name, args.duration, args.json);
        let started = Instant::now();
        for lane in 0..phase.lanes as usize {
            self.begin(lane, phase)?;
        }
        self.send_requests()?;
        let mut quiet_since = started;
        loop {
            let now = Instant::now();
            let over = now - started >= args.duration || self.tally.errors >= ERRORS_ENOUGH;
            if over && self.in_flight() == 0 {
                break;
            }
            if now - quiet_since > 2 * OPERATION_TIMEOUT {
                self.give_up();
                break;
            }
            if progress.update(&self.tally) {
                check()?;
            }
            let mut next = self.machine.wait(Some(WAIT))?;
            if next.is_some() {
                quiet_since = now;
            }
            while let Some(event) = next {
                let finished = self.handle(event, phase)?;
                if let Some(lane) = finished
                    && !over
                {
                    self.begin(lane, phase)?;
                }
                next = self.machine.take()?;
            }
            self.send_requests()?;
        }
        progress.finish();
        Ok(self.tally.finish(phase.name, phase.size as u64, phase.lanes, started.elapsed()))
    }

    fn in_flight(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.parts > 0).count()
    }

    /// What has not ended long after it should have is missing; its lanes are not used again.
    fn give_up(&mut self) {
        let missing = self.in_flight() as u64;
        self.tally.fail(missing, || format!("{missing} operations have not ended"));
        self.gave_up = true;
        self.lanes.iter_mut().for_each(|lane| lane.parts = 0);
    }

    /// Prepares the next operation of a lane; its request leaves with [`Client::send_requests`].
    fn begin(&mut self, lane: usize, phase: &Phase) -> Result<(), Failure> {
        self.sequence += 1;
        let head =
            Head { kind: phase.kind, lane: lane as u32, sequence: self.sequence, length: phase.size as u64 };
        let slot = &mut self.lanes[lane];
        let Some(mut request) = slot.request.take() else {
            // Its request never came back: it was counted as missing.
            return Ok(());
        };
        slot.sequence = head.sequence;
        slot.begun = Instant::now();
        slot.good = true;
        slot.parts = 0;
        let length = if phase.kind == Kind::Echo {
            slot.parts += 1;
            write_echo(&head, FROM_CLIENT, &mut request.write()?)
        } else {
            let offer = self.offer(lane, &head)?;
            write_offer(&head, &offer, &mut request.write()?)
        };
        self.batch.send(request, length, &self.server, Some(OPERATION_TIMEOUT));
        self.begun.push(lane);
        self.lanes[lane].parts += 1;
        Ok(())
    }

    /// Sends the requests of the operations that have begun since the last time, together.
    fn send_requests(&mut self) -> Result<(), Failure> {
        for (outcome, lane) in self.machine.submit(&mut self.batch).zip(self.begun.drain(..)) {
            let started = outcome.map_err(|refused| Failure::from(refused.error))?;
            self.lane_of.insert(started.op, lane);
        }
        Ok(())
    }

    /// Stages the lane's bulk buffer for the server.
    fn offer(&mut self, lane: usize, head: &Head) -> Result<nlx::Descriptor, Failure> {
        let mut bulk = match self.lanes[lane].bulk.take() {
            Some(buffer) => buffer,
            None => self.domain.allocate(BULK_BYTES)?,
        };
        let length = head.length as usize;
        let staged = if head.kind == Kind::Write {
            pattern::fill(FROM_CLIENT, head.sequence, &mut bulk.write()?[..length]);
            self.machine.passive_send(bulk, length, Some(OPERATION_TIMEOUT))
        } else {
            // What an earlier transfer left there must not pass for this one's bytes.
            bulk.write()?[..length].fill(0);
            self.machine.passive_receive(bulk, Some(OPERATION_TIMEOUT))
        };
        let (operation, descriptor) = staged.map_err(|Refused { error, .. }| Failure::from(error))?;
        self.lane_of.insert(operation, lane);
        // A write also waits for the server's verdict.
        self.lanes[lane].parts += if head.kind == Kind::Write { 2 } else { 1 };
        Ok(descriptor)
    }

    /// Takes one event; gives the lane whose operation it ended.
    fn handle(&mut self, event: Event, phase: &Phase) -> Result<Option<usize>, Failure> {
        if event.queue == Queue::MessageReceive {
            return self.answer(event, phase);
        }
        let lane = self.lane_of.remove(&event.op).ok_or_else(|| Failure::new("an event of no operation"))?;
        let (queue, status) = (event.queue, event.status);
        let mut problem = status.err().map(|errno| format!("{queue:?} ended with {errno}"));
        match (queue, event.buffer) {
            (Queue::MessageSend, buffer) => self.lanes[lane].request = buffer,
            (Queue::PassiveBulkReceive, Some(buffer)) => {
                let sequence = self.lanes[lane].sequence;
                let right = event.length == phase.size
                    && pattern::check(FROM_SERVER, sequence, &buffer.read()?[..event.length]);
                if problem.is_none() && right {
                    self.tally.verified_bytes += event.length as u64;
                } else if problem.is_none() {
                    problem = Some(format!("bulk read {sequence} brought wrong bytes"));
                }
                self.lanes[lane].bulk = Some(buffer);
            }
            (_, buffer) => self.lanes[lane].bulk = buffer,
        }
        Ok(self.part_done(lane, problem, phase))
    }

    /// A message from the server.
    fn answer(&mut self, mut event: Event, phase: &Phase) -> Result<Option<usize>, Failure> {
        let buffer = event.buffer.take();
        let finished = match event.message.take() {
            Some(message) => self.read_answer(&message, phase),
            None => {
                let status = event.status;
                self.tally.fail(1, || format!("a receive buffer ended with {status:?}"));
                None
            }
        };
        self.receives.repost(self.machine, buffer)?;
        Ok(finished)
    }

    fn read_answer(&mut self, bytes: &[u8], phase: &Phase) -> Option<usize> {
        let head = match Head::read(bytes) {
            Ok(head) => head,
            Err(failure) => {
                self.tally.fail(1, || format!("the server sent {failure}"));
                return None;
            }
        };
        let lane = head.lane as usize;
        if head.sequence == REPORT_SEQUENCE {
            self.server_report = Some((head.length, head.kind == Kind::Good));
            return None;
        }
        let expected =
            self.lanes.get(lane).is_some_and(|lane| lane.sequence == head.sequence && lane.parts > 0);
        let sequence = head.sequence;
        if !expected {
            self.tally.fail(1, || format!("an answer to operation {sequence}, which is not in flight"));
            return None;
        }
        let right = match head.kind {
            Kind::Echo => head.length == phase.size as u64 && check_echo(&head, FROM_SERVER, bytes),
            // The server has compared each byte of the write.
            kind => kind == Kind::Good,
        };
        self.tally.verified_bytes += if right { head.length } else { 0 };
        let problem =
            (!right).then(|| format!("operation {sequence} brought wrong bytes, or the server refused it"));
        self.part_done(lane, problem, phase)
    }

    fn part_done(&mut self, lane: usize, problem: Option<String>, phase: &Phase) -> Option<usize> {
        let slot = &mut self.lanes[lane];
        if let Some(problem) = problem {
            slot.good = false;
            self.tally.fail(0, || problem);
        }
        // A lane that was given up has no parts left; what comes late changes nothing.
        slot.parts = slot.parts.checked_sub(1)?;
        if slot.parts > 0 {
            return None;
        }
        if slot.good {
            self.tally.done(slot.begun.elapsed(), phase.size as u64);
        } else {
            self.tally.errors += 1;
        }
        Some(lane)
    }

    /// What the server has verified, and whether it found everything right.
    fn ask_server(&mut self) -> Result<(u64, bool), Failure> {
        let phase = Phase { name: "report", kind: Kind::Report, lanes: 0, size: 0 };
        let mut request = self.domain.allocate(MESSAGE_BYTES)?;
        let head = Head { kind: Kind::Report, lane: 0, sequence: REPORT_SEQUENCE, length: 0 };
        head.write(&mut request.write()?);
        let sent =
            self.machine.send(request, super::protocol::HEAD_BYTES, &self.server, Some(OPERATION_TIMEOUT));
        let operation = sent.map_err(|refused| Failure::from(refused.error))?;
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        while Instant::now() < deadline {
            match self.machine.wait(Some(WAIT))? {
                Some(event) if event.op == operation => event.status?,
                Some(event) if event.queue == Queue::MessageReceive => {
                    self.answer(event, &phase)?;
                }
                Some(_) | None => {}
            }
            if let Some(report) = self.server_report.take() {
                return Ok(report);
            }
        }
        Ok((0, false))
    }
}

/// No operation has this sequence: they count from 1.
const REPORT_SEQUENCE: u64 = 0;
