//! The hello, a client's first request.

use nlx_bev_cqueue::SharedMemory;
use nlx_core::Errno;
use nlx_driver_proto::{Features, Hello, Reason, Refusal, Reply, VERSION, Welcome};

use super::refusing::{no_queue, starved};
use super::ring::SubmissionRing;
use super::{ReplyPacket, Session};
use crate::costs::{QueueCharges, SessionCharges};

impl Session {
    pub(super) fn hello(&mut self, hello: &Hello, answer: &mut ReplyPacket) -> Result<Reply, Refusal> {
        if self.ring.is_some() {
            return Err(Refusal::new(Errno::EPROTO, Reason::Order));
        }
        if self.rights.is_none() {
            return Err(Refusal::new(Errno::EACCES, Reason::Other));
        }
        let ring_bytes = SharedMemory::size(self.quotas.ring_slots).map_err(|error| no_queue(&error))? as u64;
        let queue = QueueCharges::new(&self.host.accounts, self.payer, ring_bytes)?;
        let charges = SessionCharges::new(&self.host.accounts, self.payer, queue.clone())?;
        answer.reserve_fds(2)?;
        let share = |doorbell| self.share(doorbell);
        let give = |fd, memory| self.give_memory(fd, (memory, queue), answer);
        let ring = SubmissionRing::new(self.quotas.ring_slots, share, give)?;
        let mut name = String::new();
        name.try_reserve_exact(hello.name_letters().count()).map_err(starved)?;
        name.extend(hello.name_letters());
        // No step below can fail.
        answer.fds.push(ring.doorbell().clone().into());
        let _ = self.record.name.set(name);
        (self.ring, self.charges) = (Some(ring), Some(charges));
        let mut limits = *self.host.network.limits();
        limits.buffers_max = self.quotas.buffers as usize;
        let mut features = Features::empty();
        features.set(Features::HUGE_PAGES, self.host.config.huge_pages);
        Ok(Reply::Welcome(Welcome {
            version: VERSION,
            features: features & hello.features,
            client: self.record.client,
            limits,
            tms_max: self.quotas.tms,
            operations_max: self.quotas.operations,
            events_max: self.quotas.events,
            arenas_max: self.quotas.arenas,
            bytes_max: self.quotas.bytes,
            now_ns: self.host.drive().now_ns(),
            arena_bytes_max: self.quotas.arena_bytes,
        }))
    }
}
