//! The configuration of a node, built by methods that return it.

use std::sync::Arc;
use std::time::Duration;

use lnet::{EngineConfig, FaultRule, MatchOrder, Rotor, Stealing};
use lnet_api::{DEFAULT_SPIN, MAX_SHARDS};
use lnet_cpt::{CptConfig, CptError, CptTable, PartitionMemory, threads_for};
use lnet_nid::{Net, NetType, Nid, Pid};
use lnet_o2iblnd::O2ibConfig;
use lnet_socklnd::{AcceptPolicy, BadTunable, Config as _, NiConfig, SockConfig};

use crate::conf::{ConfigWarning, Section};
use crate::interfaces::{PlannedNi, plan};
use crate::networks::peer_credits_within;
use crate::partitions::Partitions;
use crate::{HostInterface, NetSpec, Networks, NodeError, O2ibNiConfig, o2ib};

/// The port on which LNet nodes listen (`accept_port`, lnet-wire 20).
pub const DEFAULT_ACCEPT_PORT: u16 = 988;

/// The maximum number of local NIDs of a node (LNet's former `LNET_INTERFACES_NUM`): above it ping
/// replies would exceed the buffers of older peers.
pub const MAX_INTERFACES: usize = 16;

/// The configuration of a node. Every setting has LNet's default.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub(crate) nets: Vec<NetSpec>,
    /// The engine's configuration, without this run's cookie and the partitions, which are known
    /// when the node starts.
    pub(crate) engine: EngineConfig,
    pub(crate) partitions: Partitions,
    /// The tunables of the TCP LND; a network's own values take precedence.
    pub(crate) tcp: SockConfig,
    /// The tunables of the verbs LND; a network's own values take precedence.
    pub(crate) o2ib: O2ibConfig,
    /// The spin limit of waits.
    pub(crate) spin: Duration,
    /// True if other processes can request the node's status.
    pub(crate) status: bool,
    pub(crate) faults: Vec<FaultRule>,
    pub(crate) warnings: Vec<ConfigWarning>,
    pub(crate) helper: Option<Section>,
}

impl NodeConfig {
    /// Creates the configuration of a node that listens on port 988, without networks.
    pub fn new() -> NodeConfig {
        NodeConfig {
            nets: Vec::new(),
            engine: EngineConfig::new(Pid::LNET, 0),
            partitions: Partitions::default(),
            // LNet's default: the number follows the link's speed.
            tcp: SockConfig { conns_per_peer: 0, ..SockConfig::default() },
            o2ib: O2ibConfig::default(),
            spin: DEFAULT_SPIN,
            status: false,
            faults: Vec::new(),
            warnings: Vec::new(),
            helper: None,
        }
    }

    /// Adds a network: `tcp(eth0)`, `tcp1(eth0,eth1)`, `tcp(127.0.0.2)`; plain `tcp` uses the first
    /// interface that is not loopback (lnet-semantics 24). `tcp(eth0)[0,2]` and `tcp(eth0[1])` bind
    /// it to CPU partitions; see [`NetSpec`]. `o2ib(ib0)`, `o2ib(mlx5_0)` and `o2ib(10.0.0.1)` are
    /// networks over RDMA: by an interface, by its RDMA device, or by its address (feature
    /// `verbs`). Every node has `lo`; it is ignored here.
    ///
    /// # Errors
    /// [`NodeError::Network`] describes the error in the text and its position;
    /// [`NodeError::NoDriver`] for networks that are neither of type tcp nor of type o2ib.
    pub fn net(self, text: &str) -> Result<NodeConfig, NodeError> {
        self.with_net(text.parse()?)
    }

    /// Adds the networks of LNet's tunable `networks`: `tcp0(eth0),tcp1(eth1)[0,2]`; see
    /// [`Networks`].
    ///
    /// # Errors
    /// The errors of [`NodeConfig::net`].
    pub fn networks(self, text: &str) -> Result<NodeConfig, NodeError> {
        let Networks(nets) = text.parse()?;
        nets.into_iter().try_fold(self, NodeConfig::with_net)
    }

    fn with_net(mut self, spec: NetSpec) -> Result<NodeConfig, NodeError> {
        self.push_net(spec)?;
        Ok(self)
    }

    /// Adds a network, or interfaces to an existing one. An interface may be given only once.
    pub(crate) fn push_net(&mut self, spec: NetSpec) -> Result<(), NodeError> {
        if spec.net == Net::LO {
            return Ok(());
        }
        if ![NetType::TCP, NetType::O2IB].contains(&spec.net.net_type()) {
            return Err(NodeError::NoDriver { net: spec.to_string() });
        }
        let others = || self.nets.iter().filter(|other| other.net == spec.net);
        if let Some(name) = spec.twice(others()) {
            return Err(NodeError::TwiceOn { net: spec.net, name: name.to_string() });
        }
        self.nets.push(spec);
        Ok(())
    }

