//! The tests of `suite` on nodes with 4 CPU partitions.

#![allow(clippy::unwrap_used)]

mod common;
mod suite;

/// The number of CPU partitions, and thereby shards, of each node.
static PARTITIONS: usize = 4;
