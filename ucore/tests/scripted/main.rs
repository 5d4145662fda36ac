//! Clients of a helper that does what the test says: answers wrongly, late or not at all, and lies.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod answers;
mod events;
mod helper;
