//! Parsing: prefixes, headers and payloads in turn (lnet-wire 25 and 26).

use crate::sock::{Peer, Sock, Turn};
use std::ops::Range;

use lnet_api::{Arrival, Errno, RxToken, Verdict};
use lnet_lnd::{ConnFailure, HeldMemory, HeldTable, HoldDecision};
use lnet_proto::Header;
use lnet_proto::sock::{Acks, Frame, MessageChecksum, Prefix};

use super::incoming::Incoming;
use super::{ReceiveBuffer, RxConn, ShardBuffers, Stash, State, Unread};
use crate::peer::Choose;

/// Behind a payload of at least this size, little is read ahead: the next payload then takes two
/// system calls, and is not copied. Behind a smaller payload, one call and a copy cost less
/// (measured: docs/performance.md).
const BULKY_MIN: usize = 48 << 10;

impl RxConn {
    /// Parses bytes that were read. Bytes that must wait are stashed, an incomplete header is kept,
    /// and the buffer returns to the pool if nothing of it is needed.
    pub(super) fn digest(
        &mut self,
        turn: Turn<'_>,
        pool: &mut ShardBuffers,
        held: &mut HeldTable<Sock>,
        (buffer, range): (ReceiveBuffer, Range<usize>),
        budget: &mut usize,
    ) -> Result<(), ConnFailure> {
        let mut start = range.start;
        loop {
            let bytes = &buffer[start..range.end];
            match &mut self.state {
                State::Held => break,
                State::Payload(incoming) => {
                    let count = incoming.left().min(bytes.len());
                    let taken = incoming.take(&bytes[..count]);
                    turn.shard.counters.rx.bytes_copied.add(taken.copied);
                    turn.shard.counters.rx.bytes_discarded.add(taken.discarded);
                    start += count;
                    self.settle(turn, held)?;
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
                        self.on_frame(turn, held, frame, checksum)?;
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
        held: &mut HeldTable<Sock>,
        frame: Frame,
        checksum: Option<MessageChecksum>,
    ) -> Result<(), ConnFailure> {
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
                self.on_message(turn, held, header, prefix.wants_ack(), checksum)
            }
        }
    }

    fn on_message(
        &mut self,
        turn: Turn<'_>,
        held: &mut HeldTable<Sock>,
        mut header: Header,
        cookie: Option<u64>,
        checksum: Option<MessageChecksum>,
    ) -> Result<(), ConnFailure> {
        if let Some(source) = self.rewrite {
            header.src = source;
        }
        let total = header.payload_length as usize;
        self.bulky = total >= BULKY_MIN;
        let arrival = Arrival {
            ni: self.peer.key.ni,
            from: self.peer.key.id,
            host: Some(self.remote.ip()),
            header: &header,
            rx: held.next(),
        };
        let delivery = match self.peer.ni.upcalls.parse(&arrival) {
            Verdict::Deliver(delivery) => Some(delivery),
            Verdict::Done | Verdict::Discard => None,
            Verdict::Delay(token) => {
                match held.admit(turn, (&self.peer, self.conn.key), token, total, HeldMemory::Heap) {
                    HoldDecision::Memory(name, sink) => {
                        let incoming = Incoming::into_memory(name, sink, total, cookie, checksum);
                        self.state = State::Payload(incoming);
                        return self.settle(turn, held);
                    }
                    HoldDecision::Conn => {
                        self.hold(turn, held, token, Unread { total, cookie, checksum });
                        return Ok(());
                    }
                    HoldDecision::Dropped => None,
                }
            }
            Verdict::Stay(token) => {
                self.hold(turn, held, token, Unread { total, cookie, checksum });
                return Ok(());
            }
            Verdict::Close(errno) => {
                let (kind, dest) = (header.message_type(), header.dest.nid);
                let detail = format!("LNet does not take the {kind} it sent to {dest}");
                return Err(ConnFailure::broke(errno, detail));
            }
        };
        self.state = State::Payload(Incoming::new(delivery, total, cookie, checksum));
        self.settle(turn, held)
    }

    /// Keeps a held message on the connection, which is not read as long as the message is held.
    /// The message waits for the engine, without a time limit.
    fn hold(&mut self, turn: Turn<'_>, held: &mut HeldTable<Sock>, token: RxToken, message: Unread) {
        self.state = State::Held;
        self.begun_ns = None;
        held.keep(turn, (&self.peer, self.conn.key), token, message);
    }

    /// Finalises the message with the engine if that is due, acknowledges it, and ends it if it is
    /// complete.
    pub(super) fn settle(&mut self, turn: Turn<'_>, held: &mut HeldTable<Sock>) -> Result<(), ConnFailure> {
        let State::Payload(incoming) = &mut self.state else { return Ok(()) };
        if incoming.is_due() {
            let cookie = incoming.cookie.take();
            incoming.finish(turn, held, &*self.peer.ni.upcalls)?;
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

/// Queues the acknowledgement of a zero-copy request on the connection for acknowledgements, or on
/// any other (lnet-wire 26).
fn acknowledge(peer: &Peer, cookie: u64) -> Result<(), ConnFailure> {
    let conn = peer.state.lock().choose_for_noop().cloned();
    match conn {
        Some(conn) => Ok(conn.acknowledge(cookie)?),
        None => Ok(()),
    }
}

/// Rejects acknowledgements of zero-copy requests: this side makes none.
fn check_acks(prefix: &Prefix) -> Result<(), ConnFailure> {
    match prefix.acks() {
        Acks::None | Acks::Keepalive => Ok(()),
        acks => {
            let detail = format!("it acknowledges zero-copy requests that were never made: {acks:?}");
            Err(ConnFailure::broke(Errno::EPROTO, detail))
        }
    }
}
