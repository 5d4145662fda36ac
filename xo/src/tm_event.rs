//! What happens to a transfer machine as a whole.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nlx_core::Errno;

use crate::{EndPoint, Machine, TmState};

/// What happened to a transfer machine: Motr's transfer machine events (motr-transport 2.3.6). The observer of its builder
/// is told ([`crate::MachineBuilder::observer`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum TmEvent {
    /// Its state has changed: Motr's STATE_CHANGE.
    State {
        /// The state it is in now.
        state: TmState,
        /// Why it failed; success for the other states.
        status: Result<(), Errno>,
        /// Itself, when it has started.
        end_point: Option<EndPoint>,
    },
    /// Messages to it were dropped because no receive buffer took them: Motr's ERROR with ENOBUFS, which it never raises
    /// (motr-transport 14, X13). Several drops may be told at once.
    NoBuffer {
        /// How many since this was told last.
        messages: u64,
        /// How many since it started.
        total: u64,
    },
}

impl TmEvent {
    /// The errno that a Motr user knows: ENOBUFS for dropped messages.
    ///
    /// # Errors
    /// That errno.
    pub fn status(&self) -> Result<(), Errno> {
        match self {
            TmEvent::State { status, .. } => *status,
            TmEvent::NoBuffer { .. } => Err(Errno::ENOBUFS),
        }
    }
}

/// Who is told of a transfer machine's events.
pub(crate) type Observer = Box<dyn Fn(&Machine, &TmEvent) + Send + Sync>;

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
