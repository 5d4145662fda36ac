//! The LNets of a test's host.

use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_cpt::CptTable;
use lnet_fake::{FakeDrive, FakeLnet};
use lnet_nid::Pid;
use nlx_helper::{ClientQuotas, Credentials, Host, HostConfig, Policy};

use crate::client::Client;

/// Returns a host whose node has only `0@lo`: every operation ends inside the call that starts it.
pub(crate) fn loopback() -> Arc<Host> {
    loopback_with(HostConfig::default())
}

pub(crate) fn loopback_with(config: HostConfig) -> Arc<Host> {
    let partitions = Arc::new(CptTable::virtual_parts(1).unwrap());
    let engine = Engine::new(EngineConfig { partitions, ..EngineConfig::new(Pid::LNET, 1) });
    Host::new(engine, FakeDrive::new(), config)
}

/// Returns a scripted LNet, in which operations stay in flight until the test ends them, and its
/// host.
pub(crate) fn scripted() -> (Arc<FakeLnet>, Arc<Host>) {
    scripted_with(HostConfig::default())
}

pub(crate) fn scripted_with(config: HostConfig) -> (Arc<FakeLnet>, Arc<Host>) {
    let lnet = FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]);
    (lnet.clone(), Host::new(lnet, FakeDrive::new(), config))
}

/// Returns the host of a node that has only `0@lo`, and a client of it.
pub(crate) fn loopback_client(credentials: Credentials) -> (Arc<Host>, Client) {
    let host = loopback();
    let client = Client::connect(&host, credentials);
    (host, client)
}

/// Returns a scripted LNet, its host, and a client of it.
pub(crate) fn scripted_client(credentials: Credentials) -> (Arc<FakeLnet>, Arc<Host>, Client) {
    let (lnet, host) = scripted();
    let client = Client::connect(&host, credentials);
    (lnet, host, client)
}

/// Returns a configuration with the default quotas for all clients, as adjusted by `change`.
pub(crate) fn quotas(change: impl FnOnce(&mut ClientQuotas)) -> HostConfig {
    let mut quotas = ClientQuotas::default();
    change(&mut quotas);
    HostConfig { quotas, ..HostConfig::default() }
}

/// Returns a configuration with this policy.
pub(crate) fn policy(policy: Policy) -> HostConfig {
    HostConfig { policy, ..HostConfig::default() }
}
