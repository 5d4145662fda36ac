//! The opaque handle in a message that identifies the operation in its answer.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Sixteen bytes that their owner chooses and every other node echoes byte for byte (lnet-wire 5).
///
/// Only the owner interprets the handle: the first half is the owner's *interface cookie*, which
/// identifies one incarnation of its LNet instance, the second half the *object cookie*, which
/// identifies a memory descriptor in it. An answer with another interface cookie than the
/// receiver's was requested before a restart and is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct WireHandle(pub [u8; 16]);

/// The bits of an interface cookie that nlx reserves. The reference's cookies are nanoseconds since
/// 1970 (lnet-wire 5), in which these bits are 0 until 2043.
const MARK: u64 = 7 << 61;
/// The mark of a handle whose owner accepts refusals. It is no prefix of [`WireHandle::NONE`].
const TAKES_REFUSALS: u64 = 5 << 61;
/// The mark of a handle in a refusal.
const REFUSAL: u64 = 6 << 61;

/// *Refusals* exist only between nodes of nlx: LNet has no negative acknowledgement (lnet-wire 11).
/// A request with such a handle is answered, when an nlx node drops it because nothing matches,
/// with an ACK whose handle identifies the same object and has the mark of a refusal. Other nodes
/// echo the handle of a request unchanged, do not answer requests that they drop, and drop an ACK
/// whose handle is not theirs: refusals do not affect them.
impl WireHandle {
    /// Returns an interface cookie with the bits of the marks cleared. Every nlx node has such a
    /// cookie.
    #[must_use]
    pub const fn unmarked(interface_cookie: u64) -> u64 {
        interface_cookie & !MARK
    }

    /// Returns this handle with the mark of an owner that accepts refusals.
    #[must_use]
    pub const fn taking_refusals(self) -> WireHandle {
        self.marked(TAKES_REFUSALS)
    }

    /// Returns this handle without the mark of [`WireHandle::taking_refusals`], for a request that
    /// the network itself refuses.
    #[must_use]
    pub const fn taking_no_refusals(self) -> WireHandle {
        if self.refusal().is_some() { self.marked(0) } else { self }
    }

    /// Returns the handle for the refusal of a request with this handle; `None` if its owner
    /// accepts no refusals.
    #[must_use]
    pub const fn refusal(self) -> Option<WireHandle> {
        if self.interface_cookie() & MARK == TAKES_REFUSALS { Some(self.marked(REFUSAL)) } else { None }
    }

    /// Returns whether this is the handle of a refusal.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        self.interface_cookie() & MARK == REFUSAL
    }

    const fn marked(self, mark: u64) -> WireHandle {
        WireHandle::new(WireHandle::unmarked(self.interface_cookie()) | mark, self.object_cookie())
    }
}

impl WireHandle {
    /// The null handle. In a PUT it means that no ACK is requested.
    pub const NONE: WireHandle = WireHandle([0xff; 16]);

    /// Makes the handle of these two cookies.
    #[must_use]
    pub const fn new(interface_cookie: u64, object_cookie: u64) -> WireHandle {
        let [a, b, c, d, e, f, g, h] = interface_cookie.to_le_bytes();
        let [i, j, k, l, m, n, o, p] = object_cookie.to_le_bytes();
        WireHandle([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// Returns the first cookie given to [`WireHandle::new`]; meaningless for a handle of another
    /// node.
    #[must_use]
    pub const fn interface_cookie(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns the second cookie given to [`WireHandle::new`]; meaningless for a handle of another
    /// node.
    #[must_use]
    pub const fn object_cookie(self) -> u64 {
        let [.., i, j, k, l, m, n, o, p] = self.0;
        u64::from_le_bytes([i, j, k, l, m, n, o, p])
    }

    /// Returns whether this is [`WireHandle::NONE`].
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

    #[test]
    fn a_refusal_names_the_object_of_a_request_that_takes_one() {
        // The interface cookie of another node started in 2026: nanoseconds since 1970.
        let plain = WireHandle::new(1_795_401_250_000_000_000, 77);
        assert_eq!(WireHandle::unmarked(plain.interface_cookie()), plain.interface_cookie());
        for takes_none in [plain, WireHandle::NONE, WireHandle::new(0, 0)] {
            assert_eq!((takes_none.refusal(), takes_none.is_refusal()), (None, false));
        }
        let asking = plain.taking_refusals();
        let refusal = asking.refusal().unwrap();
        assert_eq!((asking.taking_no_refusals(), plain.taking_no_refusals()), (plain, plain));
        assert_eq!(WireHandle::NONE.taking_no_refusals(), WireHandle::NONE);
        assert_eq!((asking.is_refusal(), refusal.is_refusal(), refusal.refusal()), (false, true, None));
        for marked in [asking, refusal] {
            assert_ne!(marked, plain);
            assert_eq!(WireHandle::unmarked(marked.interface_cookie()), plain.interface_cookie());
            assert_eq!(marked.object_cookie(), 77);
        }
    }
}
