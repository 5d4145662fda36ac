//! How many descriptors this process may have, and users of it.

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

/// Of the descriptors that this process may have, those that the clients of one user may take as sockets, and as many again
/// by what they ask for: two users who take all that they can leave a fifth to others
/// and to the network.
pub(crate) fn share_of_user() -> usize {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| soft as usize);
    (most / 5).max(1)
}
