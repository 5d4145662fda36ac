//! Bulk transfers of more than one operation takes: each is split into parts of 1 MiB, ordinary operations that the client
//! sees nothing of, and ends with one event.

mod offer;
mod plan;
mod progress;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use nlx_core::Descriptor;

pub use self::offer::Offer;
use self::plan::Plan;
pub(crate) use self::plan::Sort;
use self::transfer::Transfer;
pub(crate) use self::transfer::{Larges, WINDOW};
use crate::event::Owner;
use crate::{Buffer, Error, Machine, OpId, Refused, TmState};

impl Machine {
    /// Lets whoever gets the offer write into the first `length` bytes of a buffer of any size, once. They can be reached
    /// when this returns.
    ///
    /// The writer fills the parts in any order; all are to be filled, the last one perhaps not to its end. One event tells
    /// of the whole, and brings the buffer back. Its parts are operations as any others: they count in the statistics, and
    /// among those in flight. When one of them fails, the others are cancelled, and the whole fails for its reason.
    ///
    /// # Errors
    /// As [`Machine::receive`]; EINVAL for a length of 0 or beyond the buffer. Where only a later part cannot be started, the
    /// operation ends with an event that says so; the offer is of no use then.
    pub fn passive_receive_large(
        &self,
        buffer: Buffer,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(OpId, Offer), Refused> {
        self.offer(buffer, Sort::PassiveReceive, length, timeout, None)
    }

    /// Lets whoever gets the offer read the first `length` bytes of a buffer of any size, once. They can be reached when this
    /// returns. The rest is as for [`Machine::passive_receive_large`].
    ///
    /// # Errors
    /// As [`Machine::passive_receive_large`].
    pub fn passive_send_large(
        &self,
        buffer: Buffer,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(OpId, Offer), Refused> {
        self.offer(buffer, Sort::PassiveSend, length, timeout, None)
    }

    /// Reads what a peer offers, all of it, into a buffer of any size. Several parts are in flight at a time
    /// ([`crate::MachineBuilder::large_window`]); one event tells of the whole, and brings the buffer back. The timeout is that of
    /// the whole. When a part fails, the others are cancelled, and the whole fails for its reason.
    ///
    /// # Errors
    /// As [`Machine::active_receive`], of any part; EINVAL for parts of another size than this transport's.
    pub fn active_receive_large(
        &self,
        buffer: Buffer,
        offer: &Offer,
        timeout: Option<Duration>,
    ) -> Result<OpId, Refused> {
        let length = usize::try_from(offer.length()).unwrap_or(usize::MAX);
        self.take_up(buffer, Sort::ActiveReceive(offer.clone()), length, timeout, None)
    }

    /// Writes the first `length` bytes of a buffer of any size into what a peer offers. Success means that they have arrived.
    /// The rest is as for [`Machine::active_receive_large`].
    ///
    /// # Errors
    /// As [`Machine::active_send`], of any part; EINVAL for a length that leaves a part of the offer empty, for the peer waits for
    /// all of them, and for parts of another size than this transport's.
    pub fn active_send_large(
        &self,
        buffer: Buffer,
        length: usize,
        offer: &Offer,
        timeout: Option<Duration>,
    ) -> Result<OpId, Refused> {
        self.take_up(buffer, Sort::ActiveSend(offer.clone()), length, timeout, None)
    }

    /// Starts a passive transfer, whose event goes to this owner if it has one.
    pub(crate) fn offer(
        &self,
        buffer: Buffer,
        sort: Sort,
        length: usize,
        timeout: Option<Duration>,
        owner: Option<Arc<dyn Owner>>,
    ) -> Result<(OpId, Offer), Refused> {
        let part_bytes = self.domain().core().limits().buffer_bytes_max;
        // A length beyond the buffer is refused below.
        let parts = length.min(buffer.len()).div_ceil(part_bytes);
        let mut descriptors: Vec<Option<Descriptor>> = vec![None; parts];
        let plan = Plan { sort, length, part_bytes };
        let op = self.start_large(buffer, plan, timeout, owner, |part, descriptor| {
            descriptors[part] = descriptor;
        })?;
        // A part is no longer than 1 MiB.
        Ok((op, Offer::new(length as u64, part_bytes as u32, &descriptors)))
    }

    /// Starts an active one.
    pub(crate) fn take_up(
        &self,
        buffer: Buffer,
        sort: Sort,
        length: usize,
        timeout: Option<Duration>,
        owner: Option<Arc<dyn Owner>>,
    ) -> Result<OpId, Refused> {
        let part_bytes = self.domain().core().limits().buffer_bytes_max;
        self.start_large(buffer, Plan { sort, length, part_bytes }, timeout, owner, |_, _| {})
    }

    /// Starts the first parts; tells the descriptor of each.
    fn start_large(
        &self,
        buffer: Buffer,
        plan: Plan,
        timeout: Option<Duration>,
        owner: Option<Arc<dyn Owner>>,
        mut told: impl FnMut(usize, Option<Descriptor>),
    ) -> Result<OpId, Refused> {
        if let Err(error) = self.check_large(&buffer, &plan, timeout) {
            return Err(Refused { buffer, error });
        }
        let window = if plan.sort.is_passive() { usize::MAX } else { self.larges().window };
        let now_ns = self.now_ns();
        let deadline_ns = timeout.map(|timeout| crate::deadlines::after(now_ns, timeout));
        let transfer = Transfer::enter(self, buffer, plan, owner, window, now_ns, deadline_ns);
        let op = transfer.id();
        match transfer.begin(self, &mut told)? {
            None => {}
            // Its last part ended, or could not be started, in here: nobody else takes an event that tells.
            Some(event) => {
                transfer.pass(event).into_iter().for_each(|event| self.deliver(event));
                transfer.leave(self);
            }
        }
        Ok(op)
    }

    fn check_large(&self, buffer: &Buffer, plan: &Plan, timeout: Option<Duration>) -> Result<(), Error> {
        self.domain().check_here()?;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::TimeoutPassed);
        }
        if !buffer.is_of(self.domain()) {
            return Err(Error::OtherDomain);
        }
        plan.check(buffer.len())?;
        buffer.check_whole()?;
        buffer.check_unlent(plan.sort.queue().receives(), 0..plan.bytes_used(buffer.len()))?;
        match self.state() {
            TmState::Started => Ok(()),
            state => Err(Error::NotStarted { state }),
        }
    }

    /// Cancels a large transfer: false if it is over.
    pub(crate) fn cancel_large(&self, op: OpId) -> bool {
        let found = self.larges().find(op);
        found.inspect(|transfer| transfer.cancel(self)).is_some()
    }
}
