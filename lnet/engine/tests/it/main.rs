//! The engine against an in-memory network, with its state in one, two and four CPU partitions.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// Some modules are compiled once per number of partitions.
#![allow(clippy::duplicate_mod)]
// With one partition, indexes are taken modulo 1.
#![allow(clippy::modulo_one)]

#[path = "suite.rs"]
mod partitions_1;
#[path = "suite.rs"]
mod partitions_2;
#[path = "suite.rs"]
mod partitions_4;
