//! Runs tests of the transport again through a helper: the same programs, with domains that are its
//! clients (MT-215).
//!
//! Some are not here, with reasons: `scripted` tests over a scripted LNet, `async_allocations`
//! counts the allocations of all threads of its process, `network` tests processes with separate
//! nodes, and `forking` would fork the helper too, which is in this process. The parts of `request`
//! that run over a script are included.

#![cfg(all(feature = "in-process", feature = "helper"))]
// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]
#![allow(clippy::duplicate_mod, reason = "each of them has its own copy of what they share")]

#[path = "../allocations.rs"]
mod allocations;
#[path = "../asynchronous/main.rs"]
mod asynchronous;
#[path = "../loopback/main.rs"]
mod loopback;
#[path = "../looping.rs"]
mod looping;
#[path = "../pools/main.rs"]
mod pools;
#[path = "../request/main.rs"]
mod request;

mod foreign;
mod gone;
#[path = "../support/helper.rs"]
mod support;
