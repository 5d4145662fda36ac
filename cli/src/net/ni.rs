use lnet_node::{Choice, holder_of};
use serde::Serialize;

use super::ports;

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
}

impl Ni {
    /// What a network's choice comes to; nothing if an address was passed over.
    pub(super) fn of(choice: &Choice, port: u16, accept: &'static str) -> Option<Ni> {
        let (nid, address, interface) = (choice.nid?, choice.address?, choice.interface.as_ref()?);
        let status = match holder_of(nid) {
            Some(holder) => format!("held by {holder}"),
            None if accept != "none" && ports::listens(address, port) => {
                format!("port {port} is in use by a program that is not nlx")
            }
            None => "free".to_string(),
        };
        Some(Ni {
            nid: nid.to_string(),
            status,
            interface: interface.name.clone(),
            address: address.to_string(),
            speed_mbps: interface.speed_mbps,
            cpts: choice.cpts.clone(),
            port,
            accept,
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
