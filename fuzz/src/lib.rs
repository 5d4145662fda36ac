//! Fuzz targets for every parser and every trust boundary, and the small mutating fuzzer that drives them.
//!
//! It runs on stable Rust and needs no tool: `cargo run -p nlx-fuzz -- --seconds 60`. Inputs are grown from the bytes
//! recorded between real nodes by flipping bits, splicing, cutting and writing interesting numbers; an input that
//! leads a target to an outcome not seen before is kept and mutated further. It does not measure coverage: a target
//! is a plain function over bytes, so a fuzzer that does can call it as well.
//!
//! A run is replayed by its seed: the inputs depend on nothing else. A failing input is written to a file, which
//! `--replay` runs alone.
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
//! | `targets` | what is fuzzed, and what must hold |
//! | `corpus` | the inputs to start from |
//! | `mutate` | how an input is changed |
//! | `runner` | the loop, and how it survives a panic |

#![forbid(unsafe_code)]

mod corpus;
mod mutate;
mod rng;
mod runner;
mod targets;

pub use runner::{Failure, Limit, Report, Run, replay};
pub use targets::{Outcome, TARGETS, Target};
