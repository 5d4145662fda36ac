//! Closing what came from a client.
//!
//! To close a descriptor can take as long as whoever is behind it likes: a file of a FUSE file system is flushed by a program
//! of the client's, a socket with a linger time waits. So what is not plain memory is closed by a thread that does nothing
//! else.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use lnet_api::Errno;

/// Descriptors that wait to be closed. A client that makes closing slow fills this, and the service then waits for it: so it
/// is more than many clients can send in the time that closing takes elsewhere.
const WAITING_MAX: usize = 4096;

/// The thread. It ends when nobody can give it anything any more.
pub(super) struct Closer(SyncSender<OwnedFd>);

impl Closer {
    pub(super) fn start() -> Result<Closer, Errno> {
        let (give, take): (_, Receiver<OwnedFd>) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("nlx-closer".into());
        thread.spawn(move || take.into_iter().for_each(drop)).map_err(super::errno_of)?;
        Ok(Closer(give))
    }

    /// Closes it, some time soon.
    pub(super) fn close(&self, fd: OwnedFd) {
        // Full, or gone: then it is closed here.
        drop(self.0.try_send(fd));
    }
}
