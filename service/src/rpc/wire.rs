//! The format of a request and its answer: a header of 40 bytes, little-endian, followed by the
//! program's bytes.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | the letters `nlxq` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | kind, see [`Kind`] |
//! | 6 | 2 | slot: less than [`SLOTS`] |
//! | 8 | 8 | the client's id: random, and constant during its life |
//! | 16 | 8 | the session; 0 if there is none |
//! | 24 | 8 | the number of the request in its slot |
//! | 32 | 4 | of an answer or refusal: 0, or an errno |
//! | 36 | 4 | bytes after the header |

/// Maximum number of requests of a client in flight at one server: the server stores an answer for
/// each.
pub const SLOTS: usize = 64;

/// Length of the header in bytes.
pub const HEADER: usize = 40;

const MAGIC: [u8; 4] = *b"nlxq";
const VERSION: u8 = 1;

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
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// The slot of the request in its session; less than [`SLOTS`].
    pub slot: u16,
    /// The client's id.
    pub client: u64,
    /// The session; 0 if there is none.
    pub session: u64,
    /// The number of the request in its slot.
    pub sequence: u64,
    /// Of an answer or refusal: 0, or an errno.
    pub status: u32,
    /// Bytes after the header.
    pub length: u32,
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
            _ => return None,
        };
        let parsed = Header {
            kind,
            slot: u16::from_le_bytes(field(header, 6)),
            client: u64::from_le_bytes(field(header, 8)),
            session: u64::from_le_bytes(field(header, 16)),
            sequence: u64::from_le_bytes(field(header, 24)),
            status: u32::from_le_bytes(field(header, 32)),
            length: u32::from_le_bytes(field(header, 36)),
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
        bytes[6..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.client.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.session.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.status.to_le_bytes());
        bytes[36..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

fn field<const N: usize>(header: &[u8; HEADER], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        let kinds = [Kind::Open, Kind::Opened, Kind::Once, Kind::Often, Kind::Answer, Kind::Refusal];
        let numbers = any::<(u64, u64, u64, u32)>();
        (0..kinds.len(), 0..SLOTS as u16, numbers, 0..200_u32).prop_map(
            move |(kind, slot, numbers, length)| {
                let (client, session, sequence, status) = numbers;
                Header { kind: kinds[kind], slot, client, session, sequence, status, length }
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

        #[test]
        fn nothing_else_is_parsed(message in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(header) = Header::parse(&message) {
                prop_assert_eq!(&header.emit()[..], &message[..HEADER]);
            }
        }
    }
}
