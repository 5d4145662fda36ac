//! Batches: RUN, STOP and QUERY.

use std::collections::HashMap;

use lnet_nid::ProcessId;
use lnet_proto::lst::{BatchOp, Name, ReplyBody, RequestBody};
use nix::errno::Errno;

use super::session::{Batch, Instance, Session};
use super::steps::{AfterStep, Round, Step, StepEnd};
use super::transaction::Outgoing;
use super::{
    BATCHES_MAX, Console, ConsoleError, DRAIN_MAX_NS, DRAIN_NS, Event, NodeAnswer, Query, QueryReport,
    Report, SECOND_NS, WAIT_MIN_S, WAIT_S, Warning,
};

impl Console {
    pub(super) fn add_batch(&mut self, name: Name) -> Result<AfterStep, ConsoleError> {
        let id = self.next_batch;
        let session = self.open()?;
        if session.batch(name).is_ok() {
            return Err(ConsoleError::Exists { object: "batch", name });
        }
        if session.batches.len() >= BATCHES_MAX {
            return Err(ConsoleError::TooMany { what: "batches", limit: BATCHES_MAX });
        }
        session.batches.push(Batch::new(name, id));
        self.take_batch_id();
        Ok(AfterStep::Done(Ok(Report::Batch { name })))
    }

    pub(super) fn run_batch(&mut self, name: Name, timeout_s: u32) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let batch = session.batch(name)?;
        if batch.tests.is_empty() {
            return Err(ConsoleError::NoTests { batch: name });
        }
        let clients = session.batch_nodes(batch, false);
        session.refuse_inactive(&clients)?;
        let round = session.batch_round(batch, BatchOp::RUN, timeout_s, clients);
        Ok(AfterStep::Send(Step::Run(name), round))
    }

    /// Ends [`Step::Run`]. The batch runs if it does at any node.
    pub(super) fn batch_run(&mut self, name: Name, ended: StepEnd) -> Report {
        let nodes = ended.successes();
        if nodes.iter().any(|node| node.answer.is_ok()) {
            self.set_running(name, true);
        }
        Report::Run { batch: name, nodes }
    }

    pub(super) fn stop_batch(&mut self, name: Name, force: bool) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let batch = session.batch(name)?;
        let mut clients = session.batch_nodes(batch, false);
        clients.retain(|node| session.is_active(*node));
        // EPERM is success: the batch did not run.
        let forgives = Some(Errno::EPERM);
        let round = session.batch_round(batch, BatchOp::STOP, force.into(), clients);
        let is_too_late = batch.is_stopping && force;
        if let Some(batch) = session.batch_mut(name) {
            batch.is_stopping |= !force;
        }
        if is_too_late {
            self.events.push_back(Event::Warning(Warning::ForcedTooLate { batch: name }));
        }
        Ok(AfterStep::Send(Step::Stop(name), Round { forgives, ..round }))
    }

    /// Ends [`Step::Stop`]: the batch counts as stopped, and is queried until nothing runs.
    pub(super) fn batch_stopped(&mut self, name: Name, ended: StepEnd) -> AfterStep {
        self.set_running(name, false);
        let until_ns = ended.now_ns + DRAIN_MAX_NS;
        self.drain(name, ended.successes(), until_ns, 0)
    }

    /// Ends [`Step::Drain`]. Nodes that do not answer any more are not asked again.
    pub(super) fn drained(
        &mut self,
        batch: Name,
        mut stopped: Vec<NodeAnswer<()>>,
        until_ns: u64,
        ended: StepEnd,
    ) -> AfterStep {
        let StepEnd { answers, sent_ns, now_ns } = ended;
        let (mut running, mut failed) = (0, HashMap::new());
        for NodeAnswer { node, state, answer } in answers {
            match answer.map(|reply| active(&reply.body)) {
                Ok(0) => {}
                Ok(_) => running += 1,
                Err(failure) => drop(failed.insert(node, (state, failure))),
            }
        }
        for node in &mut stopped {
            if let Some((state, failure)) = failed.remove(&node.node) {
                (node.state, node.answer) = (state, Err(failure));
            }
        }
        if running == 0 || now_ns >= until_ns {
            if let Some(batch) = self.session.as_mut().and_then(|session| session.batch_mut(batch)) {
                batch.is_stopping &= running > 0;
            }
            return AfterStep::Done(Ok(Report::Stop { batch, nodes: stopped, running }));
        }
        self.events.push_back(Event::Progress(Report::Stopping { batch, nodes: running }));
        self.drain(batch, stopped, until_ns, sent_ns + DRAIN_NS)
    }

    /// Sends a QUERY to the nodes that have answered so far.
    fn drain(&mut self, name: Name, stopped: Vec<NodeAnswer<()>>, until_ns: u64, at_ns: u64) -> AfterStep {
        let asked = stopped.iter().filter(|node| node.answer.is_ok()).map(|node| node.node).collect();
        let batch = self.session.as_ref().and_then(|session| Some((session, session.batch(name).ok()?)));
        let Some((session, batch)) = batch else { return AfterStep::Done(Err(ConsoleError::NoSession)) };
        let round = Round { at_ns, ..session.batch_round(batch, BatchOp::QUERY, 0, asked) };
        AfterStep::Send(Step::Drain { batch: name, stopped, until_ns }, round)
    }

    /// Sends one round of a query, at `at_ns`.
    pub(super) fn query(&mut self, query: Query, at_ns: u64) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        super::check::rounds(query.count, query.delay_s)?;
        let batch = session.batch(query.batch)?;
        let wait_s = query.timeout_s.clamp(WAIT_MIN_S, WAIT_S);
        let outgoing = match query.test {
            0 => session.queries(batch, session.batch_nodes(batch, query.servers), |_| 0),
            number => session.test_queries(batch, number, query.servers)?,
        };
        Ok(AfterStep::Send(Step::Query(query), Round { wait_s, at_ns, ..Round::new(outgoing) }))
    }

    /// Ends [`Step::Query`].
    pub(super) fn queried(&mut self, query: Query, ended: StepEnd) -> AfterStep {
        let StepEnd { answers, sent_ns, .. } = ended;
        let nodes = answers.into_iter().map(|answer| answer.map(|reply| active(&reply.body))).collect();
        let report = Report::Query(QueryReport { batch: query.batch, test: query.test, nodes });
        let Some(count) = super::steps::rounds_left(query.count) else { return AfterStep::Done(Ok(report)) };
        self.events.push_back(Event::Progress(report));
        let at_ns = sent_ns + u64::from(query.delay_s) * SECOND_NS;
        self.query(Query { count, ..query }, at_ns).unwrap_or_else(|error| AfterStep::Done(Err(error)))
    }

    fn set_running(&mut self, name: Name, running: bool) {
        if let Some(batch) = self.session.as_mut().and_then(|session| session.batch_mut(name)) {
            batch.running = running;
            batch.is_stopping &= !running;
        }
    }
}

