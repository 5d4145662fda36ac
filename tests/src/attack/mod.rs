//! An attacker's tools: what an ordinary user of the host, or a peer on the network, has without any code of ours. Raw system
//! calls here, raw packets and queues in [`client`](crate::client), raw frames in [`judge`](crate::judge).
//!
//! The program `nlx-attacker` (`tests/src/bin/nlx-attacker`) makes attacks of them, the test `attack` (`tests/tests/attack`)
//! runs these against `nlxd`; both say how to add one.

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
