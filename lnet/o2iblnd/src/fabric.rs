//! All contact with RDMA devices, behind traits: this host's ([`crate`]'s feature `verbs`), or a
//! simulated one.
//!
//! The traits follow verbs and its connection manager, and contain nothing of LNet: a [`Fabric`]
//! opens [`Device`]s, memory is registered with a device ([`RegisteredMemory`]), a shard of the LND has a
//! [`Channel`] that delivers its events, and an [`Endpoint`] is one connection: a queue pair with
//! its completion queue. Nothing blocks. Numbers that a device checks itself (keys, addresses) are
//! plain numbers here: a work request that names memory which is not, or no longer, registered
//! fails in the device.
//!
//! # Memory
//! A device reads and writes memory outside of Rust's borrow checking. A user of the traits must
//! keep two rules: the region of a [`RegisteredMemory`] lives at least until the [`RegisteredMemory`] is dropped; and
//! the memory that a work request names is lent to it, by the leases of `lnet-region`, until it has
//! completed or its [`Endpoint`] is dropped. No type can enforce that, so making a real host's
//! fabric is `unsafe`, and [`O2ibLnd::new`](crate::O2ibLnd) makes one that only the program's NIs
//! use.

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_region::Region;
use smallvec::SmallVec;

/// The RDMA devices of a host.
pub trait Fabric: Send + Sync {
    /// Returns a number that no earlier incarnation of an NI of this host had, and that is not 0
    /// (lnet-wire 32).
    fn incarnation(&self) -> u64;

    /// Opens the device that has this address. Returns the same object for each call while the
    /// device is open.
    ///
    /// # Errors
    /// ENODEV if no RDMA device has the address or the host has none, ENETDOWN if its port is down,
    /// ENOSYS where the libraries are not installed; each message says what to do.
    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError>;

    /// Creates the event channel of one shard.
    ///
    /// # Errors
    /// EMFILE without descriptors; ENODEV, ENOSYS as for [`Fabric::open`].
    fn channel(&self) -> Result<Arc<dyn Channel>, FabricError>;
}

/// An open device.
pub trait Device: Send + Sync {
    /// Returns the device's name, such as `mlx5_0`.
    fn name(&self) -> &str;

    /// Returns the device's limits.
    fn limits(&self) -> &DeviceLimits;

    /// Returns whether the device is implemented in software (soft-RoCE, soft-iWARP). Such a device
    /// sends on this host's processors, when no other thread occupies them.
    fn is_program(&self) -> bool;

    /// Returns whether the device's port is up at this moment, so that messages pass.
    fn is_up(&self) -> bool;

    /// Registers [`Region::extent`], the whole of a region or of its arena: until the [`RegisteredMemory`] is
    /// dropped, this node and, if `remote`, peers that know the key may write to it. The memory
    /// must stay alive until then; storing the [`RegisteredMemory`] with the region
    /// ([`Region::registration`]) ensures that.
    ///
    /// # Errors
    /// ENOMEM beyond the limit of locked memory (RLIMIT_MEMLOCK); the message names the limit.
    fn register(&self, region: &Region, remote: bool) -> Result<Arc<dyn RegisteredMemory>, FabricError>;
}

/// Memory registered with a device; dropping it ends the registration.
pub trait RegisteredMemory: Send + Sync {
    /// Returns the key for this node's own work requests (`lkey`).
    fn local_key(&self) -> u32;
    /// Returns the key with which peers write to the memory (`rkey`).
    fn remote_key(&self) -> u32;
}

/// The limits of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Work requests per queue (`max_qp_wr`).
    pub queue_entries: u32,
    /// Entries per completion queue (`max_cqe`).
    pub completions: u32,
    /// Pieces of memory per work request (`max_sge`).
    pub pieces: u32,
    /// Bytes of one transfer (`max_msg_sz`).
    pub transfer_bytes: u32,
    /// Bytes of one registration (`max_mr_size`).
    pub memory_bytes: u64,
}

/// The event channel of one shard. Only the shard's driver, one thread at a time, calls `next` and
/// the functions that begin a connection or listener; any thread calls `ring` and `fd`.
pub trait Channel: Send + Sync {
    /// Returns a descriptor that is readable after an event or a call of [`ring`](Channel::ring).
    /// Completions make it readable only for an armed endpoint ([`Endpoint::arm`]).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Makes the descriptor readable, because another thread has work for the driver.
    fn ring(&self);

    /// Returns the next event; `None` if none is available. The first call after [`Channel::rest`]
    /// makes a system call, as do some of the others: a thread that spins over completions, which
    /// need no system call, may call this each time. While an event is undelivered, or `ring` has
    /// been called since, the descriptor is readable.
    fn next(&self) -> Option<CmEvent>;

