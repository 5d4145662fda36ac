//! Writing structures one behind the other.

use zerocopy::{Immutable, IntoBytes};

/// What is left of a buffer that the object's `encoded_len` has sized.
pub(crate) struct Cursor<'a> {
    pub(crate) out: &'a mut [u8],
}

impl Cursor<'_> {
    /// Writes `value` and steps behind it.
    pub(crate) fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) {
        let bytes = value.as_bytes();
        let (head, rest) = std::mem::take(&mut self.out).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.out = rest;
    }
}
