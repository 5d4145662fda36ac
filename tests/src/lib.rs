//! Tests that cross crates: whole nodes, over real TCP, against peers that share no code with them. They stand in
//! `tests/tests`; `tests/vectors` holds bytes captured from real LNet nodes; [`judge`] is a peer that knows how a real
//! node behaves.

#![forbid(unsafe_code)]

pub mod judge;
