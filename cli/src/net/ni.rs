//! The NIs that a configuration gives.

use std::collections::BTreeMap;

use lnet_nid::{NetType, Nid};
use lnet_node::{Choice, HostInterface, NetSpec, NiConfig, NodeConfig, O2ibNiConfig, holder_of};
use serde::Serialize;

use crate::ports;

/// An NI of the configuration.
#[derive(Debug, Serialize)]
pub(super) struct NiEntry {
    pub(super) nid: String,
    /// `free`, or the reason that prevents the NI's start.
    pub(super) status: String,
    pub(super) interface: String,
    /// Over RDMA: the port of the device.
    pub(super) rdma: Option<String>,
    pub(super) address: String,
    pub(super) speed_mbps: Option<u32>,
    /// CPU partitions of its peers; empty means all.
    pub(super) cpts: Vec<usize>,
    pub(super) port: u16,
    pub(super) accept: &'static str,
    /// The effective tunables that `lnetctl net show -v` shows under this title.
    pub(super) tunables: BTreeMap<&'static str, i64>,
    /// The effective tunables that it shows under `lnd tunables`.
    pub(super) lnd_tunables: BTreeMap<&'static str, i64>,
}

impl NiEntry {
    /// Returns the NI of a network's choice; `None` if the address is not used.
    pub(super) fn of(
        choice: &Choice,
        config: &NodeConfig,
        net: &NetSpec,
        port: u16,
        accept: &'static str,
    ) -> Option<NiEntry> {
        let (nid, address, interface) = (choice.nid?, choice.address?, choice.interface.as_ref()?);
        if nid.net().net_type() == NetType::O2IB {
            return Some(NiEntry::over_rdma(choice, config, net, nid, interface));
        }
        let status = match holder_of(nid) {
            Some(holder) => format!("held by {holder}"),
            None if accept != "none" && ports::listens(address, port) => {
                format!("port {port} is in use by a program that is not nlx")
            }
            None if accept != "none" && !ports::may_listen(port) => format!("port {port} needs privileges"),
            None => "free".to_string(),
        };
        let NiConfig { credits, peer_credits, conns_per_peer, timeout_s, tos } =
            config.ni_config(net, interface);
        let tunables = [("credits", credits.into()), ("peer_credits", peer_credits.into())];
        let lnd_tunables =
            [("conns_per_peer", conns_per_peer.into()), ("timeout", timeout_s.into()), ("tos", tos_of(tos))];
        Some(NiEntry {
            rdma: None,
            nid: nid.to_string(),
            status,
            interface: interface.name.clone(),
            address: address.to_string(),
            speed_mbps: interface.speed_mbps,
            cpts: choice.cpts.clone(),
            port,
            accept,
            tunables: tunables.into(),
            lnd_tunables: lnd_tunables.into(),
        })
    }

    /// Returns the NI of a choice over RDMA. A used port is found only when the NI starts, because
    /// other listeners are not visible.
    fn over_rdma(
        choice: &Choice,
        config: &NodeConfig,
        net: &NetSpec,
        nid: Nid,
        interface: &HostInterface,
    ) -> NiEntry {
        let node = config.clone().o2ib().clone();
        let O2ibNiConfig {
            credits,
            peer_credits,
            peer_credits_hiw,
            concurrent_sends,
            conns_per_peer,
            timeout_s,
            tos,
        } = config.o2ib_ni_config(net);
        let port = node.service;
        let status = match holder_of(nid) {
            Some(holder) => format!("held by {holder}"),
            None if !ports::may_listen(port) => format!("port {port} needs privileges"),
            None => "free".to_string(),
        };
        let tunables = [("credits", credits.into()), ("peer_credits", peer_credits.into())];
        let lnd_tunables = [
            ("peercredits_hiw", peer_credits_hiw.into()),
            ("concurrent_sends", concurrent_sends.into()),
            ("conns_per_peer", conns_per_peer.into()),
            ("timeout", timeout_s.into()),
            ("tos", tos_of(tos)),
        ];
        NiEntry {
            nid: nid.to_string(),
            status,
            interface: interface.name.clone(),
            rdma: choice.port.clone(),
            address: nid.ip().map(|ip| ip.to_string()).unwrap_or_default(),
            speed_mbps: interface.speed_mbps,
            cpts: choice.cpts.clone(),
            port,
            accept: if node.require_privileged_port { "secure" } else { "all" },
            tunables: tunables.into(),
            lnd_tunables: lnd_tunables.into(),
        }
    }

    /// Returns the interface, over RDMA with its port.
    pub(super) fn place(&self) -> String {
        match &self.rdma {
            Some(port) => format!("{} ({port})", self.interface),
            None => self.interface.clone(),
        }
    }

    pub(super) fn speed(&self) -> String {
        match self.speed_mbps {
            Some(speed) if speed >= 1000 => format!("{} Gbit/s", f64::from(speed) / 1000.0),
            Some(speed) => format!("{speed} Mbit/s"),
            None => "unknown".to_string(),
        }
    }

    pub(super) fn partitions(&self) -> String {
        match &self.cpts[..] {
            [] => "all".to_string(),
            some => some.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

/// Converts the type of service; LNet's -1 leaves it to the system.
fn tos_of(tos: Option<u8>) -> i64 {
    tos.map_or(-1, i64::from)
}
