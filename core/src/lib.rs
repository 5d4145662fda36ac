//! The Core interface: what every transport for transfer machines implements.
//!
//! [`Core`] is a domain, [`CoreTm`] a started transfer machine. Both are polled: a caller starts
//! operations, waits for the [`BufferEvent`]s that they produce, and takes these. The interface has
//! no callbacks, no LNet symbols and no pointers (S-1, S-405): [`Operation`], [`Descriptor`] and
//! [`BufferEvent`] are plain values that travel through shared memory as well as within a process.
//! `nlx-kcore` implements the interface over LNet.
//!
//! This crate does no I/O and keeps no state. A storage client uses the crate `nlx` instead, which
//! makes the buffers safe to use.
//!
//! ```
//! use nlx_core::{Address, Descriptor, MatchCounter, PassiveBuffer, Queue, StartAddress, match_bits};
//!
//! let wanted: StartAddress = "192.168.96.128@tcp1:12345:32:*".parse()?;
//! assert_eq!(wanted.tmid, None);
//!
//! let address: Address = "192.168.96.128@tcp1:12345:32:4095".parse()?;
//! let bits = match_bits(address.tmid, MatchCounter::FIRST);
//! let passive = PassiveBuffer { address, match_bits: bits, queue: Queue::PassiveBulkSend, length: 8192 };
//! let descriptor = Descriptor::encode(&passive)?;
//! assert_eq!(descriptor.for_active_receive(1 << 20)?, passive);
//! # Ok::<(), nlx_core::CoreError>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `interface` | [`Core`], [`CoreTm`]: the traits that a transport implements |
//! | `options` | [`TmOptions`]: the options for the start of a transfer machine |
//! | `operation` | [`Operation`], [`OperationKind`], [`BufferHandle`], [`Submitted`] |
//! | `event` | [`BufferEvent`], the 88 bytes in which a completion travels |
//! | `address` | [`Address`], [`StartAddress`], [`TmId`] and their text |
//! | `bits` | match bits and header data: a transfer machine id over 52 bits |
//! | `counters` | [`Sequential`], [`RandomCounters`]: match bits for passive buffers |
//! | `descriptor` | [`Descriptor`], the 48 or 56 bytes by which a passive buffer is made known to its peer |
//! | `fit` | the check of an operation's numbers; [`RemoteTarget`]: its target |
//! | `room` | [`EventRoom`], [`submit_in_room`]: operations start once their events have room |
//! | `wake_up` | [`WakeUp`]: a wake-up that ends one wait |
//! | `queue` | [`Queue`], the six kinds of operations |
//! | `limits` | [`Limits`] |
//! | `error` | [`CoreError`] |

#![forbid(unsafe_code)]

mod address;
mod bits;
mod counters;
mod descriptor;
mod error;
mod event;
mod fit;
mod interface;
mod limits;
mod operation;
mod options;
mod queue;
mod room;
mod wake_up;

pub use address::{ADDRESS_TEXT_MAX, Address, StartAddress, TmId};
pub use bits::{HdrData, MatchCounter, match_bits, split_match_bits};
pub use counters::{RandomCounters, RandomNumber, Sequential};
pub use descriptor::{Descriptor, DescriptorForm, PassiveBuffer};
pub use error::CoreError;
pub use event::{BufferEvent, EventFlags};
pub use fit::{RemoteTarget, usable_portal};
pub use interface::{Core, CoreTm};
pub use limits::Limits;
pub use operation::{BufferHandle, Operation, OperationKind, Submitted};
pub use options::{MatchCounters, TmOptions};
pub use queue::Queue;
pub use room::{EventRoom, submit_in_room};
pub use wake_up::WakeUp;

/// LNet's plain names and numbers, of which the interface is made.
pub use lnet_nid::{MatchBits, Nid, Pid, Portal};
/// Memory, and the list of fragments that makes up a buffer.
pub use lnet_region::{IoVec, Region, RegionError};
/// The errno type of all errors, as Motr and LNet use it.
pub use nix::errno::Errno;
