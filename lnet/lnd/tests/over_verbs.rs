//! The tests of `suite` over verbs: simulated devices in virtual time, or those of the guest.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod suite;

use nlx_testkit::lnds;

type Bed = lnds::VerbsBed;
type Node = lnds::Node<lnet_o2iblnd::O2ib>;
type Config = lnet_o2iblnd::O2ibConfig;

/// Connections of a peer that may have this many.
const fn connections(conns_per_peer: u8) -> usize {
    conns_per_peer as usize
}

/// How many there are where both sides have connected at once: both attempts may be accepted.
const AT_ONCE: std::ops::RangeInclusive<usize> = 1..=2;

/// What the failure says when no node listens at the address.
const NOBODY: &str = "nobody listens there";

/// How many of four messages a lazy portal holds back at a time.
const HELD: usize = 4;

/// Memory that a payload of 5,000 bytes waits in, and how much a peer may have for two such messages.
const PAYLOAD_IN_MEMORY: usize = 2 * 4096;
const PEER_KB: u32 = 18;

/// A message that leaves though it is held back, and others of which not all leave behind it: more than there are credits.
const FIRST: usize = 64;
const BEHIND: usize = 12;
const BEHIND_LENGTH: usize = 64;
