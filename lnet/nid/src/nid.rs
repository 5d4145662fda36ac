//! The network id of one interface of one node.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Net, NetType, NidError};

/// The size code of a NID with a 16-byte address; that of a 4-byte address is 0.
const SIZE_CODE_LARGE: u8 = 12;

/// The highest used bit in a 64-bit NID other than the wildcard: the top of the network type.
const NID4_TOP_BIT: u32 = 55;

/// The name of one interface on one network, `10.0.0.1@tcp`, in its 20-byte wire form (lnet-wire
/// 3).
///
/// Equality, order and hash are those of the 20 bytes. The order decides a connection race: the
/// connection opened by the node with the greater `Nid` stays (lnet-wire 24, row 1). That works
/// because a `Nid` is *canonical*: the wildcard is all ones, and unused address bytes are zero.
/// Every constructor ensures this; only bytes reinterpreted through `zerocopy` may differ, and must
/// pass [`Nid::canonical`] first.
///
/// See [`Nid::from_str`](std::str::FromStr) for the texts.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Nid {
    /// The number of address bytes minus 4.
    size: u8,
    net_type: u8,
    /// The network number, big-endian.
    number: [u8; 2],
    /// The address, left aligned; the unused tail is zero.
    address: [u8; 16],
}

/// Hashes three numbers instead of the fields, because a peer is looked up for every message, and
/// hashing by fields is five times slower.
impl Hash for Nid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e]: [u32; 5] = zerocopy::transmute!(*self);
        state.write_u64(u64::from(a) << 32 | u64::from(b));
        state.write_u64(u64::from(c) << 32 | u64::from(d));
        state.write_u32(e);
    }
}

const _: () = assert!(size_of::<Nid>() == Nid::WIRE_LEN && align_of::<Nid>() == 1);

impl Nid {
    /// The length of the wire form in bytes.
    pub const WIRE_LEN: usize = 20;
    /// The wildcard: every NID. All twenty bytes are 0xff.
    pub const ANY: Nid = Nid { size: 0xff, net_type: 0xff, number: [0xff; 2], address: [0xff; 16] };
    /// `0@lo`, every node's name for itself.
    pub const LOOPBACK: Nid = Nid::small(Net::LO, [0; 4]);

    /// Returns the NID with a 4-byte address on `net`; [`Nid::ANY`] if `net` is [`Net::ANY`].
    #[must_use]
    pub const fn new_v4(net: Net, address: Ipv4Addr) -> Nid {
        Nid::small(net, address.octets())
    }

    /// Returns the NID with a 16-byte address on `net`; [`Nid::ANY`] if `net` is [`Net::ANY`].
    #[must_use]
    pub const fn new_v6(net: Net, address: Ipv6Addr) -> Nid {
        Nid::large(net, address.octets())
    }

    /// Returns the NID of an IP address on `net`.
    #[must_use]
    pub const fn new_ip(net: Net, address: IpAddr) -> Nid {
        match address {
            IpAddr::V4(v4) => Nid::new_v4(net, v4),
            IpAddr::V6(v6) => Nid::new_v6(net, v6),
        }
    }

    /// Returns the NID with a number as address, as on `gni` and `kfi`.
    #[must_use]
    pub const fn new_numeric(net: Net, address: u32) -> Nid {
        Nid::small(net, address.to_be_bytes())
    }

    /// Converts a 64-bit legacy NID: network id in the upper half, address in the lower (lnet-wire
    /// 2).
    ///
    /// Accepts every value: bits above the 8-bit network type are ignored, and a network type of
    /// 0xff gives [`Nid::ANY`]. Use [`Nid::try_from_nid4`] for values from a peer.
    #[must_use]
    pub const fn from_nid4(nid4: u64) -> Nid {
        Nid::small(Net::from_id((nid4 >> 32) as u32), (nid4 as u32).to_be_bytes())
    }

