//! The steps of operations: each is a transaction, whose end decides on the next.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Name, Reply, Statistics};
use nix::errno::Errno;

use super::add_test::PendingTest;
use super::transaction::{Outgoing, Transaction};
use super::{
    Console, ConsoleError, ConsoleOperation, Event, GroupOutcome, NodeAnswer, Query, Report, Stat, Target,
};

/// The operation in progress.
#[derive(Debug)]
pub(super) struct Running {
    step: Step,
    phase: Phase,
    cancelled: bool,
}

#[derive(Debug)]
enum Phase {
    /// The step's RPCs are due later.
    Waiting(Round),
    /// They are in flight.
    Sent(Transaction),
}

/// The RPCs of a step.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) wait_s: u32,
    /// The status that counts as success.
    pub(super) forgives: Option<Errno>,
    /// When the RPCs are sent.
    pub(super) at_ns: u64,
}

impl Round {
    /// Returns a round that is sent at once and waits for [`WAIT_S`](super::WAIT_S).
    pub(super) fn new(outgoing: Vec<Outgoing>) -> Round {
        Round { outgoing, wait_s: super::WAIT_S, forgives: None, at_ns: 0 }
    }
}

/// A step, with what its end needs.
#[derive(Debug)]
pub(super) enum Step {
    AddGroup(Name),
    Refresh(Name),
    /// RMSN to the nodes that leave a group.
    Remove {
        group: Name,
        nodes: Vec<ProcessId>,
        outcome: GroupOutcome,
    },
    /// TEST with check 4 to the servers, in a batch that is never run.
    Probe(Box<PendingTest>),
    Servers(Box<PendingTest>),
    Clients {
        plan: Box<PendingTest>,
        servers: Vec<NodeAnswer<()>>,
    },
    Run(Name),
    Stop(Name),
    /// QUERYs after a STOP, until nothing runs.
    Drain {
        batch: Name,
        stopped: Vec<NodeAnswer<()>>,
        until_ns: u64,
    },
    Query(Query),
    Stat {
        stat: Stat,
        sizes: Vec<usize>,
        first: Vec<Option<Statistics>>,
    },
    ShowError {
        targets: Vec<Target>,
        sizes: Vec<usize>,
    },
    Ping(Target),
    End,
}

/// What follows a step.
#[derive(Debug)]
pub(super) enum AfterStep {
    Done(Result<Report, ConsoleError>),
    Send(Step, Round),
}

/// The end of a step.
#[derive(Debug)]
pub(super) struct StepEnd {
    pub(super) answers: Vec<NodeAnswer<Reply>>,
    pub(super) sent_ns: u64,
    pub(super) now_ns: u64,
}

impl StepEnd {
    /// Returns the answers of which only success or failure counts.
    pub(super) fn successes(self) -> Vec<NodeAnswer<()>> {
        self.answers.into_iter().map(|answer| answer.map(drop)).collect()
    }
}

impl Running {
    /// Returns when time has an effect on the operation.
    pub(super) fn due_ns(&self) -> u64 {
        match &self.phase {
            Phase::Waiting(round) => round.at_ns,
            Phase::Sent(transaction) => transaction.deadline_ns,
        }
    }

    pub(super) fn transaction(&mut self) -> Option<&mut Transaction> {
        match &mut self.phase {
            Phase::Sent(transaction) => Some(transaction),
            Phase::Waiting(_) => None,
        }
    }

    /// Returns the status that counts as success.
    pub(super) fn forgives(&self) -> Option<Errno> {
        match &self.phase {
            Phase::Sent(transaction) => transaction.forgives,
            Phase::Waiting(_) => None,
        }
    }

    /// Returns whether a node that cannot be reached in this step is DOWN.
    pub(super) fn marks_down(&self) -> bool {
        matches!(&self.phase, Phase::Sent(transaction) if transaction.marks_down)
    }
}

impl Console {
    /// Begins an operation.
    pub(super) fn start(
        &mut self,
        operation: ConsoleOperation,
        now_ns: u64,
    ) -> Result<AfterStep, ConsoleError> {
        match operation {
            ConsoleOperation::NewSession(new) => self.new_session(&new, now_ns),
            ConsoleOperation::AddGroup { name, nodes } => self.add_group(name, nodes, now_ns),
            ConsoleOperation::DelGroup { name } => self.del_group(name),
            ConsoleOperation::UpdateGroup { name, update } => self.update_group(name, update),
            ConsoleOperation::AddBatch { name } => self.add_batch(name),
            ConsoleOperation::AddTest(test) => self.add_test(test),
            ConsoleOperation::Run { batch, timeout_s } => self.run_batch(batch, timeout_s),
            ConsoleOperation::Stop { batch, force } => self.stop_batch(batch, force),
            ConsoleOperation::Query(query) => self.query(query, 0),
            ConsoleOperation::Stat(stat) => self.stat(stat),
            ConsoleOperation::ShowError { targets } => self.show_error(targets),
            ConsoleOperation::Ping { target, timeout_s } => self.ping(target, timeout_s),
            ConsoleOperation::EndSession => Ok(self.end_session(now_ns)),
        }
    }

