//! The tests of `suite` over TCP: sockets of this host, in real time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod suite;

use nlx_testkit::lnds;

type Bed = lnds::TcpBed;
type Node = lnds::Node<lnet_socklnd::Sock>;
type Config = lnet_socklnd::SockConfig;

/// Connections per peer for this `conns_per_peer` (of each bulk type).
const fn connections(conns_per_peer: u8) -> usize {
    1 + 2 * conns_per_peer as usize
}

/// Number of connections after both sides have connected at once.
const AT_ONCE: std::ops::RangeInclusive<usize> = 3..=3;

/// Part of the failure's text when no node listens at the address.
const NOBODY: &str = "is LNet up on that node";

/// How many of four messages a lazy portal holds back on connections: the first alone, and the next
/// one, behind which nothing is read.
const HELD: usize = 2;

/// Memory in which a payload of 5,000 bytes waits, and a peer's limit for two such messages.
const PAYLOAD_IN_MEMORY: usize = 5000;
const PEER_KB: u32 = 12;

/// A message that is sent completely although it is held back, and further ones behind it, more
/// than both sockets take.
const FIRST: usize = 5000;
const BEHIND: usize = 8;
const BEHIND_LENGTH: usize = 1 << 20;
