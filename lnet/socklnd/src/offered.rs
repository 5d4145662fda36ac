//! Peers that have said who they are, on their way to the shard that decides.

use std::net::SocketAddr;
use std::sync::Arc;

use lnet_lnd::admission::Guest;
use lnet_nid::ProcessId;
use lnet_proto::sock::Offer;
use smallvec::SmallVec;

use crate::sock::Ni;
use crate::sys::Stream;

/// More than a handshake sends in one piece, and little enough that what follows it is not much.
pub(crate) const HANDSHAKE_READ: usize = 256;

/// A peer that has said who it is, on its way to the shard that decides about it. Nothing of it is read meanwhile.
pub struct Offered {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) remote: SocketAddr,
    pub(crate) guest: Guest,
    pub(crate) ni: Arc<Ni>,
    pub(crate) id: ProcessId,
    pub(crate) rewrite: Option<ProcessId>,
    pub(crate) offer: Offer,
    /// What came with the hello.
    pub(crate) behind: SmallVec<[u8; HANDSHAKE_READ]>,
}
