//! Memory that may be in flight.
//!
//! A [`Region`] is reference-counted memory with a stable address. Who wants to touch its bytes takes a *lease* on a byte
//! range, of one of four kinds; a lease that another one forbids is refused:
//!
//! | a lease to | by | who has it | beside it, others may |
//! | --- | --- | --- | --- |
//! | read | [`IoVec::read`] | a program: it can have a `&[u8]` | read, send |
//! | write | [`IoVec::write`] | a program: it can have a `&mut [u8]` | nothing |
//! | send | [`IoVec::outgoing`] | a transport | read, send, receive |
//! | receive | [`IoVec::incoming`] | a transport | send, receive |
//!
//! So the bytes of a message that has arrived can be lent to the client as a plain `&[u8]` while the next message is still
//! being received into another range of the same buffer, and safe code can neither touch memory in flight nor free it
//! early. Transports never wait for each other: their leases give no slices, and bytes are named to the system or copied
//! such that it does no harm if they change meanwhile. Messages that overlap in a buffer are the application's business,
//! as in LNet: an answer that is still with its sender, although the peer has it already, must not keep out the peer's
//! next message.
//!
//! An [`IoVec`] is the shape of a buffer: up to 256 [`Fragment`]s of regions, trimmed to a byte count. Leases on an
//! `IoVec` are [`ReadVec`] (to read or send) and [`WriteVec`] (to write or receive). All three are cheap to clone or take: no allocation, one short lock per fragment.
//!
//! Memory that other processes can write is a region as well ([`Region::memfd`], [`Region::share`],
//! [`Region::attach`]): the same leases copy its bytes and name them to the system ([`send`], [`receive`]), but never show
//! them as a slice. Copies out of it end, stay within their range and give bytes that stood there at some moment,
//! whatever the others do; who must trust what he reads copies it first and checks the copy.
//!
//! Two processes that exchange many buffers share one [`Arena`] instead of each region. Whoever gives his descriptors to
//! processes that he does not trust puts what they could take away under the [`guard`].
//!
//! # Forked children
//!
//! A region belongs to the process that made it ([`ForkGuard`]). A child that is forked can neither lease it nor look at the
//! bytes of leases that it inherits ([`RegionError::Forked`]): large memory and memory that can be shared is not there at
//! all. Dropping a region in a child does nothing.
//!
//! This crate is the one place with `unsafe` over payload memory. It knows nothing of LNet.
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
//! // The range is lent out: nobody may write to it now, but the rest of the buffer is free.
//! assert!(buffer.write(4..8).is_err());
//! assert!(buffer.write(5..4096).is_ok());
//! # Ok::<(), lnet_region::RegionError>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `region` | [`Region`]: memory, its leases, what LNDs keep with it |
//! | `memory` | where the bytes come from: the heap, the program, the system, sealed memfds |
//! | `arena` | [`Arena`]: many regions in one piece of shared memory |
//! | [`guard`] | faults in memory that others can take away |
//! | [`closer`] | unmapping and closing memory in a thread of its own |
//! | `lease` | who does what with which range |
//! | `iovec` | [`Fragment`] and [`IoVec`] |
//! | `leased` | [`ReadVec`] and [`WriteVec`] |
//! | `shared` | copies of bytes that others may be reading and writing |
//! | `io` | [`Part`] and [`PartMut`], [`send`] and [`receive`] |
//! | `fork_guard` | [`ForkGuard`]: which process made something |
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
