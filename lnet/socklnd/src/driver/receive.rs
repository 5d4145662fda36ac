//! The receiving half of a connection (lnet-wire 25, S-210).
//!
//! Small messages come many per system call through a buffer that all connections share, and are copied once. What is
//! left of a large payload goes from the socket straight to its place; a little room behind it brings the next header
//! along with the same call.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lnet_api::{Arrival, Delivery, Errno, RxContext, RxToken, Verdict};
use lnet_nid::ProcessId;
use lnet_proto::sock::{Acks, ConnType, Decoder, Frame, MessageChecksum, Prefix, Version};
use lnet_proto::{ByteOrder, Header, ProtoError};
use lnet_region::PartMut;

use super::Turn;
use super::incoming::Incoming;
use crate::admission::Guest;
use crate::conn::Conn;
use crate::peer::Peer;
use crate::slab::Key;
use crate::sys::{Received, Scatter, Stream};

/// Bytes of a receive buffer: hundreds of small messages per call, and little enough to stay in the cache.
const BUFFER_BYTES: usize = 64 << 10;

/// A payload of which at least so much is still to come goes straight to its place. Below, the longer list that the
/// system call is given costs more than the copy (measured: docs/performance.md).
const DIRECT_MIN: usize = 12 << 10;

/// Behind a payload of at least so much, little is read ahead: the next one then takes two system calls, and is not
/// copied. Below, one call and a copy cost less (measured: docs/performance.md).
const BULKY_MIN: usize = 48 << 10;

/// How much is read ahead on a connection that carries bulk: enough for the next header and a small message, little
/// enough that next to nothing of the next bulk is copied.
const BULK_AHEAD: usize = 4 << 10;

/// System calls to one connection before the others have their turn.
const READS_PER_TURN: usize = 8;

/// Receive buffers that are kept; more are needed only while messages are held on several connections.
const BUFFERS_KEPT: usize = 4;

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
    /// When bytes last came.
    pub(super) last_heard_ns: u64,
    /// Bytes have come since this was last taken.
    pub(super) heard: bool,
    /// When the message in reception began, or was held back or resumed; `None` between messages.
    begun_ns: Option<u64>,
    /// What had been written when that was last different, and when: to see whether the connection moves. `None` if
    /// nothing was queued when that was last looked at.
    pub(super) write_mark: Option<(u64, u64)>,
    /// Who the peer is taken for, in place of what its headers say.
    rewrite: Option<ProcessId>,
    /// A peer that connected in.
    guest: Option<Guest>,
}

enum State {
    /// Between messages, or inside a header.
    Frame,
    Payload(Incoming),
    /// The engine holds the message back (a PUT on a lazy portal).
    Held {
        token: RxToken,
        total: usize,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    },
}

struct Stash {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Whether a connection has more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Perhaps: it wants another turn.
    More,
    /// No: there will be an event, or a resumption.
    Drained,
}

/// Why a connection, and with it all of its peer's, must be closed.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) errno: Errno,
    /// The peer is to blame.
    pub(super) protocol: bool,
    pub(super) detail: String,
}

impl From<ProtoError> for Broken {
    fn from(error: ProtoError) -> Broken {
        Broken { errno: Errno::from_raw(error.errno()), protocol: true, detail: error.to_string() }
    }
}

/// Receive buffers, reused.
#[derive(Default)]
pub(super) struct BufferPool(Vec<Box<[u8]>>);

