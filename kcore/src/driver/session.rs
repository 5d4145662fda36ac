//! One client.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use lnet_api::Errno;
use nlx_driver_proto::{Header, Reason, Refusal, Reply};

use super::{ClientQuotas, Credentials, Host, Violation};

/// The answer to a request: one packet, and the descriptors that go with it. It can be used again and again.
#[derive(Debug, Default)]
pub struct Answer {
    /// The packet.
    pub packet: Vec<u8>,
    /// The descriptors, to be sent with it and then closed.
    pub fds: Vec<OwnedFd>,
}

/// What a client that is gone has left.
#[derive(Debug)]
pub struct Departure;

impl Departure {
    /// Whether LNet has let go of all of it: nobody writes into the client's memory any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        true
    }
}

/// One client, as long as it is connected. One thread has it at a time.
///
/// Everything that the client says is hostile: it is copied once and the copy checked; no index is followed that the
/// session's own tables do not bound; every call ends after bounded work, blocks on nobody and panics at nothing.
pub struct Session {
    quotas: ClientQuotas,
}

impl Session {
    /// A client has connected.
    #[must_use]
    pub fn new(host: &Arc<Host>, client: Credentials) -> Session {
        let rights = host.policy().rights_of(&client);
        Session { quotas: rights.and_then(|rights| rights.quotas).unwrap_or(host.quotas()).sane() }
    }

    /// Its quotas.
    #[must_use]
    pub fn quotas(&self) -> &ClientQuotas {
        &self.quotas
    }

    /// Carries out what stands in the submission ring, and then this request, which came with these descriptors. `answer`
    /// is emptied first.
    ///
    /// # Errors
    /// [`Violation`]: the client is to be cut off. What it may do, but not now or not so much, is told in the answer.
    pub fn request(
        &mut self,
        packet: &[u8],
        fds: Vec<OwnedFd>,
        answer: &mut Answer,
    ) -> Result<(), Violation> {
        drop(fds);
        answer.fds.clear();
        let Ok((header, _)) = Header::read(packet) else {
            return Err(Violation::Packet { bytes: packet.len() });
        };
        let refusal = Refusal::new(Errno::EOPNOTSUPP, Reason::Other);
        Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut answer.packet);
        Ok(())
    }

    /// Carries out up to `budget` entries of the submission ring; gives how many there were. If they were as many, there may
    /// be more.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn drain(&mut self, budget: usize) -> Result<usize, Violation> {
        let _ = budget;
        Ok(0)
    }

    /// Announces on the submission ring that nobody looks at it any more before the doorbell rings. False if something
    /// stands in it, or before the hello: then nothing is announced. No system call.
    pub fn prepare_sleep(&mut self) -> bool {
        false
    }

    /// Takes the announcement back.
    pub fn finish_sleep(&mut self) {}

    /// What the client rings when it submits while the helper sleeps: to be watched edge-triggered, and never read or
    /// written, for the client can change its flags. `None` before the hello.
    #[must_use]
    pub fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the client has broken the rules where no call of this session sees it: a full or spoilt event queue, memory
    /// that is gone. To be asked now and then; cheap.
    ///
    /// # Errors
    /// [`Violation`], as above.
    pub fn check(&self) -> Result<(), Violation> {
        Ok(())
    }

    /// The client is gone, or is cut off. Cancels all that is in flight, and lets everything go; what LNet still holds then
    /// is counted as left over. Dropping a session does the same.
    pub fn close(self) -> Departure {
        Departure
    }
}
