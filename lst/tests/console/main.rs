//! The console: against recorded kernel nodes, against scripted nodes in virtual time, and against
//! arbitrary replies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add_test;
mod batches;
mod captured;
mod groups;
mod hazards;
mod hostile;
mod join;
mod lifetime;
mod observe;
mod plans;
mod printing;
mod world;
