//! What a node counts, under the names that users know from `lnetctl` (lnet-semantics 17 and 18).

use std::fmt;
use std::ops::AddAssign;

use lnet_nid::Nid;
use lnet_proto::MessageType;

/// The node's counters. Counts never run backwards, except for the two that tell how many there are right now. What
/// LNet counts beyond them (`resend_count`, `route_count` and the verdicts of its health) belongs to resends and
/// routing, which this node does not do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages being sent, queued or received right now.
    pub msgs_alloc: u64,
    /// No more than this many have been at a time: the sum of what each table held at the most.
    pub msgs_max: u64,
    /// ACKs and REPLYs waited for right now.
    pub rst_alloc: u64,
    /// Messages sent or received that failed.
    pub errors: u64,
    /// Messages sent with success: PUT, GET, ACK and REPLY.
    pub send_count: u64,
    /// Messages received with success.
    pub recv_count: u64,
    /// Messages dropped on receipt: nobody wanted them.
    pub drop_count: u64,
    /// ACKs and REPLYs that did not come in time.
    pub response_timeout_count: u64,
    /// Payload bytes of the PUTs and REPLYs sent.
    pub send_length: u64,
    /// Bytes accepted of the PUTs and REPLYs received.
    pub recv_length: u64,
    /// Payload bytes of the messages dropped.
    pub drop_length: u64,
    /// Pushes whose content was ignored: too many changes in a time, from one address or all together.
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
    /// The line that `lctl get_param stats` prints: msgs_alloc msgs_max errors send_count recv_count route_count
    /// drop_count send_length recv_length route_length drop_length.
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
    /// PUTs.
    pub put: u64,
    /// GETs.
    pub get: u64,
    /// REPLYs.
    pub reply: u64,
    /// ACKs.
    pub ack: u64,
}

impl ByKind {
    /// All of them (`send_count`, `recv_count` and `drop_count` of an NI or a peer).
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

/// What went over an NI or to and from a peer (`sent_stats`, `received_stats`, `dropped_stats`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages that left with success.
    pub sent: ByKind,
    /// Messages that arrived and were taken.
    pub received: ByKind,
    /// Messages that arrived and were dropped.
    pub dropped: ByKind,
}

impl Traffic {
    /// While counting, `received` has the dropped messages too; this takes them out.
    pub(crate) fn settle(&mut self) {
        let ByKind { put, get, reply, ack } = self.dropped;
        // A peer may be forgotten, and known again, between the two counts of a message that waits.
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

/// An NI as `lnetctl net show -v` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NiStatistics {
    /// Its NID.
    pub nid: Nid,
    /// Whether it is up, and its link.
    pub up: bool,
    /// What went over it.
    pub traffic: Traffic,
    /// Messages in flight that it allows, all partitions together (`credits`).
    pub credits: i64,
    /// How many more may leave now; below 0, as many wait (`tx`).
    pub available_tx_credits: i64,
    /// The lowest that has been (`min`): the sum over its partitions.
    pub min_tx_credits: i64,
    /// Messages that wait though there are credits: as many are held for their peers' address as one may have.
    pub held_back: usize,
}

/// A peer NI as `lnetctl peer show -v` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStatistics {
    /// Its NID.
    pub nid: Nid,
    /// What went to it and came from it.
    pub traffic: Traffic,
    /// Messages in flight to it that are allowed.
    pub max_ni_tx_credits: i64,
    /// How many more may leave now; below 0, as many wait.
    pub available_tx_credits: i64,
    /// The lowest that has been.
    pub min_tx_credits: i64,
    /// Bytes of the messages in flight or waiting to it, headers included.
    pub tx_q_num_of_buf: u64,
}
