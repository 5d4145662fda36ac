//! The tools of an attacker: the means of an ordinary user of the host, or of a peer on the
//! network, without any code of nlx. This module has raw system calls, [`client`](crate::client)
//! raw packets and queues, [`judge`](crate::judge) raw frames.
//!
//! The program `nlx-attacker` (`tests/src/bin/nlx-attacker`) builds attacks from them; the test
//! `attack` (`tests/tests/attack`) runs these against `nlxd`. Both describe how to add one.

pub mod fuse;
pub mod linger;
pub mod peer;

/// Raises the soft limit of open files to the hard one.
///
/// # Errors
/// The system's error.
pub fn use_all_descriptors() -> Result<u64, nix::errno::Errno> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