    /// Converts a value from the wire like [`Nid::from_nid4`], but accepts only values that
    /// [`Nid::to_nid4`] returns.
    ///
    /// # Errors
    /// [`NidError::Nid4Bits`] if bits above the network type are set and the value is not the
    /// wildcard, [`NidError::Loopback`] for any `lo` NID but `0@lo`.
    pub const fn try_from_nid4(nid4: u64) -> Result<Nid, NidError> {
        let nid = Nid::from_nid4(nid4);
        if nid.is_any() != (nid4 == u64::MAX) || (!nid.is_any() && nid4 >> (NID4_TOP_BIT + 1) != 0) {
            return Err(NidError::Nid4Bits { value: nid4, limit: NID4_TOP_BIT });
        }
        nid.canonical()
    }

    /// Returns the 64-bit legacy NID, or `None` if the address has more than 4 bytes.
    #[must_use]
    pub const fn to_nid4(self) -> Option<u64> {
        if self.is_any() {
            return Some(u64::MAX);
        }
        match self.address4() {
            Some(address) => Some((self.net().id() as u64) << 32 | u32::from_be_bytes(address) as u64),
            None => None,
        }
    }

    /// Reads a NID from the 20 bytes of its wire form, and makes it canonical (lnet-wire 3): a
    /// network type of 0xff is [`Nid::ANY`] whatever the other bytes are, and unused address bytes
    /// are cleared.
    ///
    /// # Errors
    /// [`NidError::SizeCode`] for a size code other than 0 and 12, [`NidError::Loopback`] for any
    /// `lo` NID but `0@lo`.
    pub fn from_wire(bytes: &[u8; Nid::WIRE_LEN]) -> Result<Nid, NidError> {
        let raw: Nid = zerocopy::transmute!(*bytes);
        raw.canonical()
    }

    /// Returns the 20 bytes of the wire form.
    #[must_use]
    pub fn to_wire(self) -> [u8; Nid::WIRE_LEN] {
        zerocopy::transmute!(self)
    }

    /// Returns this NID in canonical form; every other constructor already returns canonical NIDs.
    ///
    /// # Errors
    /// The errors of [`Nid::from_wire`].
    pub const fn canonical(self) -> Result<Nid, NidError> {
        if self.is_any() {
            return Ok(Nid::ANY);
        }
        let nid = match self.size {
            0 => Nid::small(self.net(), self.leading4()),
            SIZE_CODE_LARGE => Nid::large(self.net(), self.address),
            value => return Err(NidError::SizeCode { value, limit: SIZE_CODE_LARGE }),
        };
        let named = (nid.net().number() as u64) << 32 | u32::from_be_bytes(nid.leading4()) as u64;
        if nid.is_loopback() && (nid.size != 0 || named != 0) {
            return Err(NidError::Loopback { value: named });
        }
        Ok(nid)
    }

