//! Transfer machines on every network they work on, with one, two and four CPU partitions.
//!
//! Each test is compiled once for each network and number of partitions, which are the name of its
//! first module: `sim_2::messages::…` runs over the simulated network with two partitions. With
//! `called_` before it, the events come by callbacks on event threads instead of being waited for.
//!
//! | network | what it is | who drives |
//! | --- | --- | --- |
//! | `lo` | one node, over `0@lo`: everything ends inside the call that starts it | nobody needs to |
//! | `tcp` | two nodes over TCP on `127.0.0.0/8` | whoever waits, and the nodes' own threads |
//! | `sim` | two engines over `lnet-sim`, in virtual time | whoever waits |
//! | `helper_lo`, `helper_tcp` | the same nodes, each behind a helper, whose clients the domains are (MT-215) | the helper |

#![cfg(all(feature = "in-process", feature = "helper"))]
// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// The point of it.
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
