use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_nid::{NetType, Nid, ProcessId};
use lnet_proto::Header;
use lnet_region::{ReadVec, Region, WriteVec};

use crate::{Errno, Poll};

/// Names a message that the engine is sending; only the engine looks inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxToken(pub u64);

/// Names a message that the engine is receiving; only the engine looks inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxToken(pub u64);

/// Names a receive within an LND (a connection and a message on it); only that LND looks inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxContext(pub u64);

/// A message for an LND to send. The LND owns it until it is complete; the payload's lease goes with it.
#[derive(Debug)]
pub struct Tx {
    /// The local NI that sends.
    pub ni: Nid,
    /// The next hop: the peer this message is handed to, with its PID (a PID with the userspace flag names the one
    /// connection it came from, lnet-wire 27).
    pub peer: ProcessId,
    /// The header, ready to be sent.
    pub header: Header,
    /// The payload; `None` if there is none.
    pub payload: Option<ReadVec>,
    /// To be given back when the message is complete.
    pub token: TxToken,
    /// For a REPLY: the GET it answers, so that an RDMA network can write straight into the initiator's memory.
    pub reply_to: Option<RxContext>,
    /// When the message must have left, in nanoseconds of the node's clock.
    pub deadline_ns: u64,
}

/// What became of a message handed to [`Lnd::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Complete already, well or badly: [`Upcalls::finalize_tx`] will not be called.
    Now(Result<(), Errno>),
    /// On its way: [`Upcalls::finalize_tx`] will be called exactly once, from another call than this one, unless
    /// [`Lnd::withdraw`] takes it back.
    Later,
}

/// A message header that has arrived.
///
/// One check of lnet-wire 9 is the LND's own: a GET that asks for direct transfer (row 6) and is not for the NI it
/// arrived on is a protocol error.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The local NI it arrived on.
    pub ni: Nid,
    /// The connected peer: the last hop.
    pub from: ProcessId,
    /// The address that the message's connection comes from or goes to, if it may be another than that of the peer's NID. The
    /// credits of the NI are shared out by it: a NID is a claim, an address is not.
    pub host: Option<IpAddr>,
    /// The header.
    pub header: &'a Header,
    /// The LND's name for this receive.
    pub rx: RxContext,
}

/// Where a message's payload goes.
#[derive(Debug)]
pub struct Delivery {
    /// To be given to [`Upcalls::finalize_rx`] once the payload is in place (or failed), exactly once.
    pub token: RxToken,
    /// Takes the first `sink.len()` bytes of the payload; the rest is read and thrown away. `None`: all of it is.
    pub sink: Option<WriteVec>,
}

/// What the engine makes of an arrived header (lnet-wire 9).
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// Receive the payload, then finalise.
    Deliver(Delivery),
    /// There is nothing more to do; the message had no payload.
    Done,
    /// Read the payload and throw it away; keep the connection.
    Discard,
    /// Hold the message until [`Lnd::resume`] (a PUT on a lazy portal): in memory, or reading nothing further of its connection. If it
    /// is lost meanwhile, the LND says so by [`Upcalls::forget_delayed`].
    Delay(RxToken),
    /// The same, and read nothing further of its connection: a fault rule delays the message, and nothing is to overtake it.
    Stay(RxToken),
    /// The peer broke the protocol: close its connections.
    Close(Errno),
}

/// What an LND tells about an NI it has started (lnet-semantics 13, 28).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NiLimits {
    /// Messages in flight over the NI, all peers together (`credits`).
    pub credits: u32,
    /// Messages in flight to one peer (`peer_credits`).
    pub peer_credits: u32,
    /// How long one attempt to send may take, in nanoseconds (`sock_timeout`).
    pub timeout_ns: u64,
}

/// Why an LND could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct LndError {
    /// The object and the step that failed.
    pub what: String,
    /// The errno.
    pub errno: Errno,
}

/// A network driver (S-201; `struct lnet_lnd`). All state of the networks of one type is behind one object; its
/// connections are split into *shards*, one or more per CPU partition, and at any time at most one thread drives a shard: the
/// one that holds the shard's token in the node's [`crate::Tokens`].
///
/// Nothing here is one network's alone: TCP, verbs and a simulated network have this shape. It is the shape of
/// forwarding too (S-110): a message for another node is a [`Delivery`] into a router's buffer, delayed
/// ([`Verdict::Delay`]) until there is one, and then a [`Tx`] with the header as it came and the next hop as its peer.
pub trait Lnd: Send + Sync {
    /// The type of network it drives.
    fn net_type(&self) -> NetType;

    /// Starts an NI. The upcalls may be made from now on, before this call returns.
    ///
    /// # Errors
    /// EADDRINUSE names the holder of the NID, EADDRNOTAVAIL an address that is not the host's, EACCES a port that needs
    /// privileges.
    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError>;

    /// Stops an NI: its listener and connections are closed, what was in flight on them is finalised with ESHUTDOWN
    /// before this call returns, and no upcall for it is made afterwards. Any thread may call it; it waits for a `poll`
    /// that another thread is in the middle of.
    fn shutdown(&self, ni: Nid);

    /// Sends a message, in the caller's own thread if a connection is idle. Called without any of the engine's locks. A
    /// message decided on before [`Lnd::shutdown`] may come after it: it fails with ENETDOWN.
    fn send(&self, tx: Tx) -> Sent;

