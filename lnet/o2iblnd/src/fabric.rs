//! All contact with RDMA devices, behind traits: this host's ([`crate`]'s feature `verbs`), or a simulated one.
//!
//! The traits have the shape of verbs and of its connection manager, and nothing of LNet: a [`Fabric`] opens [`Device`]s,
//! memory is registered with a device ([`Memory`]), a shard of the LND has a [`Channel`] by which it hears of what happens,
//! and an [`Endpoint`] is one connection: a queue pair with its completion queue. Nothing blocks. Numbers that a device
//! checks itself (keys, addresses) are plain numbers here: a work request that names memory which is not registered, or not
//! any more, fails in the device.
//!
//! # Memory
//! A device reads and writes memory that Rust knows nothing of. Whoever uses the traits keeps two rules: the region of a
//! [`Memory`] lives as long as that does; and what a work request names is lent to it, by the leases of `lnet-region`, until it has
//! completed or its [`Endpoint`] is gone. No type can hold a caller to that, so making a real host's fabric is `unsafe`, and
//! [`O2ibLnd::new`](crate::O2ibLnd) makes one for a program's NIs that nobody else has.

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_region::Region;
use smallvec::SmallVec;

/// The RDMA devices of a host.
pub trait Fabric: Send + Sync {
    /// A number that no earlier life of an NI of this host had, and not 0 (lnet-wire 32).
    fn incarnation(&self) -> u64;

    /// The device that has this address. Each call gives the same object as long as it is open.
    ///
    /// # Errors
    /// ENODEV if no RDMA device has the address, or none at all is there, ENETDOWN if its port is down, ENOSYS where the
    /// libraries are not installed; each says what to do.
    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError>;

    /// The events of one shard.
    ///
    /// # Errors
    /// EMFILE without descriptors; ENODEV, ENOSYS as for [`Fabric::open`].
    fn channel(&self) -> Result<Arc<dyn Channel>, FabricError>;
}

/// A device, opened.
pub trait Device: Send + Sync {
    /// Its name: `mlx5_0`.
    fn name(&self) -> &str;

    /// What it can do.
    fn limits(&self) -> &DeviceLimits;

    /// Whether it is a program (soft-RoCE, soft-iWARP): it sends on the processors of this host, when no other thread has them.
    fn is_program(&self) -> bool;

    /// Whether its port is up at this moment: messages pass.
    fn is_up(&self) -> bool;

    /// Registers [`Region::extent`], the whole of a region or of the arena it is a piece of: this node and, if `remote`, peers
    /// that know the key may write to it from now on and until the [`Memory`] is dropped. The memory must stay alive until
    /// then: who keeps the [`Memory`] with the region ([`Region::registration`]) need not care.
    ///
    /// # Errors
    /// ENOMEM beyond the limit of locked memory (RLIMIT_MEMLOCK), and says so.
    fn register(&self, region: &Region, remote: bool) -> Result<Arc<dyn Memory>, FabricError>;
}

/// Memory registered with a device; forgotten by it when this is dropped.
pub trait Memory: Send + Sync {
    /// The key for this node's own work requests (`lkey`).
    fn local_key(&self) -> u32;
    /// The key by which peers write to it (`rkey`).
    fn remote_key(&self) -> u32;
}

/// What a device can do.
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

/// What one shard of the LND hears of. `next` and all that begins something is called by the shard's driver, one thread at
/// a time; `ring` and `fd` by any.
pub trait Channel: Send + Sync {
    /// Readable when something happened, or when the bell was rung. Completions make it readable only for an endpoint
    /// that is armed ([`Endpoint::arm`]).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Makes the descriptor readable: another thread has work for the driver.
    fn ring(&self);

    /// The next thing that happened, if one is known of. The system is asked after a [`Channel::rest`], and of many other calls
    /// by some: whoever spins over completions, which need no call of the system, may ask here each time. While there is
    /// something that was not told, or the bell has been rung since, the descriptor is readable.
    fn next(&self) -> Option<CmEvent>;

