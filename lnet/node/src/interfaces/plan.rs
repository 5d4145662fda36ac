//! The plan of the NIs that a node starts for its networks.

use lnet_nid::{NetType, Nid};

use super::{ChosenAddress, HostInterfaces, take};
use crate::networks::NiTunables;
use crate::{MAX_INTERFACES, NetSpec, NodeError};

/// An NI to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedNi {
    pub(crate) nid: Nid,
    /// The CPU partitions of the NI's peers; empty means all.
    pub(crate) cpts: Vec<usize>,
    /// The number of connections of each bulk type to a peer for the link's speed, used if the
    /// tunable is 0.
    pub(crate) conns_per_peer: u8,
    /// The network's tunables for its NIs.
    pub(crate) tunables: NiTunables,
    /// The network device that carries the NI.
    pub(crate) device: String,
    /// The NUMA node of that device, if the system reports it.
    pub(crate) numa_node: Option<usize>,
}

impl PlannedNi {
    pub(crate) fn is_o2ib(&self) -> bool {
        self.nid.net().net_type() == NetType::O2IB
    }
}

/// Plans the NIs of some networks on this host, for a node that already has `present` and this
/// number of CPU partitions.
///
/// # Errors
/// A network without a driver, an interface that does not exist, a duplicate NID, or too many NIDs.
pub(crate) fn plan(
    nets: &[NetSpec],
    present: &[Nid],
    partitions: usize,
) -> Result<Vec<PlannedNi>, NodeError> {
    let host = HostInterfaces::of(nets)?;
    let mut planned: Vec<PlannedNi> = Vec::new();
    for spec in nets {
        if ![NetType::TCP, NetType::O2IB].contains(&spec.net.net_type()) {
            return Err(NodeError::NoDriver { net: spec.to_string() });
        }
        for taken in take(spec, &host) {
            let ChosenAddress { interface, address, cpts, .. } = taken?;
            let nid = Nid::new_ip(spec.net, address);
            if present.contains(&nid) || planned.iter().any(|other| other.nid == nid) {
                return Err(NodeError::Twice { nid });
            }
            if let Some(cpt) = cpts.iter().find(|&cpt| cpt >= partitions) {
                return Err(NodeError::NoSuchPartition { net: spec.to_string(), cpt, partitions });
            }
            let conns_per_peer = interface.automatic_conns_per_peer();
            let (cpts, tunables) = (cpts.iter().collect(), spec.tunables.clone());
            let (device, numa_node) = (interface.carrier(), interface.numa_node);
            let numa_node = numa_node.and_then(|node| usize::try_from(node).ok());
            planned.push(PlannedNi { nid, cpts, conns_per_peer, tunables, device, numa_node });
        }
    }
    let count = present.len() + planned.len();
    if count > MAX_INTERFACES {
        return Err(NodeError::TooMany { count, max: MAX_INTERFACES });
    }
    Ok(planned)
}
