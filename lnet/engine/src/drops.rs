//! The most recently dropped messages with their addresses: in addition to the count
//! ([`crate::Counters::drop_count`]), an operator needs them to find the program that sends to the
//! wrong address.

use std::fmt;

use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, MessageType};

/// Number of dropped messages that a partition remembers: enough for one screen. A peer that sends
/// more of them replaces older ones, and costs no memory.
pub const RECENT_DROPS: usize = 16;

/// The reason for the drop of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// No entry of the portal matches.
    NoMatch,
    /// The header names a portal that does not exist.
    NoPortal,
    /// The entry that matches has less room, and does not truncate.
    TooLong,
    /// A program holds the memory of the matching entry, or the region has its maximum number of
    /// leases.
    Busy,
    /// A table of the node is full: messages being received, or messages that wait on a lazy
    /// portal.
    NoRoom,
    /// The message waited on a lazy portal, and there is no memory to keep it waiting.
    NoMemory,
    /// No operation waits for this ACK or REPLY: the answer came late or twice, or is forged.
    Unexpected,
    /// The header names another node: this node does not route.
    OtherNode,
    /// The header names this node, or no node, as the source.
    BadSource,
    /// Too many answers to this peer are in flight already.
    TooManyAnswers,
    /// The NI that received the message is being stopped.
    NiStopping,
    /// The connection of the message was lost while the message waited.
    ConnectionLost,
    /// The message waited on a portal that is no longer lazy.
    NotLazy,
    /// A fault rule drops it.
    FaultRule,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropReason::NoMatch => "no entry matches",
            DropReason::NoPortal => "the portal does not exist",
            DropReason::TooLong => "longer than the matching entry",
            DropReason::Busy => "the memory of the matching entry is in use",
            DropReason::NoRoom => "a table of messages is full",
            DropReason::NoMemory => "no memory to keep it until a buffer is posted",
            DropReason::Unexpected => "no operation expects this answer",
            DropReason::OtherNode => "addressed to another node",
            DropReason::BadSource => "the source is this node or no node",
            DropReason::TooManyAnswers => "too many answers to this peer are under way",
            DropReason::NiStopping => "the NI is being stopped",
            DropReason::ConnectionLost => "its connection was lost while it waited",
            DropReason::NotLazy => "the portal is no longer lazy",
            DropReason::FaultRule => "a fault rule",
        })
    }
}

/// Messages that were dropped for one reason: the same kind, source, portal and match bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentDrop {
    /// PUT, GET, ACK or REPLY.
    pub kind: MessageType,
    /// Source NID and PID from the header.
    pub source: ProcessId,
    /// The NID to which the header is addressed.
    pub target: Nid,
    /// Portal index of a PUT or GET. Any number: the peer chooses it.
    pub portal: Option<u32>,
    /// Match bits of a PUT, GET or ACK.
    pub match_bits: Option<MatchBits>,
    /// Payload bytes of the last such message; for a GET, the requested bytes.
    pub length: u32,
    /// The engine's reason to drop the message.
    pub reason: DropReason,
    /// Number of such messages since this entry was made.
    pub count: u64,
    /// Nanoseconds since the last such message, by the node's clock; 0 on a node without NIs, which
    /// has no clock.
    pub age_ns: u64,
}

impl RecentDrop {
    fn new(header: &Header, reason: DropReason) -> RecentDrop {
        let (portal, match_bits, length) = match header.body {
            Body::Put { portal, match_bits, .. } => (Some(portal), Some(match_bits), header.payload_length),
            Body::Get { portal, match_bits, sink_length, .. } => {
                (Some(portal), Some(match_bits), sink_length)
            }
            Body::Ack { match_bits, mlength, .. } => (None, Some(match_bits), mlength),
            Body::Reply { .. } => (None, None, header.payload_length),
        };
        let (kind, source, target) = (header.message_type(), header.src, header.dest.nid);
        RecentDrop { kind, source, target, portal, match_bits, length, reason, count: 1, age_ns: 0 }
    }

