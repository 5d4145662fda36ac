use std::collections::BTreeMap;

use lnet_node::{Choice, NetSpec, NiConfig, NodeConfig, holder_of};
use serde::Serialize;

use crate::ports;

/// An NI as it would be.
#[derive(Debug, Serialize)]
pub(super) struct Ni {
    pub(super) nid: String,
    /// `free`, or what keeps it from being started.
    pub(super) status: String,
    pub(super) interface: String,
    pub(super) address: String,
    pub(super) speed_mbps: Option<u32>,
    /// The CPU partitions of its peers; none means all.
    pub(super) cpts: Vec<usize>,
    pub(super) port: u16,
    pub(super) accept: &'static str,
    /// The tunables that act, and that `lnetctl net show -v` has under this title.
    pub(super) tunables: BTreeMap<&'static str, i64>,
    /// The same under `lnd tunables`.
    pub(super) lnd_tunables: BTreeMap<&'static str, i64>,
}

impl Ni {
    /// What a network's choice comes to; nothing if an address was passed over.
    pub(super) fn of(
        choice: &Choice,
        config: &NodeConfig,
        net: &NetSpec,
        port: u16,
        accept: &'static str,
    ) -> Option<Ni> {
        let (nid, address, interface) = (choice.nid?, choice.address?, choice.interface.as_ref()?);
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
        let lnd_tunables = [
            ("conns_per_peer", conns_per_peer.into()),
            ("timeout", timeout_s.into()),
            // LNet's -1 leaves it to the system.
            ("tos", tos.map_or(-1, i64::from)),
        ];
        Some(Ni {
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
