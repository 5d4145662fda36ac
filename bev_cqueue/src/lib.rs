//! The queue of buffer events: single producer, single consumer, growable, in memory that two
//! processes share.
//!
//! Each transfer machine has one queue. The [`Producer`] pushes completion events as LNet reports
//! them; the [`Consumer`] pops them. Before the consumer starts an operation it provisions room for
//! every event the operation can produce, so that no event is ever lost ([`Consumer::provision`]).
//! The queue has no locks: a side that is killed or stopped at any instruction neither blocks nor
//! corrupts the other.
//!
//! It is not a general channel. Events are plain data of at most 120 bytes, and requests do not
//! travel through it. Waiting is separate, because a consumer that is awake must cost its producer
//! no system call: the header has a word by which a side announces that it sleeps ([`QueueWord`]),
//! and `nlx_sync::wait` sleeps and wakes by it.
//!
//! # The ring
//!
//! Slots form a closed ring of links. One of them, the *divider*, holds the event taken last. After
//! it come the waiting events, then the free slots, then the divider again.
//!
//! ```text
//!               taken last       waiting: 3, 4, 5             free
//!              +---------+   +-----+ +-----+ +-----+   +-----+ +-----+
//!         +--> | divider |-->|  3  |>|  4  |>|  5  |-->|     |>|     |--+
//!         |    +---------+   +-----+ +-----+ +-----+   +-----+ +-----+  |
//!         |                     ^                         ^             |
//!         |                   front                      fill           |
//!         |                (consumer's)              (producer's)       |
//!         +-------------------------------------------------------------+
//! ```
//!
//! The producer fills the first free slot and stamps it with the event's number; the stamp also
//! contains the index of the next slot. The consumer polls the slot of the next event until its
//! stamp has the expected number. The producer has no counter in shared memory: an event costs the
//! two cache lines of its slot, or one if it is small. The producer reads the consumer's counter of
//! taken events only when it has used up the room that it has found before.
//!
//! The table shows the data that each side writes. Each side keeps the data that it relies on in
//! private memory:
//!
//! ```text
//!   producer's private              shared memory                     consumer's private
//!  +-----------------+    +--------------------------------+     +---------------------+
//!  | fill, produced  |    | header: max_slots              |     | divider, front      |
//!  | room            |    |         consumed, nr     <-----|-----| taken, slots        |
//!  | consumed, slots |----|->       sleeping         <-----|-----| needed              |
//!  |  as last seen   |    | links:  next of each     <-----|-----| spare: first, count |
//!  |                 |----|-> slots: event, stamp          |     |                     |
//!  +-----------------+    +--------------------------------+     +---------------------+
//! ```
//!
//! # Growing
//!
//! To grow the ring, the consumer links new slots in behind the divider and makes the last of them
//! the divider. The producer does not read the divider's link, so it can continue during this.
//!
//! ```text
//!   before:   ... free --> D --> 3 --> 4 ...            D: divider
//!
//!   1. chain the new slots, the last one linked to the front
//!             ... free --> D --> 3 --> 4 ...
//!                    a --> b --> c --^
//!   2. link the divider to the first: one store
//!             ... free --> D --> a --> b --> c --> 3 --> 4 ...
//!   3. c becomes the divider; publish nr: D, a and b are the last free slots
//! ```
//!
//! If the consumer is killed before step 3 is over, the producer has a ring of the old number of
//! slots, and never reaches the new ones.
//!
//! # Shrinking
//!
//! When nothing is provisioned and no event waits, all slots but the divider are free, and the
//! consumer may cut off the last of them ([`Consumer::shrink`]). They are chained through their
//! links and are reused first when the ring grows again; their pages return to the system where the
//! memory permits it ([`QueueMemory::discard`]).
//!
//! ```text
//!   before:   D --> front --> a --> b --> c --> D
//!
//!   1. close the smaller ring: one store
//!             D --> front --> a --> D          b --> c --> D
//!   2. put the others in front of the spare slots
//!             D --> front --> a --> D          b --> c --> spare ...
//!   3. publish nr
//!   4. with the next operation, notify the producer (Producer::accept_shrink)
//! ```
//!
//! The producer accepts a smaller number of slots only when it is notified and all its events are
//! taken: then its position is `front`, as the consumer's is. Pushing and popping an event involve
//! none of these checks.
//!
//! If one program has both halves, and can lock the producer, the ring may shrink while room is
//! provisioned ([`Consumer::shrink_with`]).
//!
//! # Example
//!
//! Usually two processes have one half each, and the descriptor travels over a Unix socket. In this
//! example both halves are in one program:
//!
//! ```
//! use nlx_bev_cqueue::{Consumer, PopError, Producer, SharedMemory};
//!
//! // The helper, which does not trust the client, makes the memory.
//! let (memory, fd) = SharedMemory::create(1024)?;
//! let mut producer = Producer::<[u64; 4], _>::new(memory)?;
//!
//! // The client maps it and makes room before it starts an operation.
//! let mut consumer = Consumer::<[u64; 4], _>::new(SharedMemory::attach(fd)?)?;
//! consumer.provision(1)?;
//!
//! // The operation is complete.
//! producer.push([1, 2, 3, 4])?;
//! assert_eq!(consumer.pop(), Ok([1, 2, 3, 4]));
//! assert_eq!(consumer.pop(), Err(PopError::Empty));
//! consumer.release(1)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory order
//!
//! Each pair of a store that publishes and a load that observes has a name, which both ends have as
//! `SYNC name`:
//!
//! | pair | store | load | orders |
//! | --- | --- | --- | --- |
//! | `bevq.put` | stamp, by [`Producer::push`] | stamp, by [`Consumer::pop`] | writing an event before reading it |
//! | `bevq.get` | count of events taken, by [`Consumer::pop`] | the same, by the producer that needs room | reading an event before its slot is filled again |
//! | `bevq.grow` | count of slots, by [`Consumer::grow`] and [`Consumer::shrink`] | the same, by the producer that needs room | changing links before following them |
//! | `sync.sleep` | word *sleeping*, then a fence | a fence, then the word | see `nlx_sync::wait` |
//!
//! The model tests explore all interleavings with loom, and check that loom finds a fault when
//! either end of any of these pairs is weakened:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nlx-bev-cqueue --release --lib loom
//! ```
//!
//! # Trust
//!
//! The producer treats every word of the shared memory as hostile ([`Corruption`]); the consumer
//! trusts its producer, but expects that it may die. All words are atomics, and all indices are
//! bounded by lengths that each process keeps in private memory. So two processes that both write
//! arbitrary values cause no undefined behaviour in a third.
//!
//! Tests kill and stop each half at every named point of its code and check the state that the
//! other half finds. (The points are macros that expand to nothing in programs.)
//!
//! # Features
//!
//! Without `std`, which is on by default, the crate is `no_std` and needs `alloc`; it then lacks
//! `SharedMemory`, sleeping and waking, and the errno numbers of errors. `oracle` adds the shared
//! test code of the queue.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(any(feature = "std", loom))]
extern crate std;

mod consumer;
mod error;
mod layout;
mod memory;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod producer;
mod rules;

#[cfg(test)]
mod tests;

pub use consumer::{Consumer, Drain};
pub use error::{Corruption, Error, PopError, PushError};
pub use layout::{Event, Header, MAX_SLOTS, MIN_SLOTS, PAYLOAD_BYTES, Slot, SlotLink};
pub use memory::{Halves, Heap, QueueMemory, QueueWord, heap, producer_word, raise_producer_word, taken};
#[cfg(all(feature = "std", not(loom)))]
pub use memory::{SharedMemory, unmap_by};
pub use producer::Producer;
