//! One client.

mod arenas;
mod buffers;
mod hello;
mod refusing;
mod requests;
mod ring;
mod teardown;
#[cfg(test)]
mod tests;
mod tms;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use lnet_region::guard;
use nlx_bev_cqueue::SharedMemory;
use nlx_core::Errno;
use nlx_driver_proto::{PACKET_MAX, Reason, Refusal};
use nlx_fallible::{NoMemory, TryArc};

use self::arenas::Arenas;
use self::buffers::Buffers;
use self::refusing::starved;
use self::ring::Ring;
pub use self::ring::{BULK_BYTES_PER_UNIT, BULK_UNITS_MAX, Drained, SLICE};
use self::teardown::Closing;
use self::tms::Tms;
use super::accounts::{CHUNK, Payer, Resource};
use super::costs::{HEAP_CHUNK_BYTES, QueueCharges, SessionCharges};
use super::custody::{Custody, SharedFd};
use super::departed::Estate;
use super::host::Record;
use super::seal::{MemoryFd, Seal};
use super::{ClientQuotas, Credentials, Departure, Host, Rights, Violation};

/// The answer to a request: one packet, and the descriptors that go with it. It can be used again and again.
#[derive(Debug, Default)]
pub struct Answer {
    /// The packet.
    pub packet: Vec<u8>,
    /// The descriptors, to be sent with it and then closed.
    pub fds: Vec<Attachment>,
}

/// A descriptor of an answer.
pub struct Attachment(Attached);

enum Attached {
    Memory(MemoryFd),
    /// The client will have it, too.
    Shared(SharedFd),
}

impl From<MemoryFd> for Attachment {
    fn from(fd: MemoryFd) -> Attachment {
        Attachment(Attached::Memory(fd))
    }
}

impl From<SharedFd> for Attachment {
    fn from(fd: SharedFd) -> Attachment {
        Attachment(Attached::Shared(fd))
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Attached::Memory(fd) => fd.as_fd(),
            Attached::Shared(fd) => fd.as_fd(),
        }
    }
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Attachment").field(&self.as_fd()).finish()
    }
}

/// Makes what is made once in a process, with the first queue: no client is to be refused for want of it.
pub(super) fn prepare_process() {
    let refusal = Refusal::new(Errno::ENOMEM, Reason::System);
    // Without memory or descriptors the first client makes it.
    let _ = Ring::new(nlx_bev_cqueue::MIN_SLOTS, |_| Err(refusal), |_, _| Err(refusal));
}

impl Answer {
    /// An empty one, with room for the longest packet.
    pub(super) fn try_new() -> Result<Answer, NoMemory> {
        let mut packet = Vec::new();
        packet.try_reserve_exact(PACKET_MAX).map_err(|_| NoMemory)?;
        Ok(Answer { packet, fds: Vec::new() })
    }

    /// Takes the descriptors as the client gets them: other ones of the same files.
    ///
    /// # Errors
    /// The system's, without descriptors.
    pub fn take_fds(&mut self) -> std::io::Result<Vec<OwnedFd>> {
        self.fds.drain(..).map(|fd| fd.as_fd().try_clone_to_owned()).collect()
    }

    /// Makes room for so many descriptors more.
    fn reserve_fds(&mut self, count: usize) -> Result<(), Refusal> {
        self.fds.try_reserve(count).map_err(starved)
    }
}

/// One client, as long as it is connected. One thread has it at a time.
///
/// Everything that the client says is hostile: it is copied once and the copy checked; no index is followed that the
/// session's own tables do not bound; every call ends after bounded work, blocks on nobody and panics at nothing.
pub struct Session {
    host: Arc<Host>,
    record: TryArc<Record>,
    /// `None`: it may not connect.
    rights: Option<Arc<Rights>>,
    quotas: ClientQuotas,
    /// Who is charged for what it holds.
    payer: Payer,
    /// From the hello on.
    ring: Option<Ring>,
    // Dropped in this order: what is in flight first.
    tms: Tms,
    buffers: Buffers,
    arenas: Arenas,
    /// From the hello on.
    charges: Option<SessionCharges>,
    closing: Closing,
    /// Of what the client has, too.
    custody: Custody,
    /// There may be event queues that the client has not sealed.
    awaits_seals: bool,
    /// The transfer machine that was started last.
    youngest_tm: u64,
    /// Faults in the memory of all clients when it was last made sure that none was in this one's.
    faults: Cell<Option<usize>>,
}

impl Session {
    /// A client has connected.
    ///
    /// # Errors
    /// ENOMEM: it is not let in.
    pub fn new(host: &Arc<Host>, client: Credentials) -> Result<Session, Refusal> {
        let custody = Custody::try_new(0).map_err(starved)?;
        Session::in_custody(host, client, custody)
    }

    /// The same, where the porter closes what the client has, too.
    pub(super) fn in_custody(
        host: &Arc<Host>,
        client: Credentials,
        custody: Custody,
    ) -> Result<Session, Refusal> {
        let estate = TryArc::try_new(Estate::default()).map_err(starved)?;
        let rights = host.policy().shared_rights_of(&client).cloned();
        let quotas = rights.as_ref().and_then(|rights| rights.quotas).unwrap_or(host.quotas()).sane();
        Ok(Session {
            record: host.enter(client).map_err(starved)?,
            rights,
            host: host.clone(),
            quotas,
            payer: host.payer_of(&client),
            ring: None,
            tms: Tms::new(&quotas),
            buffers: Buffers::new(&quotas),
            arenas: Arenas::new(&quotas),
            charges: None,
            closing: Closing::new(estate),
            custody,
            awaits_seals: false,
            youngest_tm: 0,
            faults: Cell::new(None),
        })
    }