    /// Removes the networks configured so far, when a command line replaces those of a file.
    pub fn without_nets(mut self) -> NodeConfig {
        self.nets.clear();
        self
    }

    /// Returns the networks configured so far.
    #[must_use]
    pub fn nets(&self) -> &[NetSpec] {
        &self.nets
    }

    pub(crate) fn networks_text(&self) -> String {
        Networks(self.nets.clone()).to_string()
    }

    pub(crate) fn set_networks(&mut self, text: &str) -> Result<(), NodeError> {
        let nets = if text.trim().is_empty() { Vec::new() } else { text.parse::<Networks>()?.0 };
        let before = std::mem::take(&mut self.nets);
        self.add_nets(nets).inspect_err(|_| self.nets = before)
    }

    /// Adds all of these networks, or none.
    pub(crate) fn add_nets(&mut self, nets: Vec<NetSpec>) -> Result<(), NodeError> {
        let before = self.nets.len();
        let outcome = nets.into_iter().try_for_each(|spec| self.push_net(spec));
        outcome.inspect_err(|_| self.nets.truncate(before))
    }

    /// Sets the tunables of CPU partitions (S-315): `.cpt("cpu_npartitions=4".parse()?)`. The
    /// default is LNet's without configuration (S-303): one partition on up to four CPUs.
    pub fn cpt(mut self, tunables: CptConfig) -> NodeConfig {
        self.partitions = tunables.into();
        self
    }

    /// Sets the CPU partitions directly, for a program that already has a table; instead of
    /// [`NodeConfig::cpt`].
    pub fn partitions(mut self, table: Arc<CptTable>) -> NodeConfig {
        self.partitions = table.into();
        self
    }

    /// Sets in which partition the search for a buffer of a wildcard portal begins
    /// (`portal_rotor`).
    pub fn portal_rotor(mut self, rotor: Rotor) -> NodeConfig {
        self.engine.portal_rotor = rotor;
        self
    }

    /// Sets which messages search other partitions for a buffer too: all of them, or as in today's
    /// LNet.
    pub fn stealing(mut self, stealing: Stealing) -> NodeConfig {
        self.engine.stealing = stealing;
        self
    }

    /// Sets which of two matching entries takes a message: the first, or as in today's LNet.
    pub fn match_order(mut self, order: MatchOrder) -> NodeConfig {
        self.engine.match_order = order;
        self
    }

    /// Sets the distance of this node from itself: 0 (`local_nid_dist_zero`, the default), or 1.
    pub fn local_nid_dist_zero(mut self, zero: bool) -> NodeConfig {
        self.engine.local_nid_dist_zero = zero;
        self
    }

    /// Sets the port on which this node listens and expects its peers to listen (`accept_port`).
    pub fn accept_port(mut self, port: u16) -> NodeConfig {
        self.tcp.accept_port = port;
        self
    }

    /// Sets the accept policy. Default: [`AcceptPolicy::Hello`] if the port is above 1023,
    /// otherwise [`AcceptPolicy::Secure`].
    pub fn accept(mut self, policy: AcceptPolicy) -> NodeConfig {
        self.tcp.accept = Some(policy);
        self
    }

