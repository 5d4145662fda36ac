//! Catching panics in code of the client: callbacks, and drops of what they capture.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Code of the client has panicked.
pub(crate) struct Panicked;

/// Calls code of the client and catches a panic.
pub(crate) fn contain(call: impl FnOnce()) -> Result<(), Panicked> {
    // Unwind safe: no lock is held here, so that no state of the machine is left half changed.
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return Ok(()) };
    // The panic's payload is a value of the client too, and its drop may panic. The payload of that
    // second panic is leaked.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
    Err(Panicked)
}
