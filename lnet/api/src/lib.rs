//! The LNet API and the LND interface, as traits with their types.
//!
//! - [`LNet`] is the API of LNet for the layers above it (`LNetMEAttach`, `LNetPut` and their
//!   like): `kcore` uses nothing else, so the engine and a scripted fake are interchangeable.
//! - [`Lnd`] is the interface of a network driver for the engine, and [`Upcalls`] that of the
//!   engine for a driver.
//! - [`Drive`] is the handle by which a waiting thread drives a whole node, independent of the
//!   LNDs. Threads wait only in [`wait_until`], and [`Tokens`] ensures that one thread at a time
//!   drives a shard.
//! - [`corked`] batches the messages that a thread sends.
//!
//! This crate implements waiting and corks only: matching, credits and messages are in the engine,
//! sockets in the LNDs, and the parts that all LNDs share in `lnet-lnd`.

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
    Clock, DEFAULT_SPIN, Drive, EventLoopHandle, MAX_SHARDS, MAX_SPIN, POLL_BUDGET, Poll, ShutdownFlag,
    Sleeper, Tokens, Watch, drive_shard, has_spare_processor, wait_until,
};
pub use dropped::{DropWatcher, Dropped};
pub use error::LNetError;
pub use event::{Event, EventHandler, EventKind, Handler};
pub use incarnation::next_incarnation;
pub use lnd::{
    Arrival, Lnd, LndError, NiLimits, PayloadTarget, RxContext, RxToken, Sent, Tx, TxToken, Upcalls, Verdict,
};
pub use lnet::{
    AckRequest, Distance, EQ_COUNT_MAX, EqHandle, Get, LNet, Md, MdHandle, MdOptions, MeHandle, MeSpec,
    Polled, Position, Put, Threshold, Unlink,
};
/// The error type: an errno as LNet users know it; `0` is [`Ok`].
pub use nix::errno::Errno;
