//! Operations that only ask: STAT and DEBUG.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Reply, ReplyBody, RequestBody, Statistics};

use super::session::Session;
use super::steps::{AfterStep, Round, Step, StepEnd, rounds_left};
use super::transaction::Outgoing;
use super::{
    Console, ConsoleError, Event, HeldSession, NODES_MAX, NodeAnswer, Rates, Report, SECOND_NS,
    SHOW_ERROR_WAIT_S, Stat, Target, TargetReport, WAIT_MIN_S, WAIT_S, Warning,
};

impl Session {
    /// Returns the nodes of a target.
    fn resolve(&self, target: &Target) -> Result<Vec<ProcessId>, ConsoleError> {
        Ok(match target {
            Target::Session => self.nodes.keys().copied().collect(),
            Target::Group(name) => self.group(*name)?.nodes.clone(),
            Target::Batch { name, servers } => self.batch_nodes(self.batch(*name)?, *servers),
            Target::Nodes(nodes) => nodes.clone(),
        })
    }

    /// Returns the nodes of several targets, one target after the other.
    fn resolve_all(&self, targets: &[Target]) -> Result<Vec<Vec<ProcessId>>, ConsoleError> {
        let nodes: Vec<_> = targets.iter().map(|target| self.resolve(target)).collect::<Result<_, _>>()?;
        match nodes.iter().map(Vec::len).sum::<usize>() > NODES_MAX {
            true => Err(ConsoleError::TooMany { what: "nodes", limit: NODES_MAX }),
            false => Ok(nodes),
        }
    }

    fn stats(&self, nodes: &[Vec<ProcessId>]) -> Round {
        let body = RequestBody::Stat { sid: self.sid, kind: 0 };
        Round::new(nodes.iter().flatten().map(|node| Outgoing::new(*node, body)).collect())
    }
}

impl Console {
    pub(super) fn stat(&mut self, stat: Stat) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        super::check::rounds(stat.count, stat.delay_s)?;
        let nodes = session.resolve_all(&stat.targets)?;
        let wait_s = stat.timeout_s.clamp(WAIT_MIN_S, WAIT_S);
        let round = Round { wait_s, ..session.stats(&nodes) };
        let sizes = nodes.iter().map(Vec::len).collect();
        Ok(AfterStep::Send(Step::Stat { stat, sizes, first: Vec::new() }, round))
    }

    /// Ends [`Step::Stat`]: the first time there is no interval yet.
    pub(super) fn measured(
        &mut self,
        stat: Stat,
        sizes: Vec<usize>,
        first: Vec<Option<Statistics>>,
        ended: StepEnd,
    ) -> AfterStep {
        let StepEnd { answers, sent_ns, .. } = ended;
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.map(statistics)).collect();
        let nodes = answers.iter().map(|answer| answer.node).collect::<Vec<_>>();
        let last = answers.iter().map(|answer| answer.answer.ok()).collect();
        let mut stat = stat;
        if !first.is_empty() || answers.is_empty() {
            self.warn_of_zombies(&answers);
            let rates = answers.into_iter().zip(first).map(|(second, first)| rates(first, second));
            let report = Report::Stat(split(stat.targets.clone(), &sizes, rates));
            let Some(count) = rounds_left(stat.count) else { return AfterStep::Done(Ok(report)) };
            stat.count = count;
            self.events.push_back(Event::Progress(report));
        }
        let Some(session) = &self.session else { return AfterStep::Done(Err(ConsoleError::NoSession)) };
        let at_ns = sent_ns + u64::from(stat.delay_s) * SECOND_NS;
        let wait_s = stat.timeout_s.clamp(WAIT_MIN_S, WAIT_S);
        let round = Round { wait_s, at_ns, ..session.stats(&[nodes]) };
        AfterStep::Send(Step::Stat { stat, sizes, first: last }, round)
    }

    fn warn_of_zombies(&mut self, nodes: &[NodeAnswer<Statistics>]) {
        for node in nodes {
            let sessions = node.answer.map_or(0, |statistics| statistics.zombie_sessions);
            if sessions > 0 {
                self.events.push_back(Event::Warning(Warning::Zombies { node: node.node, sessions }));
            }
        }
    }

    pub(super) fn show_error(&mut self, targets: Vec<Target>) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let nodes = session.resolve_all(&targets)?;
        let round = Round { wait_s: SHOW_ERROR_WAIT_S, ..session.stats(&nodes) };
        let sizes = nodes.iter().map(Vec::len).collect();
        Ok(AfterStep::Send(Step::ShowError { targets, sizes }, round))
    }

    /// Ends [`Step::ShowError`].
    pub(super) fn errors_shown(&mut self, targets: Vec<Target>, sizes: &[usize], ended: StepEnd) -> Report {
        let answers: Vec<_> = ended.answers.into_iter().map(|answer| answer.map(statistics)).collect();
        self.warn_of_zombies(&answers);
        Report::Errors(split(targets, sizes, answers.into_iter()))
    }

    pub(super) fn ping(&mut self, target: Target, timeout_s: u32) -> Result<AfterStep, ConsoleError> {
        let session = self.open()?;
        let nodes = session.resolve_all(std::slice::from_ref(&target))?;
        let body = RequestBody::Debug { sid: session.sid, flags: 0 };
        let outgoing = nodes.into_iter().flatten().map(|node| Outgoing::new(node, body)).collect();
        let wait_s = timeout_s.clamp(WAIT_MIN_S, WAIT_S);
        Ok(AfterStep::Send(Step::Ping(target), Round { wait_s, ..Round::new(outgoing) }))
    }

    /// Ends [`Step::Ping`].
    pub(super) fn pinged(&mut self, target: Target, ended: StepEnd) -> Report {
        let nodes = ended.answers.into_iter().map(|answer| answer.map(held_session)).collect();
        Report::Ping(TargetReport { target, nodes })
    }
}

/// Returns the rates of a node from its two STATs, if both were answered.
fn rates(first: Option<Statistics>, second: NodeAnswer<Statistics>) -> NodeAnswer<Rates> {
    let NodeAnswer { node, state, answer } = second;
    let unmeasured = super::NodeFailure::Rpc(nix::errno::Errno::ENODATA);
    let answer = answer.and_then(|second| Ok(Rates::between(&first.ok_or(unmeasured)?, &second)));
    NodeAnswer { node, state, answer }
}

/// Gives each target its answers: `sizes` of them.
fn split<T>(
    targets: Vec<Target>,
    sizes: &[usize],
    mut answers: impl Iterator<Item = NodeAnswer<T>>,
) -> Vec<TargetReport<T>> {
    let targets = targets.into_iter().zip(sizes);
    targets
        .map(|(target, size)| TargetReport { target, nodes: answers.by_ref().take(*size).collect() })
        .collect()
}

fn statistics(reply: Reply) -> Statistics {
    match reply.body {
        ReplyBody::Stat(statistics) => statistics,
        _ => Statistics::default(),
    }
}

fn held_session(reply: Reply) -> HeldSession {
    let (timeout_s, name) = match reply.body {
        ReplyBody::Debug { timeout_s, name, .. } => (timeout_s, name),
        _ => (0, lnet_proto::lst::Name::EMPTY),
    };
    HeldSession { sid: reply.sid, name, timeout_s }
}