    /// The helper's number for it, as [`HostStatus`](super::HostStatus) has it.
    #[must_use]
    pub fn client(&self) -> u64 {
        self.record.client
    }

    /// Its quotas.
    #[must_use]
    pub fn quotas(&self) -> &ClientQuotas {
        &self.quotas
    }

    /// Whether it has said hello: before, there is neither ring nor doorbell.
    #[must_use]
    pub fn is_welcome(&self) -> bool {
        self.ring.is_some()
    }

    /// Carries out what stands in the submission ring, and then this request. `answer` is emptied first.
    ///
    /// # Errors
    /// [`Violation`]: the client is to be cut off. What it may do, but not now or not so much, is told in the answer.
    pub fn request(&mut self, packet: &[u8], answer: &mut Answer) -> Result<(), Violation> {
        self.drain_all()?;
        self.request_alone(packet, answer)
    }

    /// The same after whatever stood in the submission ring when the request came has been [drained](Session::drain).
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn request_alone(&mut self, packet: &[u8], answer: &mut Answer) -> Result<(), Violation> {
        let carried_out = self.carry_out(packet, answer);
        self.note(carried_out)
    }

    /// Carries out up to `budget` entries of the submission ring; gives how many there were. If they were as many, there may
    /// be more.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn drain(&mut self, budget: usize) -> Result<usize, Violation> {
        let drained = self.drain_ring(budget);
        self.note(drained)
    }

    /// The same within so many units of work: one for each entry, and more for the bytes that it moves. It ends sooner once
    /// [`SLICE`] has passed: all units are used up then.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn drain_slice(&mut self, units: usize) -> Result<Drained, Violation> {
        let drained = self.drain_units(units);
        self.note(drained)
    }

    /// Announces on the submission ring that nobody looks at it any more before the doorbell rings. False if something
    /// stands in it: then nothing is announced. Before the hello there is no ring, and nothing to announce: true. No system
    /// call.
    pub fn prepare_sleep(&mut self) -> bool {
        self.ring.as_mut().is_none_or(Ring::prepare_sleep)
    }

    /// Takes the announcement back.
    pub fn finish_sleep(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.finish_sleep();
        }
    }

    /// What the client rings when it submits while the helper sleeps: to be watched edge-triggered, and never read or
    /// written, for the client can change its flags. `None` before the hello.
    #[must_use]
    pub fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|ring| ring.doorbell().as_fd())
    }

    /// Whether the client has broken the rules where no call of this session sees it: a full or spoilt event queue, memory
    /// that is gone. To be asked now and then: it looks at each object only if memory of some client has faulted since.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn check(&self) -> Result<(), Violation> {
        self.note(self.look_for_violations())
    }

    /// Gives back what is charged and not used any more. To be called now and then.
    pub fn trim(&mut self) {
        self.arenas.reap();
        self.awaits_seals = self.awaits_seals && self.tms.look_for_seals();
        let Some(charges) = &mut self.charges else { return };
        let (buffers, segments) = self.buffers.counts();
        charges.buffers.trim(buffers, CHUNK);
        charges.segments.trim(segments, CHUNK);
        charges.operations.trim(self.record.tally.operations.get(), CHUNK);
        charges.heap.trim(self.buffers.heap_bytes(), HEAP_CHUNK_BYTES);
    }

    /// Memory of a queue that the client gets and is to seal.
    fn give_memory(
        &self,
        fd: OwnedFd,
        queue: (SharedMemory, QueueCharges),
        answer: &mut Answer,
    ) -> Result<Seal, Refusal> {
        answer.reserve_fds(1)?;
        let charge = self.host.accounts.charge(self.payer, Resource::Descriptors, 1)?;
        let fd = MemoryFd::try_new(fd).map_err(starved)?;
        answer.fds.push(fd.clone().into());
        Seal::awaited(fd, queue, charge).map_err(starved)
    }

    /// Sends signals to event loops of the client that took too long to be sent when their events came. To be called now and then.
    /// It ends after one that takes long; the others are sent in the next call.
    pub fn send_signals(&self) {
        if self.record.tally.signals.take_pending() {
            self.tms.send_left(&self.record.tally);
        }
    }

    /// Takes the time that threads have worked for signals to the client that took long, outside of its user's turns.
    pub(super) fn take_owed_ns(&self) -> u64 {
        self.record.tally.signals.take_owed_ns()
    }

    /// Takes a descriptor that the client is to have, too, and that it pays for until the porter has closed it.
    fn share(&self, fd: OwnedFd) -> Result<SharedFd, Refusal> {
        let charge = self.host.accounts.charge(self.payer, Resource::Descriptors, 1)?;
        self.custody.share(fd, charge).map_err(starved)
    }

    fn look_for_violations(&self) -> Result<(), Violation> {
        self.tms.check(&self.record.tally)?;
        // Before the look: a fault that comes meanwhile is found next time.
        let faults = guard::faults();
        if self.faults.get() == Some(faults) {
            return Ok(());
        }
        if let Some(ring) = &self.ring {
            ring.check()?;
        }
        self.tms.check_memory()?;
        self.arenas.check()?;
        self.faults.set(Some(faults));
        Ok(())
    }

    /// Counts who is cut off.
    fn note<T>(&self, outcome: Result<T, Violation>) -> Result<T, Violation> {
        if outcome.is_err() {
            self.record.tally.violations.add(1);
        }
        outcome
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("client", &self.record.client).finish_non_exhaustive()
    }
}
