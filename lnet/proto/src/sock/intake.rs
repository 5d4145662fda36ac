//! Small fixed buffers of the handshakes, for received bytes and for bytes to send.

use std::fmt;
use std::ops::Deref;

use super::hello::HELLO_MAX;
use super::request::REQUEST_MAX;
use crate::Decoded;

/// The bytes that a handshake sends, held without allocation: at most a connection request and a
/// hello.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WireBytes {
    bytes: [u8; WireBytes::CAPACITY],
    length: usize,
}

impl WireBytes {
    /// The maximum number of bytes that a handshake sends in one piece.
    pub const CAPACITY: usize = REQUEST_MAX + HELLO_MAX;
    /// The empty value: nothing is sent.
    pub const EMPTY: WireBytes = WireBytes { bytes: [0; WireBytes::CAPACITY], length: 0 };

    /// Appends a piece. The callers' pieces are arrays and hellos whose total length is at most
    /// `CAPACITY`.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.bytes[self.length..self.length + piece.len()].copy_from_slice(piece);
        self.length += piece.len();
    }
}

impl Deref for WireBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Debug for WireBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

/// Collects one object at a time from a stream that may be cut at any byte.
///
/// It consumes only the bytes that the object's decoder needs, so none behind the object. Its
/// buffer has the length of the largest object, independently of the length that a peer claims.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    bytes: [u8; HELLO_MAX],
    length: usize,
}

impl Intake {
    pub(crate) const EMPTY: Intake = Intake { bytes: [0; HELLO_MAX], length: 0 };

    /// Returns the number of bytes of the object collected so far.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Consumes bytes from the front of `input` until `decode` returns a value or `input` is empty.
    pub(crate) fn pull<T, E>(
        &mut self,
        input: &mut &[u8],
        decode: impl Fn(&[u8]) -> Result<Decoded<T>, E>,
    ) -> Result<Option<T>, E> {
        loop {
            let total = match decode(&self.bytes[..self.length])? {
                Decoded::Done(_, value) => {
                    self.length = 0;
                    return Ok(Some(value));
                }
                Decoded::Need(total) => total.min(HELLO_MAX),
            };
            let taken = total.saturating_sub(self.length).min(input.len());
            // Each round adds a byte, so there are at most HELLO_MAX rounds.
            if taken == 0 {
                return Ok(None);
            }
            let (head, rest) = input.split_at(taken);
            self.bytes[self.length..self.length + taken].copy_from_slice(head);
            self.length += taken;
            *input = rest;
        }
    }
}

const _: () = assert!(REQUEST_MAX <= HELLO_MAX);
