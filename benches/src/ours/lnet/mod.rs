//! The LNet API between two processes: what the rows `tcp/…` measure, and over RDMA the rows
//! `o2ib/…`.
//!
//! | module | holds |
//! | --- | --- |
//! | `station` | a node with buffers, and a thread that drives it while it waits |
//! | `pingpong` | PUTs of 64 bytes or 4 KiB answered by PUTs |
//! | `cost` | memory of a connection, and allocations of a message |
//! | `bulk` | GETs and acknowledged PUTs of 1 MiB |
//! | `exchange` | requests with 1 MiB of bulk, and their replies |
//! | `rate` | small PUTs, acknowledged or answered, 64 in flight |
//! | `beside` | messages beside threads that compute |
//! | `handlers` | threads that wait on one node while handlers block |

pub(crate) mod beside;
pub(crate) mod bulk;
pub(crate) mod cost;
pub(crate) mod exchange;
pub(crate) mod handlers;
pub(crate) mod pingpong;
pub(crate) mod rate;
pub(crate) mod station;

use std::fmt::Display;

use lnet_node::Node;

use crate::error::Result;
use crate::ours::nodes::Nodes;
use station::Station;

/// The network of two nodes.
pub(crate) trait Network: Copy {
    /// A node on the network.
    type Node;
    /// Name of the server that returns every message.
    const PINGPONG: &'static str;
    /// Name of the server with buffers of 1 MiB.
    const BULK: &'static str;

    /// Chooses two addresses on the network.
    fn choose() -> Result<Self>;
    /// Returns the arguments of a server: the network's, and `more`.
    fn args(self, more: &[&dyn Display]) -> Vec<String>;
    /// Parses a server's arguments; returns the network and the other arguments.
    fn parse(args: &[String]) -> Result<(Self, &[String])>;
    /// Starts the client's node.
    fn client(self) -> Result<Station<Self::Node>>;
    /// Starts the server's node.
    fn server(self) -> Result<Station<Self::Node>>;
}

impl Network for Nodes {
    type Node = Node;
    const PINGPONG: &'static str = "lnet-pingpong";
    const BULK: &'static str = "lnet-bulk";

    fn choose() -> Result<Nodes> {
        Nodes::choose()
    }

    fn args(self, more: &[&dyn Display]) -> Vec<String> {
        Nodes::args(self, more)
    }

    fn parse(args: &[String]) -> Result<(Nodes, &[String])> {
        Nodes::parse(args)
    }

    fn client(self) -> Result<Station> {
        Station::client(self)
    }

    fn server(self) -> Result<Station> {
        Station::server(self)
    }
}
