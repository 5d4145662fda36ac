//! The judge's NID and its two forms on the wire (lnet-wire 2 and 3).

use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The type of networks over TCP.
const TCP: u16 = 2;
/// The size code of a NID with sixteen bytes of address.
const SIZE_CODE_LARGE: u8 = 12;

/// A NID: the type and number of its network, and an address. A NID with an IPv6 address is
/// *large*: it has no 64-bit form, and every field for it has twenty bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nid {
    kind: u16,
    network: u16,
    address: IpAddr,
}

impl Nid {
    /// Matches every NID; no node has it.
    pub const ANY: Nid = Nid { kind: 0xffff, network: 0xffff, address: IpAddr::V4(Ipv4Addr::BROADCAST) };
    /// `0@lo`.
    pub const LOOPBACK: Nid = Nid { kind: 9, network: 0, address: IpAddr::V4(Ipv4Addr::UNSPECIFIED) };

    /// Returns the NID of an address on a network of type tcp.
    pub fn new(address: impl Into<IpAddr>, network: u16) -> Nid {
        Nid { kind: TCP, network, address: address.into() }
    }

    /// Returns the address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns whether the NID is large.
    pub fn is_large(self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns the version of the hellos from and to a node with this NID (lnet-wire 22.4).
    pub fn version(self) -> u32 {
        if self.is_large() { 4 } else { 3 }
    }

    /// Returns the NID with this address on the same network.
    pub fn with_address(self, address: impl Into<IpAddr>) -> Nid {
        Nid { address: address.into(), ..self }
    }

    /// Returns another NID of the same network: flips some of the last 32 bits of the address.
    pub fn turned(self, bits: u32) -> Nid {
        match self.address {
            IpAddr::V4(address) => self.with_address(Ipv4Addr::from_bits(address.to_bits() ^ bits)),
            IpAddr::V6(address) => {
                self.with_address(Ipv6Addr::from_bits(address.to_bits() ^ u128::from(bits)))
            }
        }
    }

    /// Returns the NID with the same address on another network: flips some bits of the network
    /// number.
    pub fn elsewhere(self, bits: u16) -> Nid {
        Nid { network: self.network ^ bits, ..self }
    }

    /// Returns whether the two NIDs are on one network.
    pub fn is_neighbour(self, other: Nid) -> bool {
        (self.kind, self.network) == (other.kind, other.network)
    }

    /// Returns the 64-bit form (lnet-wire 2). For a large NID, which has none, the form of ANY,
    /// which no node has.
    pub fn small(self) -> u64 {
        match self.address {
            IpAddr::V4(address) => {
                u64::from(self.kind) << 48 | u64::from(self.network) << 32 | u64::from(address.to_bits())
            }
            IpAddr::V6(_) => u64::MAX,
        }
    }

    /// Decodes a 64-bit form.
    pub fn from_small(bits: u64) -> Nid {
        let address = IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
        Nid { kind: (bits >> 48) as u16, network: (bits >> 32) as u16, address }
    }

    /// Returns the twenty bytes of the form for all NIDs (lnet-wire 3).
    pub fn large(self) -> [u8; 20] {
        if self == Nid::ANY {
            return [0xff; 20];
        }
        let mut bytes = [0; 20];
        bytes[1] = self.kind as u8;
        bytes[2..4].copy_from_slice(&self.network.to_be_bytes());
        match self.address {
            IpAddr::V4(address) => bytes[4..8].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => {
                bytes[0] = SIZE_CODE_LARGE;
                bytes[4..20].copy_from_slice(&address.octets());
            }
        }
        bytes
    }

    /// Decodes twenty bytes; `None` unless the size is one of the two and the bytes after the
    /// address are 0.
    pub fn from_large(bytes: &[u8]) -> Option<Nid> {
        let bytes: [u8; 20] = bytes.try_into().ok()?;
        if bytes[1] == 0xff {
            return Some(Nid::ANY);
        }
        let [_, _, _, _, address @ ..] = bytes;
        let [a, b, c, d, rest @ ..] = address;
        let address = match bytes[0] {
            0 if rest == [0; 12] => IpAddr::from([a, b, c, d]),
            SIZE_CODE_LARGE => IpAddr::from(address),
            _ => return None,
        };
        Some(Nid { kind: bytes[1].into(), network: u16::from_be_bytes([bytes[2], bytes[3]]), address })
    }
}

/// The order of lnet-wire 24 for nodes that connect to each other at once: byte by byte in the
/// large form.
impl Ord for Nid {
    fn cmp(&self, other: &Nid) -> Ordering {
        self.large().cmp(&other.large())
    }
}

impl PartialOrd for Nid {
    fn partial_cmp(&self, other: &Nid) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.network) {
            (TCP, 0) => write!(f, "{}@tcp", self.address),
            (TCP, network) => write!(f, "{}@tcp{network}", self.address),
            _ => write!(f, "{:#018x}", self.small()),
        }
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Nid {
    type Err = String;

    fn from_str(text: &str) -> Result<Nid, String> {
        let wrong = || format!("'{text}' is not a NID like 10.0.0.1@tcp or fd00::1@tcp");
        let (address, network) = text.split_once("@tcp").ok_or_else(wrong)?;
        let number = if network.is_empty() { 0 } else { network.parse().map_err(|_| wrong())? };
        Ok(Nid::new(address.parse::<IpAddr>().map_err(|_| wrong())?, number))
    }
}
