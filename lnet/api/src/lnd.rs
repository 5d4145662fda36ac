//! The interface between the engine and an LND: the engine calls [`Lnd`], an LND calls [`Upcalls`].

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_nid::{NetType, Nid, ProcessId};
use lnet_proto::Header;
use lnet_region::{ReadVec, Region, WriteVec};

use crate::{Errno, Poll};

/// Identifies a message that the engine is sending; opaque to LNDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxToken(pub u64);

/// Identifies a message that the engine is receiving; opaque to LNDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxToken(pub u64);

/// Identifies a receive within an LND (a connection and a message on it); opaque to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxContext(pub u64);

/// A message for an LND to send. The LND owns it until it is complete, together with the payload's
/// lease.
#[derive(Debug)]
pub struct Tx {
    /// The local NI that sends.
    pub ni: Nid,
    /// The next hop: the peer to which this message is handed, with its PID (a PID with the
    /// userspace flag names the one connection from which it came, lnet-wire 27).
    pub peer: ProcessId,
    /// The header, in its final form.
    pub header: Header,
    /// The payload; `None` if there is none.
    pub payload: Option<ReadVec>,
    /// The token to pass to the engine when the message is complete.
    pub token: TxToken,
    /// The GET that a REPLY answers, so that an RDMA network can write straight into the
    /// initiator's memory; `None` for other messages.
    pub reply_to: Option<RxContext>,
    /// The time by which the message must have left, in nanoseconds of the node's clock.
    pub deadline_ns: u64,
}

/// The result of [`Lnd::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The message is complete already, with or without success: [`Upcalls::finalize_tx`] will not
    /// be called.
    Now(Result<(), Errno>),
    /// The message is under way: [`Upcalls::finalize_tx`] will be called exactly once, from another
    /// call than this one, unless [`Lnd::withdraw`] takes the message back.
    Later,
}

/// A message header that has arrived.
///
/// One check of lnet-wire 9 is made by the LND: a GET that asks for direct transfer (row 6) and is
/// not for the NI on which it arrived is a protocol error.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The local NI on which the header arrived.
    pub ni: Nid,
    /// The connected peer: the last hop.
    pub from: ProcessId,
    /// The address at the other end of the message's connection, if it may differ from that of the
    /// peer's NID. The credits of the NI are divided by this address, because a peer can claim any
    /// NID, but not any address.
    pub host: Option<IpAddr>,
    /// The header of the message.
    pub header: &'a Header,
    /// The LND's name for this receive.
    pub rx: RxContext,
}

/// The destination of a message's payload.
#[derive(Debug)]
pub struct PayloadTarget {
    /// The token for [`Upcalls::finalize_rx`], which is called exactly once when the payload is in
    /// place or has failed.
    pub token: RxToken,
    /// The memory for the first `sink.len()` bytes of the payload; the LND reads and discards the
    /// rest. `None` discards the whole payload.
    pub sink: Option<WriteVec>,
}

/// The engine's decision on an arrived header (lnet-wire 9).
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// Receive the payload, then finalise.
    Deliver(PayloadTarget),
    /// Nothing remains to be done; the message had no payload.
    Done,
    /// Read the payload and discard it; keep the connection.
    Discard,
    /// Hold the message until [`Lnd::resume`] (a PUT on a lazy portal): in memory, or on its
    /// connection, which is not read further. If the message is lost before that, the LND calls
    /// [`Upcalls::forget_delayed`].
    Delay(RxToken),
    /// The message waits as with [`Verdict::Delay`], but always on the connection, which is not
    /// read further: a fault rule delays the message, and no other may overtake it.
    Stay(RxToken),
    /// The peer broke the protocol: close its connections.
    Close(Errno),
}

/// The limits of an NI, reported by the LND that started it (lnet-semantics 13, 28).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NiLimits {
    /// Messages in flight over the NI, for all peers together (`credits`).
    pub credits: u32,
    /// Messages in flight to one peer (`peer_credits`).
    pub peer_credits: u32,
    /// Time limit for one attempt to send, in nanoseconds (`sock_timeout`).
    pub timeout_ns: u64,
}