    /// Announces that the driver is about to sleep on the descriptor, so that the next call of
    /// [`Channel::next`] makes a system call.
    fn rest(&self);

    /// Listens for requests to connect.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES for a port below 1024.
    fn listen(
        &self,
        token: ChannelToken,
        device: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError>;

    /// Begins a connection: resolves the route to a peer. [`CmEvent::Resolved`] or
    /// [`CmEvent::Failed`] follows.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL or EACCES for the source port: the caller tries another. `from`
    /// with port 0 takes any.
    fn dial(
        &self,
        token: ChannelToken,
        device: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError>;

    /// Moves a request that this or another channel received to this channel, which delivers its
    /// further events.
    ///
    /// # Errors
    /// The request is gone.
    fn adopt(
        &self,
        token: ChannelToken,
        request: Box<dyn ConnRequest>,
    ) -> Result<Box<dyn Endpoint>, FabricError>;
}

/// Identifies an endpoint or listener in the events of a [`Channel`]; the caller chooses it, and
/// must not reuse it. Events that were received before its owner was dropped may still be
/// delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelToken(pub u64);

/// The options of a connection that is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialOptions {
    /// Time limit for resolving the peer's address, and again for resolving the route, in
    /// milliseconds.
    pub resolve_ms: u32,
    /// The type of service; `None` keeps the system's default.
    pub tos: Option<u8>,
}

/// Private data as the connection manager delivers it: zeros may follow it (never trust the
/// length).
pub type PrivateData = SmallVec<[u8; 64]>;

/// An event of a [`Channel`].
pub enum CmEvent {
    /// A peer requests to connect.
    Request {
        /// The token of the listener that received the request.
        listener: ChannelToken,
        /// The request, to be adopted or rejected; dropping it rejects it without a record.
        request: Box<dyn ConnRequest>,
    },
    /// The route to the peer is resolved: the endpoint can connect.
    Resolved(ChannelToken),
    /// The peer accepts (active side): call [`Endpoint::establish`], or drop the endpoint.
    Accepted(ChannelToken, PrivateData),
    /// The connection is established (passive side).
    Established(ChannelToken),
    /// The peer or its connection manager rejects the connection.
    Rejected(ChannelToken, Rejected),
    /// The connection cannot be made: no such address, no route, no answer.
    Failed(ChannelToken, Errno),
    /// The peer has disconnected, the device has stopped the queues after an error, or the device
    /// is gone. Remaining work requests complete with errors, except with broken queues and removed
    /// devices: with these, completions may be missing.
    Disconnected(ChannelToken),
    /// An armed endpoint has completions. It is no longer armed.
    Ready(ChannelToken),
    /// The state of a device has changed.
    Device {
        /// The name of the device.
        name: Arc<str>,
        /// The change of its state.
        change: DeviceChange,
    },
}

/// The reason why a connection was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The peer's driver rejected it (status 28), with this record.
    Record(PrivateData),
    /// The peer's connection manager still has state of an old connection (status 10).
    Stale,
    /// There is no listener (status 8), or the request was dropped without a record.
    NoListener,
    /// The connection manager reported another status.
    Other(i32),
}

/// A change of a device's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChange {
    /// A port is up again.
    PortUp,
    /// The port lost its link.
    PortDown,
    /// The device is gone, and nothing of it works any more.
    Removed,
}

/// A listener, which listens until it is dropped. Dropping it rejects, without a record, the
/// requests that its channel has not delivered.
pub trait Listener: Send + Sync {}

/// A peer's request to connect. A [`Channel`] that adopts a request downcasts it to its own type.
pub trait ConnRequest: Any + Send {
    /// Returns the address and port from which the peer connects.
    fn source(&self) -> SocketAddrV4;
    /// Returns the address and port to which the request was sent.
    fn target(&self) -> SocketAddrV4;
    /// Returns the private data of the request: the CONNREQ.
    fn private_data(&self) -> &[u8];
    /// Rejects the request with this record.
    fn reject(self: Box<Self>, record: &[u8]);
}

/// The queue sizes of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSizes {
    /// Send work requests.
    pub sends: u32,
    /// Receive work requests.
    pub receives: u32,
    /// Completion queue entries.
    pub completions: u32,
    /// Pieces of memory per send work request.
    pub pieces: u32,
    /// Bytes that a send may carry inline; the device may support fewer.
    pub inline: u32,
}

/// Parameters of the connection manager (lnet-wire 31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Retries for lost packets, 0 to 7.
    pub retry_count: u8,
    /// Retries for a peer without receive buffers, 0 to 7.
    pub rnr_retry_count: u8,
}

