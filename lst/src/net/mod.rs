//! Consoles and test nodes of `lst` on a running LNet node, over the service layer.
//!
//! [`ConsoleRunner`] sends the RPCs of a [`Console`](crate::console::Console); a thread of the
//! program waits for each operation. [`TestNode`] serves and sends on threads of its pools, until it
//! is dropped.

mod console;
mod node;

use std::sync::Arc;

use lnet_api::{Drive, LNet};
use lnet_cpt::CptTable;
use lnet_proto::lst::{FRAMEWORK_PORTAL, REPLY_PORTAL};
use nlx_service::portals::PortalNames;

pub use console::ConsoleRunner;
pub use node::{ReadCounters, TestNode};

/// The LNet node on which a console or a test node runs.
#[derive(Clone)]
pub struct Network {
    /// Its LNet.
    pub lnet: Arc<dyn LNet>,
    /// The handle by which its threads drive it.
    pub drive: Arc<dyn Drive>,
    /// Its CPU partitions.
    pub partitions: Arc<CptTable>,
}

/// Returns the names of framework services: one endpoint for each of these.
fn framework(services: &[lnet_proto::lst::Service]) -> PortalNames {
    PortalNames {
        requests: FRAMEWORK_PORTAL,
        bits: services.iter().map(|service| service.match_bits()).collect(),
        replies: REPLY_PORTAL,
        // As kernel nodes: a request that finds no buffer waits (lst 2).
        lazy: true,
    }
}
