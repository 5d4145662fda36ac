//! The receiving half of a connection (lnet-wire 25, S-210).
//!
//! Small messages come many per system call through a buffer that all connections share, and are copied once. What is
//! left of a large payload goes from the socket straight to its place; a little room behind it brings the next header
//! along with the same call.

use crate::sock::{Peer, Sock};
use lnet_lnd::{HeldTable, Miss};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lnet_api::{Delivery, Errno};
use lnet_nid::ProcessId;
use lnet_proto::ByteOrder;
use lnet_proto::sock::{ConnType, Decoder, MessageChecksum, Version};

use super::sending::Sending;
use crate::conn::Conn;
use crate::sock::Turn;
use crate::sys::Stream;
pub(super) use buffers::BufferPool;
use buffers::{ReceiveBuffer, Stash};
use incoming::Incoming;
use lnet_lnd::admission::Permit;
use lnet_lnd::slab::Key;

mod buffers;
mod frames;
mod incoming;
mod read;

/// System calls to one connection before the others have their turn.
const READS_PER_TURN: usize = 8;

/// A connection as the driver sees it.
pub(super) struct RxConn {
    pub(super) conn: Arc<Conn>,
    pub(super) peer: Arc<Peer>,
    /// Where the peer's end is. A connection that is broken does not know any more.
    pub(super) remote: SocketAddr,
    decoder: Decoder,
    state: State,
    /// The first bytes of a header whose rest has not come.
    head: [u8; Decoder::FRAME_MAX],
    head_len: usize,
    /// Bytes read that are not looked at yet.
    stash: Option<Stash>,
    /// What comes is to be acknowledged at once.
    eager: bool,
    /// The last message was large: read little ahead.
    bulky: bool,
    /// It stands in the ready list.
    pub(super) queued: bool,
    /// The other side has stopped sending: read on until that shows.
    pub(super) ending: bool,
    /// What has come so far, its end perhaps, was told to the handshake and is not told again: read on until nothing is left.
    pub(super) fresh: bool,
    /// When bytes last came.
    pub(super) last_heard_ns: u64,
    /// Bytes have come since this was last taken.
    pub(super) heard: bool,
    /// None have come behind the handshake.
    pub(super) silent: bool,
    /// When the message in reception began, or was resumed; `None` between messages, and while one is held back.
    begun_ns: Option<u64>,
    /// Whether what is sent moves.
    pub(super) sending: Sending,
    /// Who the peer is taken for, in place of what its headers say.
    rewrite: Option<ProcessId>,
    /// A peer that connected in.
    permit: Option<Permit>,
}

enum State {
    /// Between messages, or inside a header.
    Frame,
    Payload(Incoming),
    /// The engine holds the message back (a PUT on a lazy portal).
    Held,
}

/// What is known of a message that the engine holds back, whose payload is not read yet.
pub struct Unread {
    total: usize,
    cookie: Option<u64>,
    checksum: Option<MessageChecksum>,
}

/// Whether a connection has more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Perhaps: it wants another turn.
    More,
    /// No: there will be an event, or a resumption.
    Drained,
}

impl RxConn {
    pub(super) fn new(
        turn: Turn<'_>,
        key: Key,
        stream: Box<dyn Stream>,
        peer: &Arc<Peer>,
        conn_type: ConnType,
        version: Version,
        order: ByteOrder,
    ) -> RxConn {
        let remote = stream.peer_addr().unwrap_or_else(|| peer.address(0));
        RxConn {
            remote,
            conn: Arc::new(Conn::new(key, stream, conn_type, version, peer)),
            peer: peer.clone(),
            decoder: Decoder::new(version, order),
            state: State::Frame,
            head: [0; Decoder::FRAME_MAX],
            head_len: 0,
            stash: None,
            eager: turn.shared.config.eager_ack >> conn_type.get() & 1 == 1,
            bulky: conn_type == ConnType::BulkIn,
            queued: false,
            ending: false,
            fresh: true,
            last_heard_ns: turn.now_ns,
            heard: false,
            silent: true,
            begun_ns: None,
            sending: Sending::default(),
            rewrite: None,
            permit: None,
        }
    }

    /// The same for a peer that connected in, taken for `rewrite` if its headers don't count.
    pub(super) fn accepted(mut self, permit: Permit, rewrite: Option<ProcessId>) -> RxConn {
        self.permit = Some(permit);
        self.rewrite = rewrite;
        self
    }

    /// The address that it came from, if it connected in.
    pub(super) fn accepted_from(&self) -> Option<IpAddr> {
        self.permit.as_ref().map(Permit::ip)
    }

    /// Keeps bytes that came with the handshake.
    pub(super) fn stash(&mut self, pool: &mut BufferPool, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.silent = false;
            let mut buffer = pool.take();
            buffer[..bytes.len()].copy_from_slice(bytes);
            self.stash = Some(Stash { buffer, start: 0, end: bytes.len() });
        }
    }

    /// Whether the engine holds a message of this connection back, so that it is not read.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }

    /// Whether a message has begun and its rest is awaited.
    pub(super) fn is_mid_message(&self) -> bool {
        matches!(self.state, State::Payload(_)) || (self.head_len > 0 && !self.is_held())
    }

    /// Whether something that is to be sent has not moved since the last look, or is long overdue.
    pub(super) fn sends_late(&self, now_ns: u64, timeout_ns: u64) -> bool {
        self.sending.stalled_since_ns(self.conn.queued()).is_some()
            || self.conn.begun_deadline_ns().is_some_and(|ns| ns.saturating_add(timeout_ns) <= now_ns)
    }

    /// Whether the message that is in reception is so for as long as that.
    pub(super) fn has_lasted(&self, ns: u64, now_ns: u64) -> bool {
        self.begun_ns.is_some_and(|begun_ns| begun_ns.saturating_add(ns) <= now_ns)
    }

    /// Goes on with the message that is held back; `None` throws its payload away.
    pub(super) fn resume(&mut self, turn: Turn<'_>, held: Unread, delivery: Option<Delivery>) {
        debug_assert!(self.is_held(), "a message is resumed that is not held back");
        let Unread { total, cookie, checksum } = held;
        self.last_heard_ns = turn.now_ns;
        self.begun_ns = Some(turn.now_ns);
        self.state = State::Payload(Incoming::new(delivery, total, cookie, checksum));
    }

    /// Receives what there is, within the budget, which each message reduces by one.
    pub(super) fn receive(
        &mut self,
        turn: Turn<'_>,
        pool: &mut BufferPool,
        held: &mut HeldTable<Sock>,
        budget: &mut usize,
    ) -> Result<Rest, Miss> {
        self.settle(turn, held)?;
        if let Some(Stash { buffer, start, end }) = self.stash.take() {
            self.digest(turn, pool, held, (buffer, start..end), budget)?;
        }
        for _ in 0..READS_PER_TURN {
            if self.is_held() {
                return Ok(Rest::Drained);
            }
            if self.stash.is_some() {
                return Ok(Rest::More);
            }
            let emptied = !self.read(turn, pool, held, budget)?;
            // Bytes that were read but not looked at raise no event: the connection must stay in the list for them.
            if emptied && !self.ending && !self.fresh && self.stash.is_none() {
                return Ok(Rest::Drained);
            }
        }
        Ok(Rest::More)
    }

    /// Finalises what was being received.
    pub(super) fn abandon(&mut self, errno: Errno) {
        if let State::Payload(incoming) = &mut self.state {
            incoming.fail(&*self.peer.ni.upcalls, errno);
        }
    }
}
