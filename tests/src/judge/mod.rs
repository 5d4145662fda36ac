//! The judge: a peer that speaks LNet over TCP from raw bytes, and fails a node where a kernel node
//! would.
//!
//! It shares no code with nlx: its encoders ([`wire`], [`frame`]) are written from the
//! specification. As the active side ([`active`], [`checks`]) it connects to a node and tests the
//! statements of `lnet-measured` and lnet-wire D and E, check by check. As the passive side
//! ([`passive`], [`rules`]) it plays a kernel node, and records what a kernel would not have
//! accepted. The program `lnet-judge` has both sides. [`lst`] has a console and a test node of LNet's
//! self-test.

pub mod active;
pub mod checks;
mod dial;
pub mod frame;
pub mod info;
pub mod lst;
mod nid;
pub mod passive;
pub mod report;
pub mod rules;
pub mod session;
mod verdict;
pub mod wire;

pub use active::{Policy, Target};
pub use checks::{CHECKS, Check, Outcome};
pub use report::Report;
