//! The states of a transfer machine.

use std::fmt;

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
