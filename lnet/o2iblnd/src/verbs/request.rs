//! Listeners, and the requests that they hear.

use std::net::SocketAddrV4;
use std::sync::Arc;

use super::channel::Heard;
use super::cm::CmId;
use super::context::Context;
use crate::fabric::{Listener, PrivateData, Request};

pub(super) struct HostListener {
    pub(super) _id: Heard,
    pub(super) _context: Arc<Context>,
}

impl Listener for HostListener {}

/// Dropping it destroys the identifier, which rejects it without a record.
pub(super) struct HostRequest {
    id: CmId,
    source: SocketAddrV4,
    target: SocketAddrV4,
    data: PrivateData,
}

impl HostRequest {
    /// `None` unless it came by IPv4.
    pub(super) fn new(id: CmId, data: PrivateData) -> Option<HostRequest> {
        Some(HostRequest { source: id.remote()?, target: id.local()?, id, data })
    }

    pub(super) fn into_id(self) -> CmId {
        self.id
    }
}

impl Request for HostRequest {
    fn source(&self) -> SocketAddrV4 {
        self.source
    }

    fn target(&self) -> SocketAddrV4 {
        self.target
    }

    fn private_data(&self) -> &[u8] {
        &self.data
    }

    fn reject(self: Box<Self>, record: &[u8]) {
        if let Err(errno) = self.id.reject(record) {
            tracing::debug!(%errno, source = %self.source, "rejecting a request");
        }
    }
}
