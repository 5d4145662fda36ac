//! The states of a transfer machine, and what happens to it as a whole.

use std::fmt;

use nlx_core::Errno;

use crate::EndPoint;

/// The state of a transfer machine; the values are Motr's (motr-transport 2.3.1). 1, INITIALIZED, is a
/// [`crate::MachineBuilder`]; 2, STARTING, lasts as long as its `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TmState {
    /// It takes operations.
    Started = 3,
    /// It takes no more; those in flight end.
    Stopping = 4,
    /// Its address is free again.
    Stopped = 5,
    /// A callback has panicked, or the start failed. What was in flight is cancelled; its address is free again.
    Failed = 6,
}

impl fmt::Display for TmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TmState::Started => "started",
            TmState::Stopping => "stopping",
            TmState::Stopped => "stopped",
            TmState::Failed => "failed",
        })
    }
}

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
