use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet_api::{Errno, LNetError};
use lnet_nid::{Net, NetType, Nid};
use lnet_o2iblnd::{ConnStats, HeldLimits, O2ib, O2ibConfig, O2ibLnd};

use super::behaviour::{IbBehaviour, IbFault};
use super::state::IbWire;
use super::{IbNet, SimFabric};
use crate::Rng;
use crate::kit::{NodeScenario, Transport, World};

const S: u64 = 1_000_000_000;

/// The longest back-off between attempts to connect.
const BACKOFF_NS: u64 = 60 * S;

/// Everything that a run of RDMA nodes depends on.
pub type IbScenario = NodeScenario<Ib>;

/// The part of a scenario that only RDMA nodes have.
#[derive(Debug, Clone)]
pub struct Ib {
    /// The behaviour of the RDMA network.
    pub behaviour: IbBehaviour,
    /// The tunables of each node, by its index.
    pub configs: Vec<O2ibConfig>,
    /// True if nodes may use ports below 1024.
    pub privileged: bool,
}

impl IbScenario {
    /// Returns the scenario on a faulty network.
    #[must_use]
    pub fn with_fault(mut self, fault: IbFault) -> IbScenario {
        self.transport.behaviour.fault = Some(fault);
        self
    }
}

impl Transport for Ib {
    type Wire = IbWire;
    type Protocol = O2ib;
    type WorldData = ();

    const COMMAND: &str = "ib ";
    const SALT: u64 = 0x1b;
    const STEPS: u64 = 150;
    /// The numbers of NIs of a node: always 1, because a host has one device.
    const NIS: [usize; 3] = [1; 3];
    const TRANSACTION_TIMEOUTS_NS: [u64; 2] = [20 * S, 150 * S];
    /// Sizes just below and above the maximum payload of an IMMEDIATE message and the minimum of
    /// memory that is registered, and LNet's maximum.
    const SIZES: &[usize] = &[0, 1, 3_975, 3_976, 3_977, 4_096, 8_191, 65_537, 300_000, 1 << 20];
    const USUAL_SIZES: usize = Self::SIZES.len();
    const FILLING: u32 = 0;
    const BURST_MAX: u32 = 40;
    const ERRNOS: &[Errno] = &[Errno::ENODEV, Errno::ENOMEM, Errno::ESTALE, Errno::EMSGSIZE];
    /// Errors of an NI that fails to start: its device may be gone, or its port down.
    const NI_ERRNOS: &[Errno] = &[Errno::ENODEV, Errno::ENETDOWN];
    /// The time before the LND offers a device memory again that the device has refused.
    const REST_NS: u64 = 10 * S;
    const POLL_NS: u64 = 2_000;
    const BUSY_POLLS_MAX: u32 = 20_000;
    const IDLE_POLLS_PER_S: u64 = 16;
    /// False, because a connection may break after a message has arrived and before its sender is
    /// notified.
    const UNSENT_IS_LOST: bool = false;
    const SENT_WHILE_HELD: bool = false;

    fn from_rng(rng: &mut Rng, nodes: usize, partitions: usize) -> Ib {
        let behaviour = IbBehaviour::from_rng(rng);
        let (timeout_s, conns_per_peer, wrq_sge) =
            (rng.pick(&[50, 50, 10]), rng.pick(&[1, 1, 2, 4]), rng.pick(&[1, 2, 2, 8]));
        let privileged = rng.chance(7_000);
        let config = |_| O2ibConfig {
            service: if privileged { 987 } else { 7_987 },
            partitions,
            nscheds: 1,
            timeout_s,
            conns_per_peer,
            wrq_sge,
            peer_credits: rng.pick(&[8, 8, 16, 128]),
            concurrent_sends: rng.pick(&[0, 0, 1, 4]),
            cksum: rng.chance(1_000),
            keepalive_s: rng.pick(&[100, 100, 5]),
            held: HeldLimits {
                peer_kb: rng.pick(&[2048, 40, 0]),
                drop_beyond: rng.chance(3_000),
                ..HeldLimits::default()
            },
            ..O2ibConfig::default()
        };
        Ib { behaviour, configs: (0..nodes).map(config).collect(), privileged }
    }

    fn behaviour(&self) -> &IbBehaviour {
        &self.behaviour
    }

    fn longest(&self, rng: &mut Rng) -> usize {
        rng.pick(&[20_000, 1 << 20])
    }

    fn nid(&self, node: usize, _: usize) -> Nid {
        // Addresses are not in the order of the nodes.
        Nid::new_v4(Net::new(NetType::O2IB, 0), Ipv4Addr::new(10, 88, 0, [7, 3, 9, 5][node % 4]))
    }