/// A failure of an LND: the object, the step and the errno.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct LndError {
    /// The object and the step that failed.
    pub what: String,
    /// The errno for the caller.
    pub errno: Errno,
}

/// A network driver (S-201; `struct lnet_lnd`). One object holds the state of all networks of one
/// type; its connections are split into *shards*, one or more per CPU partition, and at any time at
/// most one thread drives a shard: the one that holds the shard's token in the node's
/// [`crate::Tokens`].
///
/// The trait fits TCP, verbs and a simulated network alike. It also fits forwarding (S-110): a
/// message for another node is a [`PayloadTarget`] into a router's buffer, delayed ([`Verdict::Delay`])
/// until there is a buffer, and then a [`Tx`] with the received header and the next hop as its
/// peer.
pub trait Lnd: Send + Sync {
    /// Returns the type of network that the LND drives.
    fn net_type(&self) -> NetType;

    /// Starts an NI. The LND may make upcalls from now on, even before this call returns.
    ///
    /// # Errors
    /// EADDRINUSE names the holder of the NID, EADDRNOTAVAIL an address that is not the host's,
    /// EACCES a port that needs privileges.
    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError>;

    /// Stops an NI: closes its listener and connections, and finalises all messages in flight on
    /// them with ESHUTDOWN before it returns; no upcall for the NI is made afterwards. Any thread
    /// may call it; it blocks until a `poll` that runs in another thread has returned.
    fn shutdown(&self, ni: Nid);

    /// Sends a message, in the caller's own thread if a connection is idle. Called without any of
    /// the engine's locks. A call that races with [`Lnd::shutdown`] may come after it: the message
    /// fails with ENETDOWN.
    fn send(&self, tx: Tx) -> Sent;

    /// Takes back a message of which no byte has been sent: one for which [`Lnd::send`] returned
    /// [`Sent::Later`], and that waits for a connection or behind others. `ni`, `peer` and `token`
    /// are those of its [`Tx`]. Called, by any thread, without any of the engine's locks, for
    /// messages whose owner no longer needs them.
    ///
    /// Returns `true` if the message was taken back, as if it had never been sent: its payload's
    /// lease is released, and [`Upcalls::finalize_tx`] is not called. Returns `false` if it goes
    /// on, and is finalised once as usual: it has begun to leave, is gone, or is just being sent by
    /// another thread. If that thread cannot send the message, it may still finalise it with
    /// ECANCELED.
    ///
    /// By default no message is taken back.
    #[must_use]
    fn withdraw(&self, ni: Nid, peer: ProcessId, token: TxToken) -> bool {
        let _ = (ni, peer, token);
        false
    }

    /// Continues with a message that was delayed; with `None` its payload is discarded. Another
    /// thread may call it before [`Upcalls::parse`] has returned [`Verdict::Delay`] for this
    /// message to the LND. If the connection is lost, the delivery is finalised with the reason.
    fn resume(&self, rx: RxContext, delivery: Option<PayloadTarget>);

    /// Returns the number of shards; [`Lnd::startup`] may add some, up to [`crate::MAX_SHARDS`],
    /// and none is ever removed. 0 by default, for a network that needs no driving: one of a test,
    /// or a simulated one.
    fn shards(&self) -> usize {
        0
    }

    /// Returns the CPU partition of a shard: a thread that drives the shard runs on its CPUs. By
    /// default there is one shard per partition.
    fn partition(&self, shard: usize) -> usize {
        shard
    }

    /// Handles pending events of a shard without blocking: receives, sends, accepts, connects,
    /// fires timers; about `budget` messages at most. The caller holds the shard's token.
    fn poll(&self, shard: usize, now_ns: u64, budget: usize) -> Poll {
        let _ = (shard, now_ns, budget);
        Poll::default()
    }

