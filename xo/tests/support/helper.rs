//! What `nlxd` is made of, in this process: the service of a helper over a node.

#![allow(dead_code, reason = "each test file has its own copy of this module and uses a part of it")]

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use lnet_api::{Drive, LNet};
use nlx::{Domain, Node, NodeConfig};
use nlx_helper::service::{self, Service, ServiceConfig};
use nlx_helper::{Host, HostConfig, Policy, Rights};

/// A helper with a socket of its own; both end with this value. Its domains must have ended before.
pub(crate) struct Helper {
    // The first to end, before its node and the folder of its socket.
    _service: Service,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Helper {
    pub(crate) fn over(node: &Node) -> Helper {
        Helper::serving(node.lnet(), node.drive())
    }

    /// A helper over a node's LNet, or over something between that and the helper.
    pub(crate) fn serving(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Helper {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nlxd.sock");
        // Tests use portals of all kinds, whoever runs them.
        let policy = Policy::default().others(Some(Rights::all()));
        let host = Host::new(lnet, drive, HostConfig { policy, ..HostConfig::default() });
        let listener = service::bind(&socket).unwrap();
        let service = Service::start(host, listener, ServiceConfig::default()).unwrap();
        Helper { _service: service, socket, _folder: folder }
    }

    /// A new client of it.
    pub(crate) fn domain(&self) -> Domain {
        Domain::helper_at(&self.socket).unwrap()
    }
}

thread_local! {
    /// What the test of this thread has asked for. It ends with the thread, when all that the test
    /// had is dropped.
    static HELPERS: RefCell<Vec<(Helper, Arc<Node>)>> = const { RefCell::new(Vec::new()) };
}

/// A domain on a node of its own: in the crate of tests that is named after it, through a helper.
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
