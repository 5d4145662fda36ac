//! Every message: round trips, truncated, with each field invalid, and against the bytes of the
//! document.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod any;
mod document;
mod entries;
mod fields;
mod known;
mod packets;
