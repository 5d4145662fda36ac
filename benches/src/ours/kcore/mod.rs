//! The Core interface over LNet: its costs beyond LNet's own.
//!
//! | module | holds |
//! | --- | --- |
//! | `local` | messages of a transfer machine to itself; registering buffers |
//! | `callback` | the cost of LNet's event callback among large numbers of transfer machines, buffers and events |
//! | `cost` | bytes and allocations |
//! | `silent` | an LNet that does nothing, and a node that needs no driving |

pub(crate) mod callback;
pub(crate) mod cost;
pub(crate) mod local;
pub(crate) mod silent;

use nlx_core::{Core, CoreTm, Nid, Pid, StartAddress, TmOptions};

use crate::error::{BenchError, Result};

/// The portal of the measured transfer machine.
pub(crate) const PORTAL: u32 = 31;

/// Bytes of a message, and of a buffer.
const LENGTH: u64 = 64;

/// Starts a transfer machine of the loopback NID.
fn start(core: &dyn Core, portal: u32, events_max: u32) -> Result<Box<dyn CoreTm>> {
    let (nid, pid) = (Nid::LOOPBACK, Pid::LNET);
    let address = StartAddress { nid, pid, portal, tmid: None };
    let options = TmOptions::default().events_max(events_max);
    core.tm_start(&address, &options).map_err(BenchError::nlx("start a transfer machine"))
}
