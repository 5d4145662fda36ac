//! A cursor that writes structures one behind the other.

use zerocopy::{Immutable, IntoBytes};

/// The unwritten rest of a buffer that was sized by the object's `encoded_len`.
pub(crate) struct Cursor<'a> {
    pub(crate) out: &'a mut [u8],
}

impl Cursor<'_> {
    /// Writes `value` and advances behind it.
    pub(crate) fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) {
        let bytes = value.as_bytes();
        let (head, rest) = std::mem::take(&mut self.out).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.out = rest;
    }
}
