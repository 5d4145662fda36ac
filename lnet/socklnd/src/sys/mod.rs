//! All contact with the operating system.

mod claim;
mod connect;
mod listen;
mod poller;
mod stream;

use std::io;

use lnet_api::Errno;

pub(crate) use claim::Claim;
pub(crate) use connect::connect;
pub(crate) use listen::{Accepted, accept, listen};
pub(crate) use poller::{Events, Poller, Readiness};
pub(crate) use stream::{Gather, Received, Scatter, connect_result, receive, receive_into, send, tune};

/// The errno of an I/O error; all that come from system calls have one.
fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> Result<T, Errno> {
    loop {
        match call() {
            Ok(value) => return Ok(value),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
}

/// Nanoseconds since 1970: an incarnation, which tells one life of an NI from the next (lnet-wire 24).
pub(crate) fn wall_clock_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_nanos() as u64)
}
