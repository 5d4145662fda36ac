//! The states of a transfer machine, and the events of the machine as a whole.

use std::fmt;

use nlx_core::Errno;

use crate::EndPoint;

/// The state of a transfer machine; the values are Motr's (motr-transport 2.3.1). Value 1,
/// INITIALIZED, is a [`crate::MachineBuilder`]; value 2, STARTING, lasts for the call of its
/// `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TmState {
    /// The machine accepts operations.
    Started = 3,
    /// The machine accepts no more operations; those in flight end.
    Stopping = 4,
    /// The machine has stopped, and its address is free again.
    Stopped = 5,
    /// A callback has panicked, or the start failed. Its operations are cancelled, and its address
    /// is free again.
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

/// An event of a transfer machine as a whole: Motr's transfer machine events (motr-transport
/// 2.3.6). The observer receives them ([`crate::MachineBuilder::observer`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum TmEvent {
    /// The machine's state has changed: Motr's STATE_CHANGE.
    State {
        /// The new state.
        state: TmState,
        /// The error if it failed; success for the other states.
        status: Result<(), Errno>,
        /// The machine's end point, if it has started.
        end_point: Option<EndPoint>,
    },
    /// Messages were dropped because no receive buffer matched them: Motr's ERROR with ENOBUFS,
    /// which it never raises (motr-transport 14, X13). One event may report several drops.
    NoBuffer {
        /// The number of drops since the last report.
        messages: u64,
        /// The number of drops since the machine started.
        total: u64,
    },
}

impl TmEvent {
    /// Returns the errno that Motr reports for this event: ENOBUFS for dropped messages.
    ///
    /// # Errors
    /// As described above.
    pub fn status(&self) -> Result<(), Errno> {
        match self {
            TmEvent::State { status, .. } => *status,
            TmEvent::NoBuffer { .. } => Err(Errno::ENOBUFS),
        }
    }
}