    fn is_privileged(&self, _: usize) -> bool {
        self.privileged
    }

    fn world_data(&self, _: &IbNet) {}

    fn lnd(&self, node: usize, fabric: SimFabric) -> Result<Arc<O2ibLnd>, LNetError> {
        Ok(Arc::new(O2ibLnd::over(self.configs[node].clone(), Arc::new(fabric))?))
    }

    fn losses(lnd: &O2ibLnd) -> u64 {
        lnd.counters().rx.closes + lnd.counters().rx.held_lost
    }

    fn dropped_beyond(lnd: &O2ibLnd) -> u64 {
        lnd.counters().rx.held_dropped
    }

    fn conns_and_credits(&self, node: usize) -> (u8, usize) {
        let config = &self.configs[node];
        (config.conns_per_peer, config.credits as usize)
    }

    fn timeout_ns(&self) -> u64 {
        u64::from(self.configs[0].timeout_s) * S
    }

    fn end_ns(&self) -> u64 {
        4 * self.timeout_ns() + 20 * S
    }

    fn reach_ns(&self) -> u64 {
        BACKOFF_NS + 3 * self.timeout_ns() + 10 * S
    }

    /// Returns an upper bound of the connections that were idle when their other end disappeared.
    /// Such a connection is detected as dead when it is used, or by a keepalive much later. Each
    /// round that fails ends at least one of them.
    fn spare_rounds(world: &World<Ib>) -> usize {
        world.nodes.iter().map(|node| node.lnd.conn_stats().connections).sum()
    }

    fn make_trouble(world: &mut World<Ib>, node: usize) -> Result<(), String> {
        let host = world.nodes[node].host;
        match world.rng.below(4) {
            0 => world.net.set_port(host, world.rng.chance(6_000)),
            1 => world.net.set_port(host, true),
            2 => {
                // An NI is removed and then added, or the other way round.
                world.change_ni(node)?;
                return world.change_ni(node);
            }
            _ => {
                world.net.unplug(host);
                let until_ns = world.net.now_ns() + world.rng.between((0, S));
                world.run_until(until_ns)?;
                if !world.nodes[node].up.is_empty() {
                    world.change_ni(node)?;
                }
                world.net.plug(host);
            }
        }
        Ok(())
    }

    fn end_trouble(world: &mut World<Ib>, node: usize) {
        let host = world.nodes[node].host;
        world.net.plug(host);
        world.net.set_port(host, true);
    }

    fn heal(world: &mut World<Ib>) {
        (0..world.nodes.len()).for_each(|node| Ib::end_trouble(world, node));
    }

    fn check_ended(world: &mut World<Ib>, node: usize, _: bool) -> Result<(), String> {
        let counters = world.nodes[node].lnd.counters();
        world.seen.network.bounced_bytes += counters.tx.bytes_bounced + counters.rx.bytes_bounced;
        Ok(())
    }

    /// Checks that all credits of the connections are accounted for.
    fn check_settled(world: &mut World<Ib>) -> Result<(), String> {
        // Sends complete; credits that are to be returned may stay so.
        world.run_until(world.net.now_ns() + S)?;
        let mut sum = ConnStats::default();
        for (node, it) in world.nodes.iter().enumerate() {
            let sending = it.engine.sending();
            if sending > 0 {
                return Err(format!("node {node} still sends {sending} messages"));
            }
            let conn_stats = it.lnd.conn_stats();
            if (conn_stats.operations, conn_stats.waiting, conn_stats.receives, conn_stats.bounces)
                != (0, 0, 0, 0)
            {
                return Err(format!("node {node} is not idle: {conn_stats:?}"));
            }
            if conn_stats.reserved != conn_stats.depth {
                return Err(format!("node {node} has lost transfers: {conn_stats:?}"));
            }
            sum.connections += conn_stats.connections;
            sum.credits += conn_stats.credits;
            sum.owed += conn_stats.owed;
            sum.depth += conn_stats.depth;
        }
        if sum.credits + sum.owed != sum.depth {
            return Err(format!("credits have got lost: {sum:?}"));
        }
        Ok(())
    }

    fn check_given_back(world: &World<Ib>, node: usize) -> Result<(), String> {
        match world.net.ends(world.nodes[node].host) {
            0 => Ok(()),
            ends => Err(format!("node {node} has {ends} queue pairs without an NI")),
        }
    }

    fn check_gone(net: &IbNet) -> Result<(), String> {
        match net.registrations() {
            0 => Ok(()),
            left => Err(format!("{left} registrations are left without any memory")),
        }
    }
}