    /// Whoever asks for what happens is about to sleep on the descriptor.
    fn rest(&self);

    /// Listens for requests to connect.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES for a port below 1024.
    fn listen(
        &self,
        token: Token,
        device: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError>;

    /// Begins a connection: looks for the way to a peer. [`CmEvent::Resolved`] or [`CmEvent::Failed`] follows.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL or EACCES for the source port: the caller tries another. `from` with port 0 takes any.
    fn dial(
        &self,
        token: Token,
        device: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError>;

    /// Makes a request that another channel, or this one, heard of this shard's: what happens from now on is told here.
    ///
    /// # Errors
    /// The request is gone.
    fn adopt(&self, token: Token, request: Box<dyn Request>) -> Result<Box<dyn Endpoint>, FabricError>;
}

/// Names an endpoint or listener in what a [`Channel`] tells; its maker chooses it, and does not give it to another. What was
/// heard before its owner was dropped may still be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// Of a connection that is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialOptions {
    /// How long finding the peer's address, and then the way to it, may take each, in milliseconds.
    pub resolve_ms: u32,
    /// The type of service.
    pub tos: Option<u8>,
}

/// Private data as the connection manager delivers it: zeros may follow it (never trust the length).
pub type PrivateData = SmallVec<[u8; 64]>;

/// What a [`Channel`] tells.
pub enum CmEvent {
    /// A peer wants to connect.
    Request {
        /// The listener that heard it.
        listener: Token,
        /// To be adopted or rejected; dropping it rejects it without a reason.
        request: Box<dyn Request>,
    },
    /// The way to the peer is known: the endpoint can connect.
    Resolved(Token),
    /// The peer accepts (active side): the endpoint is to [`Endpoint::establish`], or to be dropped.
    Accepted(Token, PrivateData),
    /// The connection stands (passive side).
    Established(Token),
    /// The peer, or its connection manager, rejects.
    Rejected(Token, Rejected),
    /// The connection cannot be made: no such address, no way, no answer.
    Failed(Token, Errno),
    /// The peer has disconnected, the device has given up the queues, or is gone. Work requests that are left complete with
    /// errors, but for broken queues and devices that are gone: with these, none need complete.
    Disconnected(Token),
    /// An armed endpoint has completions. It is no longer armed.
    Ready(Token),
    /// Something happened to a device.
    Device {
        /// Its name.
        name: Arc<str>,
        /// What.
        change: DeviceChange,
    },
}

/// Why a connection was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// By the peer's driver (status 28); its record.
    Record(PrivateData),
    /// The peer's connection manager holds remains of an old connection (status 10).
    Stale,
    /// Nobody listens there (status 8), or the request was dropped without a record.
    NoListener,
    /// Another reason of the connection manager's.
    Other(i32),
}

/// What happened to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChange {
    /// A port is up again.
    PortUp,
    /// A port is down.
    PortDown,
    /// It is gone: nothing of it works any more.
    Removed,
}

/// Listens as long as it lives. Dropping it rejects the requests that its channel has not given out, without a record.
pub trait Listener: Send + Sync {}

/// A peer that wants to connect. A [`Channel`] that adopts one finds its own kind in it.
pub trait Request: Any + Send {
    /// Where from.
    fn source(&self) -> SocketAddrV4;
    /// The address it was sent to.
    fn target(&self) -> SocketAddrV4;
    /// The CONNREQ.
    fn private_data(&self) -> &[u8];
    /// Rejects it with this record.
    fn reject(self: Box<Self>, record: &[u8]);
}

/// The queues of an endpoint.
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
    /// Bytes that a send may carry in itself; the device may give fewer.
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

/// One connection, or its beginning. Dropping it destroys its queues; memory that its work requests name must stay alive
/// until then, or until they have completed.
pub trait Endpoint: Send + Sync {
    /// The device it is on.
    fn device(&self) -> &Arc<dyn Device>;

