//! Bulk of any size.

use std::time::Duration;

use super::{AsyncMachine, Completion};
use crate::large::Sort;
use crate::{Buffer, Offer, Refused};

impl AsyncMachine {
    /// Lets whoever gets the offer write into the first `length` bytes of a buffer of any size, once. They can be reached
    /// when this returns; the future is ready when all parts have been.
    ///
    /// # Errors
    /// As [`crate::Machine::passive_receive_large`].
    pub fn passive_receive_large(
        &self,
        buffer: Buffer,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(Completion, Offer), Refused> {
        self.offer(buffer, Sort::PassiveReceive, length, timeout)
    }

    /// Lets whoever gets the offer read the first `length` bytes of a buffer of any size, once. They can be reached when this
    /// returns; the future is ready when all parts have been.
    ///
    /// # Errors
    /// As [`crate::Machine::passive_send_large`].
    pub fn passive_send_large(
        &self,
        buffer: Buffer,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(Completion, Offer), Refused> {
        self.offer(buffer, Sort::PassiveSend, length, timeout)
    }

    /// Reads what a peer offers, all of it, into a buffer of any size.
    ///
    /// The future fails as [`crate::Machine::active_receive_large`] does when that refuses, or with what its event says.
    pub fn active_receive_large(
        &self,
        buffer: Buffer,
        offer: &Offer,
        timeout: Option<Duration>,
    ) -> Completion {
        let length = usize::try_from(offer.length()).unwrap_or(usize::MAX);
        self.take_up(buffer, Sort::ActiveReceive(offer.clone()), length, timeout)
    }

    /// Writes the first `length` bytes of a buffer of any size into what a peer offers; its success means that they have
    /// left.
    ///
    /// The future fails as [`crate::Machine::active_send_large`] does when that refuses, or with what its event says.
    pub fn active_send_large(
        &self,
        buffer: Buffer,
        length: usize,
        offer: &Offer,
        timeout: Option<Duration>,
    ) -> Completion {
        self.take_up(buffer, Sort::ActiveSend(offer.clone()), length, timeout)
    }

    fn offer(
        &self,
        buffer: Buffer,
        sort: Sort,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(Completion, Offer), Refused> {
        Completion::try_start(self.owner.machine(), &self.slots, |machine, owner| {
            machine.offer(buffer, sort, length, timeout, Some(owner))
        })
    }

    fn take_up(&self, buffer: Buffer, sort: Sort, length: usize, timeout: Option<Duration>) -> Completion {
        Completion::start(self.owner.machine(), &self.slots, |machine, owner| {
            machine.take_up(buffer, sort, length, timeout, Some(owner))
        })
    }
}
