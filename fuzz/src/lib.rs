//! Fuzz targets for every parser and every trust boundary, and a small mutating fuzzer that runs
//! them.
//!
//! It runs on stable Rust and needs no tool: `cargo run -p nlx-fuzz -- --seconds 60`. It mutates
//! bytes recorded between real nodes: it flips bits, splices, cuts and writes interesting numbers.
//! An input with an outcome that was not seen before is kept and mutated further. It does not
//! measure coverage: a target is a plain function over bytes, so a coverage-guided fuzzer can call
//! it as well.
//!
//! The seed alone determines the inputs, so the seed replays a run. A failing input is written to a
//! file, which `--replay` runs alone.
//!
//! ```
//! use nlx_fuzz::{Limit, Run, TARGETS};
//!
//! let target = TARGETS.iter().find(|target| target.name == "hello").expect("the hello is fuzzed");
//! let report = Run::new(target, 42).go(Limit::Executions(1000));
//! assert!(report.failure.is_none(), "{report:?}");
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `targets` | the targets with their invariants |
//! | `corpus` | the recorded inputs |
//! | `mutate` | mutations of an input |
//! | `runner` | the loop, which survives panics |

#![forbid(unsafe_code)]

mod corpus;
mod mutate;
mod runner;
mod targets;

pub use runner::{Failure, Limit, Report, Run, replay};
pub use targets::{Outcome, TARGETS, Target};