    fn is_like(&self, other: &RecentDrop) -> bool {
        let key = |drop: &RecentDrop| (drop.kind, drop.source, drop.target, drop.portal, drop.match_bits);
        key(self) == key(other) && self.reason == other.reason
    }
}

/// Logs a dropped message. Must be called without a lock: the log's subscriber may block in a
/// write.
pub(crate) fn log(header: &Header, reason: DropReason) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let RecentDrop { kind, source, target, portal, match_bits, length, .. } =
            RecentDrop::new(header, reason);
        let portal = portal.map(tracing::field::display);
        let match_bits = match_bits.map(|bits| tracing::field::display(format!("{:#x}", bits.0)));
        tracing::debug!(%kind, %source, %target, portal, match_bits, length, %reason, "a message is dropped");
    }
}

/// A remembered drop, and the time of the last one.
#[derive(Clone, Copy)]
struct DropRecord {
    at_ns: u64,
    drop: RecentDrop,
}

/// The last drops of one partition, the newest last.
#[derive(Default)]
pub(crate) struct RecentDrops {
    noted: [Option<DropRecord>; RECENT_DROPS],
}

impl RecentDrops {
    /// Remembers a dropped message; replaces the oldest entry.
    pub(crate) fn note(&mut self, header: &Header, reason: DropReason, now_ns: u64) {
        let mut drop = RecentDrop::new(header, reason);
        let like = |noted: &Option<DropRecord>| noted.is_some_and(|noted| noted.drop.is_like(&drop));
        let index = self.noted.iter().position(like).unwrap_or(0);
        if let Some(known) = self.noted[index].filter(|noted| noted.drop.is_like(&drop)) {
            drop.count += known.drop.count;
        }
        self.noted[index..].rotate_left(1);
        self.noted[RECENT_DROPS - 1] = Some(DropRecord { at_ns: now_ns, drop });
    }

    /// Returns all remembered drops, newest first, with their ages at `now_ns`.
    pub(crate) fn iter(&self, now_ns: u64) -> impl Iterator<Item = RecentDrop> + '_ {
        let noted = self.noted.iter().rev().flatten();
        noted.map(move |noted| RecentDrop { age_ns: now_ns.saturating_sub(noted.at_ns), ..noted.drop })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use lnet_nid::Pid;
    use lnet_proto::WireHandle;
    use proptest::prelude::*;

    use super::*;

    fn put(bits: u64) -> Header {
        let id = ProcessId::new("10.0.0.1@tcp".parse().unwrap(), Pid::LNET);
        let ack_wmd = WireHandle::NONE;
        let body = Body::Put { ack_wmd, match_bits: MatchBits(bits), hdr_data: 0, portal: 3, offset: 0 };
        Header { dest: id, src: id, payload_length: 5, body }
    }

    proptest! {
        /// The remembered drops agree with a model: a list into which each new drop is inserted at
        /// the front.
        #[test]
        fn the_newest_are_kept_and_equal_ones_are_counted(bits in proptest::collection::vec(0_u64..24, 0..100)) {
            let (mut drops, mut model) = (RecentDrops::default(), VecDeque::<(u64, u64, u64)>::new());
            for (now, &bits) in bits.iter().enumerate() {
                let now = now as u64;
                drops.note(&put(bits), DropReason::NoMatch, now);
                let known = model.iter().position(|known| known.0 == bits);
                let count = known.and_then(|at| model.remove(at)).map_or(0, |known| known.1);
                model.push_front((bits, count + 1, now));
                model.truncate(RECENT_DROPS);
            }
            let now = bits.len() as u64;
            let listed: Vec<_> = drops
                .iter(now)
                .map(|drop| (drop.match_bits.unwrap().0, drop.count, now - drop.age_ns))
                .collect();
            prop_assert_eq!(listed, Vec::from(model));
        }
    }
}
