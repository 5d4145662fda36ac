//! Memory that may be in flight.
//!
//! A [`Region`] is reference-counted memory with a stable address. Who wants to touch its
//! bytes takes a *lease* on a byte range: any number of readers may share a range, a writer has it alone, and a lease
//! that would break this rule is refused. So the bytes of a message that has arrived can be lent to the client as a
//! plain `&[u8]` while the next message is still being received into another range of the same buffer, and safe
//! code can neither touch memory in flight nor free it early.
//!
//! An [`IoVec`] is the shape of a buffer: up to 256 [`Fragment`]s of regions, trimmed to a byte count. Leases on an
//! `IoVec` are [`ReadVec`] (what a transport sends from, and what a received message is) and [`WriteVec`] (what a
//! transport receives into). All three are cheap to clone or take: no allocation, one short lock per fragment.
//!
//! This crate is the one place with `unsafe` over payload memory. It knows nothing of LNet or of sockets.
//!
//! ```
//! use lnet_region::{Fragment, IoVec, Region};
//!
//! let region = Region::heap(4096)?;
//! let buffer = IoVec::new([Fragment::new(region, 0, 4096)?])?;
//! buffer.write(0..5)?.copy_from(0, b"hello");
//! let message = buffer.read(0..5)?;
//! assert_eq!(message.as_slice(), Some(&b"hello"[..]));
//! // The range is lent out: nobody may write to it now, but the rest of the buffer is free.
//! assert!(buffer.write(4..8).is_err());
//! assert!(buffer.write(5..4096).is_ok());
//! # Ok::<(), lnet_region::RegionError>(())
//! ```

mod error;
mod iovec;
mod lease;
mod region;

pub use error::RegionError;
pub use iovec::{Fragment, IoVec, MAX_FRAGMENTS, ReadVec, WriteVec, copy};
pub use region::{LND_SLOTS, LndSlot, MAX_REGION_BYTES, Region, Registration};
