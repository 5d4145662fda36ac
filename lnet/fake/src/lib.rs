//! A scripted LNet: unit tests of whatever stands above LNet.
#![forbid(unsafe_code)]

mod answer;
mod call;
mod calls;
mod descriptor;
mod drive;
mod fake;
mod happening;
mod log;
mod queue;
mod rules;
mod script;
mod tables;

pub use answer::Answer;
pub use call::{Call, CallKind};
pub use descriptor::DEFAULT_PEER;
pub use drive::{FakeClock, FakeDrive};
pub use fake::{FakeLnet, Objects};
pub use happening::Happening;
pub use log::EventLog;
pub use rules::OBJECTS_MAX;
pub use script::CALLS_MAX;
