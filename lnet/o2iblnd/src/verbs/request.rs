//! Listeners, and the requests that they receive.

use std::net::SocketAddrV4;
use std::sync::Arc;

use lnet_api::Errno;

use super::channel::WatchedId;
use super::cm::CmId;
use super::context::DeviceContext;
use super::failed;
use crate::fabric::{ConnRequest, FabricError, Listener, PrivateData};

pub(super) struct HostListener {
    pub(super) _id: WatchedId,
    pub(super) _context: Arc<DeviceContext>,
}

impl Listener for HostListener {}

/// Returns the error of a listener that cannot be created, with the cause and the remedy.
pub(super) fn cannot_listen(at: SocketAddrV4, device: &str, errno: Errno) -> FabricError {
    let advice = match errno {
        Errno::EACCES => {
            ": ports below 1024 need root or CAP_NET_BIND_SERVICE; or set another service, above 1023, on all nodes"
        }
        Errno::EADDRINUSE => {
            ": another program, or the kernel's o2iblnd, listens there; `rdma resource show cm_id` names it"
        }
        _ => "",
    };
    failed(errno, format!("listening on {at} ({device}){advice}"))
}

/// A peer's request to connect. Dropping it destroys the identifier, which rejects the request
/// without a record.
pub(super) struct HostRequest {
    id: CmId,
    source: SocketAddrV4,
    target: SocketAddrV4,
    data: PrivateData,
}

impl HostRequest {
    /// Creates a request; `None` if its addresses are not IPv4.
    pub(super) fn new(id: CmId, data: PrivateData) -> Option<HostRequest> {
        Some(HostRequest { source: id.remote()?, target: id.local()?, id, data })
    }

    pub(super) fn into_id(self) -> CmId {
        self.id
    }
}

impl ConnRequest for HostRequest {
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