    /// Makes the completion queue and the queue pair, once; gives what the device really made, at least what was asked for
    /// but for `inline`.
    ///
    /// # Errors
    /// ENOMEM or EINVAL for more than the device can: the caller asks for less.
    fn make_queues(&mut self, sizes: &QueueSizes) -> Result<QueueSizes, FabricError>;

    /// Active side, when resolved: asks the peer.
    ///
    /// # Errors
    /// What the system says.
    fn connect(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError>;

    /// Active side, when the peer has accepted: the connection stands from now on.
    ///
    /// # Errors
    /// What the system says.
    fn establish(&mut self) -> Result<(), FabricError>;

    /// Passive side: accepts.
    ///
    /// # Errors
    /// What the system says.
    fn accept(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError>;

    /// Passive side: rejects, in place of accepting.
    ///
    /// Never after [`accept`](Endpoint::accept): Linux (6.1 to 6.12, measured) goes on repeating the accept for 64 s, and dropping
    /// the endpoint blocks for that long. An endpoint that is dropped before the peer has established the connection rejects without
    /// a record.
    fn reject(&mut self, record: &[u8]);

    /// Ends the connection. All work requests complete, with errors if they have not before.
    fn disconnect(&self);

    /// Posts receive buffers.
    ///
    /// # Errors
    /// The place of the first that was not posted, and why.
    fn post_receives(&self, works: &[ReceiveWork]) -> Result<(), PostError>;

    /// Posts sends and writes as one chain, in this order.
    ///
    /// # Errors
    /// The place of the first that was not posted, and why.
    fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError>;

    /// Takes completions, as many as there are and `done` has room for.
    ///
    /// # Errors
    /// The completion queue has broken.
    fn poll(&self, done: &mut Completions) -> Result<(), Errno>;

    /// The next completion makes the channel tell [`CmEvent::Ready`]. One that came before the call does not: whoever arms
    /// polls again afterwards.
    ///
    /// # Errors
    /// What the system says.
    fn arm(&self) -> Result<(), Errno>;
}

/// A piece of registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// Where it starts in this process.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The local key of its registration.
    pub key: u32,
}

/// A buffer to receive into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveWork {
    /// Comes back with its completion.
    pub id: u64,
    /// The memory.
    pub piece: Piece,
}

/// Something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWork<'a> {
    /// Comes back with its completion.
    pub id: u64,
    /// The memory, in order.
    pub pieces: &'a [Piece],
    /// What to do with it.
    pub kind: SendKind,
    /// Whether it completes visibly. One that fails always does, and so do all behind it.
    pub signalled: bool,
    /// The bytes are copied by the call: its memory, registered like any other, is free when the call returns.
    pub inline: bool,
}

/// Send or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendKind {
    /// Into the receive buffer that the peer posted next.
    Send,
    /// Into the peer's memory (RDMA WRITE).
    Write {
        /// Where, in the peer's process.
        address: u64,
        /// The remote key of its registration.
        key: u32,
    },
}

/// A work request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work request {place} of a chain: {errno}")]
pub struct PostError {
    /// Which of the chain: those before it are posted.
    pub place: usize,
    /// Why.
    pub errno: Errno,
}

/// The completions of one look.
pub type Completions = SmallVec<[Completion; COMPLETIONS_PER_LOOK]>;

/// The most completions that one look takes: so many receives are posted again in one call.
pub const COMPLETIONS_PER_LOOK: usize = 16;

/// A work request that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The id of the work request.
    pub id: u64,
    /// Bytes received; of sends 0.
    pub length: u32,
    /// How it went.
    pub status: Result<(), WorkError>,
}

/// Why a work request failed: the status of verbs (`ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkError {
    /// It was not carried out, for its connection has ended (5).
    Flushed,
    /// The peer did not answer (12).
    RetriesExceeded,
    /// The peer had no receive buffer (13).
    NoReceiver,
    /// The peer refused the access: an address or key that is not registered there (10).
    RemoteAccess,
    /// Another.
    Other(u32),
}

/// Why something of RDMA could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct FabricError {
    /// The object, the step, and what to do.
    pub what: String,
    /// The errno.
    pub errno: Errno,
}
