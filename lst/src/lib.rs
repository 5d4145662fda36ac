//! LNet self-test (lst): the test node and the console.

#![forbid(unsafe_code)]

pub mod command;
pub mod console;
mod ids;
#[cfg(not(loom))]
pub mod net;
pub mod node;
pub mod pattern;
pub mod print;

pub use ids::Ids;
