//! Large bulk transfers: more bytes than one operation accepts. Each is split into parts of 1 MiB,
//! which are ordinary operations that the client does not see, and ends with one event.

mod offer;
mod plan;
mod progress;
mod transfer;

use nlx_core::Descriptor;
use nlx_sync::deadline_after;

pub use self::offer::Offer;
use self::plan::TransferPlan;
use self::transfer::LargeTransfer;
pub(crate) use self::transfer::{Larges, WINDOW};
use crate::op::{BulkOp, Op, OpAction};
use crate::{Buffer, Error, Machine, OpId, Refused, Started, TmState};

impl Machine {
    /// Starts a large transfer with its first parts. If only a later part cannot be started, the
    /// operation ends with an event that has the error, and the offer is useless.
    #[cold]
    pub(crate) fn start_large(&self, op: Op) -> Result<Started, Refused> {
        let part_bytes = self.domain().core().limits().buffer_bytes_max;
        if let Err(error) = op.check_before(self.domain()) {
            return Err(op.refuse(error));
        }
        let Op { buffer, action: OpAction::Bulk(bulk), length, timeout, owner, .. } = op else {
            unreachable!("only bulk operations are large");
        };
        let length = match &bulk {
            BulkOp::ActiveReceive(offer) => usize::try_from(offer.length()).unwrap_or(usize::MAX),
            _ => length,
        };
        let plan = TransferPlan { bulk, length, part_bytes };
        if let Err(error) = self.check_large(&buffer, &plan) {
            return Err(Refused { buffer, error });
        }
        let passive = plan.is_passive();
        let (parts, window) = if passive { (plan.parts(), usize::MAX) } else { (0, self.larges().window) };
        let mut descriptors = vec![Descriptor::NONE; parts];
        let now_ns = self.now_ns();
        let deadline_ns = timeout.map(|timeout| deadline_after(now_ns, timeout));
        let transfer = LargeTransfer::enter(self, buffer, plan, owner, window, now_ns, deadline_ns);
        let op = transfer.id();
        let ended = transfer.begin(self, &mut |part, offer| {
            if let Some(descriptor) = descriptors.get_mut(part) {
                *descriptor = offer.descriptor(0);
            }
        })?;
        // Its last part ended in here, or could not be started, so no other thread will take the
        // event of the transfer.
        if let Some(event) = ended {
            transfer.pass(event).into_iter().for_each(|event| self.deliver(event));
            transfer.leave(self);
        }
        // The length of a part is at most 1 MiB.
        let offer = || Offer::new(length as u64, part_bytes as u32, &descriptors);
        Ok(Started { op, offer: if passive { offer() } else { Offer::NONE } })
    }

    fn check_large(&self, buffer: &Buffer, plan: &TransferPlan) -> Result<(), Error> {
        plan.check(buffer.len())?;
        buffer.check_whole()?;
        buffer.check_unlent(plan.bulk.queue().receives(), 0..plan.bytes_used(buffer.len()))?;
        match self.state() {
            TmState::Started => Ok(()),
            state => Err(Error::NotStarted { state }),
        }
    }

    /// Cancels a large transfer. Returns false if it has ended.
    pub(crate) fn cancel_large(&self, op: OpId) -> bool {
        let found = self.larges().find(op);
        found.inspect(|transfer| transfer.cancel(self)).is_some()
    }
}
