//! Limits that all nodes share (lnet-wire 8).

use lnet_nid::Portal;

/// The maximum payload of one message in bytes: LNet's MTU.
pub const MAX_PAYLOAD: u32 = 1_048_576;

/// The maximum number of fragments in one memory descriptor: the largest payload in pages of 4096
/// bytes.
pub const MAX_FRAGMENTS: usize = 256;

/// The portal of ping GETs and push PUTs, with the match bits [`lnet_nid::MatchBits::PING`].
pub const PING_PORTAL: Portal = Portal::RESERVED;
