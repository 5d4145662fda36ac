//! A node: the engine, its LNDs, a clock and scheduler threads, assembled from a configuration.
//!
//! A [`Node`] is a program's whole LNet. It is created from a [`NodeConfig`], provides the LNet API
//! ([`Node::lnet`]) and the handle with which waiting threads drive the network ([`Node::drive`]),
//! and ends with [`Node::shutdown`] or when it is dropped.
//!
//! ```
//! use lnet_node::{Node, NodeConfig};
//!
//! let config = NodeConfig::new().net("tcp(127.0.0.9)")?.accept_port(21_988);
//! let node = Node::start(&config)?;
//! assert_eq!(node.nids()[0].to_string(), "127.0.0.9@tcp");
//! let answer = node.ping("0@lo".parse()?, None, std::time::Duration::from_secs(5))?;
//! assert!(answer.nids.contains(&node.nids()[0]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

//! # Configuration
//!
//! A [`NodeConfig`] is built with its methods, or read from a file: [`NodeConfig::load`] reads the
//! output of `lnetctl export`, the lines of `/etc/modprobe.d/lustre.conf`, and TOML. [`Tunable`] is
//! the table of all settings.
//!
//! ```
//! use lnet_node::NodeConfig;
//!
//! let config = NodeConfig::from_modprobe("options lnet networks=tcp(127.0.0.9) accept_port=9988 forwarding=enabled")?;
//! assert_eq!(config.warnings()[0].to_string(), "line 1: 'forwarding' has no effect: nlx does not route");
//! // The same, as `lnetctl export` would print it.
//! assert!(config.to_yaml().starts_with("net:\n    - net type: tcp\n"));
//! # Ok::<(), lnet_node::NodeError>(())
//! ```
//!
//! # CPU partitions
//!
//! A node's state is split by CPU partitions (S-307). LNet's tunables `cpu_npartitions` and
//! `cpu_pattern` set their number and CPUs; by default there is one on up to four CPUs. A network,
//! or one of its interfaces, can be bound to some of them (S-315).
//!
//! ```
//! use lnet_node::{Node, NodeConfig};
//!
//! let config = NodeConfig::new()
//!     .cpt("cpu_npartitions=1".parse()?)
//!     .networks("tcp(127.0.0.10),tcp1(127.0.0.11)[0]")?
//!     .accept_port(21_987);
//! let node = Node::start(&config)?;
//! assert_eq!(node.partitions().partitions(), 1);
//!
//! // A pattern selects the CPUs; a partition that does not exist is refused.
//! let config = NodeConfig::new().cpt(r#"cpu_pattern="N""#.parse()?).net("tcp(127.0.0.12)[255]")?;
//! assert!(Node::start(&config).is_err_and(|error| error.to_string().contains("no CPU partition 255")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that embeds the node can pass its own table with [`NodeConfig::partitions`].
//!
//! # Status for other processes
//!
//! `nlx status`, and any program that calls [`running_nodes`], finds a node with
//! [`NodeConfig::status`]. It answers on a socket that only its user can reach, with the same
//! object that [`Node::status`] returns inside the program: counters, credits, peers, connections.

#![forbid(unsafe_code)]

mod conf;
mod config;
mod cpts;
mod discover;
mod drive;
mod error;
mod interfaces;
mod interrupt;
mod networks;
mod node;
mod o2ib;
mod partitions;
mod ping;
mod probe;
mod rdma;
mod read;
mod sched_thread;
mod statistics;
mod status;
mod virtual_node;

pub use conf::{ConfigWarning, Section, Setting, SourceLine, Tunable};
pub use config::{DEFAULT_ACCEPT_PORT, MAX_INTERFACES, NodeConfig};
pub use cpts::{CptListError, CptSet};
pub use discover::{DiscoverOptions, Discovery, Pushed};
pub use error::NodeError;
pub use interfaces::{Choice, ChoiceReason, HostInterface, explain, source_towards};
pub use interrupt::Interrupt;
pub use lnet::{
    ByKind, Counters, FaultAction, FaultId, FaultRate, FaultRule, FaultRuleError, FaultStatistics,
    Limits as EngineLimits, MatchOrder, MessageKinds, NiStatistics, PUSH_BACK_NS, PeerStatistics, Rotor,
    Stealing, Traffic,
};
pub use lnet_cpt::{CptConfig, CptError, CptTable, MAX_PARTITIONS, Pattern};
pub use lnet_o2iblnd::{
    ConnStats as O2ibCensus, NiConfig as O2ibNiConfig, O2ibConfig, O2ibCounters, O2ibLnd,
};
pub use lnet_proto::ping::{Features, NiStatus, PingInterface as PeerInterface};
pub use lnet_socklnd::sys::TcpFacts;
pub use lnet_socklnd::sys::holder_of;
pub use lnet_socklnd::{
    AcceptPolicy, ConnInfo, ConnStats, Connections, ConnectionsByType, NiConfig, SockConfig, SockCounters,
};
pub use networks::{NetSpec, Networks};
pub use node::Node;
pub use ping::{PingAnswer, PingFailure, PingStep};
pub use probe::PROBE_BYTES_MAX;
pub use rdma::{
    MEMLOCK_SUGGESTED_BYTES, PortGid, PortLinkLayer, RdmaDevice, RdmaPort, RdmaPortReport, RdmaProblem,
    RdmaReport,
};
pub use sched_thread::GRACE;
pub use status::{
    Asker, HostNodes, JsonObject, RunningNode, STATUS_PEERS, STATUS_VERSION, UnreadFolder, escaped, quoted,
    running_nodes, running_nodes_with, runtime_folder, visit_for_another,
};
pub use virtual_node::VirtualNode;
