//! The tests of `suite` over TCP: sockets of this host, in real time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod suite;

use nlx_testkit::lnds;

type Bed = lnds::TcpBed;
type Node = lnds::Node<lnet_socklnd::Sock>;
type Config = lnet_socklnd::SockConfig;

/// Connections of a peer that may have this many of each type.
const fn connections(conns_per_peer: u8) -> usize {
    1 + 2 * conns_per_peer as usize
}

/// How many there are where both sides have connected at once.
const AT_ONCE: std::ops::RangeInclusive<usize> = 3..=3;

/// What the failure says when no node listens at the address.
const NOBODY: &str = "is LNet up on that node";

/// How many of three messages a lazy portal holds back on connections: the first on its own, and the second, behind which the third is not
/// read.
const HELD: usize = 2;
