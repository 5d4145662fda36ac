//! Starting operations, alone or in batches.

use std::fmt;

use nlx_core::{CoreError, Operation, Submitted};
use nlx_sync::deadline_after;

use crate::{Machine, Offer, Op, OpId, Refused, Started};

/// A list of operations that start together, by [`Machine::submit`].
///
/// The messages of a batch leave together: one system call for many small messages, instead of one
/// for each. Keep a batch and refill it: in steady state it allocates nothing.
///
/// ```
/// # use nlx::{Batch, Domain, NodeConfig, Op, TmOptions};
/// # let domain = Domain::in_process(&NodeConfig::new())?;
/// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
/// # let to = tm.own_end_point();
/// tm.start(Op::receive(domain.allocate(1024)?).max_messages(16))?;
/// let mut batch = Batch::new();
/// for number in 0..16 {
///     let mut buffer = domain.allocate(64)?;
///     buffer.write()?[0] = number;
///     batch.push(Op::send(buffer, to));
/// }
/// for outcome in tm.submit(&mut batch) {
///     // A refusal does not stop the operations after it, and returns the buffer.
///     outcome?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping a batch starts nothing.
#[derive(Default)]
#[must_use = "its operations start with `Machine::submit`"]
pub struct Batch {
    ops: Vec<Op>,
    outcomes: Vec<Result<Started, Refused>>,
    /// The operations passed to the transport, and for each its index in `outcomes`.
    operations: Vec<Operation>,
    indices: Vec<usize>,
}

impl Batch {
    /// Creates a batch without operations.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Returns the number of operations to submit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns whether the batch has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds an operation at the end.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }
}

impl Machine {
    /// Starts an operation. Its events may come before this returns.
    ///
    /// A bulk operation on a [large](crate::Buffer) buffer, or with the offer of one, starts as
    /// several operations ([`Op`] has the rules).
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Op, Refused, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// let peer = tm.own_end_point();
    /// let Refused { buffer, error } = tm.start(Op::send(domain.allocate(64)?, peer).length(65)).unwrap_err();
    /// assert_eq!(error.to_string(), "length is 65: it must be 1 to 64");
    /// let sending = tm.start(Op::send(buffer, peer))?.op;
    /// assert!(tm.wait(None)?.is_some_and(|event| event.op == sending && event.buffer.is_some()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Every error returns the buffer ([`Refused`]). ETIME for a timeout of 0; EBUSY while a
    /// message lends bytes of the buffer out; EINVAL for numbers that do not fit the buffer, a
    /// setting of another kind of operation, or a buffer of another domain; ENOMEM without room for
    /// events; ESHUTDOWN unless the machine is started; or LNet's error. Messages: also EFBIG for a
    /// large buffer, and EHOSTUNREACH if no network leads to the peer. Active operations: also
    /// EPERM if the peer's buffer has the same direction, EFBIG if the data does not fit, and
    /// EINVAL for bytes that are not an offer, for parts of another size than this transport's, and
    /// for a length that leaves a part of the offer empty, because the peer waits for all parts.
    pub fn start(&self, op: Op) -> Result<Started, Refused> {
        if op.is_large() { self.start_large(op) } else { self.start_one(op) }
    }

    /// Starts the operations of a batch, in order, and returns the outcome of each; their timeouts
    /// count from this call. The batch is empty afterwards.
    ///
    /// Each operation is started or refused independently, with the errors of [`Machine::start`];
    /// an operation that fails later ends with an event instead. Events may come before this
    /// returns. A bulk operation that is split starts separately, in order: the operations before
    /// it leave together, then its parts, then the operations after it together.
    #[must_use = "a refusal has the buffer of its operation"]
    pub fn submit<'a>(
        &self,
        batch: &'a mut Batch,
    ) -> impl Iterator<Item = Result<Started, Refused>> + use<'a> {
        let Batch { ops, outcomes, operations, indices } = batch;
        outcomes.clear();
        match self.domain.check_here() {
            Ok(()) => {
                let now_ns = ops.iter().any(|op| op.timeout.is_some()).then(|| self.now_ns());
                let mut ops = ops.drain(..);
                loop {
                    let large = self.enter_run(&mut ops, now_ns, outcomes, (operations, indices));
                    self.tm.submit_all(now_ns, operations, &mut |index, reply| {
                        let op = OpId::from_cookie(operations[index].cookie);
                        outcomes[indices[index]] = self.settle(op, reply);
                    });
                    let Some(large) = large else { break };
                    outcomes.push(self.start_large(large));
                }
            }
            Err(error) => outcomes.extend(ops.drain(..).map(|op| Err(op.refuse(error.clone())))),
        }
        outcomes.drain(..)
    }

    /// Enters the next operations with their buffers, up to the first large one, which it returns.
    fn enter_run(
        &self,
        ops: &mut impl Iterator<Item = Op>,
        now_ns: Option<u64>,
        outcomes: &mut Vec<Result<Started, Refused>>,
        (operations, indices): (&mut Vec<Operation>, &mut Vec<usize>),
    ) -> Option<Op> {
        operations.clear();
        indices.clear();
        let (mut large, mut earliest_ns) = (None, u64::MAX);
        let run = std::iter::from_fn(|| {
            let op = ops.next()?;
            if op.is_large() {
                large = Some(op);
                return None;
            }
            if let Err(error) = op.check(&self.domain) {
                return Some(Err(op.refuse(error)));
            }
            let deadline_ns = now_ns.zip(op.timeout).map(|(now_ns, timeout)| deadline_after(now_ns, timeout));
            earliest_ns = earliest_ns.min(deadline_ns.unwrap_or(u64::MAX));
            Some(Ok((op, deadline_ns)))
        });
        self.operations.enter_all(run, self.domain.usage(), |entered| {
            let index = outcomes.len();
            outcomes.push(entered.map(|operation| {
                let op = OpId::from_cookie(operation.cookie);
                indices.push(index);
                operations.push(operation);
                Started::plain(op)
            }));
        });
        if earliest_ns != u64::MAX {
            self.wake_for(earliest_ns);
        }
        large
    }

    /// Enters an operation with its buffer, and starts it at the transport.
    #[inline]
    pub(crate) fn start_one(&self, op: Op) -> Result<Started, Refused> {
        if let Err(error) = op.check(&self.domain) {
            return Err(op.refuse(error));
        }
        let timed = op.timeout.map(|timeout| (self.now_ns(), timeout));
        let deadline_ns = timed.map(|(now_ns, timeout)| deadline_after(now_ns, timeout));
        let operation = self.operations.enter(op, deadline_ns, self.domain.usage())?;
        deadline_ns.inspect(|&deadline_ns| self.wake_for(deadline_ns));
        self.settle(
            OpId::from_cookie(operation.cookie),
            self.tm.submit_since(timed.map(|(now_ns, _)| now_ns), &operation),
        )
    }

    /// Handles the transport's reply to an operation that has been entered. A refused operation is
    /// removed, unless it has ended with an event all the same.
    fn settle(&self, op: OpId, reply: Result<Submitted, CoreError>) -> Result<Started, Refused> {
        match reply {
            Ok(Submitted { descriptor }) => {
                Ok(Started { op, offer: descriptor.map_or(Offer::NONE, Offer::from) })
            }
            Err(error) => match self.operations.withdraw(op) {
                Some(buffer) => Err(Refused { buffer, error: error.into() }),
                None => Ok(Started::plain(op)),
            },
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} operations)", self.len())
    }
}
