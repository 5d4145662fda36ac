//! The queues of one connection (lnet-semantics 32).

use lnet_proto::ib::{MESSAGE_MAX, RDMA_FRAGMENTS_MAX};

use crate::fabric::{DeviceLimits, QueueSizes};

use super::bookkeeping::bookkeeping_bytes;
use super::release::Release;
use super::{Adjusted, SizesError};

/// Receives that are posted beyond two for each entry, for the peer's NOOPs (lnet-wire 36).
pub const RECEIVES_BEYOND: u32 = 2;

/// The least size in bytes of a queue entry: a cache line, which cards use for work requests and
/// completions. An entry with several pieces, or with inline bytes, takes more.
pub const QUEUE_ENTRY_BYTES: u64 = 64;

/// Own messages that a connection of nlx takes beyond two for each entry.
const MESSAGES_BEYOND: u16 = 16;

/// The divisor of a refused depth: the next try is lower by this part of it, so that a device is
/// asked some twenty times at most.
const LESS: u16 = 4;

/// The shallowest queue that kernel nodes try when a device refuses more.
pub const DEPTH_TRIED_MIN: u16 = 2;

/// The sizes of a connection: of the queues that are requested from the device, and the credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnSizes {
    /// The queue depth: credits in each direction. At most the depth requested.
    pub depth: u16,
    /// The maximum number of fragments of one transfer, and so of its writes.
    pub fragments: u16,
    /// Send work requests.
    pub sends: u32,
    /// Receive work requests: two for each entry, and two.
    pub receives: u32,
    /// Completion queue entries, for both directions. For a kernel node that reduces its depth: the
    /// largest number that it may request.
    pub completions: u32,
    /// The least number of completion queue entries that a kernel node may request; the
    /// specification does not specify with which depth it counts the receives (lnet-semantics 32).
    /// Otherwise the same as `completions`.
    pub completions_least: u32,
    /// Pieces of memory per send work request. A receive has one.
    pub pieces: u32,
    /// Bytes of the receive buffers, which are registered.
    pub receive_bytes: u64,
    /// Bytes of the send buffers, which are registered: one for each send posted at a time. 0 for
    /// kernel nodes, whose send buffers are in the [`Pools`](super::Pools) of an NI.
    pub transmit_bytes: u64,
    /// Approximate heap bytes of a connection of nlx for its operations, its queues of messages,
    /// and the leases on its buffers. Unknown for kernel nodes.
    pub bookkeeping_bytes: Option<u64>,
    /// The number of owed credits at which they are returned.
    pub high_water: u16,
    /// Sends posted at a time: whole messages, not work requests.
    pub concurrent_sends: u16,
}

impl ConnSizes {
    /// Returns the sizes to request from a device, with `inline` bytes in a send.
    #[must_use]
    pub const fn queues(&self, inline: u32) -> QueueSizes {
        let ConnSizes { sends, receives, completions, pieces, .. } = *self;
        QueueSizes { sends, receives, completions, pieces, inline }
    }

    /// Returns the least memory of the queues at the device: [`QUEUE_ENTRY_BYTES`] for each entry.
    /// The real size depends on the device alone, so it is not part of [`ConnSizes::bytes`].
    #[must_use]
    pub const fn queue_bytes_least(&self) -> u64 {
        let entries = self.sends as u64 + self.receives as u64 + self.completions_least as u64;
        entries * QUEUE_ENTRY_BYTES
    }

    /// Returns the known memory of the connection on its node.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let bookkeeping = match self.bookkeeping_bytes {
            Some(bytes) => bytes,
            None => 0,
        };
        self.receive_bytes + self.transmit_bytes + bookkeeping
    }

    /// Returns the same queues for a connection that is granted a smaller depth: the side that made
    /// the request adopts what is granted (lnet-wire 34).
    #[must_use]
    pub fn adopt(&self, adjusted: &Adjusted, depth: u16, fragments: u16) -> ConnSizes {
        let bookkeeping = |_| bookkeeping_bytes(depth, self.receives, self.concurrent_sends);
        ConnSizes {
            depth,
            fragments,
            high_water: adjusted.high_water_of(depth),
            bookkeeping_bytes: self.bookkeeping_bytes.map(bookkeeping),
            ..*self
        }
    }
}