    /// Sets the time limit of a GET or an acknowledged PUT for its answer
    /// (`lnet_transaction_timeout`, 150 s).
    pub fn transaction_timeout(mut self, timeout: Duration) -> NodeConfig {
        self.engine.transaction_timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX / 2);
        self
    }

    /// Adds a rule by which arriving messages are lost or delayed, from the start of the node, for
    /// tests of the layers above. A repeated call adds a further rule; see
    /// [`crate::Node::add_fault`].
    ///
    /// ```
    /// # use lnet_node::NodeConfig;
    /// let config = NodeConfig::new().net("tcp")?.fault("drop 1/100 put portal 42".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fault(mut self, rule: FaultRule) -> NodeConfig {
        self.faults.push(rule);
        self
    }

    /// Sets the spin limit of waits on this node: waiters poll for up to this time before they
    /// sleep ([`DEFAULT_SPIN`], 50 µs, by default; [`lnet_api::MAX_SPIN`] at most). Zero turns
    /// spinning off.
    ///
    /// A sleeping thread wakes some microseconds after its message has arrived, or 30 µs after
    /// where idle processors are slow to wake up. A waiter spins only while most of its waits are
    /// shorter than the limit, and not while more threads are runnable than there are processors.
    pub fn spin(mut self, time: Duration) -> NodeConfig {
        self.spin = time;
        self
    }

    /// Sets whether `nlx status`, run by the same user, finds the node. The node then answers on a
    /// socket in the user's own folder, from a thread that otherwise sleeps. Default: no. See
    /// [`running_nodes`](crate::running_nodes).
    ///
    /// A node that cannot create the socket logs a warning, and runs.
    pub fn status(mut self, on: bool) -> NodeConfig {
        self.status = on;
        self
    }

    /// Returns the tunables of the TCP LND, to change them in place. A `conns_per_peer` of 0, the
    /// default, follows the speed of each NI's link.
    pub fn tcp(&mut self) -> &mut SockConfig {
        &mut self.tcp
    }

    /// Returns the tunables of the verbs LND, for networks of type o2ib, to change them in place.
    pub fn o2ib(&mut self) -> &mut O2ibConfig {
        &mut self.o2ib
    }

    /// Returns the configuration of the TCP LND on a node with these partitions.
    pub(crate) fn tcp_on(&self, table: &Arc<CptTable>) -> SockConfig {
        let (partitions, nscheds) = shards_on(table, self.tcp.nscheds);
        SockConfig { partitions, nscheds, memory: PartitionMemory::of(table), ..self.sock() }
    }

    /// Returns the configuration of the verbs LND on a node with these partitions.
    pub(crate) fn verbs_on(&self, table: &Arc<CptTable>) -> O2ibConfig {
        let (partitions, nscheds) = shards_on(table, self.o2ib.nscheds);
        O2ibConfig { partitions, nscheds, memory: PartitionMemory::of(table), ..self.o2ib.clone() }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.engine.pid
    }

    /// Returns the configuration of the engine for one run of the node.
    pub(crate) fn engine(&self, partitions: Arc<CptTable>, interface_cookie: u64) -> EngineConfig {
        EngineConfig { partitions, interface_cookie, ..self.engine.clone() }
    }

    pub(crate) fn table(&self) -> Result<Arc<CptTable>, NodeError> {
        self.partitions.table()
    }

    pub(crate) fn refuse_partitions(&self, source: CptError) -> NodeError {
        self.partitions.refuse(source)
    }

    /// Returns the configuration of the TCP LND. The LND cannot query a link's speed: each NI gets
    /// its own number of connections.
    pub(crate) fn sock(&self) -> SockConfig {
        let peer_credits = peer_credits_within(self.tcp.credits, &self.tcp);
        SockConfig { conns_per_peer: self.tcp.conns_per_peer.max(1), peer_credits, ..self.tcp.clone() }
    }

    /// Returns the NIDs of the networks on this host.
    ///
    /// # Errors
    /// An interface or a CPU partition that does not exist, a duplicate NID, or too many NIDs.
    pub fn nids(&self) -> Result<Vec<Nid>, NodeError> {
        let partitions = self.table()?.partitions();
        Ok(self.interfaces(partitions)?.into_iter().map(|ni| ni.nid).collect())
    }

    /// Checks whether a node with this configuration could start on this host, as far as possible
    /// without starting it.
    ///
    /// # Errors
    /// The errors of [`NodeConfig::nids`]; [`NodeError::Tunable`] for a value that contradicts another;
    /// [`NodeError::Rdma`] if a network needs RDMA and the host has none.
    pub fn check(&self) -> Result<(), NodeError> {
        let nis = self.interfaces(self.table()?.partitions())?;
        self.check_tunables(&nis)?;
        match nis.iter().find(|ni| ni.is_o2ib()) {
            Some(ni) => o2ib::check(ni.nid),
            None => Ok(()),
        }
    }

    /// Checks that the tunables of these NIs do not contradict each other.
    pub(crate) fn check_tunables(&self, nis: &[PlannedNi]) -> Result<(), NodeError> {
        let sock = self.sock();
        sock.check().map_err(|error| NodeError::tunable(error.field, error))?;
        let rdma = |error: BadTunable| NodeError::tunable(format!("ko2iblnd {}", error.field), error);
        if nis.iter().any(PlannedNi::is_o2ib) {
            self.o2ib.check().map_err(rdma)?;
        }
        nis.iter().try_for_each(|ni| {
            let checked = if ni.is_o2ib() {
                self.o2ib.of(&ni.tunables.o2ib(&self.o2ib)).check()
            } else {
                sock.of(&ni.tunables.tcp(&self.tcp, ni.conns_per_peer)).check()
            };
            checked.map_err(|error| NodeError::tunable(format!("{}: {}", ni.nid, error.field), error))
        })
    }

    /// Returns the tunables in force for an NI of this network on this interface: its own,
    /// otherwise the node's; `conns_per_peer` by the link's speed if both are 0.
    #[must_use]
    pub fn ni_config(&self, net: &NetSpec, interface: &HostInterface) -> NiConfig {
        net.tunables.tcp(&self.tcp, interface.automatic_conns_per_peer())
    }

    /// Returns the tunables in force for an NI over RDMA: the network's own, otherwise the node's.
    #[must_use]
    pub fn o2ib_ni_config(&self, net: &NetSpec) -> O2ibNiConfig {
        net.tunables.o2ib(&self.o2ib)
    }

    /// Plans the NIs, for a node with this number of CPU partitions.
    pub(crate) fn interfaces(&self, partitions: usize) -> Result<Vec<PlannedNi>, NodeError> {
        plan(&self.nets, &[], partitions)
    }
}

