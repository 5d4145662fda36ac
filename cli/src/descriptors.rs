//! How many descriptors this process may have.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit that a shell sets (1024, mostly) to the one that the system allows: a node has a descriptor for each
/// connection. To be called before the node starts, which shares out what there is. Without it there is room for fewer
/// peers, which is no reason not to start.
pub(crate) fn use_all() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(errno) = raised {
        tracing::warn!(%errno, "cannot raise the limit of open files");
    }
}
