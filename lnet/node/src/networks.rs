//! Networks, and the texts that describe them (lnet-semantics 24).

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use lnet_nid::Net;

use crate::NodeError;
use crate::cpts::CptSet;
use crate::read::Reader;

mod ni;

pub(crate) use ni::{NiTunables, peer_credits_within};

/// One network of a configuration: `tcp1(eth0,eth1)[0,2]`.
///
/// The network's name is followed by its interfaces, each a name or an address, and by the CPU
/// partitions of the network's peers in brackets; an interface may have its own partitions (S-315).
/// `o2ib0:0(ib0)`, with one partition after a colon, is the older form of `o2ib0(ib0)[0]`, and
/// means the same.
///
/// ```
/// let net: lnet_node::NetSpec = "tcp1:0(eth0[1-2],eth1)".parse()?;
/// assert_eq!(net.to_string(), "tcp1(eth0[1-2],eth1)[0]");
/// # Ok::<(), lnet_node::NodeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetSpec {
    pub(crate) net: Net,
    pub(crate) interfaces: Vec<NetInterface>,
    pub(crate) cpts: CptSet,
    /// The tunables in which the network's NIs differ from the node's.
    pub(crate) tunables: NiTunables,
}

/// An interface of a network, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetInterface {
    pub(crate) name: String,
    pub(crate) cpts: CptSet,
    /// The required address of the interface, if one was given.
    pub(crate) address: Option<IpAddr>,
}

impl NetSpec {
    /// Creates the specification of a network on the first interface that is not loopback.
    pub(crate) fn plain(net: Net) -> NetSpec {
        NetSpec { net, interfaces: Vec::new(), cpts: CptSet::default(), tunables: NiTunables::default() }
    }

    /// Returns an interface that is named twice, here or in the other specifications of the
    /// network. A network without named interfaces may also appear only once.
    pub(crate) fn twice<'a>(&'a self, others: impl Iterator<Item = &'a NetSpec>) -> Option<&'a str> {
        const PLAIN: &str = "the first one";
        fn names(spec: &NetSpec) -> impl Iterator<Item = &str> {
            let plain = spec.interfaces.is_empty().then_some(PLAIN);
            plain.into_iter().chain(spec.interfaces.iter().map(|interface| interface.name.as_str()))
        }
        let mut seen: HashSet<&str> = others.flat_map(names).collect();
        names(self).find(|name| !seen.insert(name))
    }

    /// Returns the network.
    pub fn net(&self) -> Net {
        self.net
    }

    /// Returns an interface's own partitions, otherwise the network's.
    pub(crate) fn cpts_of<'a>(&'a self, interface: &'a NetInterface) -> &'a CptSet {
        if interface.cpts.is_empty() { &self.cpts } else { &interface.cpts }
    }
}

impl FromStr for NetSpec {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<NetSpec, NodeError> {
        Reader::new(text)?.one()
    }
}

impl fmt::Display for NetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.net)?;
        for (index, NetInterface { name, cpts, .. }) in self.interfaces.iter().enumerate() {
            write!(f, "{}{name}{cpts}", if index == 0 { '(' } else { ',' })?;
        }
        write!(f, "{}{}", if self.interfaces.is_empty() { "" } else { ")" }, self.cpts)
    }
}

/// The value of LNet's tunable `networks`: `tcp0(eth0),tcp1(eth1)[0,2]`, with commas or, as in the
/// design, blanks between the networks. A network may appear several times, each of its interfaces
/// once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(pub(crate) Vec<NetSpec>);

impl Networks {
    /// Returns the networks, in the order of the text.
    pub fn nets(&self) -> &[NetSpec] {
        &self.0
    }
}

impl FromStr for Networks {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Networks, NodeError> {
        Ok(Networks(Reader::new(text)?.all()?))
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(index, net)| write!(f, "{}{net}", if index == 0 { "" } else { "," }))
    }
}
