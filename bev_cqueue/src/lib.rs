//! The queue of buffer events: single producer, single consumer, growable, in memory that two processes share.
//!
//! One queue belongs to each transfer machine. The [`Producer`] puts completion events in, as LNet reports them; the
//! [`Consumer`] takes them out, and before it starts an operation it makes sure that there is room for every event the
//! operation can produce, so that none is ever lost ([`Consumer::provision`]). Nothing is ever locked: a side that is
//! killed or stopped at any instruction neither blocks nor corrupts the other.
//!
//! It is not a general channel. Events are plain data of at most 120 bytes; requests do not travel through it; and
//! waiting is a matter apart, because a consumer that is awake must cost its producer no system call: the header has a word
//! by which a side announces that it sleeps ([`QueueWord`]), and `nlx_sync::wait` sleeps and wakes by it.
//!
//! # The ring
//!
//! Slots form a closed ring of links. One of them, the *divider*, holds the event taken last; behind it come the events
//! that wait, then the free slots, then the divider again.
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
//! The producer fills the first free slot and stamps it with the event's number; the stamp also says which slot comes
//! next. The consumer looks at the slot that will hold the next event until the right number stands there. No counter of
//! the producer's travels between the processors: an event costs the two cache lines of its slot, or one if it is small.
//! The consumer's counter of events taken is read only when the producer has used up the room it knew of.
//!
//! Who writes what; each side keeps what it relies on to itself:
//!
//! ```text
//!   producer's own                  shared memory                     consumer's own
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
//! To grow the ring, the consumer links fresh slots in behind the divider and makes the last of them the divider. The
//! producer does not read the divider's link, so it can go on meanwhile.
//!
//! ```text
//!   before:   ... free --> D --> 3 --> 4 ...            D: divider
//!
//!   1. string the new ones together, the last leading to the front
//!             ... free --> D --> 3 --> 4 ...
//!                    a --> b --> c --^
//!   2. link the divider to the first: one store
//!             ... free --> D --> a --> b --> c --> 3 --> 4 ...
//!   3. c becomes the divider; publish nr: D, a and b are the last free slots
//! ```
//!
//! Killed before step 3 is over, the consumer leaves a ring of the old number of slots for the producer, which does not get
//! as far as the new ones.
//!
//! # Shrinking
//!
//! When nothing is provisioned and no event waits, all slots but the divider are free, and the consumer may cut the last of
//! them off ([`Consumer::shrink`]). They are chained through their links and serve first when the ring grows again; their
//! pages go back to the system.
//!
//! ```text
//!   before:   D --> front --> a --> b --> c --> D
//!
//!   1. close the smaller ring: one store
//!             D --> front --> a --> D          b --> c --> D
//!   2. put the others aside, before those that have been put aside earlier
//!             D --> front --> a --> D          b --> c --> spare ...
//!   3. publish nr
//!   4. whoever submits the next operation tells the producer (Producer::accept_shrink)
//! ```
//!
//! The producer takes a smaller number of slots only when it is told so and all its events are taken: then it stands at
//! `front`, as the consumer does. Nothing of this is looked at on the way of an event.
//!
//! Where one program has both halves, and holds the producer still, the ring may shrink around what is provisioned
//! ([`Consumer::shrink_with`]).
//!
//! # Example
//!
//! Two processes; the descriptor travels over a Unix socket, and both halves stand in one program only here:
//!
//! ```
//! use nlx_bev_cqueue::{Consumer, PopError, Producer, SharedMemory};
//!
//! // The helper, which trusts nobody, makes the memory.
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
//! Each pair of a store that publishes and a load that observes has a name, which stands at both ends as `SYNC name`:
//!
//! | pair | store | load | orders |
//! | --- | --- | --- | --- |
//! | `bevq.put` | stamp, by [`Producer::push`] | stamp, by [`Consumer::pop`] | writing an event before reading it |
//! | `bevq.get` | count of events taken, by [`Consumer::pop`] | the same, by the producer looking for room | reading an event before its slot is filled again |
//! | `bevq.grow` | count of slots, by [`Consumer::grow`] and [`Consumer::shrink`] | the same, by the producer looking for room | changing links before following them |
//! | `sync.sleep` | word *sleeping*, then a fence | a fence, then the word | see `nlx_sync::wait` |
//!
//! The model tests explore all interleavings with loom, and check that loom finds a fault when either end of any of these is weakened:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nlx-bev-cqueue --release --lib loom
//! ```
//!
//! # Trust
//!
//! The producer treats every word of the shared memory as hostile ([`Corruption`]), and the consumer treats its producer as
//! trusted but mortal. All words are atomics and all indices are bounded by lengths that each process holds itself, so
//! even two processes that both scribble cause no undefined behaviour in a third.
//!
//! Tests kill and stop each half at every named point of its code and check what the other finds. (The points are macros
//! that are empty elsewhere.)
//!
//! # Features
//!
//! Without `std`, which is on by default, the crate is `no_std` and needs `alloc`: what is missing then are
//! `SharedMemory`, sleeping and waking, and the errno numbers of errors. `oracle` adds what tests of the queue share.

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
pub use layout::{Event, Header, Link, MAX_SLOTS, MIN_SLOTS, PAYLOAD_BYTES, Slot};
pub use memory::{Halves, Heap, Memory, QueueWord, heap, taken, tell, told};
#[cfg(all(feature = "std", not(loom)))]
pub use memory::{SharedMemory, unmap_by};
pub use producer::Producer;
