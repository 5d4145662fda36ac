use std::net::Ipv4Addr;
use std::time::Duration;

use lnet_nid::{Net, NetType, Nid, Pid};
use lnet_socklnd::{AcceptPolicy, SockConfig};

use crate::{Interface, NodeError};

/// The port on which LNet nodes listen (`accept_port`, lnet-wire 20).
pub const DEFAULT_ACCEPT_PORT: u16 = 988;

/// The most local NIDs of a node, what LNet called `LNET_INTERFACES_NUM`: beyond it ping replies would outgrow the
/// buffers of older peers.
pub const MAX_INTERFACES: usize = 16;

/// What a node is made of. Every setting has LNet's default.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    nets: Vec<NetSpec>,
    pid: Pid,
    transaction_timeout: Duration,
    tcp: SockConfig,
}

impl NodeConfig {
    /// A node that listens on port 988 and has no networks yet.
    pub fn new() -> NodeConfig {
        NodeConfig {
            nets: Vec::new(),
            pid: Pid::LNET,
            transaction_timeout: Duration::from_secs(150),
            tcp: SockConfig::default(),
        }
    }

    /// Adds a network: `tcp(eth0)`, `tcp1(eth0,eth1)`, `tcp(127.0.0.2)`; plain `tcp` takes the first interface that is
    /// not loopback (lnet-semantics 24).
    ///
    /// # Errors
    /// [`NodeError::Network`] says what is wrong with the text.
    pub fn net(mut self, text: &str) -> Result<NodeConfig, NodeError> {
        self.nets.push(text.parse()?);
        Ok(self)
    }

    /// The port on which this node listens and on which it expects its peers to listen (`accept_port`).
    pub fn accept_port(mut self, port: u16) -> NodeConfig {
        self.tcp.accept_port = port;
        self
    }

    /// Whose connections are accepted. Without this call: [`AcceptPolicy::Hello`] if the port is above 1023, else
    /// [`AcceptPolicy::Secure`].
    pub fn accept(mut self, policy: AcceptPolicy) -> NodeConfig {
        self.tcp.accept = Some(policy);
        self
    }

    /// How long a GET or an acknowledged PUT waits for its answer (`lnet_transaction_timeout`, 150 s).
    pub fn transaction_timeout(mut self, timeout: Duration) -> NodeConfig {
        self.transaction_timeout = timeout;
        self
    }

    /// The tunables of the TCP LND, to be changed in place.
    pub fn tcp(&mut self) -> &mut SockConfig {
        &mut self.tcp
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn transaction_timeout_ns(&self) -> u64 {
        u64::try_from(self.transaction_timeout.as_nanos()).unwrap_or(u64::MAX / 2)
    }

    pub(crate) fn sock(&self) -> &SockConfig {
        &self.tcp
    }

    /// The NIDs that the networks come to on this host.
    ///
    /// # Errors
    /// An interface that is not there, a NID twice, or too many of them.
    pub fn nids(&self) -> Result<Vec<Nid>, NodeError> {
        let mut nids = Vec::new();
        for spec in &self.nets {
            for address in spec.addresses()? {
                let nid = Nid::new_v4(spec.net, address);
                if nids.contains(&nid) {
                    return Err(NodeError::Twice { nid });
                }
                nids.push(nid);
            }
        }
        if nids.len() > MAX_INTERFACES {
            return Err(NodeError::TooMany { count: nids.len(), max: MAX_INTERFACES });
        }
        Ok(nids)
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig::new()
    }
}

/// One network of a configuration: `tcp1(eth0,eth1)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetSpec {
    net: Net,
    interfaces: Vec<String>,
}

impl NetSpec {
    fn addresses(&self) -> Result<Vec<Ipv4Addr>, NodeError> {
        if !self.interfaces.is_empty() {
            return self.interfaces.iter().map(|name| Interface::resolve(name)).collect();
        }
        let first = Interface::all()?.into_iter().find(|interface| !interface.loopback);
        first.map(|interface| vec![interface.address]).ok_or(NodeError::NoNetwork)
    }
}

impl std::str::FromStr for NetSpec {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<NetSpec, NodeError> {
        let refuse = |reason: &str| NodeError::Network { text: text.to_string(), reason: reason.to_string() };
        let (name, list) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                (name, Some(rest.strip_suffix(')').ok_or_else(|| refuse("the closing ')' is missing"))?))
            }
        };
        let net: Net = name.parse().map_err(|error: lnet_nid::NidError| refuse(&error.to_string()))?;
        if net.net_type() != NetType::TCP {
            return Err(refuse(
                "only networks of type tcp can be used, for instance 'tcp(eth0)' or 'tcp1(10.0.0.1)'",
            ));
        }
        let interfaces: Vec<String> =
            list.map_or_else(Vec::new, |list| list.split(',').map(|name| name.trim().to_string()).collect());
        if interfaces.iter().any(|name| name.is_empty() || name.contains(['(', ')', '[', ']', ' '])) {
            return Err(refuse(
                "an interface name or address is expected between '(' and ')', several with commas",
            ));
        }
        Ok(NetSpec { net, interfaces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_lnet_writes_them() {
        let nids = |config: NodeConfig| config.nids().unwrap().iter().map(Nid::to_string).collect::<Vec<_>>();
        let config = NodeConfig::new().net("tcp(127.0.0.2)").unwrap().net("tcp3(lo,127.0.0.5)").unwrap();
        assert_eq!(nids(config), ["127.0.0.2@tcp", "127.0.0.1@tcp3", "127.0.0.5@tcp3"]);
    }

    #[test]
    fn a_text_that_is_no_network_is_refused_with_the_reason() {
        for text in [
            "",
            "tcp(",
            "tcp()",
            "tcp(eth0",
            "tcp(eth0,)",
            "ether(eth0)",
            "tcp99999(lo)",
            "o2ib(ib0)",
            "tcp(a)b",
        ] {
            let error = NodeConfig::new().net(text).expect_err(text);
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
            assert_eq!(error.errno(), lnet_api::Errno::EINVAL);
        }
    }

    #[test]
    fn the_default_port_is_the_lnds() {
        assert_eq!(NodeConfig::new().sock().accept_port, DEFAULT_ACCEPT_PORT);
    }

    #[test]
    fn one_nid_twice_is_refused() {
        let config = NodeConfig::new().net("tcp(lo)").unwrap().net("tcp(127.0.0.1)").unwrap();
        assert!(matches!(config.nids(), Err(NodeError::Twice { .. })));
    }
}
