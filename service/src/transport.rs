//! The network below a service, as a trait: what [`Service`](crate::Service) needs of it.
//!
//! `portals` implements it over LNet, [`machines`](crate::machines) over a transfer machine of the
//! Core. The traits name nothing of either.
//!
//! # The contract
//! - An operation ([`Transport::send`], [`Transport::push`], [`Transport::pull`]) that was started
//!   without an error ends with one [`Events::ended`]; one that returned an error has no event. The
//!   event may come inside the call.
//! - Posted memory gives any number of [`Events::arrived`], then one [`Events::released`].
//!   Afterwards the network does not touch it.
//! - [`Transport::cancel`] hastens these events, and replaces none.
//! - Events may come under locks of the network. Their receiver calls the transport only from
//!   [`Events::wake`] on.

use std::borrow::Borrow;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;

use lnet_region::IoVec;
use nix::errno::Errno;

use crate::offers::WireOffer;

/// The network below a service. It reports to an [`Events`].
///
/// Tokens are numbers that the service chooses; the events return them.
pub trait Transport: Send + Sync + 'static {
    /// The sender of a request, and what its reply needs.
    type Peer: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static;
    /// Memory that the transport moves: its bytes, and what the transport needs to reach them. Clones
    /// are the same memory.
    type Memory: Borrow<IoVec> + Clone + Debug + Send + Sync + 'static;
    /// Memory that a peer offers for bulk.
    type Offer: WireOffer + Copy + Debug + Send + Sync + 'static;
    /// An operation in progress, for [`Transport::cancel`].
    type Operation: Copy + Debug + Send + Sync + 'static;

    /// Opens the transport. From now on `events` gets its events. Called once.
    ///
    /// # Errors
    /// The errno of the network.
    fn open(&self, events: Arc<dyn Events<Self::Peer>>) -> Result<(), Errno>;

    /// Closes the transport. Called after the posted memory and all bulk have been cancelled.
    fn close(&self);

    /// Returns the number of endpoints at which requests arrive: of match bits, over LNet.
    fn endpoints(&self) -> usize;

    /// Allocates memory, contiguous and zeroed, for operations of a partition.
    ///
    /// # Errors
    /// ENOMEM, EFBIG for more bytes than one operation moves, or the errno of the network.
    fn allocate(&self, partition: usize, bytes: usize) -> Result<Self::Memory, Errno>;

    /// Posts memory in a partition for at most `requests` requests of at most `request_max` bytes.
    /// They arrive one behind the other, as [`Events::arrived`].
    ///
    /// # Errors
    /// The errno of the network: ENOMEM without room.
    fn post(&self, posting: Posting<'_, Self::Memory>) -> Result<Self::Operation, Errno>;

    /// Sends the first `length` bytes of memory as a message; its end is one [`Events::ended`]. `tag`
    /// is the number by which the peer recognises it, for transports that carry one.
    ///
    /// # Errors
    /// EMSGSIZE for more bytes than the memory has, or the errno of the network; then there is no
    /// event.
    fn send(
        &self,
        at: Place,
        to: &Self::Peer,
        tag: u64,
        memory: Self::Memory,
        length: usize,
    ) -> Result<(), Errno>;

    /// Sends the first `length` bytes of memory into the memory that a peer offers; its end is one
    /// [`Events::ended`]. Returns `None` if it has ended inside the call.
    ///
    /// # Errors
    /// The errors of [`Transport::send`].
    fn push(
        &self,
        at: Place,
        to: &Self::Peer,
        offer: Self::Offer,
        memory: Self::Memory,
        length: usize,
    ) -> Result<Option<Self::Operation>, Errno>;

    /// Fetches memory that a peer offers; as [`Transport::push`].
    ///
    /// # Errors
    /// The errno of the network; then there is no event.
    fn pull(
        &self,
        at: Place,
        to: &Self::Peer,
        offer: Self::Offer,
        memory: Self::Memory,
    ) -> Result<Option<Self::Operation>, Errno>;

    /// Offers memory to a peer for one [`Transport::push`] or [`Transport::pull`], whose end is one
    /// [`Events::ended`]. The offer travels in a message.
    ///
    /// # Errors
    /// The errors of [`Transport::send`].
    fn offer(
        &self,
        at: Place,
        memory: Self::Memory,
        access: Access,
    ) -> Result<(Self::Operation, Self::Offer), Errno>;

    /// Cancels an operation, or takes posted memory back; its events still come. Does nothing if it
    /// has ended.
    fn cancel(&self, operation: Self::Operation);
}

/// What a peer may do with offered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read the first `length` bytes.
    Read {
        /// The number of bytes from the start of the memory.
        length: usize,
    },
    /// Fill the memory, or a part from its start.
    Write,
}

/// A partition and the token of an operation there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index of the partition that owns the memory.
    pub partition: usize,
    /// The number that the events of the operation return.
    pub token: u32,
}

/// Memory for requests.
#[derive(Debug, Clone, Copy)]
pub struct Posting<'a, M> {
    /// The partition, and the token of the memory.
    pub at: Place,
    /// Index of the endpoint whose requests the memory takes.
    pub endpoint: usize,
    /// The memory to post; it belongs to the transport until the end is reported.
    pub memory: &'a M,
    /// Maximum number of requests.
    pub requests: u32,
    /// Maximum length of a request; a longer one is cut off, or dropped by the network.
    pub request_max: usize,
}

/// A message that has arrived in posted memory: a request, or the answer to one.
#[derive(Debug, Clone)]
pub struct ArrivedMessage<P> {
    /// The sender, as the transport names it.
    pub from: P,
    /// The offset of the message in the memory.
    pub offset: usize,
    /// Bytes in the memory.
    pub length: usize,
    /// The length that was sent; larger if it was cut off.
    pub sent_length: usize,
    /// Set if the message is of the urgent class.
    pub urgent: bool,
    /// Set if the thread that received it belongs to another partition: its own had no memory.
    pub crossed: bool,
}

/// The receiver of the events of a [`Transport`].
///
/// Calls may come at the same time for different operations. They must return soon, and must not
/// call the transport; [`Events::wake`] may.
pub trait Events<P>: Send + Sync {
    /// A request has arrived in the posted memory with this token.
    fn arrived(&self, at: Place, arrival: ArrivedMessage<P>);

    /// No further request will arrive in this memory.
    fn released(&self, at: Place);

    /// The data of a pull have come, or a push is acknowledged, before it has ended: the length that
    /// comes with its end is not that of the data.
    fn fetched(&self, at: Place, outcome: Result<usize, Errno>);

    /// An operation has ended; the number of bytes that it moved, or its error.
    fn ended(&self, at: Place, outcome: Result<usize, Errno>);

    /// Called after other events of a partition, outside the locks of the network.
    fn wake(&self, partition: usize);
}