impl BufferPool {
    fn take(&mut self) -> Box<[u8]> {
        self.0.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    fn put(&mut self, buffer: Box<[u8]>) {
        if self.0.len() < BUFFERS_KEPT {
            self.0.push(buffer);
        }
    }
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
            last_heard_ns: turn.now_ns,
            heard: false,
            begun_ns: None,
            write_mark: None,
            rewrite: None,
            guest: None,
        }
    }

    /// The same for a peer that connected in, taken for `rewrite` if its headers don't count.
    pub(super) fn accepted(mut self, guest: Guest, rewrite: Option<ProcessId>) -> RxConn {
        self.guest = Some(guest);
        self.rewrite = rewrite;
        self
    }

    /// The address that it came from, if it connected in.
    pub(super) fn accepted_from(&self) -> Option<IpAddr> {
        self.guest.as_ref().map(Guest::ip)
    }

    /// Keeps bytes that came with the handshake.
    pub(super) fn stash(&mut self, pool: &mut BufferPool, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut buffer = pool.take();
            buffer[..bytes.len()].copy_from_slice(bytes);
            self.stash = Some(Stash { buffer, start: 0, end: bytes.len() });
        }
    }

    /// Whether the engine holds a message of this connection back, so that it is not read.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Whether a message has begun and its rest is awaited.
    pub(super) fn is_mid_message(&self) -> bool {
        matches!(self.state, State::Payload(_)) || (self.head_len > 0 && !self.is_held())
    }

    /// When too long a time will have passed in which nothing could be sent, if nothing can until then.
    pub(super) fn stuck_at_ns(&self, timeout_ns: u64) -> Option<u64> {
        self.write_mark.map(|(_, since_ns)| since_ns.saturating_add(timeout_ns))
    }

    /// Whether the message that is in reception, or held back, is so for as long as that.
    pub(super) fn has_lasted(&self, ns: u64, now_ns: u64) -> bool {
        self.begun_ns.is_some_and(|begun_ns| begun_ns.saturating_add(ns) <= now_ns)
    }

    /// Goes on with the message that is held back; `None` throws its payload away.
    pub(super) fn resume(&mut self, turn: Turn<'_>, delivery: Option<Delivery>) {
        match std::mem::replace(&mut self.state, State::Frame) {
            State::Held { total, cookie, checksum, .. } => {
                self.last_heard_ns = turn.now_ns;
                self.begun_ns = Some(turn.now_ns);
                self.state = State::Payload(Incoming::new(delivery, total, cookie, checksum));
            }
            other => {
                debug_assert!(false, "a message is resumed that is not held back");
                self.state = other;
            }
        }
    }

    /// Receives what there is, within the budget, which each message reduces by one.
    pub(super) fn receive(
        &mut self,
        turn: Turn<'_>,
        pool: &mut BufferPool,
        budget: &mut usize,
    ) -> Result<Rest, Broken> {
        self.settle()?;
        if let Some(Stash { buffer, start, end }) = self.stash.take() {
            self.digest(turn, pool, buffer, start..end, budget)?;
        }
        for _ in 0..READS_PER_TURN {
            if self.is_held() {
                return Ok(Rest::Drained);
            }
            if self.stash.is_some() {
                return Ok(Rest::More);
            }
            let emptied = !self.read(turn, pool, budget)?;
            // Bytes that were read but not looked at raise no event: the connection must stay in the list for them.
            if emptied && !self.ending && self.stash.is_none() {
                return Ok(Rest::Drained);
            }
        }
        Ok(Rest::More)
    }

    /// Finalises what was being received; `true` if a message is held that the engine is about to resume: it must be told
    /// that it is lost.
    pub(super) fn abandon(&mut self, errno: Errno) -> bool {
        match std::mem::replace(&mut self.state, State::Frame) {
            State::Frame => false,
            State::Payload(mut incoming) => {
                incoming.fail(&*self.peer.ni.upcalls, errno);
                false
            }
            State::Held { token, .. } => !self.peer.ni.upcalls.forget_delayed(token),
        }
    }

    /// One system call; `false` if it has emptied the socket.
    fn read(&mut self, turn: Turn<'_>, pool: &mut BufferPool, budget: &mut usize) -> Result<bool, Broken> {
        turn.shard.counters.rx.calls.one();
        let buffer = pool.take();
        let direct = match &mut self.state {
            State::Payload(incoming) => incoming.direct().map_or(0, |(_, _, left)| left),
            State::Frame | State::Held { .. } => 0,
        };
        if direct >= DIRECT_MIN {
            self.read_direct(turn, pool, buffer, budget)
        } else {
            self.read_buffered(turn, pool, buffer, budget)
        }
    }

    fn read_buffered(
        &mut self,
        turn: Turn<'_>,
        pool: &mut BufferPool,
        mut buffer: Box<[u8]>,
        budget: &mut usize,
    ) -> Result<bool, Broken> {
        let start = self.head_len;
        buffer[..start].copy_from_slice(&self.head[..start]);
        let wanted = match &self.state {
            State::Payload(incoming) => incoming.left().saturating_add(BULK_AHEAD),
            _ if self.bulky => start + BULK_AHEAD,
            _ => BUFFER_BYTES,
        };
        let room = wanted.clamp(start + 1, BUFFER_BYTES);
        match self.heard(turn, self.conn.stream.receive(&mut buffer[start..room])) {
            Ok(Some(count)) => {
                self.head_len = 0;
                self.digest(turn, pool, buffer, 0..start + count, budget)?;
                Ok(start + count == room)
            }
            nothing => {
                pool.put(buffer);
                nothing.map(|_| false)
            }
        }
    }

    fn read_direct(
        &mut self,
        turn: Turn<'_>,
        pool: &mut BufferPool,
        mut buffer: Box<[u8]>,
        budget: &mut usize,
    ) -> Result<bool, Broken> {
        let State::Payload(incoming) = &mut self.state else { return Ok(false) };
        let Some((sink, skip, left)) = incoming.direct() else { return Ok(false) };
        let mut pieces = Scatter::new();
        let most = pieces.inline_size() - 1;
        sink.scatter(skip, &mut pieces, most);
        let direct_room: usize = pieces.iter().map(|piece| piece.len()).sum();
        let ahead = if direct_room == left { BULK_AHEAD } else { 0 };
        if ahead > 0 {
            pieces.push(PartMut::new(&mut buffer[..ahead]));
        }
        let received = self.conn.stream.receive_into(&mut pieces);
        drop(pieces);
        let count = match self.heard(turn, received) {
            Ok(Some(count)) => count,
            nothing => {
                pool.put(buffer);
                return nothing.map(|_| false);
            }
        };
        let direct = count.min(direct_room);
        turn.shard.counters.rx.bytes_direct.add(direct);
        if let State::Payload(incoming) = &mut self.state {
            incoming.received_directly(direct);
        }
        self.settle()?;
        *budget = budget.saturating_sub(usize::from(matches!(self.state, State::Frame)));
        self.digest(turn, pool, buffer, 0..count - direct, budget)?;
        Ok(count == direct_room + ahead)
    }

    /// What a receive gave: bytes, nothing, or the end of the connection.
    fn heard(&mut self, turn: Turn<'_>, received: Received) -> Result<Option<usize>, Broken> {
        match received {
            Received::Bytes(count) => {
                self.last_heard_ns = turn.now_ns;
                self.heard = true;
                if self.eager {
                    self.conn.stream.acknowledge_now();
                }
                Ok(Some(count))
            }
            Received::Nothing => {
                self.ending = false;
                Ok(None)
            }
            Received::End => Err(self.ended()),
            Received::Broken(errno) => Err(Broken { errno, protocol: false, detail: String::new() }),
        }
    }

    /// Why there is nothing more to receive. Once a send has been told that TCP has given up, receiving tells an end.
    fn ended(&self) -> Broken {
        if let Some(errno) = self.conn.broken() {
            return Broken { errno, protocol: false, detail: String::new() };
        }
        if self.is_mid_message() {
            return Broken {
                errno: Errno::EPROTO,
                protocol: true,
                detail: "it ended inside a message".into(),
            };
        }
        Broken { errno: Errno::ECONNRESET, protocol: false, detail: "the peer closed it".into() }
    }

    /// Works through bytes that were read. What must wait is stashed, the beginning of a header is kept, and the buffer
    /// goes back to the pool if nothing of it is needed.
    fn digest(
        &mut self,
        turn: Turn<'_>,
        pool: &mut BufferPool,
        buffer: Box<[u8]>,
        range: std::ops::Range<usize>,
        budget: &mut usize,
    ) -> Result<(), Broken> {
        let mut start = range.start;
        loop {
            let bytes = &buffer[start..range.end];
            match &mut self.state {
                State::Held { .. } => break,
                State::Payload(incoming) => {
                    let count = incoming.left().min(bytes.len());
                    let taken = incoming.take(&bytes[..count]);
                    turn.shard.counters.rx.bytes_copied.add(taken.copied);
                    turn.shard.counters.rx.bytes_discarded.add(taken.discarded);
                    start += count;
                    self.settle()?;
                    if matches!(self.state, State::Payload(_)) {
                        break;
                    }
                }
                State::Frame if *budget == 0 || bytes.is_empty() => break,
                State::Frame => match self.decoder.decode(bytes)? {
                    None => {
                        self.head[..bytes.len()].copy_from_slice(bytes);
                        self.head_len = bytes.len();
                        self.begun_ns.get_or_insert(turn.now_ns);
                        start = range.end;
                        break;
                    }
                    Some((used, frame)) => {
                        let checksum = self.decoder.checksum(&bytes[..used]);
                        start += used;
                        *budget -= 1;
                        self.on_frame(turn, frame, checksum)?;
                    }
                },
            }
        }
        if start < range.end {
            self.stash = Some(Stash { buffer, start, end: range.end });
        } else {
            pool.put(buffer);
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        turn: Turn<'_>,
        frame: Frame,
        checksum: Option<MessageChecksum>,
    ) -> Result<(), Broken> {
        match frame {
            Frame::Noop(prefix) => {
                turn.shard.counters.rx.noops.one();
                self.begun_ns = None;
                check_acks(&prefix)
            }
            Frame::Lnet(prefix, header) => {
                turn.shard.counters.rx.messages.one();
                check_acks(&prefix)?;
                self.begun_ns.get_or_insert(turn.now_ns);
                self.on_message(turn, header, prefix.wants_ack(), checksum)
            }
        }
    }

    fn on_message(
        &mut self,
        turn: Turn<'_>,
        mut header: Header,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    ) -> Result<(), Broken> {
        if let Some(source) = self.rewrite {
            header.src = source;
        }
        let total = header.payload_length as usize;
        self.bulky = total >= BULKY_MIN;
        let arrival = Arrival {
            ni: self.peer.key.ni,
            from: self.peer.key.id,
            header: &header,
            rx: RxContext(self.conn.key.0),
        };
        let delivery = match self.peer.ni.upcalls.parse(&arrival) {
            Verdict::Deliver(delivery) => Some(delivery),
            Verdict::Done | Verdict::Discard => None,
            Verdict::Delay(token) => {
                self.state = State::Held { token, total, cookie, checksum };
                self.begun_ns = Some(turn.now_ns);
                return Ok(());
            }
            Verdict::Close(errno) => {
                let detail = format!("LNet does not take the {} it sent", header.message_type());
                return Err(Broken { errno, protocol: true, detail });
            }
        };
        self.state = State::Payload(Incoming::new(delivery, total, cookie, checksum));
        self.settle()
    }

    /// Tells the engine what is due, acknowledges, and ends the message if it is complete.
    fn settle(&mut self) -> Result<(), Broken> {
        let State::Payload(incoming) = &mut self.state else { return Ok(()) };
        if incoming.is_due() {
            let cookie = incoming.cookie.take();
            incoming.finish(&*self.peer.ni.upcalls)?;
            if let Some(cookie) = cookie {
                acknowledge(&self.peer, cookie)?;
            }
        }
        if matches!(&self.state, State::Payload(incoming) if incoming.is_complete()) {
            self.state = State::Frame;
            self.begun_ns = None;
        }
        Ok(())
    }
}

/// Queues the acknowledgement of a zero-copy request, on the connection made for that or any other (lnet-wire 26).
fn acknowledge(peer: &Peer, cookie: u64) -> Result<(), Broken> {
    let conn = peer.state.lock().choose_for_noop().cloned();
    match conn {
        Some(conn) => Ok(conn.acknowledge(cookie)?),
        None => Ok(()),
    }
}

/// This side asks for no zero-copy acks, so that there are none to come.
fn check_acks(prefix: &Prefix) -> Result<(), Broken> {
    match prefix.acks() {
        Acks::None | Acks::Keepalive => Ok(()),
        acks => Err(Broken {
            errno: Errno::EPROTO,
            protocol: true,
            detail: format!("it acknowledges zero-copy requests that were never made: {acks:?}"),
        }),
    }
}
