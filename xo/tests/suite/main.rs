//! Transfer machines on every supported network, with one, two and four CPU partitions.
//!
//! Each test is compiled once for each network and number of partitions, which name its first
//! module: `sim_2::messages::…` runs over the simulated network with two partitions. With the
//! prefix `called_`, the events come by callbacks on event threads instead of waits.
//!
//! | network | what it is | who drives |
//! | --- | --- | --- |
//! | `lo` | one node, over `0@lo`: everything ends inside the call that starts it | no thread needs to |
//! | `tcp` | two nodes over TCP on `127.0.0.0/8` | waiting threads, and the nodes' scheduler threads |
//! | `sim` | two engines over `lnet-sim`, in virtual time | waiting threads |
//! | `helper_lo`, `helper_tcp` | the same nodes, each behind a helper, whose clients the domains are (MT-215) | the helper |

#![cfg(all(feature = "in-process", feature = "helper"))]
// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// Each network compiles the tests again.
#![allow(clippy::duplicate_mod)]

mod bed;
#[path = "../support/helper.rs"]
mod helper;

#[path = "one_node_called.rs"]
mod called_helper_lo_2;
#[path = "two_nodes_called.rs"]
mod called_helper_tcp_2;
#[path = "one_node_called.rs"]
mod called_lo_2;
#[path = "two_nodes_called.rs"]
mod called_sim_2;
#[path = "two_nodes_called.rs"]
mod called_tcp_2;
#[path = "one_node.rs"]
mod helper_lo_1;
#[path = "one_node.rs"]
mod helper_lo_2;
#[path = "one_node.rs"]
mod helper_lo_4;
#[path = "two_nodes.rs"]
mod helper_tcp_1;
#[path = "two_nodes.rs"]
mod helper_tcp_2;
#[path = "two_nodes.rs"]
mod helper_tcp_4;
#[path = "one_node.rs"]
mod lo_1;
#[path = "one_node.rs"]
mod lo_2;
#[path = "one_node.rs"]
mod lo_4;
#[path = "two_nodes.rs"]
mod sim_1;
#[path = "two_nodes.rs"]
mod sim_2;
#[path = "two_nodes.rs"]
mod sim_4;
#[path = "two_nodes.rs"]
mod tcp_1;
#[path = "two_nodes.rs"]
mod tcp_2;
#[path = "two_nodes.rs"]
mod tcp_4;
