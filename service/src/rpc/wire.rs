//! The wire form: a header of 64 bytes, little-endian, followed by the body.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | the letters `nlxq` |
//! | 4 | 1 | version: 2 |
//! | 5 | 1 | kind, see [`Kind`] |
//! | 6 | 1 | flags: bit 0 urgent ([`Class::Urgent`]), bit 1 the body begins with offers |
//! | 7 | 1 | attempt: the number of times that the request was sent, from 1, at most 255; its answer returns it |
//! | 8 | 2 | slot: less than [`SLOTS`] |
//! | 10 | 2 | reserved |
//! | 12 | 4 | number of the client among the clients of its address |
//! | 16 | 8 | incarnation of the client: random, constant during its life, not 0 |
//! | 24 | 8 | session; 0 if there is none |
//! | 32 | 8 | number of the request in its slot |
//! | 40 | 4 | of an answer or refusal: 0, or an errno |
//! | 44 | 4 | bytes after the header |
//! | 48 | 4 | milliseconds: of a request, the time that its client still waits, 0 if it does not say; of an early reply, the further time that the server asks for; of an answer, the time from arrival to answer |
//! | 52 | 4 | of every message of a server: its estimate of the time that a request of the class takes, in milliseconds |
//! | 56 | 8 | reserved |
//!
//! A sender sets reserved bytes and flags to 0, and a receiver ignores them: a later revision may put
//! hints there, which an older receiver does not need. What a receiver must understand gets another
//! kind or version. A message with another magic, version or kind, a slot out of range, or a length
//! that is not that of its body is counted as malformed and dropped.

use std::time::Duration;

use crate::Class;

/// Maximum number of requests of a client in flight at one server: the server stores an answer for
/// each.
pub const SLOTS: usize = 64;

/// Length of the header in bytes.
pub const HEADER: usize = 64;

const MAGIC: [u8; 4] = *b"nlxq";
const VERSION: u8 = 2;
const URGENT: u8 = 1 << 0;
const OFFERS: u8 = 1 << 1;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A client requests a session.
    Open = 1,
    /// The answer to `Open`, with the session.
    Opened = 2,
    /// A request that must not run twice.
    Once = 3,
    /// A request that may run each time that it arrives.
    Often = 4,
    /// The answer to a request of either kind.
    Answer = 5,
    /// Refusal of a request that has not run: ESTALE for an unknown session, EBUSY without room for
    /// a new one.
    Refusal = 6,
    /// The request is waiting or being served: the server asks for more time.
    Early = 7,
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// The class of the request.
    pub class: Class,
    /// Set if the body begins with offers of memory.
    pub has_offers: bool,
    /// The number of times that the request was sent; 255 means 255 or more.
    pub attempt: u8,
    /// The slot of the request in its session; less than [`SLOTS`].
    pub slot: u16,
    /// The sender of the request: what distinguishes it from others at its address.
    pub client: ClientId,
    /// The session; 0 if there is none.
    pub session: u64,
    /// The number of the request in its slot.
    pub sequence: u64,
    /// Of an answer or refusal: 0, or an errno.
    pub status: u32,
    /// Bytes after the header.
    pub length: u32,
    /// The client's time left, the time that the server asks for, or the time that it took.
    pub time_ms: u32,
    /// The server's estimate of the time that a request takes.
    pub estimate_ms: u32,
}

/// The id of a client among all clients with its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId {
    /// The number of the client among those of its address; the same after a restart. 0 where an
    /// address has one client, as that of a transfer machine has.
    pub number: u32,
    /// A random number that no earlier client has, not 0: an answer to an earlier program at this
    /// address is not accepted, and a server frees what it stores for that program.
    pub incarnation: u64,
}

