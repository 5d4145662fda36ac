//! How many connections of peers an NI lets in over verbs.
//!
//! A request names the NID of whoever asks, which is that of its address, or it does not come this far. What bounds the connections of
//! one peer ([`LINKS_MAX`]) does not bound those of all. Each costs its queues at the device and its message buffers, from the moment
//! it is accepted on (`sizes`).

use lnet_lnd::admission::Bounds;

use crate::links::LINKS_MAX;

/// The bounds of an NI, which is one door. One address is one peer.
pub(crate) const BOUNDS: Bounds = Bounds {
    all: usize::MAX,
    // Each takes its time on the network, or is given up after a quarter of `timeout`. After a restart a thousand peers may come
    // at once; with the default tunables they take some 130 MiB.
    opening: 1024,
    opening_of_address: LINKS_MAX,
    of_address: LINKS_MAX,
    modest: LINKS_MAX,
};

/// The door of an NI.
pub(crate) const DOOR: usize = 0;
