//! Closing memory elsewhere.
//!
//! Whoever closes the last descriptor of a file in memory frees its pages, which takes a third of a second for each GiB. A
//! process that has better to do, as one whose threads serve many, lets a thread of its own do that: whatever memory of files
//! it drops, in whatever thread, is unmapped there and closed here.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::errno::Errno;
use parking_lot::Mutex;

use crate::{Origin, RegionError};

/// Descriptors that wait to be closed: more than a program drops in the time that closing one takes. Those beyond are closed
/// by whoever drops them.
const WAITING_MAX: usize = 4096;

static CLOSER: OnceLock<Closer> = OnceLock::new();

struct Closer {
    give: SyncSender<OwnedFd>,
    origin: Origin,
}

/// From now on, memory of files is closed by a thread that does nothing else, in the whole process. Calling it again does
/// nothing. Forked children close by themselves.
///
/// # Errors
/// [`RegionError::System`] without a thread.
pub fn install() -> Result<(), RegionError> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    if CLOSER.get().is_some() {
        return Ok(());
    }
    let (give, take): (_, Receiver<OwnedFd>) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("nlx-memory".into());
    thread.spawn(move || take.into_iter().for_each(drop)).map_err(|error| RegionError::System {
        bytes: 0,
        errno: error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
    })?;
    let _ = CLOSER.set(Closer { give, origin: Origin::here() });
    Ok(())
}

/// Closes a descriptor of memory: some time soon where there is a thread for it, else at once.
pub fn close(fd: OwnedFd) {
    match CLOSER.get().filter(|closer| closer.origin.is_here()) {
        // Full: then it is closed here.
        Some(closer) => drop(closer.give.try_send(fd)),
        None => drop(fd),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn whatever_is_given_to_it_is_closed() {
        install().unwrap();
        install().unwrap();
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let kept: Vec<_> = pairs.into_iter().map(|(kept, given)| (kept, close(given.into()))).collect();
        for (mut kept, ()) in kept {
            assert_eq!(kept.read(&mut [0]).unwrap(), 0, "the other end is closed");
        }
    }
}