    /// Takes back a message of which nothing has left yet: one that [`Lnd::send`] said [`Sent::Later`] for, and that waits
    /// for a connection or behind others. `ni`, `peer` and `token` are those of its [`Tx`]. Called, by any thread, without
    /// any of the engine's locks, for messages whose owner has no more use for them.
    ///
    /// `true`: it is as if it had never been sent; its payload's lease is given back, and [`Upcalls::finalize_tx`] is not
    /// called. `false`: it goes on, and is finalised once as always. It has begun to leave, is gone, or another thread has
    /// just taken it in hand; if that one finds that it cannot leave, it may still finalise it with ECANCELED.
    ///
    /// By default nothing is taken back.
    #[must_use]
    fn withdraw(&self, ni: Nid, peer: ProcessId, token: TxToken) -> bool {
        let _ = (ni, peer, token);
        false
    }

    /// Goes on with a message that was delayed. `None` throws its payload away. Another thread may call it before
    /// [`Upcalls::parse`] has returned [`Verdict::Delay`] for this message to the LND. If the connection is lost, the
    /// delivery is finalised with the reason.
    fn resume(&self, rx: RxContext, delivery: Option<Delivery>);

    /// How many shards there are now; [`Lnd::startup`] may add some, up to [`crate::MAX_SHARDS`], and none ever goes. None by
    /// default, as for a network that needs nobody to drive it: a test's, a simulated one.
    fn shards(&self) -> usize {
        0
    }

    /// The CPU partition that a shard belongs to: the CPUs of a thread that drives it. By default there is one shard per
    /// partition.
    fn partition(&self, shard: usize) -> usize {
        shard
    }

    /// Does what there is to do on a shard without blocking: receives, sends, accepts, connects, fires timers; about
    /// `budget` messages at the most. The caller holds the shard's token.
    fn poll(&self, shard: usize, now_ns: u64, budget: usize) -> Poll {
        let _ = (shard, now_ns, budget);
        Poll::default()
    }

    /// Makes sure that new work makes [`Lnd::wait_fd`] readable. `false`: there is work already, poll again. (TCP's epoll
    /// is always armed; verbs must ask for a notification and look again.)
    fn arm(&self, shard: usize) -> bool {
        let _ = shard;
        true
    }

    /// Becomes readable when an armed shard has work.
    ///
    /// # Panics
    /// By default: an LND that has shards has a descriptor for each.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        unreachable!("shard {shard} of an LND without shards")
    }

    /// Whether it has connections or listeners that somebody must drive.
    fn is_active(&self) -> bool {
        self.shards() > 0
    }

    /// Prepares memory for transfers, so that it need not be done per message; constant time after the first call.
    fn register(&self, region: &Region) -> Result<(), LndError> {
        let _ = region;
        Ok(())
    }

    /// Forgets what [`Lnd::register`] made, if it does not go with the region.
    fn deregister(&self, region: &Region) {
        let _ = region;
    }
}

/// What an LND tells the engine. All may be called from any thread, holding none of the LND's locks that
/// [`Lnd::send`] takes.
pub trait Upcalls: Send + Sync {
    /// The CPU partition that a peer of an NI belongs to (`lnet_cpt_of_nid`): its connections are that shard's (S-209).
    fn partition_of(&self, ni: Nid, peer: Nid) -> usize;

    /// A header has arrived (`lnet_parse`).
    fn parse(&self, arrival: &Arrival<'_>) -> Verdict;

    /// The connection of a delayed message is lost: it waits no longer. `false` if it does not wait any more anyway:
    /// [`Lnd::resume`] has been called for it, or is about to be.
    fn forget_delayed(&self, token: RxToken) -> bool;

    /// There is no memory for a delayed message to wait in, and it is not to wait without: as [`Upcalls::forget_delayed`], and its sender is
    /// refused as that of a message for which there is no room.
    fn drop_delayed(&self, token: RxToken) -> bool {
        self.forget_delayed(token)
    }

    /// The payload of a delivered message is in place, or was lost.
    fn finalize_rx(&self, token: RxToken, result: Result<(), Errno>);

    /// A message for which [`Lnd::send`] said [`Sent::Later`] has left, or could not.
    fn finalize_tx(&self, token: TxToken, result: Result<(), Errno>);

    /// As [`Upcalls::finalize_tx`] for several messages that have left with one system call, in this order: whoever waits
    /// for some of them is woken once.
    fn finalize_txs(&self, tokens: &[TxToken], result: Result<(), Errno>) {
        tokens.iter().for_each(|&token| self.finalize_tx(token, result));
    }

    /// The memory into which a GET's data may be written directly, for networks that need no REPLY message; to be
    /// followed by exactly one [`Upcalls::finalize_get`]. `None` if the GET is gone.
    fn sink_of_get(&self, token: TxToken) -> Option<WriteVec>;

    /// The data of a GET has been written by the network itself: bytes, or why not. Instead of `finalize_tx` and a
    /// REPLY.
    fn finalize_get(&self, token: TxToken, result: Result<u32, Errno>);

    /// All connections to a peer are gone. Replies and acknowledgements still expected from it will not come.
    fn peer_lost(&self, ni: Nid, peer: ProcessId, reason: Errno);

    /// Whether messages wait for credits of an NI, or because their host has its share of them. An LND then gives up sooner what
    /// holds credits and does not move. To be asked seldom: it looks into all partitions.
    fn is_short(&self, ni: Nid) -> bool {
        let _ = ni;
        false
    }

    /// The link of an NI is down, or up again (lnet-semantics 16): peers are told that the NI is, and where there is another
    /// for a message, that one is taken. Of one NI this is told by one thread at a time.
    fn link_changed(&self, ni: Nid, up: bool) {
        let _ = (ni, up);
    }
}