/// Returns the sizes of a connection of this depth and number of fragments, or of the deepest that
/// the device supports.
///
/// # Errors
/// [`SizesError::Device`] if the device supports none; [`SizesError::Shape`] for a depth of 0, and
/// for too few or too many fragments.
pub fn connection(
    adjusted: &Adjusted,
    depth: u16,
    fragments: u16,
    limits: &DeviceLimits,
) -> Result<ConnSizes, SizesError> {
    if depth == 0 || !(1..=RDMA_FRAGMENTS_MAX).contains(&fragments) {
        return Err(SizesError::Shape { depth, fragments });
    }
    let made = match adjusted.release {
        Release::Nlx => fit_all(adjusted, depth, fragments, limits)?,
        Release::V2_14 | Release::V2_15 => fit_sends(adjusted, depth, fragments, limits)?,
        Release::V2_12 => try_lower(adjusted, depth, fragments, limits)?,
        Release::V2_8 | Release::V2_10 => fixed(adjusted, depth, fragments, limits)?,
    };
    let (most, limit) = (u64::from(made.completions), u64::from(limits.completions));
    if most > limit {
        let (object, hint) = ("completion queue", "lower peer_credits or concurrent_sends");
        return Err(SizesError::Device { object, needed: most, limit, depth: made.depth, fragments, hint });
    }
    Ok(made)
}