impl Session {
    fn batch_round(&self, batch: &Batch, op: BatchOp, argument: u32, nodes: Vec<ProcessId>) -> Round {
        let body = RequestBody::Batch { sid: self.sid, batch: batch.id, op, test: 0, argument };
        Round::new(nodes.into_iter().map(|node| Outgoing::new(node, body)).collect())
    }

    fn queries(
        &self,
        batch: &Batch,
        nodes: Vec<ProcessId>,
        test: impl Fn(ProcessId) -> u32,
    ) -> Vec<Outgoing> {
        let (sid, batch, op) = (self.sid, batch.id, BatchOp::QUERY);
        let query =
            |node| Outgoing::new(node, RequestBody::Batch { sid, batch, op, test: test(node), argument: 0 });
        nodes.into_iter().map(query).collect()
    }

    /// Returns a QUERY of one test to its nodes. A node counts its own instances (lst 6), so the
    /// index depends on what else was added there.
    fn test_queries(&self, batch: &Batch, number: u32, servers: bool) -> Result<Vec<Outgoing>, ConsoleError> {
        let test = batch.tests.get(number as usize - 1);
        let test = test.ok_or_else(|| ConsoleError::NotFound { object: "test", name: number.to_string() })?;
        let instance = Instance { serial: test.serial, is_client: !servers };
        let index = |node: ProcessId| {
            let instances = batch.instances.get(&node)?;
            Some(instances.iter().position(|at| *at == instance)? as u32 + 1)
        };
        let nodes = self.test_nodes(&test.add, servers).iter().copied();
        let nodes = nodes.filter(|node| index(*node).is_some()).collect();
        Ok(self.queries(batch, nodes, |node| index(node).unwrap_or(0)))
    }
}

/// Returns what a node has running.
fn active(reply: &ReplyBody) -> u32 {
    match reply {
        ReplyBody::Batch { active, .. } => *active,
        _ => 0,
    }
}
