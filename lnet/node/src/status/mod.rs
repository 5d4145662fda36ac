//! Looking at a running node from another process: what `nlx status` prints.
//!
//! A node that was told to ([`NodeConfig::status`](crate::NodeConfig::status)) answers on a socket in a folder that belongs
//! to its user alone: `$XDG_RUNTIME_DIR/nlx`, or `/tmp/nlx-UID`. Whoever connects gets one JSON object and the end of the
//! stream; nothing that he sends is read, and nobody waits for him to read. The object says in `version` which form it has:
//! members may come without a new one, none goes or changes its meaning.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use lnet_node::{Node, NodeConfig, running_nodes};
//!
//! let node = Node::start(&NodeConfig::new().status(true))?;
//! let own = running_nodes().into_iter().find(|found| found.pid() == std::process::id());
//! let told = own.expect("this program's node").read(Instant::now() + Duration::from_secs(60))?;
//! assert!(told.starts_with(r#"{"version":1,"#) && node.status().starts_with(r#"{"version":1,"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `find` | [`running_nodes`]: who answers on this host |
//! | `asker` | processes that visit folders of other users: what each does |
//! | `visits` | all such processes of one look: what they have found by the deadline |
//! | `folder` | where the sockets are, and whom such a folder must belong to |
//! | `server` | the thread that answers |
//! | `view` | what it answers with |
//! | `json` | writing it |

mod asker;
mod find;
mod folder;
mod json;
mod server;
mod view;
mod visits;

pub use asker::{Asker, visit_for_another};
pub use find::{HostNodes, RunningNode, running_nodes, running_nodes_with};
pub use json::{Object, escaped, quoted};
pub(crate) use server::Server;
pub(crate) use view::View;
pub use visits::UnreadFolder;

/// The form of the object. It changes when a member goes or means something else.
pub const STATUS_VERSION: u32 = 1;

/// The peers that are listed; the object counts the others. Those for which messages wait come first, then the busiest: what
/// is listed stays far below the room of a socket, so that it can be written in one go.
pub const STATUS_PEERS: usize = 64;

#[cfg(test)]
mod tests;
