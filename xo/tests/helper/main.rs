//! Tests of the transport once more, through a helper: the same programs, whose domains are its
//! clients (MT-215).
//!
//! What is not here has reasons: `scripted` is about a scripted LNet, `async_allocations` counts
//! what all threads of its process allocate, `network` is about processes with nodes of their own,
//! and `forking` would fork the helper, too, which is in this process. Of `request`, what runs over
//! a script comes along.

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
