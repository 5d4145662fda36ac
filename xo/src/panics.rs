//! Panics of what the client gave: callbacks, and what it moved into them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A callback of the client's has panicked.
pub(crate) struct Panicked;

/// Calls what the client gave.
pub(crate) fn contain(call: impl FnOnce()) -> Result<(), Panicked> {
    // The machine's own state is not touched within: it is called without any lock.
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return Ok(()) };
    // What the panic brought is the client's as well, and may panic as it goes. The payload of that one is given up.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
    Err(Panicked)
}
