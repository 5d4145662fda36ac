//! Clients of a scripted helper, which answers wrongly, late or not at all, and produces impossible
//! events.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod answers;
mod events;
mod helper;
