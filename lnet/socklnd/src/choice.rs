//! The choice of a peer's connection for a message (lnet-wire 25.4).

use std::cmp::Reverse;

use lnet_proto::sock::{ConnType, Version};

/// The suitability of a connection for a message; a better one compares greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suitability {
    No,
    May,
    Yes,
}

/// The kind of message to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageClass {
    /// An LNet message of this many bytes, prefix and header included; from `min_bulk` bytes on it
    /// is bulk.
    Message { bytes: usize, min_bulk: usize },
    /// A zero-copy ack or a keepalive.
    Noop,
}

/// Returns whether a connection of this type may carry LNet messages.
pub(crate) fn carries_lnet(conn_type: ConnType, version: Version) -> bool {
    suits(conn_type, version, MessageClass::Message { bytes: 0, min_bulk: 0 }) > Suitability::No
}

/// Returns the suitability of a connection for a message.
pub(crate) fn suits(conn_type: ConnType, version: Version, load: MessageClass) -> Suitability {
    match (conn_type, load) {
        (ConnType::Control, MessageClass::Message { bytes, min_bulk }) if bytes < min_bulk => {
            Suitability::Yes
        }
        (ConnType::BulkOut, MessageClass::Message { bytes, min_bulk }) if bytes >= min_bulk => {
            Suitability::Yes
        }
        (ConnType::Control | ConnType::BulkOut, MessageClass::Message { .. }) => Suitability::May,
        (ConnType::Any, MessageClass::Message { .. }) if version == Version::V2 => Suitability::Yes,
        (ConnType::BulkIn, MessageClass::Message { .. }) if version == Version::V2 => Suitability::May,
        (_, MessageClass::Message { .. }) => Suitability::No,
        (ConnType::BulkIn, MessageClass::Noop) => Suitability::Yes,
        // Peers accept acknowledgements and keepalives on every connection.
        (ConnType::None, MessageClass::Noop) => Suitability::No,
        (_, MessageClass::Noop) => Suitability::May,
    }
}

/// The properties of a connection that the choice depends on.
pub(crate) struct Candidate {
    pub(crate) conn_type: ConnType,
    pub(crate) version: Version,
    /// Bytes queued on the connection.
    pub(crate) queued: usize,
    /// The time at which the connection was last chosen, in any unit; equal values if that must not
    /// matter.
    pub(crate) used: u64,
}

/// Returns the index of the best connection: the one that suits best, then the one with the fewest
/// bytes queued, then the least recently used, then the first.
pub(crate) fn choose(conns: impl Iterator<Item = Candidate>, load: MessageClass) -> Option<usize> {
    conns
        .map(|conn| (suits(conn.conn_type, conn.version, load), Reverse(conn.queued), Reverse(conn.used)))
        .enumerate()
        .filter(|(_, (suits, ..))| *suits > Suitability::No)
        .reduce(|best, other| if other.1 > best.1 { other } else { best })
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_BULK: usize = 1024;
    const SET: [ConnType; 3] = [ConnType::Control, ConnType::BulkIn, ConnType::BulkOut];

    fn chosen(types: &[ConnType], queued: &[usize], load: MessageClass) -> Option<ConnType> {
        let conns = types.iter().zip(queued).map(|(conn_type, queued)| candidate(*conn_type, *queued, 0));
        choose(conns, load).map(|index| types[index])
    }

    fn candidate(conn_type: ConnType, queued: usize, used: u64) -> Candidate {
        Candidate { conn_type, version: Version::V3, queued, used }
    }

    fn message(bytes: usize) -> MessageClass {
        MessageClass::Message { bytes, min_bulk: MIN_BULK }
    }

    /// The table of lnet-wire 25.4.
    // Covers: S-206
    #[test]
    fn size_decides_the_type() {
        assert_eq!(chosen(&SET, &[9, 0, 0], message(MIN_BULK - 1)), Some(ConnType::Control));
        assert_eq!(chosen(&SET, &[0, 0, 9], message(MIN_BULK)), Some(ConnType::BulkOut));
        assert_eq!(chosen(&SET, &[0, 9, 0], MessageClass::Noop), Some(ConnType::BulkIn));
    }

    #[test]
    fn any_connection_that_may_carry_it_serves_if_the_right_one_is_missing() {
        assert_eq!(chosen(&[ConnType::Control], &[0], message(1 << 20)), Some(ConnType::Control));
        assert_eq!(chosen(&[ConnType::BulkOut], &[0], message(96)), Some(ConnType::BulkOut));
        assert_eq!(chosen(&[ConnType::Control], &[0], MessageClass::Noop), Some(ConnType::Control));
        assert_eq!(chosen(&[ConnType::BulkIn, ConnType::Any], &[0, 0], message(96)), None);
        assert_eq!(chosen(&[], &[], message(96)), None);
    }

    #[test]
    fn the_fewest_queued_bytes_decide_between_equals_then_the_longest_rest() {
        let index = |queued: [usize; 2], used: [u64; 2]| {
            let two = queued.into_iter().zip(used);
            choose(two.map(|(queued, used)| candidate(ConnType::BulkOut, queued, used)), message(4096))
        };
        assert_eq!((index([5, 4], [0, 9]), index([4, 5], [9, 0])), (Some(1), Some(0)));
        assert_eq!((index([4, 4], [2, 1]), index([4, 4], [1, 2])), (Some(1), Some(0)));
        assert_eq!(index([4, 4], [0, 0]), Some(0));
    }

    #[test]
    fn untyped_connections_carry_messages_in_version_2_alone() {
        assert!(carries_lnet(ConnType::Any, Version::V2) && !carries_lnet(ConnType::Any, Version::V3));
        assert!(!carries_lnet(ConnType::BulkIn, Version::V4) && carries_lnet(ConnType::BulkOut, Version::V4));
    }
}
