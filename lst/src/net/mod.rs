//! Consoles and test nodes of `lst` on a running LNet node, over the service layer.
//!
//! [`ConsoleRunner`] sends the RPCs of a [`Console`](crate::console::Console); a thread of the
//! program waits for each operation. [`TestNode`] serves and sends on threads of its pools, until it
//! is dropped.

mod console;
mod node;
mod options;

use std::sync::Arc;

use lnet_api::{Drive, LNet};
use lnet_cpt::CptTable;
use lnet_proto::lst::{FRAMEWORK_PORTAL, MESSAGE_LEN, REPLY_PORTAL};
use nlx_service::portals::PortalNames;
use nlx_service::{BufferOptions, OnPartitions};

pub use console::ConsoleRunner;
pub use node::{ReadCounters, TestNode, Workers};
pub use options::{BULK_BUFFERS_MAX, DATA_BUFFERS_MAX, TestNodeOptions};

/// The LNet node on which a console or a test node runs.
#[derive(Clone)]
pub struct NodeHandles {
    /// The calls of LNet: portals, PUT and GET.
    pub lnet: Arc<dyn LNet>,
    /// The handle by which its threads drive it.
    pub drive: Arc<dyn Drive>,
    /// The CPU partitions of the node, on which the threads of the pools run.
    pub partitions: Arc<CptTable>,
}

impl NodeHandles {
    /// Returns the driver of a pool on some CPU partitions of the node.
    fn on(&self, cpts: Arc<[usize]>) -> OnPartitions {
        OnPartitions { drive: self.drive.clone(), cpts }
    }
}

/// Returns the options of request buffers of a service of lst.
fn buffers(requests_per_buffer: u32, buffers_min: u32, buffers_max: u32) -> BufferOptions {
    BufferOptions {
        request_max: MESSAGE_LEN,
        reply_max: MESSAGE_LEN,
        requests_per_buffer,
        buffers_min,
        buffers_max,
    }
}

/// Returns the names of framework services: one endpoint for each of these.
fn framework(services: &[lnet_proto::lst::LstService], lazy: bool) -> PortalNames {
    PortalNames {
        requests: FRAMEWORK_PORTAL,
        bits: services.iter().map(|service| service.match_bits()).collect(),
        replies: REPLY_PORTAL,
        lazy,
    }
}
