//! Counters of a node, under the names that users know from `lnetctl` (lnet-semantics 17 and 18).

use std::fmt;
use std::ops::AddAssign;

use lnet_nid::Nid;
use lnet_proto::MessageType;

/// The node's counters. They never decrease, except `msgs_alloc` and `rst_alloc`, which are current
/// numbers. LNet's further counters (`resend_count`, `route_count` and those of its health) belong
/// to resends and routing, which this node does not do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages being sent, queued or received at the moment.
    pub msgs_alloc: u64,
    /// Upper bound of `msgs_alloc` so far: the sum of the maxima of all tables.
    pub msgs_max: u64,
    /// ACKs and REPLYs that are outstanding at the moment.
    pub rst_alloc: u64,
    /// Messages sent or received that failed.
    pub errors: u64,
    /// Messages sent with success: PUT, GET, ACK and REPLY.
    pub send_count: u64,
    /// Messages received with success.
    pub recv_count: u64,
    /// Messages dropped on receipt: no buffer took them.
    pub drop_count: u64,
    /// ACKs and REPLYs that did not come in time.
    pub response_timeout_count: u64,
    /// Payload bytes of the PUTs and REPLYs sent.
    pub send_length: u64,
    /// Bytes accepted of the PUTs and REPLYs received.
    pub recv_length: u64,
    /// Payload bytes of the messages dropped.
    pub drop_length: u64,
    /// Pushes whose content was ignored: too many changes per time, from one address or in total.
    pub pushes_ignored: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.msgs_alloc += other.msgs_alloc;
        self.msgs_max += other.msgs_max;
        self.rst_alloc += other.rst_alloc;
        self.errors += other.errors;
        self.send_count += other.send_count;
        self.recv_count += other.recv_count;
        self.drop_count += other.drop_count;
        self.response_timeout_count += other.response_timeout_count;
        self.send_length += other.send_length;
        self.recv_length += other.recv_length;
        self.drop_length += other.drop_length;
        self.pushes_ignored += other.pushes_ignored;
    }
}

impl fmt::Display for Counters {
    /// Prints the line of `lctl get_param stats`: msgs_alloc msgs_max errors send_count recv_count
    /// route_count drop_count send_length recv_length route_length drop_length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { msgs_alloc, msgs_max, errors, send_count, recv_count, drop_count, .. } = self;
        let Counters { send_length, recv_length, drop_length, .. } = self;
        write!(f, "{msgs_alloc} {msgs_max} {errors} {send_count} {recv_count} 0 {drop_count} ")?;
        write!(f, "{send_length} {recv_length} 0 {drop_length}")
    }
}

/// Messages by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByKind {
    /// Number of PUTs.
    pub put: u64,
    /// Number of GETs.
    pub get: u64,
    /// Number of REPLYs.
    pub reply: u64,
    /// Number of ACKs.
    pub ack: u64,
}

impl ByKind {
    /// Returns the sum (`send_count`, `recv_count` and `drop_count` of an NI or a peer).
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.put + self.get + self.reply + self.ack
    }

    pub(crate) fn count(&mut self, kind: MessageType) {
        match kind {
            MessageType::Put => self.put += 1,
            MessageType::Get => self.get += 1,
            MessageType::Reply => self.reply += 1,
            MessageType::Ack => self.ack += 1,
        }
    }
}

impl AddAssign for ByKind {
    fn add_assign(&mut self, other: ByKind) {
        self.put += other.put;
        self.get += other.get;
        self.reply += other.reply;
        self.ack += other.ack;
    }
}

/// Traffic of an NI or a peer (`sent_stats`, `received_stats`, `dropped_stats`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages that left with success.
    pub sent: ByKind,
    /// Messages that arrived and were accepted.
    pub received: ByKind,
    /// Messages that arrived and were dropped.
    pub dropped: ByKind,
}

impl Traffic {
    /// Subtracts the dropped messages from `received`, which includes them while counting.
    pub(crate) fn subtract_dropped(&mut self) {
        let ByKind { put, get, reply, ack } = self.dropped;
        // Counts are not taken at one moment: a peer may be forgotten and known again between them,
        // so more may be dropped than received.
        self.received.put = self.received.put.saturating_sub(put);
        self.received.get = self.received.get.saturating_sub(get);
        self.received.reply = self.received.reply.saturating_sub(reply);
        self.received.ack = self.received.ack.saturating_sub(ack);
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.sent += other.sent;
        self.received += other.received;
        self.dropped += other.dropped;
    }
}

/// Statistics of an NI, as `lnetctl net show -v` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NiStatistics {
    /// The NI's NID.
    pub nid: Nid,
    /// True if the NI and its link are up.
    pub up: bool,
    /// Messages over the NI, by kind.
    pub traffic: Traffic,
    /// Maximum number of messages in flight, all partitions together (`credits`).
    pub credits: i64,
    /// Further messages that may leave now; negative if messages wait, by their number (`tx`).
    pub available_tx_credits: i64,
    /// Minimum of the available credits so far (`min`): the sum over its partitions.
    pub min_tx_credits: i64,
    /// Messages that wait although there are credits: their peers' address already has its maximum
    /// in flight.
    pub held_back: usize,
}

/// Statistics of a peer NI, as `lnetctl peer show -v` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStatistics {
    /// The peer's NID.
    pub nid: Nid,
    /// Traffic to it and from it.
    pub traffic: Traffic,
    /// Maximum number of messages in flight to it.
    pub max_ni_tx_credits: i64,
    /// Further messages that may leave now; negative if messages wait, by their number.
    pub available_tx_credits: i64,
    /// Minimum of the available credits so far.
    pub min_tx_credits: i64,
    /// Bytes of the messages in flight or waiting to it, headers included.
    pub tx_q_num_of_buf: u64,
}
