//! The tests of `suite` on nodes with 1 CPU partition.

#![allow(clippy::unwrap_used)]

mod common;
mod suite;

/// The number of CPU partitions, and thereby shards, of each node.
static PARTITIONS: usize = 1;
