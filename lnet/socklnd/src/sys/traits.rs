//! The traits of the system layer: network, stream, listener and poller.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use lnet_api::Errno;
use lnet_nid::Nid;
use lnet_region::{Part, PartMut};
use smallvec::SmallVec;

use super::{Events, Options, TcpFacts};
use crate::{ConnStep, SockError};

/// Maximum number of pieces of memory in one system call: a message of LNet's 256 fragments, with
/// the bytes before or behind it. The system itself allows 1024.
pub(crate) const PIECES_MAX: usize = 512;

/// The pieces that one call sends, on the stack.
pub(crate) type Gather<'a> = SmallVec<[Part<'a>; PIECES_MAX]>;

/// The pieces that one call fills, on the stack.
pub(crate) type Scatter<'a> = SmallVec<[PartMut<'a>; PIECES_MAX]>;

/// A host's TCP, and the other services that the LND needs from the system.
pub trait TcpStack: Send + Sync {
    /// Claims a NID for this process on this host; dropping the result releases the NID.
    ///
    /// # Errors
    /// [`SockError::NidTaken`] names the holder.
    fn claim(&self, nid: Nid) -> Result<Box<dyn Send + Sync>, SockError>;

    /// Listens on one address and port with a queue of `backlog` connections. The options are those
    /// of the later connections: they are tried here, where the error reaches the caller that
    /// starts the NI.
    ///
    /// # Errors
    /// The port is taken or needs privileges, the host does not have the address, or an option
    /// cannot be set.
    fn listen(
        &self,
        address: SocketAddr,
        backlog: u16,
        options: &Options,
    ) -> Result<Box<dyn Listener>, SockError>;

    /// Starts to connect from the highest free privileged port (lnet-wire 20), or from any port if
    /// this process may not use those. The options are set first.
    ///
    /// # Errors
    /// The failed step, and the error.
    fn connect(
        &self,
        from: IpAddr,
        to: SocketAddr,
        options: &Options,
    ) -> Result<Connecting, (ConnStep, Errno)>;

    /// Creates an empty poller. Each poll busy-polls the network cards for up to
    /// `epoll_busy_poll_us`, where the system supports it.
    ///
    /// # Errors
    /// EMFILE without descriptors.
    fn poller(&self, epoll_busy_poll_us: u32) -> Result<Box<dyn Poller>, Errno>;

    /// Returns a number unique among all NIs started on this host: peers distinguish one run of an
    /// NI from the next by it (lnet-wire 24).
    fn incarnation(&self) -> u64;

    /// Returns the maximum number of descriptors that this process may have open (RLIMIT_NOFILE).
    fn descriptors_max(&self) -> usize {
        usize::MAX
    }
}

/// A connection under way.
pub struct Connecting {
    /// The stream; it becomes writable when the connection is established or has failed.
    pub stream: Box<dyn Stream>,
    /// True if the source port is privileged, which peers accept as proof of this node's identity.
    pub privileged: bool,
}

/// A descriptor that a [`Poller`] watches.
#[derive(Debug, Clone, Copy)]
pub enum Handle<'a> {
    /// A descriptor of the system.
    Fd(BorrowedFd<'a>),
    /// A number of an implementation in memory.
    Number(u64),
}

/// One TCP connection. Dropping it closes it. One thread sends at a time and one receives; they may
/// differ.
pub trait Stream: Send + Sync {
    /// Returns the handle by which a poller of the same [`TcpStack`] watches the stream.
    fn handle(&self) -> Handle<'_>;

    /// Writes the first of these bytes, in order, up to the room in the socket. Returns the number
    /// written.
    ///
    /// # Errors
    /// EAGAIN: there is no room, and writability will be reported.
    fn send(&self, pieces: &[Part<'_>]) -> Result<usize, Errno>;

    /// Reads into one buffer, which is not empty.
    fn receive(&self, buffer: &mut [u8]) -> RecvResult;

    /// Reads into several pieces of memory in order, which are not all empty.
    fn receive_into(&self, pieces: &mut [PartMut<'_>]) -> RecvResult;

    /// Returns the result of a connection that was under way.
    ///
    /// # Errors
    /// The reason of the failure.
    fn connect_result(&self) -> Result<(), Errno>;

    /// Sets the connection's options (lnet-wire 29).
    ///
    /// # Errors
    /// The reason why one cannot be set.
    fn tune(&self, options: &Options) -> Result<(), Errno>;

    /// Acknowledges received data at once instead of with the next answer (`eager_ack`). The effect
    /// is not permanent: call this after each receive.
    fn acknowledge_now(&self) {}

    /// Ends both directions: the other side sees the end, and so do calls that receive or send
    /// here.
    fn shutdown(&self);

    /// Limits how long sent data may stay unacknowledged, or wait for room at the other end, before
    /// the system ends the connection (TCP_USER_TIMEOUT), in seconds. With 0 there is no limit
    /// while the other end answers.
    fn limit_unacked(&self, seconds: u32);

    /// Returns the system's information about the connection; `None` if the system provides none.
    fn facts(&self) -> Option<TcpFacts> {
        None
    }

    /// Returns the address of the other end, while connected.
    fn peer_addr(&self) -> Option<SocketAddr>;
}

/// The result of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvResult {
    /// The number of bytes received.
    Bytes(usize),
    /// No bytes are available now; readability will be reported.
    Nothing,
    /// The other side sends no more.
    End,
    /// The connection is broken.
    Broken(Errno),
}

/// A listening socket. Dropping it closes it, and resets the waiting connections.
pub trait Listener: Send + Sync {
    /// Returns the handle by which a poller of the same [`TcpStack`] watches the listener.
    fn handle(&self) -> Handle<'_>;

    /// Returns the address on which the socket listens.
    fn address(&self) -> SocketAddr;

    /// Accepts one connection.
    fn accept(&self) -> Accepted;
}

/// The result of an attempt to accept.
pub enum Accepted {
    /// A connection, and the peer's address.
    Connection(Box<dyn Stream>, SocketAddr),
    /// No connection waits; readability will be reported.
    Nobody,
    /// The waiting connection is gone; there may be others.
    Gone,
    /// Nothing can be accepted for now: descriptors or memory have run out, or the system forbids
    /// it.
    Exhausted(Errno),
}

/// Reports changes on streams and listeners, and wakes a thread that sleeps on it.
///
/// All handles are watched edge-triggered for both directions, from the beginning to the end: no
/// call ever changes what is watched, and no two threads can disagree about it. Watching starts
/// with one report of the present state.
pub trait Poller: Send + Sync {
    /// Watches a stream or listener under this key, which is not `u64::MAX`.
    ///
    /// # Errors
    /// ENOSPC or ENOMEM if the system has no room for more.
    fn add(&self, handle: Handle<'_>, key: u64) -> Result<(), Errno>;

    /// Ends the watching of a handle. No effect if the handle is not watched.
    fn delete(&self, handle: Handle<'_>);

    /// Replaces `events` with the changes since the last call; does not block. Changes without room
    /// are reported by the next call.
    fn wait(&self, events: &mut Events);

    /// Wakes the thread that sleeps on [`Poller::fd`], or keeps the next one from sleeping.
    fn wake(&self);

    /// Returns a descriptor that is readable when something has changed.
    ///
    /// # Panics
    /// An implementation in memory may have none: no thread sleeps on it.
    fn fd(&self) -> BorrowedFd<'_>;
}
