//! How many strangers are let in over TCP: handshakes and connections, in all and from one address.

use lnet_lnd::admission::Bounds;

/// What may be accepted of the descriptors that a process has: the rest stays for its own files, and for the connections
/// that this node opens itself, which no stranger can then prevent.
const SHARE: (usize, usize) = (3, 4);

/// The bounds of a process that may have so many descriptors. A shard's listeners are a door: a shard can only drop handshakes of
/// its own to make room for another.
pub(crate) const fn bounds(descriptors: usize) -> Bounds {
    Bounds {
        all: descriptors / SHARE.1 * SHARE.0,
        // Each costs a descriptor and half a kilobyte for up to `accept_timeout`.
        opening: 256,
        opening_of_address: 64,
        // A peer has three, or nine with four per type; many user-space nodes on one host share its address.
        of_address: 1024,
        // A peer's, and another process's on the same host.
        modest: 16,
    }
}
