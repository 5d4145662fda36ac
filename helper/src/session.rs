//! The session of one client.

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
use self::buffers::BufferTable;
use self::refusing::starved;
use self::ring::SubmissionRing;
pub use self::ring::{BULK_BYTES_PER_UNIT, BULK_UNITS_MAX, Drained, SLICE};
use self::teardown::CloseProgress;
use self::tms::Tms;
use super::accounts::{CHUNK, Payer, Resource};
use super::costs::{HEAP_CHUNK_BYTES, QueueCharges, SessionCharges};
use super::departed::SessionTeardown;
use super::host::ClientRecord;
use super::seal::{MemoryFd, Seal};
use super::shared_fds::{SharedFd, SharedFds};
use super::{ClientQuotas, Credentials, Departure, Host, Rights, Violation};

/// The answer to a request: one packet, and the descriptors that go with it. It can be reused.
#[derive(Debug, Default)]
pub struct ReplyPacket {
    /// The bytes of the reply.
    pub packet: Vec<u8>,
    /// The descriptors, to be sent with the packet and then closed.
    pub fds: Vec<Attachment>,
}

/// A descriptor of an answer.
pub struct Attachment(Attached);

enum Attached {
    Memory(MemoryFd),
    /// A descriptor that will be shared with the client.
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

/// Performs one-time initialisation of the process with a first queue, so that no client is refused
/// because that initialisation fails.
pub(super) fn prepare_process() {
    let refusal = Refusal::new(Errno::ENOMEM, Reason::System);
    // Without memory or descriptors the first client does it.
    let _ = SubmissionRing::new(nlx_bev_cqueue::MIN_SLOTS, |_| Err(refusal), |_, _| Err(refusal));
}

impl ReplyPacket {
    /// Creates an empty answer, with room for the longest packet.
    pub(super) fn try_new() -> Result<ReplyPacket, NoMemory> {
        let mut packet = Vec::new();
        packet.try_reserve_exact(PACKET_MAX).map_err(|_| NoMemory)?;
        Ok(ReplyPacket { packet, fds: Vec::new() })
    }

    /// Takes the descriptors as the client gets them: duplicates of the same files.
    ///
    /// # Errors
    /// EMFILE or ENFILE without descriptors.
    pub fn take_fds(&mut self) -> std::io::Result<Vec<OwnedFd>> {
        self.fds.drain(..).map(|fd| fd.as_fd().try_clone_to_owned()).collect()
    }

    /// Reserves room for `count` further descriptors.
    fn reserve_fds(&mut self, count: usize) -> Result<(), Refusal> {
        self.fds.try_reserve(count).map_err(starved)
    }
}

/// The state of one connected client. One thread has it at a time.
///
/// All input from the client is untrusted. It is copied once and the copy checked; every index is
/// bounded by the session's own tables; every call ends after bounded work, does not wait for the
/// client, and does not panic.
pub struct Session {
    host: Arc<Host>,
    record: TryArc<ClientRecord>,
    /// `None` if the client may not connect.
    rights: Option<Arc<Rights>>,
    quotas: ClientQuotas,
    /// The account that is charged for what the client holds.
    payer: Payer,
    /// Set by the hello.
    ring: Option<SubmissionRing>,
    // Dropped in this order: operations in flight first.
    tms: Tms,
    buffers: BufferTable,
    arenas: Arenas,
    /// Set by the hello.
    charges: Option<SessionCharges>,
    closing: CloseProgress,
    /// Descriptors that this process shares with the client.
    shared_fds: SharedFds,
    /// Set while there may be event queues that the client has not sealed.
    awaits_seals: bool,
    /// The transfer machine that was started last.
    youngest_tm: u64,
    /// Faults in the memory of all clients at the last check that found none in this client's.
    faults: Cell<Option<usize>>,
}

impl Session {
    /// Creates the session of a client that has connected.
    ///
    /// # Errors
    /// ENOMEM: the client is not admitted.
    pub fn new(host: &Arc<Host>, client: Credentials) -> Result<Session, Refusal> {
        let shared_fds = SharedFds::try_new(0).map_err(starved)?;
        Session::with_shared_fds(host, client, shared_fds)
    }

