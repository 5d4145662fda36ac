//! The LNet engine: portals, match entries, memory descriptors, event queues, credits, ping.
//!
//! An [`Engine`] is one LNet node without its networks. It implements [`lnet_api::LNet`] for the
//! programs that send and receive, and [`lnet_api::Upcalls`] for the network drivers
//! ([`lnet_api::Lnd`]) that are added to it. It is a state machine: it starts no thread, opens no
//! socket and reads no clock. The thread that polls the drivers also calls [`Engine::advance`].
//!
//! It does not route messages for other nodes, does not resend, and uses one path to each peer.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lnet::{Engine, EngineConfig};
//! use lnet_api::{AckRequest, EqHandle, Event, EventHandler, LNet, Md, MdOptions, MeSpec, Put, Threshold, Unlink};
//! use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
//! use lnet_region::{IoVec, Region};
//!
//! struct Quiet;
//!
//! impl EventHandler for Quiet {
//!     fn event(&self, _: &Event) {}
//!     fn wake(&self) {}
//! }
//!
//! let node = Engine::new(EngineConfig::new(Pid::LNET, 1));
//! let eq = node.eq_alloc(Arc::new(Quiet))?;
//! let md = |memory, options| {
//!     Md { memory, threshold: Threshold::Limited(1), max_size: 0, options, user_ptr: 0, eq: Some(eq) }
//! };
//!
//! // A buffer that takes one PUT with match bits 7 on portal 34 ...
//! let inbox = IoVec::whole(Region::heap(64)?);
//! let portal = Portal::new(34)?;
//! let me = node.me_attach(&MeSpec::new(portal, MatchBits(7)))?;
//! node.md_attach(me, md(inbox.clone(), MdOptions::OP_PUT), Unlink::Auto)?;
//!
//! // ... and the PUT, from the node to itself.
//! let letter = IoVec::whole(Region::heap(5)?);
//! letter.write(0..5)?.copy_from(0, b"hello");
//! node.put(&Put {
//!     source: None,
//!     md: node.md_bind(md(letter, MdOptions::empty()), Unlink::Auto)?,
//!     ack: AckRequest::NoAck,
//!     target: ProcessId::lnet(Nid::LOOPBACK),
//!     portal,
//!     match_bits: MatchBits(7),
//!     offset: 0,
//!     hdr_data: 0,
//! })?;
//! assert_eq!(inbox.read(0..5)?.to_vec(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! State is kept in rooms: types with private fields and methods for every operation on them.
//! [`Engine`] owns the rooms, takes their locks in order, and performs the actions that follow from
//! their decisions. `docs/engine.md` has the picture.
//!
//! | module | holds |
//! | --- | --- |
//! | `engine` | [`Engine`]: the lock order, and the actions after the locks are released; its files hold the LNet API, the upcalls, waiting messages, NIs, the audit |
//! | `resources` | the rooms `Posted` (MEs and their MDs: which of them takes a message) and `Bound` (MDs for PUTs and GETs, the answers waited for) |
//! | `net` | the room `NetPartition`: peers, hosts, credits; NIs; which NIDs are one node |
//! | `placement` | the partition of a wildcard portal's entry, and the partitions that a message searches |
//! | `portal_state` | the state of a portal that all partitions share, and the PUTs that wait on it |
//! | `event_queue` | EQs, and which of them a partition's MDs use |
//! | `faults` | deliberate losses and delays ([`FaultRule`]) |
//! | `ping` | answers to pings and pushes; queries for a node's NIDs ([`Ping`]), announcements of this node's ([`Push`]) |
//! | `common`, `message`, `work`, `wake` | data that all rooms read; messages in flight; actions that wait for a lock's release; wake-ups of handlers |
//! | `config`, `counters`, `drops` | [`EngineConfig`], [`Limits`]; [`Counters`], [`NiStatistics`], [`PeerStatistics`]; [`RecentDrop`] |
//! | `slab`, `list`, `buckets`, `groups`, `sequence`, `names`, `keys` | tables that grow in small steps, the lists and hash indices through them; the parts of handles |
//! | `audit` | the helpers with which each room checks its invariants |

#![forbid(unsafe_code)]

mod audit;
mod buckets;
mod common;
mod config;
mod counters;
mod drops;
mod engine;
mod event_queue;
mod faults;
mod groups;
mod keys;
mod list;
mod message;
#[cfg(all(test, loom))]
mod model;
mod names;
mod net;
mod ping;
mod placement;
mod portal_state;
mod resources;
mod sequence;
mod slab;
mod wake;
mod work;

pub use audit::AuditError;
pub use config::{ADVANCE_INTERVAL_NS, EngineConfig, Limits, MatchOrder, Rotor, Stealing};
pub use counters::{ByKind, Counters, NiStatistics, PeerStatistics, Traffic};
pub use drops::{DropReason, RECENT_DROPS, RecentDrop};
pub use engine::Engine;
pub use event_queue::EqWatch;
pub use faults::{
    DELAY_MAX, FAULT_RULES_MAX, FaultAction, FaultId, FaultRate, FaultRule, FaultRuleError, FaultStatistics,
    MessageKinds,
};
pub use names::PARTITIONS_MAX;
pub use ping::{PUSH_BACK_NS, Ping, Push};
