//! What the two sides say to each other, in messages of nlx.

use nlx::Descriptor;

use super::pattern;
use crate::failure::Failure;

/// Bytes before a message's body.
pub(crate) const HEAD_BYTES: usize = 24;

/// The longest message of the self-test: a head and an echo's payload, or a head and a descriptor.
pub(crate) const MESSAGE_BYTES: usize = 256;

const _: () = assert!(HEAD_BYTES + Descriptor::MAX_LEN <= MESSAGE_BYTES);

/// Payload of an echo: with its head and LNet's own header it stays what LNet calls a small message.
pub(crate) const ECHO_BYTES: usize = 64;

/// The pattern's stream for what the client sends, and for what the server sends.
pub(crate) const FROM_CLIENT: u64 = 1;
/// See [`FROM_CLIENT`].
pub(crate) const FROM_SERVER: u64 = 2;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Send the payload back, in the server's pattern.
    Echo,
    /// Read `length` bytes from the client's passive buffer and verify them.
    Write,
    /// Write `length` bytes into the client's passive buffer.
    Read,
    /// Tell what has been verified so far.
    Report,
    /// The answer: it worked; `length` bytes were verified.
    Good,
    /// The answer: something was wrong.
    Bad,
}

const KINDS: [Kind; 6] = [Kind::Echo, Kind::Write, Kind::Read, Kind::Report, Kind::Good, Kind::Bad];

/// The head of a message, 24 bytes little-endian: kind u32, lane u32, sequence u64, length u64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    /// Which of the client's operations in flight it belongs to.
    pub lane: u32,
    pub sequence: u64,
    pub length: u64,
}

impl Head {
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(KINDS.len()) as u32;
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.lane.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Head, Failure> {
        let head: &[u8; HEAD_BYTES] =
            bytes.first_chunk().ok_or_else(|| Failure::new(format!("a message of {} bytes", bytes.len())))?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = KINDS
            .get(word(0) as usize)
            .ok_or_else(|| Failure::new(format!("a message of kind {}", word(0))))?;
        Ok(Head { kind: *kind, lane: word(4), sequence: long(8), length: long(16) })
    }
}

/// Writes an echo; gives its bytes.
pub(crate) fn write_echo(head: &Head, stream: u64, bytes: &mut [u8]) -> usize {
    head.write(bytes);
    let end = HEAD_BYTES + head.length as usize;
    pattern::fill(stream, head.sequence, &mut bytes[HEAD_BYTES..end]);
    end
}

/// Whether an echo carries exactly what its head says.
pub(crate) fn check_echo(head: &Head, stream: u64, bytes: &[u8]) -> bool {
    let body = &bytes[HEAD_BYTES..];
    body.len() as u64 == head.length && pattern::check(stream, head.sequence, body)
}

/// Writes a request that offers a passive buffer; gives its bytes.
pub(crate) fn write_offer(head: &Head, descriptor: &Descriptor, bytes: &mut [u8]) -> usize {
    head.write(bytes);
    let descriptor = descriptor.as_bytes();
    let end = HEAD_BYTES + descriptor.len();
    bytes[HEAD_BYTES..end].copy_from_slice(descriptor);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_as_it_was_written() {
        for kind in KINDS {
            let head = Head { kind, lane: 7, sequence: u64::MAX - 3, length: 1 << 40 };
            let mut bytes = [0; HEAD_BYTES];
            head.write(&mut bytes);
            assert_eq!(Head::read(&bytes).unwrap(), head);
        }
        assert!(Head::read(&[0; HEAD_BYTES - 1]).is_err());
        assert!(Head::read(&[0xff; HEAD_BYTES]).is_err());
    }
}
