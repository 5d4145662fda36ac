//! Transfer machines on every network they work on, with one, two and four CPU partitions.
//!
//! Each test is compiled once for each network and number of partitions, which are the name of its first module:
//! `sim_2::messages::…` runs over the simulated network with two partitions. A test of the modules says by `MT-n` which row
//! of the inventory of Motr's tests it is.
//!
//! | network | what it is | who drives |
//! | --- | --- | --- |
//! | `lo` | one node, over `0@lo`: everything ends inside the call that starts it | nobody needs to |
//! | `tcp` | two nodes over TCP on `127.0.0.0/8` | whoever waits, and the nodes' own threads |
//! | `sim` | two engines over `lnet-sim`, in virtual time | whoever waits |

#![cfg(feature = "in-process")]
// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// The point of it.
#![allow(clippy::duplicate_mod)]

mod bed;

#[path = "lo.rs"]
mod lo_1;
#[path = "lo.rs"]
mod lo_2;
#[path = "lo.rs"]
mod lo_4;
#[path = "sim.rs"]
mod sim_1;
#[path = "sim.rs"]
mod sim_2;
#[path = "sim.rs"]
mod sim_4;
#[path = "tcp.rs"]
mod tcp_1;
#[path = "tcp.rs"]
mod tcp_2;
#[path = "tcp.rs"]
mod tcp_4;
