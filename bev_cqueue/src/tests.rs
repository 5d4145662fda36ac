//! The tests of the queue; the numbers MT-n are those of the test inventory, S-n those of the requirements.
//!
//! One set of operations and one oracle ([`oracle`]) drive the property test, the model tests and the tests with two
//! processes.

mod oracle;

#[cfg(loom)]
mod loom;

#[cfg(not(loom))]
mod hostile;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod processes;
#[cfg(not(loom))]
mod property;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod wake;
