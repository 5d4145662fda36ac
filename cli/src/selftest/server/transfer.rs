//! Bulk transfers, of which this side is the active one.

use nlx::{Buffer, Errno, Event, Machine, Op, Refused};

use super::super::pattern;
use super::super::protocol::{Direction, Head, Kind};
use super::{Server, Transfer};
use crate::failure::Failure;

impl Server {
    /// Begins a client's bulk transfer.
    pub(super) fn transfer(&mut self, machine: &Machine, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { head, offer, .. } = &transfer;
        let mut buffer = match self.bulk.pop() {
            Some(buffer) => buffer,
            None => self.domain.allocate(self.plan.size as usize)?,
        };
        let op = if head.kind == Kind::Read {
            let end = (head.length as usize).min(buffer.len());
            self.fill(head, &mut buffer, end)?;
            Op::active_send(buffer, offer[0]).length(head.length as usize)
        } else {
            Op::active_receive(buffer, offer[0])
        };
        self.start(machine, op, transfer)
    }

    /// Writes the bytes that the client is to read.
    fn fill(&self, head: &Head, buffer: &mut Buffer, end: usize) -> Result<(), Failure> {
        let mut bytes = buffer.write()?;
        pattern::fill(self.stream(Direction::FromServer), head.stamp.sequence, &mut bytes[..end]);
        bytes[end.saturating_sub(1)] ^= u8::from(self.corrupts(head));
        Ok(())
    }

    fn start(&mut self, machine: &Machine, op: Op, transfer: Transfer) -> Result<(), Failure> {
        match machine.start(op.timeout(self.plan.timeout)) {
            Ok(started) => {
                self.transfers.insert(started.op, transfer);
                Ok(())
            }
            Err(Refused { buffer, error }) => {
                self.bulk.push(buffer);
                self.refuse(&transfer.head, &transfer.client, &error.to_string())
            }
        }
    }

    pub(super) fn transferred(&mut self, machine: &Machine, event: Event) -> Result<(), Failure> {
        let transfer = self
            .transfers
            .remove(&event.op)
            .ok_or_else(|| Failure::new("received an event that belongs to no transfer"))?;
        let Some(buffer) = event.buffer else {
            return Err(Failure::new("an event of a transfer has no buffer"));
        };
        match event.status {
            Ok(()) => self.moved(machine, transfer, buffer, event.length),
            // The client's buffer has the same timeout, or is gone since: the client has its own
            // event, and does not wait for an answer.
            Err(Errno::ETIMEDOUT | Errno::ENODATA) => {
                self.counters.lost += 1;
                self.bulk.push(buffer);
                Ok(())
            }
            Err(errno) => {
                self.bulk.push(buffer);
                self.refuse(&transfer.head, &transfer.client, &format!("bulk ended with {errno}"))
            }
        }
    }

    /// Handles the end of a transfer: compares the bytes, and returns them in an exchange.
    fn moved(
        &mut self,
        machine: &Machine,
        mut transfer: Transfer,
        mut buffer: Buffer,
        length: usize,
    ) -> Result<(), Failure> {
        let head = transfer.head;
        let returned = transfer.returns;
        if !returned && !self.is_right(&head, &buffer, length)? {
            self.bulk.push(buffer);
            return self.refuse(&head, &transfer.client, "bulk with wrong bytes");
        }
        self.counters.verified_bytes += if returned { 0 } else { head.length };
        if head.kind == Kind::Exchange && !returned {
            buffer.write()?[length - 1] ^= u8::from(self.corrupts(&head));
            transfer.returns = true;
            let op = Op::active_send(buffer, transfer.offer[1]).length(length);
            return self.start(machine, op, transfer);
        }
        self.counters.done(transfer.asked.elapsed(), head.length);
        self.bulk.push(buffer);
        match head.kind {
            Kind::Write => self.answer_head(&transfer.client, Head { kind: Kind::Good, ..head }),
            // The client's own event reports that the bytes have arrived.
            _ => Ok(()),
        }
    }

    fn is_right(&self, head: &Head, buffer: &Buffer, length: usize) -> Result<bool, Failure> {
        let bytes = buffer.read()?;
        let stream = self.stream(Direction::FromClient);
        Ok(length > 0
            && length as u64 == head.length
            && pattern::check(stream, head.stamp.sequence, &bytes[..length]))
    }
}
