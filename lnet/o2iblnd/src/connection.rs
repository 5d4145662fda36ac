//! A connection, as senders and its shard's driver share it. Each connection has its own lock,
//! which a thread holds while it posts to the queue pair.

use crate::o2ib::{Ni, Peer, Request, Shard};
use std::sync::Arc;

use lnet_api::{Errno, Flush, Sent, Tx, TxToken, leave_to_uncork};
use lnet_proto::Body;
use lnet_proto::ib::{ConnParams, IMMEDIATE_MAX, Link};
use lnet_region::WriteVec;
use parking_lot::Mutex;

use crate::conn::{Conn, OpKey, Own};
use crate::fabric::{Device, Endpoint, Piece, RegisteredMemory};
use crate::links::LinkId;
use crate::memory::{BounceResult, Undescribed, Waiter, register_sink, sink_of, warn_failed};
use crate::op_data::{Described, OpData, PayloadSource, PendingGet, Sink};
use crate::transmit::TransmitBuffers;
use crate::work_requests::WorkRequests;
use crate::writes::WriteLimits;
use lnet_lnd::shard_table::ShardKey;

/// The maximum number of messages that wait for the end of a cork ([`lnet_api::corked`]): the
/// number that LNet has in flight to a peer by default. When more are queued, they are sent at
/// once, so that the peer begins while this side continues.
const CORKED_MAX: usize = 8;

/// One established connection.
pub struct Connection {
    pub(crate) key: ShardKey,
    pub(crate) id: LinkId,
    pub(crate) peer: Arc<Peer>,
    /// The protocol version and both ends.
    pub(crate) link: Link,
    pub(crate) params: ConnParams,
    pub(crate) limits: WriteLimits,
    /// Messages of at most this length are posted inline.
    pub(crate) inline: usize,
    /// True if own messages carry a checksum and those of received messages are verified.
    pub(crate) cksum: bool,
    pub(crate) state: Mutex<ConnState>,
}

/// The part of a connection that changes, under its lock.
pub(crate) struct ConnState {
    pub(crate) live: Option<LiveConn>,
    /// Set while the driver reports received messages to the engine. Messages that the driver's
    /// thread sends during that time are posted together at its end, with the credits of the
    /// received messages.
    pub(crate) corked: bool,
    /// Set once the driver has been notified that the connection failed.
    pub(crate) broken: Option<Errno>,
    pub(crate) closed: Option<Errno>,
}

/// A connection that has its queues. They are destroyed before the memory that their work requests
/// name.
pub(crate) struct LiveConn {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) machine: Conn<OpData>,
    /// Keeps the message buffers registered. `transmit` has those for sends, by index.
    pub(crate) _memory: Arc<dyn RegisteredMemory>,
    pub(crate) transmit: TransmitBuffers,
    /// Scratch space for the pieces of a payload while its writes are counted or emitted; kept so
    /// that a transfer allocates nothing.
    pub(crate) pieces: Vec<Piece>,
    /// Work requests that are emitted and not posted yet; empty whenever the lock is free.
    pub(crate) batch: WorkRequests,
}

/// The reason why a connection does not take a message.
pub(crate) enum SendRefused {
    /// The connection has its maximum number of queued own messages.
    Full,
    /// The connection has ended.
    Closed,
}

impl Connection {
    pub(crate) fn ni(&self) -> &Arc<Ni> {
        &self.peer.ni
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.peer.shard
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.ni().own.device
    }

    /// Sends a message, or queues it. Returns the message if the connection does not take it.
    #[allow(clippy::result_large_err, reason = "the message comes back as it came, and nothing is allocated")]
    pub(crate) fn send(self: &Arc<Connection>, tx: Tx) -> Result<Sent, (Tx, SendRefused)> {
        if let Err(refused) = self.check_room() {
            return Err((tx, refused));
        }
        if let Body::Get { sink_length, .. } = tx.header.body
            && sink_length as usize > IMMEDIATE_MAX
            && tx.header.dest.nid == self.peer.key.id.nid
        {
            return Ok(self.send_get(tx));
        }
        let Tx { ni, peer, header, payload, token, reply_to, deadline_ns } = tx;
        let length = header.payload_length;
        let own = if length as usize > IMMEDIATE_MAX { Own::Put { length } } else { Own::Immediate };
        let source = PayloadSource { payload, ..PayloadSource::default() };
        match self.queue(own, OpData::Send { token, header, source }, deadline_ns) {
            Ok(()) => Ok(Sent::Later),
            Err((OpData::Send { source, .. }, refused)) => {
                let payload = source.payload;
                Err((Tx { ni, peer, header, payload, token, reply_to, deadline_ns }, refused))
            }
            Err(_) => Ok(Sent::Now(Err(Errno::EIO))),
        }
    }

    /// Returns an error if the connection takes no further message.
    pub(crate) fn check_room(&self) -> Result<(), SendRefused> {
        match &self.state.lock().live {
            None => Err(SendRefused::Closed),
            Some(live) if !live.machine.has_room() => Err(SendRefused::Full),
            Some(_) => Ok(()),
        }
    }

    /// Queues an operation, and posts what the rules allow.
    #[allow(clippy::result_large_err, reason = "the message comes back as it came, and nothing is allocated")]
    fn queue(
        self: &Arc<Connection>,
        own: Own,
        item: OpData,
        deadline_ns: u64,
    ) -> Result<(), (OpData, SendRefused)> {
        let mut state = self.state.lock();
        let Some(live) = &mut state.live else { return Err((item, SendRefused::Closed)) };
        live.machine.queue(own, deadline_ns, item).map_err(|item| (item, SendRefused::Full))?;
        self.shard().counters.tx.messages.one();
        self.pump_or_leave(&mut state);
        Ok(())
    }