/// A connection, or one that is being opened. Dropping it destroys its queues; memory that its work
/// requests name must stay alive until then, or until they have completed.
pub trait Endpoint: Send + Sync {
    /// Returns the device of the connection.
    fn device(&self) -> &Arc<dyn Device>;

    /// Makes the completion queue and the queue pair, once; returns the sizes that the device
    /// really made, which are at least the requested ones, except `inline`.
    ///
    /// # Errors
    /// ENOMEM or EINVAL if the device cannot make them: the caller may request smaller ones.
    fn make_queues(&mut self, sizes: &QueueSizes) -> Result<QueueSizes, FabricError>;

    /// Active side, after [`CmEvent::Resolved`]: sends the request to the peer.
    ///
    /// # Errors
    /// The system's error.
    fn connect(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError>;

    /// Active side, after [`CmEvent::Accepted`]: establishes the connection.
    ///
    /// # Errors
    /// The system's error.
    fn establish(&mut self) -> Result<(), FabricError>;

    /// Passive side: accepts the request.
    ///
    /// # Errors
    /// The system's error.
    fn accept(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError>;

    /// Passive side: rejects the request, in place of accepting it.
    ///
    /// Never call this after [`accept`](Endpoint::accept): Linux (6.1 to 6.12, measured) repeats
    /// the accept for 64 s, and dropping the endpoint blocks for that time. An endpoint that is
    /// dropped before the peer has established the connection rejects without a record.
    fn reject(&mut self, record: &[u8]);

    /// Ends the connection. All work requests complete, with errors if they have not completed
    /// before.
    fn disconnect(&self);

    /// Posts receive buffers.
    ///
    /// # Errors
    /// The index of the first that was not posted, and its error.
    fn post_receives(&self, works: &[ReceiveWork]) -> Result<(), PostError>;

    /// Posts sends and writes as one chain, in this order.
    ///
    /// # Errors
    /// The index of the first that was not posted, and its error.
    fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError>;

    /// Adds the available completions to `done`, as far as it has room.
    ///
    /// # Errors
    /// The completion queue has broken.
    fn poll(&self, done: &mut Completions) -> Result<(), Errno>;

    /// Arms the completion queue: the channel delivers [`CmEvent::Ready`] for the next completion,
    /// but not for a completion before the call. So the caller must poll again after arming.
    ///
    /// # Errors
    /// The system's error.
    fn arm(&self) -> Result<(), Errno>;
}

/// A piece of registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// The address in this process.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// The local key (`lkey`) of the registration.
    pub key: u32,
}

/// A work request to receive into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveWork {
    /// The id that the completion will have.
    pub id: u64,
    /// The memory to receive into.
    pub piece: Piece,
}

/// A work request to send a message, or to write by RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWork<'a> {
    /// The id that the completion will have.
    pub id: u64,
    /// The memory to send, in order.
    pub pieces: &'a [Piece],
    /// The operation, with the target of a write.
    pub kind: SendKind,
    /// True if a successful completion is reported. A failed work request is always reported, and
    /// so are all behind it.
    pub signalled: bool,
    /// True if the call copies the bytes. The memory, which must be registered like any other, is
    /// free when the call returns.
    pub inline: bool,
}

/// The operation of a [`SendWork`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendKind {
    /// Send into the receive buffer that the peer posted next.
    Send,
    /// Write into the peer's memory (RDMA WRITE).
    Write {
        /// The address in the peer's process.
        address: u64,
        /// The remote key (`rkey`) of the peer's registration.
        key: u32,
    },
}

/// A work request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work request {index} of a chain: {errno}")]
pub struct PostError {
    /// The index in the chain: the work requests before it are posted.
    pub index: usize,
    /// The errno that the device's driver returned.
    pub errno: Errno,
}

/// The completions of one poll.
pub type Completions = SmallVec<[WorkCompletion; COMPLETIONS_PER_LOOK]>;

/// The maximum number of completions of one poll, and of receives that are posted again in one
/// call.
pub const COMPLETIONS_PER_LOOK: usize = 16;

/// A completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The id of the work request.
    pub id: u64,
    /// Bytes received; 0 for a send.
    pub length: u32,
    /// The result of the work request.
    pub status: Result<(), WorkError>,
}

/// The reason why a work request failed: the status of verbs (`ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkError {
    /// The work request was not carried out, as its connection has ended (5).
    Flushed,
    /// The peer did not answer (12).
    RetriesExceeded,
    /// The peer had no receive buffer (13).
    NoReceiver,
    /// The peer refused the access: the address or key is not registered there (10).
    RemoteAccess,
    /// Any other status of verbs.
    Other(u32),
}

/// The reason why an RDMA object could not be made or an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct FabricError {
    /// The object, the failed step, and the remedy.
    pub what: String,
    /// The errno that messages or the NI fail with.
    pub errno: Errno,
}
