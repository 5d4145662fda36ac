//! The bounds on connections that peers open to an NI over verbs.
//!
//! A request must name the NID of its source address, or it is rejected before this check. The
//! bound on the connections of one peer ([`LINKS_MAX`]) does not bound those of all peers together.
//! Each connection costs its queues at the device and its message buffers, from the moment it is
//! accepted (`sizes`).

use lnet_lnd::admission::AdmissionLimits;

use crate::links::LINKS_MAX;

/// The bounds of an NI. Each NI has one `Admission` with a single listener index ([`DOOR`]); each
/// address is one peer.
pub(crate) const BOUNDS: AdmissionLimits = AdmissionLimits {
    all: usize::MAX,
    // An opening connection leaves the count when it is established, or after a quarter of
    // `timeout`. After a restart a thousand peers may connect at once; with the default tunables
    // they take some 130 MiB.
    opening: 1024,
    opening_of_address: LINKS_MAX,
    of_address: LINKS_MAX,
    modest: LINKS_MAX,
};

/// The index of an NI's only listener in its `Admission`.
pub(crate) const DOOR: usize = 0;