    /// Posts what the rules allow, unless the messages can wait for the end of a cork or of the
    /// poll.
    pub(crate) fn pump_or_leave(self: &Arc<Connection>, state: &mut ConnState) {
        let polling = self.shard().is_polling_here();
        let few = || state.live.as_ref().is_some_and(|live| live.machine.queued() <= CORKED_MAX);
        let left = if polling { state.corked } else { few() && leave_to_uncork(self) };
        if !left {
            self.pump(state, self.shard().own.now_ns());
        }
    }

    /// Sends a GET whose data the peer writes straight into the sink's memory.
    fn send_get(self: &Arc<Connection>, tx: Tx) -> Sent {
        let Tx { mut header, token, deadline_ns, .. } = tx;
        // GET_DONE reports a refusal (lnet-wire 35.3).
        if let Body::Get { return_wmd, .. } = &mut header.body {
            *return_wmd = return_wmd.taking_no_refusals();
        }
        // From here on the GET ends by a call of `finalize_get`.
        let Some(sink) = self.ni().upcalls.sink_of_get(token) else {
            return Sent::Now(Err(Errno::ECANCELED));
        };
        let conn = self.clone();
        self.begin_get(PendingGet { conn, token, header, sink, deadline_ns });
        Sent::Later
    }

    /// Queues a GET, if its memory can be described.
    pub(crate) fn begin_get(self: &Arc<Connection>, pending: PendingGet) {
        let most = usize::from(self.params.max_fragments);
        let (bytes, now_ns) = (pending.sink.len(), self.shard().own.now_ns());
        register_sink(self.ni(), &pending.sink, now_ns);
        let (described, bounce, pending) = match sink_of(self.device(), &pending.sink, bytes, most) {
            Ok(described) => (described, None, pending),
            Err(error) => {
                match self.ni().own.sinks.take(self.device(), bytes, now_ns, Waiter::Get(Box::new(pending))) {
                    BounceResult::Later => return,
                    BounceResult::Bounce(mut bounce, Waiter::Get(pending)) => {
                        (bounce.described(), Some(bounce), *pending)
                    }
                    BounceResult::Never(Waiter::Get(pending)) => {
                        let errno = warn_failed(self, &error, error.errno());
                        return self.fail_get(pending.token, pending.sink, errno);
                    }
                    BounceResult::Bounce(..) | BounceResult::Never(_) => return,
                }
            }
        };
        let PendingGet { token, header, sink, deadline_ns, .. } = pending;
        let sink = Sink { vec: sink, described, bounce };
        let queued =
            self.queue(Own::Get { length: bytes as u32 }, OpData::Get { token, header, sink }, deadline_ns);
        if let Err((OpData::Get { sink, .. }, refused)) = queued {
            let errno = match refused {
                SendRefused::Full => Errno::ENOBUFS,
                SendRefused::Closed => self.state.lock().closed.unwrap_or(Errno::ECONNRESET),
            };
            self.fail_get(token, sink.vec, errno);
        }
    }

    pub(crate) fn fail_get(&self, token: TxToken, sink: WriteVec, errno: Errno) {
        drop(sink);
        self.ni().upcalls.finalize_get(token, Err(errno));
    }

    /// Answers a GET_REQ with the REPLY: its payload is written to the addresses in the request.
    pub(crate) fn reply(self: &Arc<Connection>, operation: OpKey, tx: Tx) -> Sent {
        let mut state = self.state.lock();
        let errno = state.closed.unwrap_or(Errno::ECONNRESET);
        let Some(live) = &mut state.live else { return Sent::Now(Err(errno)) };
        let Some(OpData::Reply { token, source }) = live.machine.item(operation) else {
            return Sent::Now(Err(errno));
        };
        *token = Some(tx.token);
        let wanted: u64 = source.target.fragments.iter().map(|fragment| u64::from(fragment.length)).sum();
        source.bytes = u64::from(tx.header.payload_length).min(wanted) as u32;
        source.payload = tx.payload;
        self.shard().counters.tx.messages.one();
        self.prepare(&mut state, operation);
        // Writes take longer than posting them, so they begin at once.
        self.pump(&mut state, self.shard().own.now_ns());
        Sent::Later
    }

    /// Notifies the driver, once, that the connection has failed.
    pub(crate) fn break_off(&self, state: &mut ConnState, errno: Errno) {
        if state.closed.is_none() && state.broken.replace(errno).is_none() {
            self.shard().request(Request::Broken(self.key, errno));
        }
    }

    /// Describes a sink of this node for the peer.
    pub(crate) fn describe(&self, sink: &WriteVec, bytes: usize) -> Result<Described, Undescribed> {
        sink_of(self.device(), sink, bytes, usize::from(self.params.max_fragments))
    }
}

impl lnet_lnd::protocol::Connection for Connection {
    /// Withdraws a message of which nothing has been posted. A GET whose memory has been requested
    /// continues.
    fn withdraw(&self, token: TxToken) -> bool {
        let wanted = |item: &OpData| matches!(item, OpData::Send { token: own, .. } if *own == token);
        let taken = self.state.lock().live.as_mut().and_then(|live| live.machine.withdraw(wanted));
        taken.is_some()
    }

    fn key(&self) -> ShardKey {
        self.key
    }

    fn is_idle(&self) -> bool {
        self.state.lock().live.as_ref().is_none_or(|live| live.machine.counts().operations == 0)
    }
}

impl Flush for Connection {
    fn flush(&self) {
        self.pump(&mut self.state.lock(), self.shard().own.now_ns());
    }
}