    /// Returns whether this is [`Nid::ANY`].
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.net_type == NetType::ANY.0
    }

    /// Returns whether this NID is on the network `lo`, and so names the node itself.
    #[must_use]
    pub const fn is_loopback(self) -> bool {
        self.net_type == NetType::LO.0
    }

    /// Returns whether the NID has a 64-bit legacy form, see [`Nid::to_nid4`].
    #[must_use]
    pub const fn is_nid4(self) -> bool {
        self.is_any() || self.size == 0
    }

    /// Returns the network of this NID.
    #[must_use]
    pub const fn net(self) -> Net {
        Net::new(NetType(self.net_type), u16::from_be_bytes(self.number))
    }

    /// Returns the 4-byte address as an IPv4 address, on any network; `None` for the wildcard and
    /// larger addresses.
    #[must_use]
    pub const fn ipv4(self) -> Option<Ipv4Addr> {
        match self.address4() {
            Some([a, b, c, d]) => Some(Ipv4Addr::new(a, b, c, d)),
            None => None,
        }
    }

    /// Returns the address as an IP address, on any network; `None` for the wildcard.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self.ipv4() {
            Some(v4) => Some(IpAddr::V4(v4)),
            None => match self.address16() {
                Some(octets) => Some(IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(octets)))),
                None => None,
            },
        }
    }

    /// Returns the used address bytes: 4, 16, or none for the wildcard.
    #[must_use]
    pub fn address_bytes(&self) -> &[u8] {
        match self.size {
            _ if self.is_any() => &[],
            0 => &self.address[..4],
            _ => &self.address,
        }
    }

    pub(crate) const fn address4(self) -> Option<[u8; 4]> {
        if self.size == 0 && !self.is_any() { Some(self.leading4()) } else { None }
    }

    pub(crate) const fn address16(self) -> Option<[u8; 16]> {
        if self.size == SIZE_CODE_LARGE && !self.is_any() { Some(self.address) } else { None }
    }

    const fn leading4(self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.address;
        [a, b, c, d]
    }

    const fn small(net: Net, [a, b, c, d]: [u8; 4]) -> Nid {
        let address = [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        Nid::with(net, 0, address)
    }

    pub(crate) const fn large(net: Net, address: [u8; 16]) -> Nid {
        Nid::with(net, SIZE_CODE_LARGE, address)
    }

    const fn with(net: Net, size: u8, address: [u8; 16]) -> Nid {
        if net.is_any() {
            return Nid::ANY;
        }
        Nid { size, net_type: net.net_type().0, number: net.number().to_be_bytes(), address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification() {
        let nid = Nid::new_v4(Net::new(NetType::TCP, 1), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(nid.to_nid4(), Some(0x0002_0001_0a00_0001));
        assert_eq!(nid.to_wire(), [0, 2, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Nid::LOOPBACK.to_nid4(), Some(0x0009_0000_0000_0000));
        assert_eq!(Nid::ANY.to_nid4(), Some(u64::MAX));
    }

    #[test]
    fn a_network_type_of_all_ones_is_the_wildcard() {
        assert_eq!(Nid::from_nid4(u64::MAX), Nid::ANY);
        assert_eq!(Nid::from_nid4(0x00ff_0000_0000_0000), Nid::ANY);
        let mut bytes = [7; 20];
        bytes[1] = 0xff;
        assert_eq!(Nid::from_wire(&bytes), Ok(Nid::ANY));
        assert!(Nid::ANY.is_any() && Nid::ANY.net().is_any());
        assert_eq!((Nid::ANY.ip(), Nid::ANY.address_bytes()), (None, &[][..]));
    }

    #[test]
    fn unused_address_bytes_are_cleared() {
        let mut bytes = Nid::new_numeric(Net::TCP, 17).to_wire();
        bytes[8..].fill(0xab);
        assert_eq!(Nid::from_wire(&bytes), Ok(Nid::new_numeric(Net::TCP, 17)));
    }

    #[test]
    fn malformed_wire_values_are_refused() {
        for size in (0..=255).filter(|size| ![0, 12].contains(size)) {
            let mut bytes = Nid::new_numeric(Net::TCP, 17).to_wire();
            bytes[0] = size;
            assert_eq!(Nid::from_wire(&bytes), Err(NidError::SizeCode { value: size, limit: 12 }));
        }
        for nid4 in [0x0100_0002_0a00_0001, 0xff02_0000_0a00_0001, 0x00ff_0000_0000_0000, u64::MAX - 1] {
            assert_eq!(Nid::try_from_nid4(nid4), Err(NidError::Nid4Bits { value: nid4, limit: 55 }));
        }
        for nid4 in [0x0009_0000_0000_0001, 0x0009_0001_0000_0000] {
            let value = nid4 & 0xffff_ffff_ffff;
            assert_eq!(Nid::try_from_nid4(nid4), Err(NidError::Loopback { value }));
        }
    }
}
