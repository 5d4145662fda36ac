//! The judge: a peer that speaks LNet over TCP from raw bytes, and fails a node where a kernel node would.
//!
//! It shares no code with nlx: its own encoders ([`wire`], [`frame`]) are written from the specification. As the active
//! side ([`active`], [`checks`]) it connects to a node and tries, check by check, what `lnet-measured` and lnet-wire D and
//! E say. As the passive side ([`passive`], [`rules`]) it plays a kernel node, and notes what a kernel would not have
//! taken. The program `lnet-judge` is both.

pub mod active;
pub mod checks;
mod dial;
pub mod frame;
pub mod info;
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
