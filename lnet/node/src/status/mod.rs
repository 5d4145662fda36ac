//! The status of a running node for other processes: the output of `nlx status`.
//!
//! A node with [`NodeConfig::status`](crate::NodeConfig::status) answers on a socket in a folder
//! that belongs to its user alone: `$XDG_RUNTIME_DIR/nlx`, or `/tmp/nlx-UID`. A client that
//! connects gets one JSON object and the end of the stream; the node reads nothing from it and does
//! not wait for it. The member `version` is the object's format version: new members do not change
//! it, removed or changed ones do.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use lnet_node::{Node, NodeConfig, running_nodes};
//!
//! let node = Node::start(&NodeConfig::new().status(true))?;
//! let own = running_nodes().into_iter().find(|found| found.pid() == std::process::id());
//! let status = own.expect("this program's node").read(Instant::now() + Duration::from_secs(60))?;
//! assert!(status.starts_with(r#"{"version":1,"#) && node.status().starts_with(r#"{"version":1,"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `find` | [`running_nodes`]: the nodes that answer on this host |
//! | `asker` | processes that visit folders of other users: the work of one |
//! | `visits` | all such processes of one search, and their results up to the deadline |
//! | `folder` | the folders of the sockets, and their required owners |
//! | `server` | the thread that answers |
//! | `view` | the content of the answer |
//! | `json` | JSON output |

mod asker;
mod find;
mod folder;
mod json;
mod server;
mod view;
mod visits;

pub use asker::{Asker, visit_for_another};
pub use find::{HostNodes, RunningNode, running_nodes, running_nodes_with};
pub use folder::runtime_folder;
pub use json::{JsonObject, escaped, quoted};
pub(crate) use server::StatusServer;
pub(crate) use view::StatusView;
pub use visits::UnreadFolder;

/// The format version of the object. It changes when a member is removed or changes its meaning.
pub const STATUS_VERSION: u32 = 1;

/// The maximum number of peers in the list; the object counts the others. Peers with waiting
/// messages come first, then the busiest. The list stays far below the size of a socket buffer, so
/// that one call writes it.
pub const STATUS_PEERS: usize = 64;

#[cfg(test)]
mod tests;
