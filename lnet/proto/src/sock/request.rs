//! The connection request: the first bytes on every connection, from the active side (lnet-wire
//! 21).

use std::mem::offset_of;

use lnet_nid::Nid;
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::error::{nid4, nid20, to_nid4};
use crate::{ByteOrder, Decoded, ProtoError};

use super::hello::MAGIC_UNIFIED;

/// The request's magic number.
pub(crate) const MAGIC_ACCEPTOR: u32 = 0xacce_7100;

/// The maximum length of a request in bytes.
pub(crate) const REQUEST_MAX: usize = AcceptorRequest::LARGE_LEN;

/// The name of a request in errors.
const OBJECT: &str = "connection request";

/// A request to the passive side for one of its interfaces.
///
/// Success has no separate answer: the passive side's hello follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptorRequest {
    /// The layout of the request.
    pub version: RequestVersion,
    /// The interface to which the active side connects.
    pub nid: Nid,
}

/// The layout of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum RequestVersion {
    /// Version 1, with a 64-bit NID. It must be used for a NID that has that form, as older nodes
    /// support no other.
    V1 = 1,
    /// Version 2, with a 20-byte NID.
    V2 = 2,
}

/// The passive side's decision on the first bytes of a connection (lnet-wire 21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestVerdict<T> {
    /// The bytes are valid so far; `total` bytes are needed for the next step.
    NeedMore {
        /// Total length needed, in bytes from the start.
        total: usize,
    },
    /// Continue with the hello, which starts behind `length` bytes. Nothing is sent.
    Accept {
        /// Length of the request in bytes.
        length: usize,
        /// The decoded request.
        request: AcceptorRequest,
        /// The caller's data for the requested interface.
        interface: T,
    },
    /// Send these bytes, which contain the version supported here, and close.
    ReplyAndClose {
        /// The bytes to send.
        reply: [u8; AcceptorRequest::LEN],
        /// The reason for the rejection.
        reason: ProtoError,
    },
    /// Close without sending a byte.
    Close {
        /// The reason for the rejection.
        reason: ProtoError,
    },
}

impl AcceptorRequest {
    /// Length of a version 1 request in bytes.
    pub const LEN: usize = size_of::<RawRequest>();
    /// Length of a version 2 request in bytes.
    pub const LARGE_LEN: usize = size_of::<RawLargeRequest>();
    /// The passive side's answer to a request of an unsupported version: a version 1 request for
    /// NID 0.
    pub const REPLY: [u8; AcceptorRequest::LEN] =
        [0x00, 0x71, 0xce, 0xac, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Makes the request for this NID, in the oldest version that can encode it.
    #[must_use]
    pub fn new(nid: Nid) -> AcceptorRequest {
        let version = if nid.is_nid4() { RequestVersion::V1 } else { RequestVersion::V2 };
        AcceptorRequest { version, nid }
    }

    /// Decodes a request in either byte order.
    ///
    /// # Errors
    /// Unknown magic number or version, each as soon as its bytes are there; an invalid NID.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<AcceptorRequest>, ProtoError> {
        let Some(magic) = bytes.first_chunk() else { return Ok(Decoded::Need(4)) };
        let order = ByteOrder::of_magic(*magic, MAGIC_ACCEPTOR).ok_or(ProtoError::Magic {
            object: OBJECT,
            value: u32::from_le_bytes(*magic),
            expected: MAGIC_ACCEPTOR,
        })?;
        let Some(start) = bytes.first_chunk::<8>() else { return Ok(Decoded::Need(8)) };
        let [_, _, _, _, version @ ..] = *start;
        match order.u32(u32::from_le_bytes(version)) {
            1 => Ok(AcceptorRequest::decode_v1(bytes, order)?),
            2 => Ok(AcceptorRequest::decode_v2(bytes)?),
            value => Err(ProtoError::Version { object: OBJECT, value, min: 1, max: 2 }),
        }
    }

    /// Decides on the first bytes of a connection; `interface` returns the caller's data for a NID
    /// of this node, and `None` for any other NID.
    pub fn judge<T>(bytes: &[u8], interface: impl FnOnce(Nid) -> Option<T>) -> RequestVerdict<T> {
        match AcceptorRequest::decode(bytes) {
            Ok(Decoded::Need(total)) => RequestVerdict::NeedMore { total },
            Ok(Decoded::Done(length, request)) => {
                let nid = request.nid;
                let names_one = !nid.is_any() && !nid.is_loopback();
                match names_one.then(|| interface(nid)).flatten() {
                    Some(interface) => RequestVerdict::Accept { length, request, interface },
                    None => RequestVerdict::Close { reason: ProtoError::NotMine { nid } },
                }
            }
            Err(reason) if deserves_reply(&reason) => {
                RequestVerdict::ReplyAndClose { reply: AcceptorRequest::REPLY, reason }
            }
            Err(reason) => RequestVerdict::Close { reason },
        }
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        match self.version {
            RequestVersion::V1 => AcceptorRequest::LEN,
            RequestVersion::V2 => AcceptorRequest::LARGE_LEN,
        }
    }

