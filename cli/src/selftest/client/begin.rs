//! Starts a client's operations.

use std::time::Duration;

use nlx::{Buffer, Descriptor, Domain, Machine, Op};

use super::super::command::Load;
use super::super::pattern;
use super::super::protocol::{Direction, Head, Kind, Stamp};
use super::lane::Outcome;
use super::{Client, echo_bytes};
use crate::failure::Failure;

/// The kinds of a mixed load; messages are as likely as bulk.
const MIXED: [Kind; 6] = [Kind::Echo, Kind::Echo, Kind::Echo, Kind::Read, Kind::Write, Kind::Exchange];

impl Client {
    /// Prepares a lane's next operation; [`Client::send_requests`] sends its request.
    pub(super) fn begin(&mut self, machine: &Machine, lane: usize, now: Duration) -> Result<(), Failure> {
        let (size, echo) = (self.plan.size, echo_bytes(&self.plan));
        let (kind, length) = match self.plan.load {
            Load::Stub | Load::Echo => (Kind::Echo, echo),
            Load::Read => (Kind::Read, size as usize),
            Load::Write => (Kind::Write, size as usize),
            Load::Exchange => (Kind::Exchange, size as usize),
            Load::Mixed => match MIXED[self.draw(MIXED.len() as u32) as usize] {
                Kind::Echo => (Kind::Echo, echo),
                bulk => (bulk, 1 + self.draw(size) as usize),
            },
        };
        let slot = &mut self.lanes[lane];
        // In rotation: all servers get the same load.
        slot.server = (self.started % self.servers.len() as u64) as usize;
        (slot.kind, slot.length, slot.began, slot.tries) = (kind, length, now, 0);
        self.attempt(machine, lane)
    }

    /// Begins a try of a lane's operation.
    pub(super) fn attempt(&mut self, machine: &Machine, lane: usize) -> Result<(), Failure> {
        let Some(epoch) = self.epoch else {
            return Err(Failure::new("an operation was started before START"));
        };
        self.sequence += 1;
        let slot = &mut self.lanes[lane];
        slot.stamp = Stamp::now(self.sequence, epoch);
        slot.tries += 1;
        slot.outcome = Outcome::Right;
        slot.awaits_answer = matches!(slot.kind, Kind::Echo | Kind::Write);
        slot.parts = u32::from(slot.awaits_answer);
        let head = Head { stamp: slot.stamp, kind: slot.kind, lane: lane as u32, length: slot.length as u64 };
        let Some(mut request) = slot.request.take() else {
            return Err(Failure::new("a lane has no request"));
        };
        let length = if head.kind == Kind::Echo {
            let stream = Direction::FromClient.stream(self.plan.seed);
            head.put_echo(stream, &mut request.write()?)?
        } else {
            let (offer, count) = self.offer(machine, lane, &head)?;
            head.put_offer(&offer[..count], &mut request.write()?)?
        };
        let server = &self.servers[self.lanes[lane].server];
        self.batch.push(Op::send(request, server).length(length).timeout(self.plan.timeout));
        self.begun.push(lane);
        self.lanes[lane].parts += 1;
        Ok(())
    }

    /// Sends the requests of the operations that have begun since the last call, together.
    pub(super) fn send_requests(&mut self, machine: &Machine) -> Result<(), Failure> {
        self.begun.clear();
        machine.submit(&mut self.batch).try_for_each(|outcome| match outcome {
            Ok(_) => Ok(()),
            Err(refused) => Err(Failure::from(refused.error)),
        })
    }

    /// Stages the lane's bulk buffers for the server: first the buffer that it reads, then the one
    /// that it writes.
    fn offer(
        &mut self,
        machine: &Machine,
        lane: usize,
        head: &Head,
    ) -> Result<([Descriptor; 2], usize), Failure> {
        let mut offer = [Descriptor::NONE; 2];
        let mut count = 0;
        let (length, timeout) = (head.length as usize, self.plan.timeout);
        let slot = &mut self.lanes[lane];
        if matches!(head.kind, Kind::Write | Kind::Exchange) {
            let mut source = bulk(&self.domain, slot.source.take(), lane, self.plan.size)?;
            let stream = Direction::FromClient.stream(self.plan.seed);
            pattern::fill(stream, head.stamp.sequence, &mut source.write()?[..length]);
            offer[count] = stage(machine, Op::passive_send(source).length(length).timeout(timeout))?;
            count += 1;
        }
        if matches!(head.kind, Kind::Read | Kind::Exchange) {
            let mut sink = bulk(&self.domain, slot.sink.take(), lane, self.plan.size)?;
            // Clears bytes of an earlier transfer, which must not pass for those of this one.
            sink.write()?[..length].fill(0);
            offer[count] = stage(machine, Op::passive_receive(sink).timeout(timeout))?;
            count += 1;
        }
        slot.parts += count as u32;
        Ok((offer, count))
    }
}

fn bulk(domain: &Domain, idle: Option<Buffer>, lane: usize, bytes: u32) -> Result<Buffer, Failure> {
    match idle {
        Some(buffer) => Ok(buffer),
        None => {
            let mut buffer = domain.allocate(bytes as usize)?;
            buffer.set_tag(lane as u64);
            Ok(buffer)
        }
    }
}

/// Starts a passive operation on a buffer that fits one descriptor.
fn stage(machine: &Machine, op: Op) -> Result<Descriptor, Failure> {
    let staged = machine.start(op).map_err(|refused| Failure::from(refused.error))?;
    Ok(staged.offer.descriptor(0))
}