    /// Ensures that new work makes [`Lnd::wait_fd`] readable. Returns `false` if there is work
    /// already: poll again. (TCP's epoll is always armed; verbs must request a notification and
    /// poll again.)
    fn arm(&self, shard: usize) -> bool {
        let _ = shard;
        true
    }

    /// Returns the descriptor that becomes readable when an armed shard has work.
    ///
    /// # Panics
    /// By default: an LND that has shards must implement this.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        unreachable!("shard {shard} of an LND without shards")
    }

    /// Returns whether the LND has connections or listeners that must be driven.
    fn is_active(&self) -> bool {
        self.shards() > 0
    }

    /// Prepares memory for transfers, so that this is not done per message; constant time after the
    /// first call.
    fn register(&self, region: &Region) -> Result<(), LndError> {
        let _ = region;
        Ok(())
    }

    /// Undoes [`Lnd::register`], if the registration does not end with the region.
    fn deregister(&self, region: &Region) {
        let _ = region;
    }
}

/// The interface of the engine for LNDs. Any thread may call it, holding none of the LND's locks
/// that [`Lnd::send`] takes.
pub trait Upcalls: Send + Sync {
    /// Returns the CPU partition of a peer of an NI (`lnet_cpt_of_nid`): the peer's connections are
    /// on that partition's shard (S-209).
    fn partition_of(&self, ni: Nid, peer: Nid) -> usize;

    /// Handles an arrived header (`lnet_parse`).
    fn parse(&self, arrival: &Arrival<'_>) -> Verdict;

    /// Ends the wait of a delayed message whose connection is lost. Returns `false` if the message
    /// waits no longer: [`Lnd::resume`] has been called for it, or is about to be.
    fn forget_delayed(&self, token: RxToken) -> bool;

    /// Drops a delayed message for which there is no memory. As [`Upcalls::forget_delayed`], and
    /// the sender gets a refusal as for any message for which there is no room.
    fn drop_delayed(&self, token: RxToken) -> bool {
        self.forget_delayed(token)
    }

    /// Reports that the payload of a delivered message is in place, or was lost.
    fn finalize_rx(&self, token: RxToken, result: Result<(), Errno>);

    /// Finalises a message for which [`Lnd::send`] returned [`Sent::Later`]: it has left, or
    /// failed.
    fn finalize_tx(&self, token: TxToken, result: Result<(), Errno>);

    /// Finalises several messages that have left with one system call, in this order, like
    /// [`Upcalls::finalize_tx`]: a thread that waits for some of them is woken once.
    fn finalize_txs(&self, tokens: &[TxToken], result: Result<(), Errno>) {
        tokens.iter().for_each(|&token| self.finalize_tx(token, result));
    }

    /// Returns the memory into which a GET's data may be written directly, for networks that need
    /// no REPLY message; exactly one [`Upcalls::finalize_get`] must follow. `None` if the GET is
    /// gone.
    fn sink_of_get(&self, token: TxToken) -> Option<WriteVec>;

    /// Completes a GET whose data the network has written directly, with the number of bytes or the
    /// error. Replaces `finalize_tx` and a REPLY.
    fn finalize_get(&self, token: TxToken, result: Result<u32, Errno>);

    /// Reports that all connections to a peer have ended. Its outstanding replies and
    /// acknowledgements will not arrive.
    fn peer_lost(&self, ni: Nid, peer: ProcessId, reason: Errno);

    /// Returns whether messages wait for credits of an NI, or because their host has used its share
    /// of them. If so, the LND gives up connections that hold credits without progress sooner. The
    /// call checks all partitions, so it must be rare.
    fn is_short(&self, ni: Nid) -> bool {
        let _ = ni;
        false
    }

    /// Reports that the link of an NI is down, or up again (lnet-semantics 16): peers get the NI's
    /// new state, and messages use another NI if there is one. For each NI one thread at a time
    /// makes this call.
    fn link_changed(&self, ni: Nid, up: bool) {
        let _ = (ni, up);
    }
}
