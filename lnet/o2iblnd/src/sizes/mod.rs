//! The sizes computed from tunables: the arithmetic of the queues, of nlx and of the kernel's
//! releases (S-501 to S-508).
//!
//! All functions are pure. The driver makes its queues with them, and `nlx o2iblnd-calc` shows
//! their results, so that the two cannot differ.
//!
//! | step | function | result |
//! | --- | --- | --- |
//! | tunables are moved into their ranges | [`adjust`], [`Side::adjust`] | [`Adjusted`], with each [`Change`] and its [`AdjustRule`] |
//! | two sides agree | [`negotiate`] | [`Negotiation`]: each try, and what is [`Agreed`] |
//! | queues are made | [`connection`], [`shallower`] | [`ConnSizes`] |
//! | pools are made | [`pools`] | [`Pools`] |
//! | memory is written to | [`transfer`] | [`PossibleTransfer`]: its work requests, or why it fails |
//!
//! A node without tuning, and a common device:
//!
//! ```
//! use lnet_o2iblnd::{O2ibConfig, fabric::DeviceLimits, sizes};
//!
//! let limits = DeviceLimits {
//!     queue_entries: 32_768,
//!     completions: 4_194_303,
//!     pieces: 30,
//!     transfer_bytes: 1 << 30,
//!     memory_bytes: 1 << 40,
//! };
//! let adjusted = sizes::adjust(&O2ibConfig::default());
//! let made = sizes::connection(&adjusted, adjusted.peer_credits, adjusted.fragments, &limits)?;
//! // For each of the 8 entries 257 writes and a DONE; a request and an answer, and two NOOPs.
//! assert_eq!((made.sends, made.receives), (8 * 258, 2 * 8 + 2));
//! assert_eq!((made.receive_bytes, made.transmit_bytes), (18 * 4096, 8 * 4096));
//! # Ok::<(), sizes::SizesError>(())
//! ```

mod adjust;
mod bookkeeping;
mod connection;
mod error;
mod negotiate;
mod pools;
mod release;
mod transfer;
mod tunables;

pub use adjust::{
    AdjustRule, Adjusted, CONNS_PER_PEER_MAX, Change, KeyMethod, MAP_ON_DEMAND_MIN, PEER_CREDITS_MAX,
    PEER_CREDITS_MIN, PIECES_MAX, Side, adjust,
};
pub use connection::{
    ConnSizes, DEPTH_TRIED_MIN, QUEUE_ENTRY_BYTES, RECEIVES_BEYOND, connection, messages, receives, shallower,
};
pub use error::SizesError;
pub use negotiate::{Agreed, Negotiation, PassiveAnswer, Try, negotiate};
pub use pools::{BOUNCE_BYTES, BOUNCES, FLUSH_TRIGGER_MIN, POOL_MIN, Pools, Transmit, pools};
pub use release::{FRAGMENTS_BEFORE_2_15, GLOBAL_REGION_PIVOT, KernelMapping, Release};
pub use transfer::{MdPages, Means, PossibleTransfer, TransferError, transfer};
pub use tunables::{SizeTunable, TUNABLES, Tunables, VALUE_MAX};
