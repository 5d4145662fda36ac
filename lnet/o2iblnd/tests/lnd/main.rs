//! The verbs LND under two engines and more: each scene runs over a simulated RDMA network anywhere, and over this host's
//! devices where there are some, which is in the guest (`./test verbs`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bed;
mod buffers;
mod calculated;
mod exchange;
mod heap;
mod hostile;
mod link;
mod memory;
mod node;
mod processes;
mod real;
mod simulated;
mod small_devices;
mod threads;
mod together;
mod trouble;
mod tunables;
mod warnings;
mod watched;
