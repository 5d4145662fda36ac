//! The receiving half of a connection (lnet-wire 25, S-210).
//!
//! Small messages come many per system call through a buffer that all connections share, and are
//! copied once. The rest of a large payload goes from the socket directly to its destination; a
//! piece of a receive buffer behind it takes the next header in the same call.

use crate::sock::{Peer, Sock};
use lnet_lnd::{ConnFailure, HeldTable};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lnet_api::{Errno, PayloadTarget};
use lnet_nid::ProcessId;
use lnet_proto::ByteOrder;
use lnet_proto::sock::{ConnType, Decoder, MessageChecksum, Version};

use super::sending::SendProgress;
use crate::conn::Conn;
use crate::sock::Turn;
use crate::sys::Stream;
pub(super) use buffers::ShardBuffers;
use buffers::{ReceiveBuffer, Stash};
use incoming::Incoming;
use lnet_lnd::admission::Permit;
use lnet_lnd::shard_table::ShardKey;

mod buffers;
mod frames;
mod incoming;
mod read;

/// Maximum number of system calls on one connection before the other connections have their turn.
const READS_PER_TURN: usize = 8;

/// The driver's state of a connection.
pub(super) struct RxConn {
    pub(super) conn: Arc<Conn>,
    pub(super) peer: Arc<Peer>,
    /// The peer's address. The system no longer reports it once the connection is broken.
    pub(super) remote: SocketAddr,
    decoder: Decoder,
    state: State,
    /// The first bytes of a header that is not complete yet.
    head: [u8; Decoder::FRAME_MAX],
    head_len: usize,
    /// Bytes read that are not parsed yet.
    stash: Option<Stash>,
    /// Set if received data is acknowledged at once (`eager_ack`).
    eager: bool,
    /// Set if the last message was large: then little is read ahead.
    bulky: bool,
    /// Set while the connection is in the ready list.
    pub(super) queued: bool,
    /// Set once the peer has stopped sending: reading continues until a receive reports the end.
    pub(super) ending: bool,
    /// Set on a new connection: the events for earlier data, possibly the end, went to the
    /// handshake and are not repeated: reading continues until nothing is left.
    pub(super) fresh: bool,
    /// The time of the last received bytes.
    pub(super) last_heard_ns: u64,
    /// Set when bytes have been received since the flag was last cleared.
    pub(super) received: bool,
    /// Set while no bytes have been received after the handshake.
    pub(super) silent: bool,
    /// The time at which the message in reception began or was resumed; `None` between messages,
    /// and while one is held.
    begun_ns: Option<u64>,
    /// Progress of sending.
    pub(super) sending: SendProgress,
    /// The peer's identity, in place of the one in its headers.
    rewrite: Option<ProcessId>,
    /// The admission permit of a peer that connected in.
    permit: Option<Permit>,
}

enum State {
    /// Reception is between messages, or inside a header.
    Frame,
    Payload(Incoming),
    /// The engine holds the message (a PUT on a lazy portal), and nothing is read.
    Held,
}

/// A held message whose payload is not read yet.
pub struct Unread {
    total: usize,
    cookie: Option<u64>,
    checksum: Option<MessageChecksum>,
}

/// Answer to the question whether a connection has more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Possibly more to read: the connection needs another turn.
    More,
    /// Nothing more to read: an event or a resumption will follow.
    Drained,
}

impl RxConn {
    pub(super) fn new(
        turn: Turn<'_>,
        key: ShardKey,
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
            received: false,
            silent: true,
            begun_ns: None,
            sending: SendProgress::default(),
            rewrite: None,
            permit: None,
        }
    }

    /// Turns a new connection into one that the peer opened; `rewrite` replaces the identity in the
    /// headers.
    pub(super) fn accepted(mut self, permit: Permit, rewrite: Option<ProcessId>) -> RxConn {
        self.permit = Some(permit);
        self.rewrite = rewrite;
        self
    }

    /// Returns the address from which the peer connected in, if it did.
    pub(super) fn accepted_from(&self) -> Option<IpAddr> {
        self.permit.as_ref().map(Permit::ip)
    }

    /// Stores bytes received with the handshake.
    pub(super) fn stash(&mut self, pool: &mut ShardBuffers, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.silent = false;
            let mut buffer = pool.take();
            buffer[..bytes.len()].copy_from_slice(bytes);
            self.stash = Some(Stash { buffer, start: 0, end: bytes.len() });
        }
    }

    /// Returns whether the engine holds a message of this connection, so that it is not read.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }

    /// Returns whether a message has begun and its rest is awaited.
    pub(super) fn is_mid_message(&self) -> bool {
        matches!(self.state, State::Payload(_)) || (self.head_len > 0 && !self.is_held())
    }

    /// Returns whether queued data has not progressed since the last check, or is long overdue.
    pub(super) fn sends_late(&self, now_ns: u64, timeout_ns: u64) -> bool {
        self.sending.stalled_since_ns(self.conn.queued()).is_some()
            || self.conn.begun_deadline_ns().is_some_and(|ns| ns.saturating_add(timeout_ns) <= now_ns)
    }

    /// Returns whether the message in reception has taken at least `ns`.
    pub(super) fn has_lasted(&self, ns: u64, now_ns: u64) -> bool {
        self.begun_ns.is_some_and(|begun_ns| begun_ns.saturating_add(ns) <= now_ns)
    }

    /// Resumes a held message; `None` discards its payload.
    pub(super) fn resume(&mut self, turn: Turn<'_>, held: Unread, delivery: Option<PayloadTarget>) {
        debug_assert!(self.is_held(), "a message is resumed that is not held back");
        let Unread { total, cookie, checksum } = held;
        self.last_heard_ns = turn.now_ns;
        self.begun_ns = Some(turn.now_ns);
        self.state = State::Payload(Incoming::new(delivery, total, cookie, checksum));
    }

    /// Receives what is available, within the budget; each message costs one.
    pub(super) fn receive(
        &mut self,
        turn: Turn<'_>,
        pool: &mut ShardBuffers,
        held: &mut HeldTable<Sock>,
        budget: &mut usize,
    ) -> Result<Rest, ConnFailure> {
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
            // Bytes that were read but not parsed raise no event: the connection must stay in the
            // ready list.
            if emptied && !self.ending && !self.fresh && self.stash.is_none() {
                return Ok(Rest::Drained);
            }
        }
        Ok(Rest::More)
    }

    /// Finalises the message in reception.
    pub(super) fn abandon(&mut self, errno: Errno) {
        if let State::Payload(incoming) = &mut self.state {
            incoming.fail(&*self.peer.ni.upcalls, errno);
        }
    }
}
