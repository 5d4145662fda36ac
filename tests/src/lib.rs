//! Tests that cross crates: whole nodes, over real TCP, against peers that share no code with them;
//! and a helper process, against raw clients that share no code with it, and against the client
//! library. The tests are in `tests/tests`; `tests/vectors` has bytes captured from real LNet
//! nodes. [`judge`] is a peer that checks a node against the behaviour of real ones; [`client`] is
//! a raw client of the helper; [`attack`] has the tools of its attackers.

#![deny(unsafe_code)]

pub mod attack;
pub mod client;
pub mod judge;
