//! The hello, which each side sends once (lnet-wire 22).

use std::mem::offset_of;
use std::net::Ipv4Addr;

use lnet_nid::{Nid, Pid};
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::error::{nid4, nid20, to_nid4};
use crate::{ByteOrder, Decoded, Header, ProtoError};

use super::{ConnType, WireBytes};

/// The magic number that all network types share; hello versions 2 to 4 have it.
pub(crate) const MAGIC_UNIFIED: u32 = 0x4572_6963;

/// The magic number of the version 1 hello, which is always little-endian.
const MAGIC_OLD_TCP: u32 = 0xeebc_0ded;

/// The maximum length of a hello in bytes.
pub(crate) const HELLO_MAX: usize = SMALL_LEN + 4 * InterfaceAddresses::MAX;

const SMALL_LEN: usize = size_of::<SmallHello>();
const LARGE_LEN: usize = size_of::<LargeHello>();

/// The name of a hello in errors.
const OBJECT: &str = "hello";

/// The version of the socket protocol, the same in both hellos of a connection.
///
/// Version 1 has an older layout, which this crate recognises and refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Version {
    /// Version 2: 64-bit NIDs, checksums.
    V2 = 2,
    /// Version 3: 64-bit NIDs, keepalives. Nodes use it over IPv4.
    V3 = 3,
    /// Version 4: 20-byte NIDs and 96-byte message headers. Nodes use it over IPv6.
    V4 = 4,
}

impl Version {
    /// Returns the version in which to address, or refuse, a peer whose version is unknown
    /// (lnet-wire 22.4).
    #[must_use]
    pub fn preferred_for(nid: Nid) -> Version {
        if nid.is_nid4() { Version::V3 } else { Version::V4 }
    }

    /// Returns the version with this number, if it is supported here.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Version> {
        match number {
            2 => Some(Version::V2),
            3 => Some(Version::V3),
            4 => Some(Version::V4),
            _ => None,
        }
    }

    /// Returns the length in bytes of a message header on a connection of this version.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Version::V2 | Version::V3 => Header::LEN,
            Version::V4 => Header::LARGE_LEN,
        }
    }

    /// Returns whether the version's hello and headers can encode this NID.
    #[must_use]
    pub const fn holds(self, nid: Nid) -> bool {
        nid.is_nid4() || matches!(self, Version::V4)
    }
}

/// The identity of a node, and its parameters for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The version of the layout and of the connection.
    pub version: Version,
    /// The sender's NID.
    pub src_nid: Nid,
    /// The receiver's NID. In a hello to a peer with an unprivileged source port, this is the NID
    /// by which this node identifies the peer (lnet-wire 27). Receivers do not check it (lnet-wire
    /// 22.5): an invalid NID is read as [`Nid::ANY`].
    pub dst_nid: Nid,
    /// The sender's process id.
    pub src_pid: Pid,
    /// The receiver's process id; kernel nodes send 0, and receivers do not check it.
    pub dst_pid: Pid,
    /// The sender's incarnation: a number that changes when its network interface restarts.
    pub src_incarnation: u64,
    /// The receiver's incarnation; kernel nodes send 0, and receivers do not check it.
    pub dst_incarnation: u64,
    /// The connection's type in the sender's view; [`ConnType::None`] refuses the connection.
    pub conn_type: ConnType,
    /// The sender's interfaces, obsolete: current nodes list none. Not in version 4.
    pub addresses: InterfaceAddresses,
}

/// The IPv4 addresses that old nodes list in their hello: at most [`InterfaceAddresses::MAX`], none
/// of them zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InterfaceAddresses {
    addresses: [u32; InterfaceAddresses::MAX],
    count: usize,
}

impl InterfaceAddresses {
    /// The limit for addresses in a hello (lnet-wire 22.2).
    pub const MAX: usize = 16;
    /// The empty list.
    pub const NONE: InterfaceAddresses =
        InterfaceAddresses { addresses: [0; InterfaceAddresses::MAX], count: 0 };

    /// Makes a list of these addresses.
    ///
    /// # Errors
    /// [`ProtoError::AddressCount`] for more than [`InterfaceAddresses::MAX`],
    /// [`ProtoError::ZeroAddress`].
    pub fn new(addresses: &[Ipv4Addr]) -> Result<InterfaceAddresses, ProtoError> {
        let mut list = InterfaceAddresses::NONE;
        list.count = checked_count(u32::try_from(addresses.len()).unwrap_or(u32::MAX))?;
        for (index, (slot, address)) in list.addresses.iter_mut().zip(addresses).enumerate() {
            *slot = checked_address(index, address.to_bits())?;
        }
        Ok(list)
    }

    /// Iterates over the addresses in order.
    pub fn iter(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.addresses[..self.count].iter().map(|address| Ipv4Addr::from_bits(*address))
    }

