//! Starting operations.

use nlx_core::{CoreError, Operation, Submitted};

use super::State;
use crate::deadlines::after;
use crate::operations::Op;
use crate::quotas::Object;
use crate::wanted::{Wanted, sent_length};
use crate::{Buffer, Error, Machine, OpId, Refused, Started, TmState};

impl Machine {
    /// Moves the buffer into an operation and starts it.
    pub(crate) fn start(&self, wanted: Wanted) -> Result<Started, Refused> {
        if let Err(error) = wanted.check(&self.domain) {
            return Err(wanted.refuse(error));
        }
        let timed = wanted.timeout().map(|timeout| (self.now_ns(), timeout));
        let deadline_ns = timed.map(|(now_ns, timeout)| after(now_ns, timeout));
        let operation = self.enter(&mut self.inner.lock(), wanted, deadline_ns)?;
        deadline_ns.inspect(|&deadline_ns| self.hurry(deadline_ns));
        self.settle(
            OpId::from_cookie(operation.cookie),
            self.tm.submit_since(timed.map(|(now_ns, _)| now_ns), &operation),
        )
    }

    /// Moves the buffer into an operation: gives what the transport is to be told.
    pub(super) fn enter(
        &self,
        inner: &mut State,
        wanted: Wanted,
        deadline_ns: Option<u64>,
    ) -> Result<Operation, Refused> {
        let Wanted { buffer, kind, to, owner, going_on, .. } = wanted;
        let goes_on = going_on && inner.state == TmState::Stopping;
        if inner.state != TmState::Started && !goes_on {
            return Err(Refused { buffer, error: Error::NotStarted { state: inner.state } });
        }
        let in_flight = inner.operations.len() as u64;
        if let Err(error) = self.domain.ledger().check(Object::Operations, in_flight) {
            return Err(Refused { buffer, error });
        }
        let (handle, queue) = (buffer.handle(), kind.queue());
        let length = sent_length(&kind).unwrap_or(0);
        let op = Op { queue, buffer, length, _to: to, reason: None, cancel_sent: false, owner };
        let (id, _) = inner.operations.enter(|_| op);
        inner.statistics.of(queue).adds += 1;
        inner.posted[queue.index()] += 1;
        if let Some(deadline_ns) = deadline_ns {
            inner.deadlines.set(id.slot(), deadline_ns);
            self.note_earliest(inner);
        }
        Ok(Operation { buffer: handle, cookie: id.cookie(), kind })
    }

    /// What the transport says to an operation that has been entered. Refused, it was never there, unless it has ended with
    /// an event all the same.
    pub(crate) fn settle(&self, op: OpId, told: Result<Submitted, CoreError>) -> Result<Started, Refused> {
        match told {
            Ok(Submitted { descriptor }) => Ok(Started { op, descriptor }),
            Err(error) => match self.withdraw(op) {
                Some(buffer) => Err(Refused { buffer, error: error.into() }),
                None => Ok(Started { op, descriptor: None }),
            },
        }
    }

    fn withdraw(&self, id: OpId) -> Option<Buffer> {
        let mut inner = self.inner.lock();
        let op = inner.operations.leave(id)?;
        inner.posted[op.queue.index()] -= 1;
        let adds = &mut inner.statistics.of(op.queue).adds;
        // The counters may have been reset since.
        *adds = adds.saturating_sub(1);
        self.drop_deadline(&mut inner, id);
        Some(op.buffer)
    }
}
