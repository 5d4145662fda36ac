//! The tests of the queue; the numbers MT-n are those of the test inventory, S-n those of the
//! requirements.
//!
//! One set of operations and one oracle ([`oracle`](crate::oracle)) drive the property test, the
//! fuzzer, the model tests and the tests with two processes.

#[cfg(loom)]
mod loom;

#[cfg(not(loom))]
mod calls;
#[cfg(not(loom))]
mod hostile;
#[cfg(not(loom))]
mod interrupted;
#[cfg(not(loom))]
mod killed;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub(crate) mod other;
#[cfg(not(loom))]
pub(crate) mod points;
#[cfg(not(loom))]
mod processes;
#[cfg(not(loom))]
mod property;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod wake;
