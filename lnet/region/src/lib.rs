//! Memory that messages in flight may use.
//!
//! A [`Region`] is reference-counted memory with a stable address. Every access to its bytes needs
//! a *lease* on a byte range, of one of four kinds; a lease that conflicts with another one is
//! refused:
//!
//! | lease to | by | holder | others may also |
//! | --- | --- | --- | --- |
//! | read | [`IoVec::read`] | a program: it can have a `&[u8]` | read, send |
//! | write | [`IoVec::write`] | a program: it can have a `&mut [u8]` | nothing |
//! | send | [`IoVec::outgoing`] | a transport | read, send, receive |
//! | receive | [`IoVec::incoming`] | a transport | send, receive |
//!
//! So a received message can be lent to the client as a plain `&[u8]` while the next message is
//! still being received into another range of the same buffer, and safe code can neither access
//! memory in flight nor free it early. Transports never wait for each other: their leases give no
//! slices, and their bytes are passed to the system or copied in a way that tolerates concurrent
//! changes. Messages that overlap in a buffer are the application's responsibility, as in LNet: an
//! answer that is still with its sender, although the peer has it already, must not exclude the
//! peer's next message.
//!
//! An [`IoVec`] is the shape of a buffer: up to 256 [`Fragment`]s of regions, trimmed to a byte
//! count. Leases on an `IoVec` are [`ReadVec`] (to read or send) and [`WriteVec`] (to write or
//! receive). All three are cheap to clone or take: no allocation, one short lock per fragment.
//!
//! Memory that other processes can write is also a region ([`Region::memfd`], [`Region::share`],
//! [`Region::attach`]). The same leases copy its bytes and pass them to the system ([`send`],
//! [`receive`]), but never expose them as a slice. Copies out of it end, stay within their range,
//! and return for each byte a value that it had at some moment, whatever the other processes do. To
//! rely on the bytes, copy them first and check the copy.
//!
//! Two processes that exchange many buffers share one [`Arena`] instead of each region. A process
//! that gives its descriptors to untrusted processes puts memory whose pages they could remove
//! under the [`guard`].
//!
//! # Forked children
//!
//! A region belongs to the process that created it ([`ForkGuard`]). A forked child can neither
//! lease it nor read the bytes of inherited leases ([`RegionError::Forked`]): large memory and
//! memory that can be shared is not mapped there. Dropping a region in a child does nothing.
//!
//! This crate is the only one with `unsafe` over payload memory. It has no knowledge of LNet.
//!
//! ```
//! use lnet_region::{Fragment, IoVec, Region};
//!
//! let region = Region::heap(4096)?;
//! let buffer = IoVec::new([Fragment::new(region, 0, 4096)?])?;
//! let mut incoming = buffer.write(0..5)?;
//! incoming.copy_from(0, b"hello");
//! let message = incoming.into_read();
//! assert_eq!(message.as_slice(), Some(&b"hello"[..]));
//! // The range is leased: it cannot be written now, but the rest of the buffer is free.
//! assert!(buffer.write(4..8).is_err());
//! assert!(buffer.write(5..4096).is_ok());
//! # Ok::<(), lnet_region::RegionError>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `region` | [`Region`]: memory, its leases, the registrations of LNDs |
//! | `memory` | sources of memory: the heap, the program, the system, sealed memfds |
//! | `arena` | [`Arena`]: many regions in one piece of shared memory |
//! | [`guard`] | faults in memory whose pages other processes can remove |
//! | [`closer`] | unmapping and closing of memory in a separate thread |
//! | `lease` | the leases of a region, by range and kind |
//! | `iovec` | [`Fragment`] and [`IoVec`] |
//! | `leased` | [`ReadVec`] and [`WriteVec`] |
//! | `shared` | copies of bytes that may change concurrently |
//! | `io` | [`Part`] and [`PartMut`], [`send`] and [`receive`] |
//! | `fork_guard` | [`ForkGuard`]: the process that created an object |
//! | `error` | [`RegionError`] |

mod arena;
pub mod closer;
mod error;
mod fork_guard;
pub mod guard;
mod io;
mod iovec;
mod lease;
mod leased;
mod memory;
mod region;
mod shared;

pub use arena::Arena;
pub use error::RegionError;
pub use fork_guard::ForkGuard;
pub use io::{Part, PartMut, receive, send, tcp_info};
pub use iovec::{Fragment, IoVec, MAX_FRAGMENTS};
pub use leased::{ReadVec, WriteVec, copy};
pub use memory::{MAX_REGION_BYTES, is_sealed, seal};
pub use region::{LND_SLOTS, LndSlot, Pages, Region, Registration, WeakRegion};
