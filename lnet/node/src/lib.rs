//! A node: the engine, its LNDs, a clock and the scheduler thread, assembled from a configuration.
//!
//! A [`Node`] is all there is to LNet in a program. It is made from a [`NodeConfig`], offers the LNet API
//! ([`Node::lnet`]) and the handle by which waiting threads drive it ([`Node::drive`]), and ends with
//! [`Node::shutdown`] or when it is dropped.
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

#![forbid(unsafe_code)]

mod config;
mod drive;
mod error;
mod interfaces;
mod node;
mod ping;
mod steward;

pub use config::{DEFAULT_ACCEPT_PORT, MAX_INTERFACES, NetSpec, NodeConfig};
pub use error::NodeError;
pub use interfaces::{Interface, source_towards};
pub use lnet_socklnd::{AcceptPolicy, SockConfig};
pub use node::Node;
pub use ping::{PingAnswer, PingFailure};
pub use steward::GRACE;
