//! Two nodes over TCP, and domains on them: in process, or through a helper for each.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::path::PathBuf;
use std::sync::Arc;

use lnet_node::{FaultRule, Node, NodeConfig};
use nlx_core::{Core, StartAddress, TmOptions};
use nlx_helper::service::{self, ServiceConfig};
use nlx_helper::{Host, HostConfig, Policy, Rights};
use nlx_kcore::Kcore;
use nlx_service::machines::Machines;
use nlx_testkit::addresses::unused;
use nlx_ucore::{HelperOptions, Ucore};

/// The service of `nlxd`, in this process.
struct Helper {
    // Ends before the folder of its socket.
    _service: service::ServingThreads,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Helper {
    fn over(node: &Node) -> Helper {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nlxd.sock");
        // Tests use all portals, under any user.
        let policy = Policy::default().others(Some(Rights::all()));
        let host = Host::new(node.lnet(), node.drive(), HostConfig { policy, ..HostConfig::default() });
        let listener = service::bind(&socket).unwrap();
        let service = service::ServingThreads::start(host, listener, ServiceConfig::default()).unwrap();
        Helper { _service: service, socket, _folder: folder }
    }

    fn core(&self) -> Arc<dyn Core> {
        Ucore::connect(&HelperOptions::at(&self.socket)).unwrap()
    }
}

/// The nodes of a server and of its clients.
pub(crate) struct Cores {
    // Helpers end before their nodes.
    helpers: Option<[Helper; 2]>,
    server: Node,
    client: Node,
}

impl Cores {
    pub(crate) fn in_process() -> Cores {
        Cores::with_faults("")
    }

    /// The client's node applies these fault rules.
    pub(crate) fn with_faults(rules: &str) -> Cores {
        Cores { helpers: None, server: node(""), client: node(rules) }
    }

    pub(crate) fn through_helpers() -> Cores {
        let (server, client) = (node(""), node(""));
        Cores { helpers: Some([Helper::over(&server), Helper::over(&client)]), server, client }
    }

    /// Starts a machine on the server's node, always at the same address.
    pub(crate) fn server(&self) -> Machines {
        let core = match &self.helpers {
            Some([helper, _]) => helper.core(),
            None => Kcore::new(self.server.lnet(), self.server.drive()),
        };
        Machines::start(core, &at(&self.server, "1"), &TmOptions::default()).unwrap()
    }

    /// Opens a domain on the client's node, and returns where a machine may start there.
    pub(crate) fn client(&self) -> (Arc<dyn Core>, StartAddress) {
        let core = match &self.helpers {
            Some([_, helper]) => helper.core(),
            None => Kcore::new(self.client.lnet(), self.client.drive()),
        };
        (core, at(&self.client, "*"))
    }

    /// The nodes of the server and of the client.
    pub(crate) fn nodes(&self) -> [&Node; 2] {
        [&self.server, &self.client]
    }

    /// Ends the helpers.
    pub(crate) fn lose_helpers(&mut self) {
        self.helpers = None;
    }
}

fn node(rules: &str) -> Node {
    let config = NodeConfig::new().net(&format!("tcp({})", unused())).unwrap();
    let rules = FaultRule::parse_all(rules).unwrap();
    Node::start(&rules.into_iter().fold(config, NodeConfig::fault)).unwrap()
}

fn at(node: &Node, tmid: &str) -> StartAddress {
    format!("{}:12345:41:{tmid}", node.nids()[0]).parse().unwrap()
}