/// Returns the next smaller sizes, for a device that refuses sizes within its limits; `None` if
/// there are none (lnet-semantics 32).
///
/// # Errors
/// The errors of [`connection`].
pub fn shallower(
    adjusted: &Adjusted,
    refused: &ConnSizes,
    limits: &DeviceLimits,
) -> Result<Option<ConnSizes>, SizesError> {
    match refused.depth.checked_sub((refused.depth / LESS).max(1)) {
        Some(depth) if depth >= DEPTH_TRIED_MIN => {
            connection(adjusted, depth, refused.fragments, limits).map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns the receive work requests for this depth: a request and an answer for each entry, and
/// two NOOPs (lnet-wire 36).
#[must_use]
pub const fn receives(depth: u16) -> u32 {
    2 * depth as u32 + RECEIVES_BEYOND
}

/// Returns the number of own messages that a connection of nlx of this depth takes; further
/// messages wait with the peer. It is twice the number that LNet has in flight to a peer (a request
/// and an answer each), plus `MESSAGES_BEYOND`.
#[must_use]
pub const fn messages(depth: u16) -> u16 {
    depth.saturating_mul(2).saturating_add(MESSAGES_BEYOND)
}

/// Returns the sizes for nlx, with the largest depth that all three queues support.
fn fit_all(
    adjusted: &Adjusted,
    asked: u16,
    fragments: u16,
    limits: &DeviceLimits,
) -> Result<ConnSizes, SizesError> {
    let per_entry = adjusted.per_entry(fragments);
    let by_sends = limits.queue_entries / per_entry;
    let by_receives = limits.queue_entries.saturating_sub(RECEIVES_BEYOND) / 2;
    let by_completions = limits.completions.saturating_sub(RECEIVES_BEYOND) / (per_entry + 2);
    let depth = at_most(asked, by_sends.min(by_receives).min(by_completions));
    if depth == 0 {
        let (object, needed, limit) = if by_sends == 0 {
            ("send queue", per_entry, limits.queue_entries)
        } else if by_receives == 0 {
            ("receive queue", receives(1), limits.queue_entries)
        } else {
            ("completion queue", per_entry + receives(1), limits.completions)
        };
        let (needed, limit, hint) = (needed.into(), limit.into(), "use another device");
        return Err(SizesError::Device { object, needed, limit, depth: 1, fragments, hint });
    }
    let sends = per_entry * u32::from(depth);
    let made = sizes(adjusted, depth, fragments, sends, [sends + receives(depth); 2], limits);
    // An entry has one request and one answer under way, so more buffers would never be used.
    let concurrent_sends = made.concurrent_sends.clamp(1, 2 * depth);
    Ok(ConnSizes {
        concurrent_sends,
        transmit_bytes: u64::from(concurrent_sends) * MESSAGE_MAX as u64,
        bookkeeping_bytes: Some(bookkeeping_bytes(depth, made.receives, concurrent_sends)),
        ..made
    })
}

/// Returns the sizes for kernel nodes of 2.14 and later: the send queue limits the depth. The
/// completion queue is computed before that, from the depth requested, with at most the send work
/// requests that the device supports.
fn fit_sends(
    adjusted: &Adjusted,
    asked: u16,
    fragments: u16,
    limits: &DeviceLimits,
) -> Result<ConnSizes, SizesError> {
    let per_entry = adjusted.per_entry(fragments);
    let depth = at_most(asked, limits.queue_entries / per_entry);
    if depth == 0 {
        return Err(no_sends(per_entry, 1, fragments, limits));
    }
    let counted = (per_entry * u32::from(asked)).min(limits.queue_entries);
    let completions = [counted + receives(depth), counted + receives(asked)];
    let depth = lower_until(depth, |depth| receives(depth) <= limits.queue_entries)
        .ok_or_else(|| no_receives(fragments, limits))?;
    Ok(sizes(adjusted, depth, fragments, per_entry * u32::from(depth), completions, limits))
}

/// Returns the sizes for kernel nodes of 2.12, which request one entry less until the device
/// agrees. The completion queue is that of the first try.
fn try_lower(
    adjusted: &Adjusted,
    asked: u16,
    fragments: u16,
    limits: &DeviceLimits,
) -> Result<ConnSizes, SizesError> {
    let per_entry = adjusted.per_entry(fragments);
    let fits = |depth| (per_entry * u32::from(depth)).max(receives(depth)) <= limits.queue_entries;
    let tried_last = asked.min(DEPTH_TRIED_MIN);
    let depth = lower_until(asked, fits)
        .ok_or_else(|| no_sends(per_entry * u32::from(tried_last), tried_last, fragments, limits))?;
    let completions = [receives(asked) + 2 * u32::from(asked); 2];
    Ok(sizes(adjusted, depth, fragments, per_entry * u32::from(depth), completions, limits))
}

/// Returns the sizes for kernel nodes of 2.8 and 2.10. The send queue is sized for
/// `concurrent_sends`, independently of the depth: a smaller depth does not help.
fn fixed(
    adjusted: &Adjusted,
    asked: u16,
    fragments: u16,
    limits: &DeviceLimits,
) -> Result<ConnSizes, SizesError> {
    let sends = adjusted.per_entry(fragments) * u32::from(adjusted.concurrent_sends);
    if sends > limits.queue_entries {
        let (object, needed, limit) = ("send queue", sends.into(), limits.queue_entries.into());
        let hint = "lower concurrent_sends (or peer_credits, which it follows), or map_on_demand";
        return Err(SizesError::Device { object, needed, limit, depth: asked, fragments, hint });
    }
    let depth = lower_until(asked, |depth| receives(depth) <= limits.queue_entries)
        .ok_or_else(|| no_receives(fragments, limits))?;
    Ok(sizes(adjusted, depth, fragments, sends, [sends + receives(asked); 2], limits))
}

fn sizes(
    adjusted: &Adjusted,
    depth: u16,
    fragments: u16,
    sends: u32,
    [completions_least, completions]: [u32; 2],
    limits: &DeviceLimits,
) -> ConnSizes {
    ConnSizes {
        depth,
        fragments,
        sends,
        receives: receives(depth),
        completions,
        completions_least,
        pieces: adjusted.pieces.min(limits.pieces).max(1),
        receive_bytes: u64::from(receives(depth)) * MESSAGE_MAX as u64,
        transmit_bytes: 0,
        bookkeeping_bytes: None,
        high_water: adjusted.high_water_of(depth),
        concurrent_sends: adjusted.concurrent_sends,
    }
}

/// Returns the largest depth, from `asked` downwards, that a device grants.
fn lower_until(asked: u16, fits: impl Fn(u16) -> bool) -> Option<u16> {
    (asked.min(DEPTH_TRIED_MIN)..=asked).rev().find(|&depth| fits(depth))
}

fn at_most(asked: u16, limit: u32) -> u16 {
    u16::try_from(limit).map_or(asked, |limit| asked.min(limit))
}

fn no_sends(needed: u32, depth: u16, fragments: u16, limits: &DeviceLimits) -> SizesError {
    let (object, needed, limit) = ("send queue", needed.into(), limits.queue_entries.into());
    SizesError::Device { object, needed, limit, depth, fragments, hint: "use another device" }
}

fn no_receives(fragments: u16, limits: &DeviceLimits) -> SizesError {
    let (object, limit) = ("receive queue", limits.queue_entries.into());
    let (needed, depth) = (receives(DEPTH_TRIED_MIN).into(), DEPTH_TRIED_MIN);
    SizesError::Device { object, needed, limit, depth, fragments, hint: "use another device" }
}