    /// Returns the number of addresses.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Hello {
    /// Decodes a hello in either byte order. Returns the byte order with it, because it also
    /// applies to the message prefixes of the connection.
    ///
    /// # Errors
    /// Each check of lnet-wire 22.5 that is independent of the receiver, as soon as its bytes are
    /// there: [`ProtoError::Magic`], [`ProtoError::Version`] (also for version 1), then the fields.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<(Hello, ByteOrder)>, ProtoError> {
        let Some(magic) = bytes.first_chunk() else { return Ok(Decoded::Need(4)) };
        let order = hello_order(*magic)?;
        let Some(start) = bytes.first_chunk::<8>() else { return Ok(Decoded::Need(8)) };
        let [_, _, _, _, number @ ..] = *start;
        let version = match order {
            Some(order) => order.u32(u32::from_le_bytes(number)),
            None => 1,
        };
        let (Some(order), Some(version)) = (order, Version::from_number(version)) else {
            return Err(ProtoError::Version { object: OBJECT, value: version, min: 2, max: 4 });
        };
        let hello = match version {
            Version::V2 | Version::V3 => Hello::decode_small(version, bytes, order),
            Version::V4 => Hello::decode_large(bytes, order),
        }?;
        Ok(hello.map(|hello| (hello, order)))
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        match self.version {
            Version::V2 | Version::V3 => SMALL_LEN + 4 * self.addresses.len(),
            Version::V4 => LARGE_LEN,
        }
    }

    /// Writes the hello to the start of `out`, little-endian; returns its length. Version 4 does
    /// not encode the interface addresses.
    ///
    /// # Errors
    /// [`ProtoError::Buffer`] if `out` is shorter than [`Hello::encoded_len`],
    /// [`ProtoError::LargeNid`] if the version cannot encode a NID.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ProtoError> {
        let (length, needed) = (out.len(), self.encoded_len());
        let Some(out) = out.get_mut(..needed) else {
            return Err(ProtoError::Buffer { object: OBJECT, length, needed });
        };
        match self.version {
            Version::V2 | Version::V3 => self.emit_small(out)?,
            Version::V4 => {
                let raw = RawHello::of(self, |_, nid| Ok(nid.to_wire()))?;
                // Version 4 has no list of addresses.
                out.copy_from_slice(RawHello { address_count: U32::ZERO, ..raw }.as_bytes());
            }
        }
        Ok(needed)
    }

    /// Returns the encoded hello.
    ///
    /// # Errors
    /// [`ProtoError::LargeNid`] if the version cannot encode a NID.
    pub fn to_bytes(&self) -> Result<WireBytes, ProtoError> {
        let mut bytes = [0; HELLO_MAX];
        let length = self.emit(&mut bytes)?;
        let mut out = WireBytes::EMPTY;
        out.push(&bytes[..length]);
        Ok(out)
    }

    fn decode_small(version: Version, bytes: &[u8], order: ByteOrder) -> Result<Decoded<Hello>, ProtoError> {
        let Some(fixed) = bytes.first_chunk::<SMALL_LEN>() else { return Ok(Decoded::Need(SMALL_LEN)) };
        let raw: SmallHello = transmute!(*fixed);
        let count = checked_count(order.u32(raw.address_count.get()))?;
        let total = SMALL_LEN + 4 * count;
        let Some(list) = bytes.get(SMALL_LEN..total) else { return Ok(Decoded::Need(total)) };
        let mut hello = raw.decode(version, order, |field, nid| nid4(field, order.u64(nid.get())))?;
        hello.addresses = decode_addresses(count, list, order)?;
        Ok(Decoded::Done(total, hello.checked()?))
    }

    fn decode_large(bytes: &[u8], order: ByteOrder) -> Result<Decoded<Hello>, ProtoError> {
        let Some(fixed) = bytes.first_chunk::<LARGE_LEN>() else { return Ok(Decoded::Need(LARGE_LEN)) };
        let raw: LargeHello = transmute!(*fixed);
        let hello = raw.decode(Version::V4, order, nid20)?;
        Ok(Decoded::Done(LARGE_LEN, hello.checked()?))
    }

    fn checked(self) -> Result<Hello, ProtoError> {
        if self.src_nid.is_any() || self.src_nid.is_loopback() {
            return Err(ProtoError::NotInterface { field: "hello src_nid", nid: self.src_nid });
        }
        Ok(self)
    }

    fn emit_small(&self, out: &mut [u8]) -> Result<(), ProtoError> {
        let raw = RawHello::of(self, |field, nid| to_nid4(field, nid).map(U64::new))?;
        let (fixed, list) = out.split_at_mut(SMALL_LEN);
        fixed.copy_from_slice(raw.as_bytes());
        for (slot, address) in list.chunks_exact_mut(4).zip(&self.addresses.addresses) {
            slot.copy_from_slice(&address.to_le_bytes());
        }
        Ok(())
    }
}