/// Returns the number of partitions with shards of an LND, and the maximum number of shards per
/// partition: the number of threads that fit on the smallest partition (S-314), limited so that the
/// shards of both LNDs fit within those of a node.
fn shards_on(table: &CptTable, nscheds: usize) -> (usize, usize) {
    const LNDS: usize = 2;
    let partitions = table.partitions().clamp(1, MAX_SHARDS / LNDS);
    let most = (0..partitions).map(|cpt| threads_for(table, cpt, nscheds)).min().unwrap_or(1);
    (partitions, most.min(MAX_SHARDS / LNDS / partitions))
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig::new()
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

    /// The value of `networks` determines the NIDs, and the partitions of each; `lo` is implied.
    // Covers: S-315
    #[test]
    fn a_line_of_networks_binds_interfaces_to_partitions() {
        let text = "lo,tcp(127.0.0.2),tcp1:1(127.0.0.3[0,2],127.0.0.4) tcp(127.0.0.5)[3]";
        let config = NodeConfig::new().networks(text).unwrap();
        let expected: [(&str, &[usize]); 4] = [
            ("127.0.0.2@tcp", &[]),
            ("127.0.0.3@tcp1", &[0, 2]),
            ("127.0.0.4@tcp1", &[1]),
            ("127.0.0.5@tcp", &[3]),
        ];
        let expected = expected.map(|(nid, cpts)| (nid.parse::<Nid>().unwrap(), cpts.to_vec()));
        let planned = config.interfaces(4).unwrap().into_iter().map(|ni| (ni.nid, ni.cpts));
        assert_eq!(planned.collect::<Vec<_>>(), expected);
        let error = config.interfaces(3).unwrap_err();
        assert_eq!(error.errno(), lnet_api::Errno::EINVAL);
        assert!(error.to_string().contains("'tcp(127.0.0.5)[3]': there is no CPU partition 3"), "{error}");
        assert!(NodeConfig::new().net("lo").unwrap().nids().unwrap().is_empty());
    }

    #[test]
    fn a_network_without_a_driver_is_refused() {
        for error in
            [NodeConfig::new().net("gni(ipogif0)"), NodeConfig::new().networks("tcp(lo),gni(ipogif0)")]
        {
            let error = error.unwrap_err();
            assert!(
                matches!(error, NodeError::NoDriver { .. }) && error.to_string().contains("'gni(ipogif0)'")
            );
            assert_eq!(error.errno(), lnet_api::Errno::EINVAL);
        }
    }

    #[test]
    fn the_default_port_is_the_lnds() {
        assert_eq!(NodeConfig::new().sock().accept_port, DEFAULT_ACCEPT_PORT);
    }

    #[test]
    fn contradicting_values_are_reported_before_anything_starts() {
        let config = |text: &str| NodeConfig::from_toml(text).unwrap();
        let ni = "[[net]]\nname = \"tcp\"\ninterfaces = [\"127.0.0.2\"]\n";
        for (text, words) in [
            (
                "[ksocklnd]\nmin_reconnectms = 5000\nmax_reconnectms = 100".to_string(),
                "max_reconnectms=100: it must be at least min_reconnectms, 5000 ms",
            ),
            (
                format!("{ni}peer_credits = 300"),
                "127.0.0.2@tcp: peer_credits=300: it must be from 1 to credits, 256",
            ),
        ] {
            let config = config(&text);
            for error in [config.check().unwrap_err(), crate::Node::start(&config).err().unwrap()] {
                assert_eq!((error.to_string().as_str(), error.errno()), (words, lnet_api::Errno::EINVAL));
            }
        }
        assert_eq!(config(ni).check(), Ok(()));
    }

    #[test]
    fn one_nid_twice_is_refused() {
        let config = NodeConfig::new().net("tcp(lo)").unwrap().net("tcp(127.0.0.1)").unwrap();
        assert!(matches!(config.nids(), Err(NodeError::Twice { .. })));
    }
}
