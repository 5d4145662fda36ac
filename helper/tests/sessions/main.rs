//! The helper's side of the driver protocol, without a socket: each test is a client, or several,
//! and talks to sessions in its own process by packets, descriptors and shared memory.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod busy;
mod client;
mod closing;
mod fields;
mod handles;
mod hostile;
mod life;
mod quotas;
mod random;
mod rights;
mod sealing;
mod shares;
mod slices;
mod teardown;
mod worlds;
