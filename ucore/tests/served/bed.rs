//! A helper, its clients, and their common actions.

use std::path::PathBuf;
use std::sync::Arc;

use lnet_node::{Node, NodeConfig};
use nlx_core::{Core, CoreTm, Errno, TmOptions};
use nlx_helper::service::{ServiceConfig, ServingThreads, bind};
use nlx_helper::{ClientQuotas, Host, HostConfig};
use nlx_ucore::{HelperOptions, Ucore};
use tempfile::TempDir;

pub(crate) use crate::work::*;

pub(crate) struct Helper {
    directory: TempDir,
    config: HostConfig,
    pub(crate) host: Arc<Host>,
    service: Option<ServingThreads>,
    _node: Node,
}

impl Helper {
    pub(crate) fn start() -> Helper {
        Helper::with(ClientQuotas::default())
    }

    pub(crate) fn with(quotas: ClientQuotas) -> Helper {
        Helper::serving(HostConfig { quotas, ..HostConfig::default() }, ServiceConfig::default())
    }

    /// Starts a helper that does not sleep.
    pub(crate) fn awake() -> Helper {
        Helper::serving(
            HostConfig::default(),
            ServiceConfig { busy_poll: 2 * HUNG, ..ServiceConfig::default() },
        )
    }

    fn serving(config: HostConfig, how: ServiceConfig) -> Helper {
        let directory = TempDir::new().unwrap();
        let (node, host, service) = serve(&directory.path().join("nlxd.sock"), &config, how);
        Helper { directory, config, host, service: Some(service), _node: node }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("nlxd.sock")
    }

    /// Stops the helper, which closes all connections.
    pub(crate) fn stop(&mut self) {
        self.service.take().unwrap().stop();
        std::fs::remove_file(self.path()).unwrap();
    }

    /// Sets the quotas of the next helper.
    pub(crate) fn set_quotas(&mut self, quotas: ClientQuotas) {
        self.config.quotas = quotas;
    }

    /// Starts a new helper at the same path, without any state of the old one.
    pub(crate) fn start_again(&mut self) {
        let (node, host, service) = serve(&self.path(), &self.config, ServiceConfig::default());
        (self._node, self.host, self.service) = (node, host, Some(service));
    }

    pub(crate) fn options(&self) -> HelperOptions {
        HelperOptions::at(self.path()).name("test").arena_bytes(1 << 20)
    }

    pub(crate) fn client(&self) -> Arc<Ucore> {
        Ucore::connect(&self.options()).unwrap()
    }
}

fn serve(
    path: &std::path::Path,
    config: &HostConfig,
    how: ServiceConfig,
) -> (Node, Arc<Host>, ServingThreads) {
    let node = Node::start(&NodeConfig::new()).unwrap();
    let host = Host::new(node.lnet(), node.drive(), config.clone());
    let service = ServingThreads::start(host.clone(), bind(path).unwrap(), how).unwrap();
    (node, host, service)
}

/// Returns a helper and a client of it.
pub(crate) fn served() -> (Helper, Arc<Ucore>) {
    let helper = Helper::start();
    let domain = helper.client();
    (helper, domain)
}

/// Returns a helper, a client, and a transfer machine.
pub(crate) fn started() -> (Helper, Arc<Ucore>, Box<dyn CoreTm>) {
    let (helper, domain) = served();
    let tm = start(&*domain);
    (helper, domain, tm)
}

pub(crate) fn start(domain: &dyn Core) -> Box<dyn CoreTm> {
    start_with(domain, &TmOptions::default())
}

pub(crate) fn start_with(domain: &dyn Core, options: &TmOptions) -> Box<dyn CoreTm> {
    domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), options).unwrap()
}

pub(crate) const GONE: Result<(), Errno> = Err(Errno::ENOTCONN);
