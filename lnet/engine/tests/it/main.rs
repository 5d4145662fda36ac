//! The engine against a network of memory alone.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod chaos;
mod common;
mod credits;
mod direct;
mod failures;
mod interfaces;
mod lazy;
mod loopback;
mod matching;
mod objects;
mod ping;
mod recorded;
mod targets;
mod threads;
mod transfer;
mod unlink;
mod validation;