/// Returns the byte order of the magic number, or `None` for the magic number of version 1.
fn hello_order(magic: [u8; 4]) -> Result<Option<ByteOrder>, ProtoError> {
    let value = u32::from_le_bytes(magic);
    match ByteOrder::of_magic(magic, MAGIC_UNIFIED) {
        Some(order) => Ok(Some(order)),
        None if value == MAGIC_OLD_TCP => Ok(None),
        None => Err(ProtoError::Magic { object: OBJECT, value, expected: MAGIC_UNIFIED }),
    }
}

fn conn_type(order: ByteOrder, raw: I32) -> Result<ConnType, ProtoError> {
    ConnType::try_from(order.u32(raw.get() as u32) as i32)
}

fn decode_addresses(count: usize, list: &[u8], order: ByteOrder) -> Result<InterfaceAddresses, ProtoError> {
    let mut addresses = InterfaceAddresses::NONE;
    addresses.count = count;
    let words = list.as_chunks::<4>().0.iter().map(|word| order.u32(u32::from_le_bytes(*word)));
    for (index, (slot, address)) in addresses.addresses.iter_mut().zip(words).enumerate() {
        *slot = checked_address(index, address)?;
    }
    Ok(addresses)
}

fn checked_count(value: u32) -> Result<usize, ProtoError> {
    let limit = InterfaceAddresses::MAX as u32;
    if value > limit { Err(ProtoError::AddressCount { value, limit }) } else { Ok(value as usize) }
}

fn checked_address(index: usize, address: u32) -> Result<u32, ProtoError> {
    if address == 0 { Err(ProtoError::ZeroAddress { index }) } else { Ok(address) }
}

/// The layout of a hello, with NIDs of either form.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello<N> {
    magic: U32,
    version: U32,
    src_nid: N,
    dst_nid: N,
    src_pid: U32,
    dst_pid: U32,
    src_incarnation: U64,
    dst_incarnation: U64,
    conn_type: I32,
    address_count: U32,
}

type SmallHello = RawHello<U64>;
type LargeHello = RawHello<[u8; Nid::WIRE_LEN]>;

const_assert_eq!(size_of::<SmallHello>(), 56);
const_assert_eq!(offset_of!(SmallHello, src_pid), 24);
const_assert_eq!(offset_of!(SmallHello, src_incarnation), 32);
const_assert_eq!(offset_of!(SmallHello, conn_type), 48);
const_assert_eq!(size_of::<LargeHello>(), 80);
const_assert_eq!(offset_of!(LargeHello, dst_nid), 28);
const_assert_eq!(offset_of!(LargeHello, src_pid), 48);
const_assert_eq!(offset_of!(LargeHello, src_incarnation), 56);
const_assert_eq!(offset_of!(LargeHello, conn_type), 72);

impl<N> RawHello<N> {
    /// Returns the hello without the addresses.
    fn decode(
        self,
        version: Version,
        order: ByteOrder,
        nid: impl Fn(&'static str, &N) -> Result<Nid, ProtoError>,
    ) -> Result<Hello, ProtoError> {
        Ok(Hello {
            version,
            src_nid: nid("hello src_nid", &self.src_nid)?,
            dst_nid: nid("hello dst_nid", &self.dst_nid).unwrap_or(Nid::ANY),
            src_pid: Pid(order.u32(self.src_pid.get())),
            dst_pid: Pid(order.u32(self.dst_pid.get())),
            src_incarnation: order.u64(self.src_incarnation.get()),
            dst_incarnation: order.u64(self.dst_incarnation.get()),
            conn_type: conn_type(order, self.conn_type)?,
            addresses: InterfaceAddresses::NONE,
        })
    }

    fn of(
        hello: &Hello,
        nid: impl Fn(&'static str, Nid) -> Result<N, ProtoError>,
    ) -> Result<RawHello<N>, ProtoError> {
        Ok(RawHello {
            magic: U32::new(MAGIC_UNIFIED),
            version: U32::new(hello.version as u32),
            src_nid: nid("hello src_nid", hello.src_nid)?,
            dst_nid: nid("hello dst_nid", hello.dst_nid)?,
            src_pid: U32::new(hello.src_pid.0),
            dst_pid: U32::new(hello.dst_pid.0),
            src_incarnation: U64::new(hello.src_incarnation),
            dst_incarnation: U64::new(hello.dst_incarnation),
            conn_type: I32::new(hello.conn_type.get()),
            address_count: U32::new(hello.addresses.count as u32),
        })
    }
}
