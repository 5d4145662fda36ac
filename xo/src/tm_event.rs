//! What happens to a transfer machine as a whole.

use nlx_core::Errno;

use crate::{EndPoint, TmState};

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
