//! The opaque handle a message carries so that its answer finds back.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Sixteen bytes that their owner chooses and every other node echoes byte for byte (lnet-wire 5).
///
/// Only the owner looks inside: the first half is its *interface cookie*, which names one life of its LNet
/// instance, the second the *object cookie*, which names a memory descriptor inside it. An answer whose interface
/// cookie is not the receiver's own comes from before a restart and is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct WireHandle(pub [u8; 16]);

impl WireHandle {
    /// No handle. In a PUT: no ACK is wanted.
    pub const NONE: WireHandle = WireHandle([0xff; 16]);

    /// The handle of these two cookies.
    #[must_use]
    pub const fn new(interface_cookie: u64, object_cookie: u64) -> WireHandle {
        let [a, b, c, d, e, f, g, h] = interface_cookie.to_le_bytes();
        let [i, j, k, l, m, n, o, p] = object_cookie.to_le_bytes();
        WireHandle([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// The first cookie given to [`WireHandle::new`]; meaningless for a handle of another node.
    #[must_use]
    pub const fn interface_cookie(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The second cookie given to [`WireHandle::new`]; meaningless for a handle of another node.
    #[must_use]
    pub const fn object_cookie(self) -> u64 {
        let [.., i, j, k, l, m, n, o, p] = self.0;
        u64::from_le_bytes([i, j, k, l, m, n, o, p])
    }

    /// Whether this is [`WireHandle::NONE`].
    #[must_use]
    pub fn is_none(self) -> bool {
        self == WireHandle::NONE
    }
}

impl fmt::Display for WireHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        write!(f, "{:#x}.{:#x}", self.interface_cookie(), self.object_cookie())
    }
}

impl fmt::Debug for WireHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookies_come_back_and_only_all_ones_is_none() {
        let handle = WireHandle::new(0x0102_0304_0506_0708, u64::MAX);
        assert_eq!(handle.interface_cookie(), 0x0102_0304_0506_0708);
        assert_eq!(handle.object_cookie(), u64::MAX);
        assert!(!handle.is_none());
        assert!(WireHandle::new(u64::MAX, u64::MAX).is_none());
        assert_eq!(WireHandle::NONE.to_string(), "none");
    }
}
