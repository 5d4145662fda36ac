//! Tests that cross crates: whole nodes, over real TCP, against peers that share no code with them; and a helper process,
//! against clients that share no code with it, and those that programs link. They stand in `tests/tests`; `tests/vectors` holds
//! bytes captured from real LNet nodes; [`judge`] is a peer that knows how a real node behaves; [`client`] is a client of the
//! helper made of raw bytes; [`attack`] has what its attackers use.

#![deny(unsafe_code)]

pub mod attack;
pub mod client;
pub mod judge;
