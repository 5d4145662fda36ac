use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use lnet_api::Errno;
use lnet_nid::Nid;
use lnet_region::{Part, PartMut};
use smallvec::SmallVec;

use super::{Events, Options, TcpFacts};
use crate::{SockError, Step};

/// The most pieces of memory handed to one system call: a message of LNet's 256 fragments with what stands before or
/// behind it. The system itself allows 1024.
pub(crate) const PIECES_MAX: usize = 512;

/// What one call sends, on the stack.
pub(crate) type Gather<'a> = SmallVec<[Part<'a>; PIECES_MAX]>;

/// Where one call receives to, on the stack.
pub(crate) type Scatter<'a> = SmallVec<[PartMut<'a>; PIECES_MAX]>;

/// A host's TCP, and what else the LND asks of the system.
pub trait Net: Send + Sync {
    /// Claims a NID for this process on this host; dropping what it gives gives the NID back.
    ///
    /// # Errors
    /// [`SockError::NidTaken`] names the holder.
    fn claim(&self, nid: Nid) -> Result<Box<dyn Send + Sync>, SockError>;

    /// Listens on one address and port, `backlog` connections deep. The options are those of the connections to come:
    /// they are tried here, where somebody reads the error.
    ///
    /// # Errors
    /// The port is taken or needs privileges, the host does not have the address, or an option cannot be set.
    fn listen(
        &self,
        address: SocketAddr,
        backlog: u16,
        options: &Options,
    ) -> Result<Box<dyn Listener>, SockError>;

    /// Begins to connect from the highest privileged port that is free (lnet-wire 20), or from any port if this process
    /// may not use those. The options are set first.
    ///
    /// # Errors
    /// The step that failed, and why.
    fn connect(&self, from: IpAddr, to: SocketAddr, options: &Options) -> Result<Connecting, (Step, Errno)>;

    /// An empty poller. Each poll busy-polls the network cards for up to `epoll_busy_poll_us`, where the system supports it.
    ///
    /// # Errors
    /// EMFILE without descriptors.
    fn poller(&self, epoll_busy_poll_us: u32) -> Result<Box<dyn Poller>, Errno>;

    /// A number that no earlier life of an NI on this host has had: it tells peers one life from the next (lnet-wire 24).
    fn incarnation(&self) -> u64;

    /// How many descriptors this process may have open at a time (RLIMIT_NOFILE).
    fn descriptors_max(&self) -> usize {
        usize::MAX
    }
}

/// A connection under way.
pub struct Connecting {
    /// The stream; it becomes writable when the connection stands or has failed.
    pub stream: Box<dyn Stream>,
    /// Whether its source port is privileged, which peers take for proof of who they talk to.
    pub privileged: bool,
}

/// What a [`Poller`] watches.
#[derive(Debug, Clone, Copy)]
pub enum Handle<'a> {
    /// The system's.
    Fd(BorrowedFd<'a>),
    /// A stand-in's own number.
    Number(u64),
}

/// One TCP connection. Dropping it closes it. One thread sends at a time, one receives; they may be different ones.
pub trait Stream: Send + Sync {
    /// What a poller of the same [`Net`] watches it by.
    fn handle(&self) -> Handle<'_>;

    /// Writes as much of these bytes, in order, as there is room for; gives how many.
    ///
    /// # Errors
    /// EAGAIN: there is no room, and writability will be reported.
    fn send(&self, pieces: &[Part<'_>]) -> Result<usize, Errno>;

    /// Reads into one buffer, which is not empty.
    fn receive(&self, buffer: &mut [u8]) -> Received;

    /// Reads into several pieces of memory in order, which are not all empty.
    fn receive_into(&self, pieces: &mut [PartMut<'_>]) -> Received;

    /// How a connection that was under way has ended.
    ///
    /// # Errors
    /// Why it could not be made.
    fn connect_result(&self) -> Result<(), Errno>;

    /// Sets the connection's options (lnet-wire 29).
    ///
    /// # Errors
    /// Why one cannot be set.
    fn tune(&self, options: &Options) -> Result<(), Errno>;

    /// Has what came acknowledged at once instead of with the next answer (`eager_ack`). Not lasting: to be said again
    /// after each receive.
    fn acknowledge_now(&self) {}

    /// Ends both directions: the other side sees the end, and so does who receives or sends here.
    fn shutdown(&self);

    /// For how many seconds what was sent may stay unacknowledged, or wait for room at the other end, before the system gives the
    /// connection up (TCP_USER_TIMEOUT); 0 for as long as the other end answers at all.
    fn limit_unacked(&self, seconds: u32);

    /// What the system knows of the connection; `None` from one that says nothing.
    fn facts(&self) -> Option<TcpFacts> {
        None
    }

    /// The other end, while there is one.
    fn peer_addr(&self) -> Option<SocketAddr>;
}

/// What a receive gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// This many bytes.
    Bytes(usize),
    /// There is nothing now; readability will be reported.
    Nothing,
    /// The other side sends no more.
    End,
    /// The connection is broken.
    Broken(Errno),
}

/// A listening socket. Dropping it closes it, and resets the connections that wait.
pub trait Listener: Send + Sync {
    /// What a poller of the same [`Net`] watches it by.
    fn handle(&self) -> Handle<'_>;

    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// Accepts one connection.
    fn accept(&self) -> Accepted;
}

/// What an attempt to accept gave.
pub enum Accepted {
    /// A connection, and where it comes from.
    Connection(Box<dyn Stream>, SocketAddr),
    /// Nobody waits; readability will be reported.
    Nobody,
    /// The connection that waited is gone; there may be others.
    Gone,
    /// Nothing can be accepted for now: there are no descriptors or no memory left, or the system forbids it.
    Exhausted(Errno),
}

/// Tells what has changed on streams and listeners, and is a wake-up for whoever sleeps on it.
///
/// Everything is watched edge-triggered for both directions, from the beginning to the end: no call is ever made to
/// change what is watched, and no two threads can disagree about it. What is watched reports its present state once.
pub trait Poller: Send + Sync {
    /// Watches a stream or listener under this key, which is not `u64::MAX`.
    ///
    /// # Errors
    /// ENOSPC or ENOMEM if the system has no room for more.
    fn add(&self, what: Handle<'_>, key: u64) -> Result<(), Errno>;

    /// Watches it no longer. Nothing happens if it is not watched.
    fn delete(&self, what: Handle<'_>);

    /// Replaces `events` with what has changed since the last call; does not block. What finds no room is reported by the
    /// next call.
    fn wait(&self, events: &mut Events);

    /// Wakes whoever sleeps on [`Poller::fd`], or keeps the next from sleeping.
    fn wake(&self);

    /// Readable when something has changed.
    ///
    /// # Panics
    /// A stand-in may have none: nobody sleeps on it.
    fn fd(&self) -> BorrowedFd<'_>;
}
