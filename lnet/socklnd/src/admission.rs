//! Limits on handshakes and accepted connections over TCP, in all and per address.

use lnet_lnd::admission::AdmissionLimits;

/// The share of the process's descriptors available for accepted connections: the rest stays for
/// its own files and for the connections that this node opens itself, so that no remote host can
/// prevent those.
const SHARE: (usize, usize) = (3, 4);

/// Returns the bounds for a process with this many descriptors, and at most `of_address` connections
/// from one address. Each shard counts as one listener:
/// to make room for a handshake, a shard can only drop others of the same shard.
pub(crate) const fn bounds(descriptors: usize, of_address: usize) -> AdmissionLimits {
    AdmissionLimits {
        all: descriptors / SHARE.1 * SHARE.0,
        // An opening connection costs a descriptor and half a kilobyte for up to `accept_timeout`.
        opening: 256,
        opening_of_address: 64,
        of_address,
        // The connections of one peer, plus those of another process on the same host.
        modest: 16,
    }
}
