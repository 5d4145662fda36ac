//! The engine against a network of memory alone, with its state in one, two and four CPU partitions.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
// The point of it.
#![allow(clippy::duplicate_mod)]
// With one partition everything is in the first.
#![allow(clippy::modulo_one)]

#[path = "suite.rs"]
mod partitions_1;
#[path = "suite.rs"]
mod partitions_2;
#[path = "suite.rs"]
mod partitions_4;
