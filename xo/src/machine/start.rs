//! Starting operations, one or several together.

use std::fmt;
use std::time::Duration;

use nlx_core::{CoreError, Descriptor, Operation, Submitted};

use crate::deadlines::after;
use crate::wanted::Wanted;
use crate::{Buffer, EndPoint, Machine, OpId, Receive, Refused, Started};

/// Operations that are to start together. Each is what the method of the same name of a transfer machine starts; none starts
/// before [`Machine::submit`].
///
/// What a batch sends leaves together: one system call for many small messages, instead of one for each. A program that has
/// several messages to send keeps a batch and fills it again and again; in steady state
/// that takes no memory.
///
/// ```
/// # use nlx::{Batch, Domain, NodeConfig, Receive, TmOptions};
/// # let domain = Domain::in_process(&NodeConfig::new())?;
/// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
/// # let to = tm.own_end_point();
/// tm.receive(domain.allocate(4096)?, Receive { min_receive_size: 64, max_messages: 16 }, None)?;
/// let mut batch = Batch::new();
/// for number in 0..16 {
///     let mut buffer = domain.allocate(64)?;
///     buffer.write()?[0] = number;
///     batch.send(buffer, 64, to, None);
/// }
/// for outcome in tm.submit(&mut batch) {
///     // A refusal does not stop those behind it, and gives its buffer back.
///     outcome?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A batch that is dropped starts nothing.
#[derive(Default)]
#[must_use = "its operations start with `TransferMachine::submit`"]
pub struct Batch {
    wanted: Vec<Wanted>,
    outcomes: Vec<Result<Started, Refused>>,
    /// Those that the transport is asked for, and the place of each among `outcomes`.
    operations: Vec<Operation>,
    places: Vec<usize>,
}

impl Batch {
    /// Of no operations yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// How many operations wait to be submitted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// As [`Machine::receive`].
    pub fn receive(&mut self, buffer: Buffer, receive: Receive, timeout: Option<Duration>) {
        self.wanted.push(Wanted::receive(buffer, receive, timeout));
    }

    /// As [`Machine::send`].
    pub fn send(&mut self, buffer: Buffer, length: usize, to: &EndPoint, timeout: Option<Duration>) {
        self.wanted.push(Wanted::send(buffer, length, to, timeout));
    }

    /// As [`Machine::passive_receive`].
    pub fn passive_receive(&mut self, buffer: Buffer, timeout: Option<Duration>) {
        self.wanted.push(Wanted::passive_receive(buffer, timeout));
    }

    /// As [`Machine::passive_send`].
    pub fn passive_send(&mut self, buffer: Buffer, length: usize, timeout: Option<Duration>) {
        self.wanted.push(Wanted::passive_send(buffer, length, timeout));
    }

    /// As [`Machine::active_receive`].
    pub fn active_receive(&mut self, buffer: Buffer, descriptor: &Descriptor, timeout: Option<Duration>) {
        self.wanted.push(Wanted::active_receive(buffer, descriptor, timeout));
    }

    /// As [`Machine::active_send`].
    pub fn active_send(
        &mut self,
        buffer: Buffer,
        length: usize,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) {
        self.wanted.push(Wanted::active_send(buffer, length, descriptor, timeout));
    }
}

impl Machine {
    /// Starts the operations of a batch, in order, and gives what became of each; their timeouts count from here. The batch
    /// is empty afterwards.
    ///
    /// Each is started or refused by itself, with the errors of [`Machine::receive`]; one that is refused later ends
    /// with an event instead. Events may come before this returns.
    #[must_use = "what is refused gives its buffer back"]
    pub fn submit<'a>(
        &self,
        batch: &'a mut Batch,
    ) -> impl Iterator<Item = Result<Started, Refused>> + use<'a> {
        let started_ns = self.enter_all(batch);
        let Batch { operations, places, outcomes, .. } = batch;
        self.tm.submit_all(started_ns, operations, &mut |place, told| {
            let op = OpId::from_cookie(operations[place].cookie);
            outcomes[places[place]] = self.settle(op, told);
        });
        outcomes.drain(..)
    }

    /// Moves the buffers into operations; gives the moment from which their timeouts count, if they have any.
    fn enter_all(&self, batch: &mut Batch) -> Option<u64> {
        let Batch { wanted, outcomes, operations, places } = batch;
        outcomes.clear();
        operations.clear();
        places.clear();
        if let Err(error) = self.domain.check_here() {
            outcomes.extend(wanted.drain(..).map(|wanted| Err(wanted.refuse(error.clone()))));
            return None;
        }
        let now_ns = wanted.iter().any(|wanted| wanted.timeout().is_some()).then(|| self.now_ns());
        let mut earliest_ns = u64::MAX;
        let checked = wanted.drain(..).map(|wanted| match wanted.check(&self.domain) {
            Ok(()) => {
                let timed = now_ns.zip(wanted.timeout());
                let deadline_ns = timed.map(|(now_ns, timeout)| after(now_ns, timeout));
                earliest_ns = earliest_ns.min(deadline_ns.unwrap_or(u64::MAX));
                Ok((wanted, deadline_ns))
            }
            Err(error) => Err(wanted.refuse(error)),
        });
        self.operations.enter_all(checked, self.domain.ledger(), |entered| {
            let place = outcomes.len();
            outcomes.push(entered.map(|operation| {
                let op = OpId::from_cookie(operation.cookie);
                places.push(place);
                operations.push(operation);
                Started { op, descriptor: None }
            }));
        });
        if earliest_ns != u64::MAX {
            self.hurry(earliest_ns);
        }
        now_ns
    }

    /// Moves the buffer into an operation and starts it.
    pub(crate) fn start(&self, wanted: Wanted) -> Result<Started, Refused> {
        if let Err(error) = wanted.check(&self.domain) {
            return Err(wanted.refuse(error));
        }
        let timed = wanted.timeout().map(|timeout| (self.now_ns(), timeout));
        let deadline_ns = timed.map(|(now_ns, timeout)| after(now_ns, timeout));
        let operation = self.operations.enter(wanted, deadline_ns, self.domain.ledger())?;
        deadline_ns.inspect(|&deadline_ns| self.hurry(deadline_ns));
        self.settle(
            OpId::from_cookie(operation.cookie),
            self.tm.submit_since(timed.map(|(now_ns, _)| now_ns), &operation),
        )
    }

    /// What the transport says to an operation that has been entered. Refused, it was never there, unless it has ended with
    /// an event all the same.
    fn settle(&self, op: OpId, told: Result<Submitted, CoreError>) -> Result<Started, Refused> {
        match told {
            Ok(Submitted { descriptor }) => Ok(Started { op, descriptor }),
            Err(error) => match self.operations.withdraw(op) {
                Some(buffer) => Err(Refused { buffer, error: error.into() }),
                None => Ok(Started { op, descriptor: None }),
            },
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} operations)", self.len())
    }
}
