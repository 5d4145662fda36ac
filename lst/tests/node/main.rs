//! The test node: each row of lst 6 to 9, recorded sessions, whole sessions of two nodes, and random
//! requests beside a plain model.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add_test;
mod allocations;
mod batches;
mod data;
mod framework;
mod kit;
mod model;
mod pattern;
mod replay;
mod sessions;
mod simulated;
mod statistics;
mod units;

#[global_allocator]
static HEAP: nlx_testkit::heap::WatchedHeap = nlx_testkit::heap::COUNTING;
