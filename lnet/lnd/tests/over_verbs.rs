//! The tests of `suite` over verbs: simulated devices in virtual time, or the devices of the guest.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod suite;

use nlx_testkit::lnds;

type Bed = lnds::VerbsBed;
type Node = lnds::Node<lnet_o2iblnd::O2ib>;
type Config = lnet_o2iblnd::O2ibConfig;

/// Connections per peer for this `conns_per_peer`.
const fn connections(conns_per_peer: u8) -> usize {
    conns_per_peer as usize
}

/// The number of connections after both sides have connected at once: both attempts may be
/// accepted.
const AT_ONCE: std::ops::RangeInclusive<usize> = 1..=2;

/// Part of the failure's text when no node listens at the address.
const NOBODY: &str = "no process listens there";

/// The number of messages, of four, that a lazy portal holds back at a time.
const HELD: usize = 4;

/// The memory in which a payload of 5,000 bytes waits: a peer's limit is two such messages.
const PAYLOAD_IN_MEMORY: usize = 2 * 4096;
const PEER_KB: u32 = 18;

/// The length of a message that is sent completely although it is held back, and of further ones
/// behind it, of which there are more than credits.
const FIRST: usize = 64;
const BEHIND: usize = 12;
const BEHIND_LENGTH: usize = 64;