    /// Decides what follows a step.
    fn finish(&mut self, step: Step, ended: StepEnd) -> AfterStep {
        match step {
            Step::AddGroup(name) => AfterStep::Done(Ok(self.group_added(name, ended))),
            Step::Refresh(name) => AfterStep::Done(Ok(Report::Group {
                name,
                outcome: GroupOutcome::Refreshed,
                nodes: ended.successes(),
            })),
            Step::Remove { group, nodes, outcome } => {
                AfterStep::Done(Ok(self.nodes_removed(group, &nodes, outcome, ended)))
            }
            Step::Probe(plan) => self.probed(plan, ended),
            Step::Servers(plan) => self.servers_added(plan, ended),
            Step::Clients { plan, servers } => AfterStep::Done(Ok(self.clients_added(&plan, servers, ended))),
            Step::Run(batch) => AfterStep::Done(Ok(self.batch_run(batch, ended))),
            Step::Stop(batch) => self.batch_stopped(batch, ended),
            Step::Drain { batch, stopped, until_ns } => self.drained(batch, stopped, until_ns, ended),
            Step::Query(query) => self.queried(query, ended),
            Step::Stat { stat, sizes, first } => self.measured(stat, sizes, first, ended),
            Step::ShowError { targets, sizes } => {
                AfterStep::Done(Ok(self.errors_shown(targets, &sizes, ended)))
            }
            Step::Ping(target) => AfterStep::Done(Ok(self.pinged(target, ended))),
            Step::End => {
                self.session = None;
                AfterStep::Done(Ok(Report::End { nodes: ended.successes() }))
            }
        }
    }

    /// Sends the RPCs of the next step, or ends the operation.
    pub(super) fn apply(&mut self, next: AfterStep, now_ns: u64) {
        match next {
            AfterStep::Done(result) => self.events.push_back(Event::Done(result)),
            AfterStep::Send(step, round) => {
                let phase = match round.at_ns > now_ns {
                    true => Phase::Waiting(round),
                    false => Phase::Sent(self.send_round(round, now_ns)),
                };
                self.running = Some(Running { step, phase, cancelled: false });
            }
        }
    }

    /// Ends steps that have all their answers, one after the other.
    pub(super) fn settle(&mut self, now_ns: u64) {
        while let Some(running) = self.running.take() {
            let Running { step, phase: Phase::Sent(transaction), cancelled } = running else {
                self.running = Some(running);
                return;
            };
            if !transaction.is_complete() {
                self.running = Some(Running { step, phase: Phase::Sent(transaction), cancelled });
                return;
            }
            let sent_ns = transaction.sent_ns;
            let ended = StepEnd { answers: transaction.into_answers(), sent_ns, now_ns };
            let next = match (self.finish(step, ended), cancelled) {
                (AfterStep::Send(..), true) => AfterStep::Done(Err(ConsoleError::Canceled)),
                (next, _) => next,
            };
            if let Some(session) = &mut self.session {
                session.command_ns = now_ns;
            }
            self.apply(next, now_ns);
        }
    }

    /// Sends what is due now, and gives up what is not answered in time.
    pub(super) fn expire_transaction(&mut self, now_ns: u64) {
        let Some(running) = self.running.take_if(|running| running.due_ns() <= now_ns) else { return };
        let Running { step, phase, cancelled } = running;
        let (phase, over) = match phase {
            Phase::Waiting(round) => (Phase::Sent(self.send_round(round, now_ns)), false),
            sent => (sent, true),
        };
        self.running = Some(Running { step, phase, cancelled });
        if over {
            self.give_up(Errno::ETIMEDOUT, now_ns);
        }
    }

    /// Ends the operation in progress before its time.
    pub(super) fn interrupt(&mut self, now_ns: u64) {
        match &mut self.running {
            Some(Running { phase: Phase::Waiting(_), .. }) => {
                self.running = None;
                self.events.push_back(Event::Done(Err(ConsoleError::Canceled)));
            }
            Some(running) => {
                running.cancelled = true;
                self.give_up(Errno::EINTR, now_ns);
            }
            None => {}
        }
    }

    fn send_round(&mut self, round: Round, now_ns: u64) -> Transaction {
        self.post_transaction(round.outgoing, round.wait_s, round.forgives, now_ns)
    }
}

/// Returns the count of the rounds after this one; `None` if this was the last.
#[expect(clippy::option_option, reason = "the inner None is a count without end")]
pub(super) fn rounds_left(count: Option<u32>) -> Option<Option<u32>> {
    match count {
        None => Some(None),
        Some(count) => count.checked_sub(1).filter(|left| *left > 0).map(Some),
    }
}