    /// Creates the session with the descriptors of the thread that serves it, which the porter
    /// closes.
    pub(super) fn with_shared_fds(
        host: &Arc<Host>,
        client: Credentials,
        shared_fds: SharedFds,
    ) -> Result<Session, Refusal> {
        let teardown = TryArc::try_new(SessionTeardown::default()).map_err(starved)?;
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
            buffers: BufferTable::new(&quotas),
            arenas: Arenas::new(&quotas),
            charges: None,
            closing: CloseProgress::new(teardown),
            shared_fds,
            awaits_seals: false,
            youngest_tm: 0,
            faults: Cell::new(None),
        })
    }

    /// Returns the helper's number of the client, as in [`HostStatus`](super::HostStatus).
    #[must_use]
    pub fn client(&self) -> u64 {
        self.record.client
    }

    /// Returns the quotas of the client.
    #[must_use]
    pub fn quotas(&self) -> &ClientQuotas {
        &self.quotas
    }

    /// Returns whether the client's hello was accepted; before that there is neither ring nor
    /// doorbell.
    #[must_use]
    pub fn is_welcome(&self) -> bool {
        self.ring.is_some()
    }

    /// Carries out the entries of the submission ring, and then this request. `answer` is cleared
    /// first.
    ///
    /// # Errors
    /// [`Violation`]: the client is to be cut off. A refusal is not an error: the answer reports
    /// it.
    pub fn request(&mut self, packet: &[u8], answer: &mut ReplyPacket) -> Result<(), Violation> {
        self.drain_all()?;
        self.request_alone(packet, answer)
    }

    /// Carries out a request alone, after the entries that preceded it in the submission ring have
    /// been [drained](Session::drain).
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn request_alone(&mut self, packet: &[u8], answer: &mut ReplyPacket) -> Result<(), Violation> {
        let carried_out = self.carry_out(packet, answer);
        self.note(carried_out)
    }

    /// Carries out up to `budget` entries of the submission ring, and returns their number. If it
    /// equals `budget`, there may be more.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn drain(&mut self, budget: usize) -> Result<usize, Violation> {
        let drained = self.drain_ring(budget);
        self.note(drained)
    }

    /// Carries out entries within `units` units of work: one for each entry, and more for the bytes
    /// that it moves. Ends early once [`SLICE`] has passed; all units count as used then.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn drain_slice(&mut self, units: usize) -> Result<Drained, Violation> {
        let drained = self.drain_units(units);
        self.note(drained)
    }

    /// Announces on the submission ring that the helper sleeps: the client must ring the doorbell.
    /// Returns false, without an announcement, if the ring has entries. Before the hello there is
    /// no ring and nothing to announce: returns true. No system call.
    pub fn prepare_sleep(&mut self) -> bool {
        self.ring.as_mut().is_none_or(SubmissionRing::prepare_sleep)
    }

    /// Withdraws the announcement.
    pub fn finish_sleep(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.finish_sleep();
        }
    }

    /// Returns the doorbell, which the client rings when it submits while the helper sleeps. Watch
    /// it edge-triggered and never read or write it, because the client can change its flags.
    /// `None` before the hello.
    #[must_use]
    pub fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|ring| ring.doorbell().as_fd())
    }

    /// Checks for violations that no call of this session detects: a full or corrupt event queue,
    /// memory that is gone. Call it periodically: it checks each object only if memory of some
    /// client has faulted since.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn check(&self) -> Result<(), Violation> {
        self.note(self.find_violations())
    }

    /// Releases charges that are not used any more. Call it periodically.
    pub fn trim(&mut self) {
        self.arenas.reap();
        self.awaits_seals = self.awaits_seals && self.tms.check_seals();
        let Some(charges) = &mut self.charges else { return };
        let (buffers, segments) = self.buffers.counts();
        charges.buffers.trim(buffers, CHUNK);
        charges.segments.trim(segments, CHUNK);
        charges.operations.trim(self.record.counters.operations.get(), CHUNK);
        charges.heap.trim(self.buffers.heap_bytes(), HEAP_CHUNK_BYTES);
    }

    /// Adds the memory of a queue to the answer, for the client to seal.
    fn give_memory(
        &self,
        fd: OwnedFd,
        queue: (SharedMemory, QueueCharges),
        answer: &mut ReplyPacket,
    ) -> Result<Seal, Refusal> {
        answer.reserve_fds(1)?;
        let charge = self.host.accounts.charge(self.payer, Resource::Descriptors, 1)?;
        let fd = MemoryFd::try_new(fd).map_err(starved)?;
        answer.fds.push(fd.clone().into());
        Seal::awaited(fd, queue, charge).map_err(starved)
    }

    /// Sends the signals to event loops of the client that were deferred, because earlier ones took
    /// too long or there was no memory. Call it periodically. It stops after a long signal; the
    /// next call sends the others.
    pub fn send_signals(&self) {
        if self.record.counters.signals.take_pending() {
            self.tms.send_deferred(&self.record.counters);
        }
    }

    /// Returns and resets the time that threads have spent on long signals to the client outside of
    /// its user's turns.
    pub(super) fn take_owed_ns(&self) -> u64 {
        self.record.counters.signals.take_owed_ns()
    }

    /// Adds a descriptor that is to be shared with the client. The client's user is charged for it
    /// until the porter has closed it.
    fn share(&self, fd: OwnedFd) -> Result<SharedFd, Refusal> {
        let charge = self.host.accounts.charge(self.payer, Resource::Descriptors, 1)?;
        self.shared_fds.share(fd, charge).map_err(starved)
    }

    fn find_violations(&self) -> Result<(), Violation> {
        self.tms.check(&self.record.counters)?;
        // Read before the check: a fault that comes meanwhile is found next time.
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

    /// Counts the outcome if it is a violation.
    fn note<T>(&self, outcome: Result<T, Violation>) -> Result<T, Violation> {
        if outcome.is_err() {
            self.record.counters.violations.add(1);
        }
        outcome
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("client", &self.record.client).finish_non_exhaustive()
    }
}