    /// Writes the request to the start of `out`, little-endian; returns its length.
    ///
    /// # Errors
    /// [`ProtoError::Buffer`] if `out` is shorter than [`AcceptorRequest::encoded_len`],
    /// [`ProtoError::LargeNid`] if version 1 cannot encode the NID.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ProtoError> {
        let (length, needed) = (out.len(), self.encoded_len());
        let Some(out) = out.get_mut(..needed) else {
            return Err(ProtoError::Buffer { object: OBJECT, length, needed });
        };
        let (magic, version) = (U32::new(MAGIC_ACCEPTOR), U32::new(self.version as u32));
        match self.version {
            RequestVersion::V1 => {
                let nid = U64::new(to_nid4("requested NID", self.nid)?);
                out.copy_from_slice(RawRequest { magic, version, nid }.as_bytes());
            }
            RequestVersion::V2 => {
                let nid = self.nid.to_wire();
                out.copy_from_slice(RawLargeRequest { magic, version, nid }.as_bytes());
            }
        }
        Ok(needed)
    }

    fn decode_v1(bytes: &[u8], order: ByteOrder) -> Result<Decoded<AcceptorRequest>, ProtoError> {
        let Some(bytes) = bytes.first_chunk::<{ AcceptorRequest::LEN }>() else {
            return Ok(Decoded::Need(AcceptorRequest::LEN));
        };
        let raw: RawRequest = transmute!(*bytes);
        let nid = nid4("requested NID", order.u64(raw.nid.get()))?;
        Ok(Decoded::Done(bytes.len(), AcceptorRequest { version: RequestVersion::V1, nid }))
    }

    fn decode_v2(bytes: &[u8]) -> Result<Decoded<AcceptorRequest>, ProtoError> {
        let Some(bytes) = bytes.first_chunk::<{ AcceptorRequest::LARGE_LEN }>() else {
            return Ok(Decoded::Need(AcceptorRequest::LARGE_LEN));
        };
        let raw: RawLargeRequest = transmute!(*bytes);
        let nid = nid20("requested NID", &raw.nid)?;
        Ok(Decoded::Done(bytes.len(), AcceptorRequest { version: RequestVersion::V2, nid }))
    }
}

/// Returns whether the error is answered: a request of another version gets the version supported
/// here; any other error means that the peer is not an LNet node.
fn deserves_reply(error: &ProtoError) -> bool {
    match error {
        ProtoError::Version { .. } => true,
        ProtoError::Magic { value, .. } => *value == MAGIC_UNIFIED || value.swap_bytes() == MAGIC_UNIFIED,
        _ => false,
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    magic: U32,
    version: U32,
    nid: U64,
}

const_assert_eq!(size_of::<RawRequest>(), 16);
const_assert_eq!(offset_of!(RawRequest, nid), 8);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLargeRequest {
    magic: U32,
    version: U32,
    nid: [u8; Nid::WIRE_LEN],
}

const_assert_eq!(size_of::<RawLargeRequest>(), 28);
const_assert_eq!(offset_of!(RawLargeRequest, nid), 8);

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(bytes: &[u8]) -> RequestVerdict<()> {
        AcceptorRequest::judge(bytes, |nid| (nid == "10.0.0.1@tcp".parse().unwrap()).then_some(()))
    }

    fn bytes_of(request: AcceptorRequest) -> Vec<u8> {
        let mut bytes = vec![0; request.encoded_len()];
        request.emit(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_reply_is_a_version_one_request_for_nid_zero() {
        assert_eq!(bytes_of(AcceptorRequest::new(Nid::from_nid4(0))), AcceptorRequest::REPLY);
    }

    /// lnet-wire 21, the passive side's table.
    #[test]
    fn the_passive_side_follows_its_table() {
        let mine = AcceptorRequest::new("10.0.0.1@tcp".parse().unwrap());
        let other = AcceptorRequest::new("10.0.0.1@tcp1".parse().unwrap());
        assert_eq!(
            judge(&bytes_of(mine)),
            RequestVerdict::Accept { length: 16, request: mine, interface: () }
        );
        let v2 = AcceptorRequest { version: RequestVersion::V2, ..mine };
        assert_eq!(judge(&bytes_of(v2)), RequestVerdict::Accept { length: 28, request: v2, interface: () });
        assert_eq!(
            judge(&bytes_of(other)),
            RequestVerdict::Close { reason: ProtoError::NotMine { nid: other.nid } }
        );

        let mut unknown = bytes_of(mine);
        unknown[4] = 3;
        for bytes in [&unknown[..], &MAGIC_UNIFIED.to_le_bytes(), &MAGIC_UNIFIED.to_be_bytes()] {
            let RequestVerdict::ReplyAndClose { reply, .. } = judge(bytes) else { panic!("{bytes:x?}") };
            assert_eq!(reply, AcceptorRequest::REPLY);
        }
        for bytes in [0xeebc_0ded_u32.to_le_bytes(), *b"GET ", [0; 4], [0xff; 4]] {
            assert!(matches!(judge(&bytes), RequestVerdict::Close { .. }), "{bytes:x?}");
        }
    }

    #[test]
    fn both_byte_orders_are_read() {
        let request = AcceptorRequest::new("10.0.0.1@tcp1".parse().unwrap());
        let mut big = bytes_of(request);
        big[..4].reverse();
        big[4..8].reverse();
        big[8..].reverse();
        assert_eq!(AcceptorRequest::decode(&big), Ok(Decoded::Done(16, request)));
        let large = AcceptorRequest::new("fd00::1@tcp1".parse().unwrap());
        let mut big = bytes_of(large);
        big[..4].reverse();
        big[4..8].reverse();
        assert_eq!(AcceptorRequest::decode(&big), Ok(Decoded::Done(28, large)));
    }

    #[test]
    fn a_large_nid_has_no_version_one_request() {
        let nid = "fd00::1@tcp".parse().unwrap();
        let request = AcceptorRequest { version: RequestVersion::V1, nid };
        assert_eq!(request.emit(&mut [0; 16]), Err(ProtoError::LargeNid { field: "requested NID", nid }));
        let needs = ProtoError::Buffer { object: OBJECT, length: 27, needed: 28 };
        assert_eq!(AcceptorRequest::new(nid).emit(&mut [0; 27]), Err(needs));
    }
}
