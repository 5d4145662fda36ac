//! The service of `nlxd`, in this process: a helper over a node.

#![allow(dead_code, reason = "each test file has its own copy of this module and uses a part of it")]

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use lnet_api::{Drive, LNet};
use nlx::{Domain, Node, NodeConfig};
use nlx_helper::service::{self, ServiceConfig, ServingThreads};
use nlx_helper::{Host, HostConfig, Policy, Rights};

/// A helper and its socket; both end when this value is dropped. Its domains must be dropped
/// before.
pub(crate) struct Helper {
    // Dropped first, before its node and the folder of its socket.
    _service: ServingThreads,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Helper {
    pub(crate) fn over(node: &Node) -> Helper {
        Helper::serving(node.lnet(), node.drive())
    }

    /// Starts a helper over a node's LNet, or over a layer between that and the helper.
    pub(crate) fn serving(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Helper {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nlxd.sock");
        // Tests use all portals, under any user.
        let policy = Policy::default().others(Some(Rights::all()));
        let host = Host::new(lnet, drive, HostConfig { policy, ..HostConfig::default() });
        let listener = service::bind(&socket).unwrap();
        let service = ServingThreads::start(host, listener, ServiceConfig::default()).unwrap();
        Helper { _service: service, socket, _folder: folder }
    }

    /// Opens a domain, which is a new client.
    pub(crate) fn domain(&self) -> Domain {
        Domain::helper_at(&self.socket).unwrap()
    }
}

thread_local! {
    /// The helpers of this thread's test. They are dropped at the end of the thread, after
    /// everything that the test holds.
    static HELPERS: RefCell<Vec<(Helper, Arc<Node>)>> = const { RefCell::new(Vec::new()) };
}

/// Opens a domain on a new node: through a helper in the test crate `helper`, else in this process.
pub(crate) fn domain(module: &str, config: &NodeConfig) -> Domain {
    if !module.starts_with("helper::") {
        return Domain::in_process(config).unwrap();
    }
    let node = Arc::new(Node::start(config).unwrap());
    let helper = Helper::over(&node);
    let domain = helper.domain();
    HELPERS.with_borrow_mut(|helpers| helpers.push((helper, node)));
    domain
}
