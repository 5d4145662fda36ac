//! The suite over the guest's RDMA devices (`./test verbs`): see `main.rs`.

#![cfg(all(feature = "in-process", feature = "helper", feature = "verbs"))]
// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// Each network compiles the tests again.
#![allow(clippy::duplicate_mod)]

mod bed;
#[path = "../support/helper.rs"]
mod helper;

#[path = "two_nodes_called.rs"]
mod called_o2ib_2;
#[path = "two_nodes.rs"]
mod helper_o2ib_1;
#[path = "two_nodes.rs"]
mod o2ib_1;
#[path = "two_nodes.rs"]
mod o2ib_2;
#[path = "two_nodes.rs"]
mod o2ib_4;
