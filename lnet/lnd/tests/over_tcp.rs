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

/// The number of connections after both sides have connected at once.
const AT_ONCE: std::ops::RangeInclusive<usize> = 3..=3;

/// Part of the failure's text when no node listens at the address.
const NOBODY: &str = "is LNet up on that node";

/// The number of messages, of four, that a lazy portal holds back on connections: the first one,
/// and the next one, behind which nothing is read.
const HELD: usize = 2;

/// The memory in which a payload of 5,000 bytes waits: a peer's limit is two such messages.
const PAYLOAD_IN_MEMORY: usize = 5000;
const PEER_KB: u32 = 12;

/// The length of a message that is sent completely although it is held back, and of further ones
/// behind it, which both sockets together cannot take.
const FIRST: usize = 5000;
const BEHIND: usize = 8;
const BEHIND_LENGTH: usize = 1 << 20;
