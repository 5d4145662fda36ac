//! The status of a node, parsed. The node is another process, possibly of another version, and of
//! another user if root asks.

use lnet_node::STATUS_VERSION;
use serde::Deserialize;

use super::helper::Helper;
use super::services::{Lst, Service};

/// The members that are shown; unknown members are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct NodeStatus {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) nlx: String,
    pub(super) uptime_s: f64,
    pub(super) nids: Vec<String>,
    pub(super) accept_port: u16,
    pub(super) accept: String,
    pub(super) partitions: usize,
    pub(super) counters: Counters,
    pub(super) nis: Vec<Ni>,
    pub(super) peers: Peers,
    /// Absent in older nodes.
    #[serde(default)]
    pub(super) last_drops: Vec<LastDrop>,
    pub(super) connections: Connections,
    pub(super) tcp: serde_json::Map<String, serde_json::Value>,
    /// Counters of the RDMA driver; absent without networks over RDMA.
    pub(super) o2ib: Option<serde_json::Map<String, serde_json::Value>>,
    pub(super) memory: Memory,
    /// The state of the helper; only in the status of `nlxd`.
    pub(super) helper: Option<Helper>,
    /// The services of the program; absent in programs without any.
    #[serde(default)]
    pub(super) services: Vec<Service>,
    /// The state of its test node; only in the status of programs that have one.
    pub(super) lst: Option<Lst>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Counters {
    pub(super) sent: Amount,
    pub(super) received: Amount,
    pub(super) dropped: Amount,
    pub(super) errors: u64,
    pub(super) response_timeouts: u64,
    pub(super) in_flight: u64,
    pub(super) in_flight_max: u64,
    pub(super) responses_awaited: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Amount {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ni {
    pub(super) nid: String,
    pub(super) up: bool,
    #[serde(flatten)]
    pub(super) credits: Credits,
    #[serde(flatten)]
    pub(super) traffic: Traffic,
}

#[derive(Debug, Deserialize)]
pub(super) struct Peers {
    pub(super) known: u64,
    pub(super) waiting: u64,
    pub(super) list: Vec<Peer>,
    pub(super) left_out: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Peer {
    pub(super) nid: String,
    pub(super) queued_bytes: u64,
    /// Absent in older nodes.
    #[serde(default)]
    pub(super) tcp: PeerTcp,
    #[serde(flatten)]
    pub(super) credits: Credits,
    #[serde(flatten)]
    pub(super) traffic: Traffic,
}

/// The sum of a peer's TCP connections.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PeerTcp {
    pub(super) retransmissions: u64,
    pub(super) unacked_bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct LastDrop {
    pub(super) kind: String,
    pub(super) source: String,
    pub(super) target: String,
    pub(super) portal: Option<u32>,
    pub(super) match_bits: Option<String>,
    pub(super) length: u32,
    pub(super) reason: String,
    pub(super) count: u64,
    pub(super) age_s: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Credits {
    pub(super) credits: i64,
    pub(super) credits_available: i64,
    pub(super) credits_lowest: i64,
    pub(super) waiting: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Traffic {
    pub(super) sent: Kinds,
    pub(super) received: Kinds,
    pub(super) dropped: Kinds,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kinds {
    put: u64,
    get: u64,
    reply: u64,
    ack: u64,
}

impl Kinds {
    pub(super) fn sum(&self) -> u64 {
        [self.put, self.get, self.reply, self.ack].into_iter().fold(0, u64::saturating_add)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Connections {
    pub(super) peers: u64,
    pub(super) all: u64,
    pub(super) any: u64,
    pub(super) control: u64,
    pub(super) bulk_in: u64,
    pub(super) bulk_out: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Memory {
    pub(super) resident_bytes: Option<u64>,
    pub(super) resident_max_bytes: Option<u64>,
    pub(super) locked_bytes: Option<u64>,
    /// Absent in older nodes.
    pub(super) pinned_bytes: Option<u64>,
}

/// The version alone, which decides whether the rest can be read.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl NodeStatus {
    /// Parses the status that a node wrote.
    ///
    /// # Errors
    /// The reason for which it cannot be read.
    pub(super) fn parse(text: &str) -> Result<NodeStatus, String> {
        let strange = |error: serde_json::Error| format!("its answer is not a status: {error}");
        let Version { version } = serde_json::from_str(text).map_err(strange)?;
        if version != STATUS_VERSION {
            return Err(format!(
                "its status is of version {version}; this nlx, {}, reads version {STATUS_VERSION}",
                env!("CARGO_PKG_VERSION")
            ));
        }
        serde_json::from_str(text).map_err(strange)
    }
}

#[cfg(test)]
mod tests {
    use lnet_node::{Node, NodeConfig};

    use super::*;

    /// Writer and reader of the status agree.
    #[test]
    fn what_a_node_says_is_read() {
        let node = Node::start(&NodeConfig::new()).unwrap();
        let status = NodeStatus::parse(&node.status()).unwrap();
        assert_eq!((status.pid, status.nis.len(), status.nids.len()), (std::process::id(), 1, 0));
        assert_eq!(status.counters.sent.messages, 0);
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let why = |text| NodeStatus::parse(text).unwrap_err();
        assert!(why(r#"{"version":999,"more":[]}"#).contains("of version 999"));
        for text in ["", "{}", "[1]", r#"{"version":1}"#, r#"{"version":-1}"#] {
            assert!(why(text).starts_with("its answer is not a status"), "{text}");
        }
    }
}
