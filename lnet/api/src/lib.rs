//! The LNet API and the LND interface, as traits with their types.
//!
//! - [`LNet`] is what LNet offers to whoever stands above it (`LNetMEAttach`, `LNetPut` and their like): `kcore` uses
//!   nothing else, so the engine and a scripted fake are interchangeable.
//! - [`Lnd`] is what a network driver offers to the engine, and [`Upcalls`] what the engine offers to a driver.
//! - [`Drive`] is the handle by which a waiting thread moves a whole node forward itself, without knowing any LND;
//!   [`wait_until`] is the one way in which threads wait, and [`Tokens`] keeps two of them off one shard.
//! - [`corked`] lets messages that are sent in one go leave together.
//!
//! There is no behaviour here beyond waiting and corks: matching, credits and messages live in the engine, sockets in the LNDs,
//! and what all LNDs have alike in `lnet-lnd`.

#![forbid(unsafe_code)]

mod cork;
mod drive;
mod dropped;
mod error;
mod event;
mod incarnation;
mod lnd;
mod lnet;

pub use cork::{CORKED_MAX, Flush, corked, leave_to_uncork};
pub use drive::{
    Clock, DEFAULT_SPIN, Drive, Ending, EventLoopHandle, MAX_SHARDS, MAX_SPIN, POLL_BUDGET, Poll, Sleeper,
    Tokens, Watch, drive_shard, has_spare_processor, wait_until,
};
pub use dropped::{DropWatcher, Dropped};
pub use error::LNetError;
pub use event::{Event, EventHandler, EventKind, Handler};
pub use incarnation::next_incarnation;
pub use lnd::{
    Arrival, Delivery, Lnd, LndError, NiLimits, RxContext, RxToken, Sent, Tx, TxToken, Upcalls, Verdict,
};
pub use lnet::{
    AckRequest, Distance, EQ_COUNT_MAX, EqHandle, Get, LNet, Md, MdHandle, MdOptions, MeHandle, MeSpec,
    Polled, Position, Put, Threshold, Unlink,
};
/// Errors travel as the errno that LNet users know; `0` is [`Ok`].
pub use nix::errno::Errno;
