//! The Core interface as a client of a whole helper: sessions, service and engine, over `0@lo`, in the same process.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod bed;
mod calls;
mod endings;
mod memory;
mod operations;
mod refusals;
mod waiting;
mod work;