impl Header {
    /// Parses the header of a complete message; `None` if it is not of this format, or truncated.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Header> {
        let (header, body) = message.split_first_chunk::<HEADER>()?;
        let kind = match header[5] {
            1 => Kind::Open,
            2 => Kind::Opened,
            3 => Kind::Once,
            4 => Kind::Often,
            5 => Kind::Answer,
            6 => Kind::Refusal,
            7 => Kind::Early,
            _ => return None,
        };
        let parsed = Header {
            kind,
            class: if header[6] & URGENT == 0 { Class::Normal } else { Class::Urgent },
            has_offers: header[6] & OFFERS != 0,
            attempt: header[7],
            slot: u16::from_le_bytes(field(header, 8)),
            client: ClientId {
                number: u32::from_le_bytes(field(header, 12)),
                incarnation: u64::from_le_bytes(field(header, 16)),
            },
            session: u64::from_le_bytes(field(header, 24)),
            sequence: u64::from_le_bytes(field(header, 32)),
            status: u32::from_le_bytes(field(header, 40)),
            length: u32::from_le_bytes(field(header, 44)),
            time_ms: u32::from_le_bytes(field(header, 48)),
            estimate_ms: u32::from_le_bytes(field(header, 52)),
        };
        let is_ours = field(header, 0) == MAGIC && header[4] == VERSION;
        let fits = usize::from(parsed.slot) < SLOTS && parsed.length as usize == body.len();
        (is_ours && fits).then_some(parsed)
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        let urgent = if self.class == Class::Urgent { URGENT } else { 0 };
        bytes[6] = urgent | if self.has_offers { OFFERS } else { 0 };
        bytes[7] = self.attempt;
        bytes[8..10].copy_from_slice(&self.slot.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.client.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.client.incarnation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.session.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.status.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.length.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.estimate_ms.to_le_bytes());
        bytes
    }

    /// Returns the time of the field `time_ms`.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms.into())
    }
}

fn field<const N: usize>(header: &[u8; HEADER], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

/// Returns a time for the wire: in milliseconds, rounded up.
pub(super) fn milliseconds(time_ns: u64) -> u32 {
    time_ns.div_ceil(1_000_000).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        let kinds =
            [Kind::Open, Kind::Opened, Kind::Once, Kind::Often, Kind::Answer, Kind::Refusal, Kind::Early];
        let numbers = any::<(u64, u64, u64, u32, u32, u32, u32)>();
        let flags = any::<(bool, bool, u8)>();
        (0..kinds.len(), flags, 0..SLOTS as u16, numbers, 0..200_u32).prop_map(
            move |(kind, (urgent, has_offers, attempt), slot, numbers, length)| {
                let (incarnation, session, sequence, number, status, time_ms, estimate_ms) = numbers;
                Header {
                    kind: kinds[kind],
                    class: if urgent { Class::Urgent } else { Class::Normal },
                    has_offers,
                    attempt,
                    slot,
                    client: ClientId { number, incarnation },
                    session,
                    sequence,
                    status,
                    length,
                    time_ms,
                    estimate_ms,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(header in header()) {
            let mut message = header.emit().to_vec();
            message.resize(HEADER + header.length as usize, 7);
            prop_assert_eq!(Header::parse(&message), Some(header));
            // A message of another length, or with a slot out of range, is refused.
            message.push(7);
            prop_assert_eq!(Header::parse(&message), None);
            prop_assert_eq!(Header::parse(&message[..message.len() - 2]), None);
            let beyond = Header { slot: SLOTS as u16, ..header };
            message.pop();
            message[..HEADER].copy_from_slice(&beyond.emit());
            prop_assert_eq!(Header::parse(&message), None);
        }

        /// The fields do not overlap, and receivers ignore reserved bytes and flags.
        #[test]
        fn a_changed_byte_changes_one_field_or_none(
            header in header(), at in 0..HEADER, with in 1..=255_u8,
        ) {
            let header = Header { length: 0, ..header };
            let mut message = header.emit();
            message[at] ^= with;
            let reserved = matches!(at, 10 | 11 | 56..) || at == 6 && with & 3 == 0;
            match Header::parse(&message) {
                Some(parsed) if reserved => prop_assert_eq!(parsed, header),
                Some(parsed) => {
                    prop_assert!(parsed != header && at >= 5 && !(44..48).contains(&at));
                    prop_assert_eq!(parsed.emit()[at] & if at == 6 { 3 } else { 255 }, message[at] & if at == 6 { 3 } else { 255 });
                }
                None => prop_assert!(!reserved && matches!(at, 0..=5 | 8 | 9 | 44..=47)),
            }
        }

        #[test]
        fn nothing_else_is_parsed(message in prop::collection::vec(any::<u8>(), 0..150)) {
            let begins = message.starts_with(&MAGIC) && message.get(4) == Some(&VERSION);
            prop_assert!(Header::parse(&message).is_none() || begins);
        }
    }
}
