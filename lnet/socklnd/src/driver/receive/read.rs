//! System calls that receive: many small messages with one, or one large payload to its
//! destination.

use crate::Cause;
use crate::sock::{Sock, Turn};
use lnet_api::Errno;
use lnet_lnd::{ConnFailure, HeldTable};
use lnet_region::PartMut;

use super::buffers::BUFFER_BYTES;
use super::{ReceiveBuffer, RxConn, ShardBuffers, State};
use crate::sys::{RecvResult, Scatter};

/// A payload with at least this number of bytes left goes directly to its destination. For a
/// shorter rest, the longer list passed to the system call costs more than the copy (measured:
/// docs/performance.md).
const DIRECT_MIN: usize = 12 << 10;

/// Bytes read ahead on a connection that carries bulk: enough for the next header and a small
/// message, little enough that almost nothing of the next bulk is copied.
const BULK_AHEAD: usize = 4 << 10;

impl RxConn {
    /// Makes one receiving system call; `false` if it has emptied the socket.
    pub(super) fn read(
        &mut self,
        turn: Turn<'_>,
        pool: &mut ShardBuffers,
        held: &mut HeldTable<Sock>,
        budget: &mut usize,
    ) -> Result<bool, ConnFailure> {
        turn.shard.counters.rx.calls.one();
        let buffer = pool.take();
        let direct = match &mut self.state {
            State::Payload(incoming) => incoming.direct().map_or(0, |(_, _, left)| left),
            State::Frame | State::Held => 0,
        };
        if direct >= DIRECT_MIN {
            self.read_direct(turn, pool, held, buffer, budget)
        } else {
            self.read_buffered(turn, pool, held, buffer, budget)
        }
    }

    /// Reads into a receive buffer, and parses the bytes.
    fn read_buffered(
        &mut self,
        turn: Turn<'_>,
        pool: &mut ShardBuffers,
        held: &mut HeldTable<Sock>,
        mut buffer: ReceiveBuffer,
        budget: &mut usize,
    ) -> Result<bool, ConnFailure> {
        let start = self.head_len;
        buffer[..start].copy_from_slice(&self.head[..start]);
        let wanted = match &self.state {
            State::Payload(incoming) => incoming.left().saturating_add(BULK_AHEAD),
            _ if self.bulky => start + BULK_AHEAD,
            _ => BUFFER_BYTES,
        };
        let room = wanted.clamp(start + 1, BUFFER_BYTES);
        match self.handle_received(turn, self.conn.stream.receive(&mut buffer[start..room])) {
            Ok(Some(count)) => {
                self.head_len = 0;
                self.digest(turn, pool, held, (buffer, 0..start + count), budget)?;
                Ok(start + count == room)
            }
            nothing => {
                pool.put(buffer);
                nothing.map(|_| false)
            }
        }
    }

    /// Reads the rest of a payload into its destination, without a copy; bytes beyond it go to the
    /// receive buffer and are parsed.
    fn read_direct(
        &mut self,
        turn: Turn<'_>,
        pool: &mut ShardBuffers,
        held: &mut HeldTable<Sock>,
        mut buffer: ReceiveBuffer,
        budget: &mut usize,
    ) -> Result<bool, ConnFailure> {
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
        let count = match self.handle_received(turn, received) {
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
        self.settle(turn, held)?;
        *budget = budget.saturating_sub(usize::from(matches!(self.state, State::Frame)));
        self.digest(turn, pool, held, (buffer, 0..count - direct), budget)?;
        Ok(count == direct_room + ahead)
    }

    /// Handles the result of a receive. Returns the number of bytes, or `None` if there were none.
    fn handle_received(
        &mut self,
        turn: Turn<'_>,
        received: RecvResult,
    ) -> Result<Option<usize>, ConnFailure> {
        match received {
            RecvResult::Bytes(count) => {
                self.last_heard_ns = turn.now_ns;
                (self.received, self.silent) = (true, false);
                if self.eager {
                    self.conn.stream.acknowledge_now();
                }
                Ok(Some(count))
            }
            RecvResult::Nothing => {
                (self.ending, self.fresh) = (false, false);
                Ok(None)
            }
            RecvResult::End => Err(self.ended()),
            RecvResult::Broken(errno) => Err(ConnFailure::gone(errno, "")),
        }
    }

    /// Returns the reason for the end of reception. If a send has already consumed TCP's error, a
    /// receive reports only end of file; the error of the send is the reason then.
    fn ended(&self) -> ConnFailure {
        if let Some(errno) = self.conn.broken() {
            return ConnFailure::gone(errno, "");
        }
        if self.is_mid_message() {
            return ConnFailure::broke(Errno::EPROTO, "it ended inside a message");
        }
        ConnFailure { cause: Cause::Closed, ..ConnFailure::gone(Errno::ECONNRESET, "the peer closed it") }
    }
}
