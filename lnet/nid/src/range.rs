//! One expression of a NID list: `192.168.[1-10].*@tcp`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::numbers::{Kind, Numbers};
use crate::text::{self, AddressForm};
use crate::{Net, Nid, NidError};

/// The maximum length of an expression, in bytes. Four bracket lists with the maximum number of
/// items are shorter.
pub(crate) const EXPRESSION_MAX: usize = 16 << 10;

/// Some NIDs of one network, or all NIDs: one expression of a [`NidList`](crate::NidList).
///
/// Two ranges are equal if they print the same; unequal ones may still contain the same NIDs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NidRange {
    /// The network; `None` for every network, with [`Addresses::All`].
    net: Option<Net>,
    addresses: Addresses,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Addresses {
    /// All addresses, of either size.
    All,
    /// 4-byte addresses by their octets.
    Octets(Box<[Numbers; 4]>),
    /// 4-byte addresses as numbers.
    Numbers(Numbers),
    /// 4-byte addresses that begin with these bits.
    Prefix4(Prefix),
    /// 16-byte addresses that begin with these bits.
    Prefix6(Prefix),
    /// A single address on a network whose addresses have no form of their own, only the
    /// hexadecimal one.
    One(Nid),
}

/// The first bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Prefix {
    /// The lowest address; bits outside of the prefix are 0.
    base: u128,
    /// The number of addresses minus 1: the bits outside of the prefix.
    free: u128,
}

/// An expression, with its position in its list for errors.
#[derive(Clone, Copy)]
pub(crate) struct Expression<'a> {
    pub(crate) text: &'a str,
    pub(crate) position: usize,
}

impl NidRange {
    /// The range of every NID of every network.
    pub const ALL: NidRange = NidRange { net: None, addresses: Addresses::All };

    /// Returns the range of every NID of this network; of every network for [`Net::ANY`].
    #[must_use]
    pub fn all_of(net: Net) -> NidRange {
        match net {
            Net::ANY => NidRange::ALL,
            Net::LO => NidRange::from(Nid::LOOPBACK),
            net => NidRange { net: Some(net), addresses: Addresses::All },
        }
    }

    /// Returns whether the range contains the NID. [`Nid::ANY`] is never contained: it names no
    /// interface.
    #[must_use]
    pub fn contains(&self, nid: Nid) -> bool {
        if nid.is_any() || self.net.is_some_and(|net| net != nid.net()) {
            return false;
        }
        let small = nid.address4().map(u32::from_be_bytes);
        match &self.addresses {
            Addresses::All => true,
            Addresses::Octets(octets) => nid.address4().is_some_and(|address| {
                octets.iter().zip(address).all(|(numbers, octet)| numbers.contains(octet.into()))
            }),
            Addresses::Numbers(numbers) => small.is_some_and(|address| numbers.contains(address)),
            Addresses::Prefix4(prefix) => small.is_some_and(|address| prefix.contains(address.into())),
            Addresses::Prefix6(prefix) => {
                nid.address16().is_some_and(|address| prefix.contains(u128::from_be_bytes(address)))
            }
            Addresses::One(one) => *one == nid,
        }
    }

    /// Returns the NIDs in ascending order, each once; `None` for `*` as the whole address, whose
    /// NIDs cannot be listed. The number of NIDs can be very large.
    pub(crate) fn members(&self) -> Option<Box<dyn Iterator<Item = Nid> + '_>> {
        let net = self.net?;
        Some(match &self.addresses {
            Addresses::All => return None,
            Addresses::Octets(octets) => {
                let [a, b, c, d] = &**octets;
                let joined = a.iter().flat_map(move |a| {
                    b.iter().flat_map(move |b| {
                        c.iter().flat_map(move |c| d.iter().map(move |d| a << 24 | b << 16 | c << 8 | d))
                    })
                });
                Box::new(joined.map(move |address| Nid::new_numeric(net, address)))
            }
            Addresses::Numbers(numbers) => {
                Box::new(numbers.iter().map(move |address| Nid::new_numeric(net, address)))
            }
            Addresses::Prefix4(prefix) => {
                Box::new(prefix.iter().map(move |address| Nid::new_numeric(net, address as u32)))
            }
            Addresses::Prefix6(prefix) => {
                Box::new(prefix.iter().map(move |address| Nid::new_v6(net, Ipv6Addr::from(address))))
            }
            Addresses::One(nid) => Box::new(std::iter::once(*nid)),
        })
    }

    pub(crate) fn parse(expression: Expression<'_>) -> Result<NidRange, NidError> {
        let Expression { text, .. } = expression;
        if text.len() > EXPRESSION_MAX {
            return Err(expression.too_long("bytes of an expression", &text[..0], EXPRESSION_MAX));
        }
        if text::is_any(text) {
            return Ok(NidRange::ALL);
        }
        let (address, net) = match text.split_once('@') {
            Some((address, net)) => {
                let known = text::parse_net(net, net);
                (address, known.map_err(|_| expression.error(net, "a network's name and number"))?)
            }
            None => (text, text::DEFAULT_NET),
        };
        if address == "*" {
            return Ok(NidRange::all_of(net));
        }
        // With a numeric network the address is hexadecimal, also if the network's type has a name.
        let form = if text.ends_with('>') { AddressForm::Hex } else { AddressForm::of(net.net_type()) };
        let addresses = match form {
            AddressForm::Ip | AddressForm::Ipv4 => parse_ip(expression, form, address)?,
            AddressForm::Number => Addresses::Numbers(Numbers::parse(expression, Kind::Address, address)?),
            AddressForm::Loopback | AddressForm::Hex => {
                let nid = text::parse_address(net, form, address);
                return nid.map(NidRange::from).ok_or_else(|| expression.error(address, form.expected()));
            }
        };
        Ok(NidRange { net: Some(net), addresses })
    }
}

fn parse_ip(expression: Expression<'_>, form: AddressForm, address: &str) -> Result<Addresses, NidError> {
    let wrong = || expression.error(address, form.expected());
    if address.contains(':') && matches!(form, AddressForm::Ip) {
        let (base, bits) = address.split_once('/').unwrap_or((address, "128"));
        let base: Ipv6Addr = base.parse().map_err(|_| expression.error(base, form.expected()))?;
        let bits = text::parse_decimal(bits, 128)
            .ok_or_else(|| expression.error(bits, "a prefix length of 0 to 128"))?;
        return Ok(Addresses::Prefix6(Prefix::new(base.to_bits(), 128, bits)));
    }
    if let Some((base, bits)) = address.split_once('/').filter(|(base, _)| !base.contains('[')) {
        let base: Ipv4Addr = base.parse().map_err(|_| expression.error(base, "an IPv4 address"))?;
        let bits = text::parse_decimal(bits, 32)
            .ok_or_else(|| expression.error(bits, "a prefix length of 0 to 32"))?;
        return Ok(match bits {
            32 => octets(base),
            _ => Addresses::Prefix4(Prefix::new(base.to_bits().into(), 32, bits)),
        });
    }
    let mut parts = address.split('.');
    let mut octet = || {
        let part = parts.next().ok_or_else(wrong)?;
        // A text of one part counts as no address at all, and not as a wrong octet.
        if part.len() == address.len() { Err(wrong()) } else { Numbers::parse(expression, Kind::Octet, part) }
    };
    let octets = [octet()?, octet()?, octet()?, octet()?];
    match parts.next() {
        None => Ok(Addresses::Octets(Box::new(octets))),
        Some(_) => Err(wrong()),
    }
}

fn octets(address: Ipv4Addr) -> Addresses {
    Addresses::Octets(Box::new(address.octets().map(|octet| Numbers::one(octet.into()))))
}

impl From<Nid> for NidRange {
    /// Returns the range of this NID alone; of every NID for [`Nid::ANY`].
    fn from(nid: Nid) -> NidRange {
        if nid.is_any() {
            return NidRange::ALL;
        }
        let addresses = match (AddressForm::of(nid.net().net_type()), nid.address4(), nid.address16()) {
            (AddressForm::Ip | AddressForm::Ipv4, Some(address), _) => octets(address.into()),
            (AddressForm::Number, Some(address), _) => {
                Addresses::Numbers(Numbers::one(u32::from_be_bytes(address)))
            }
            (AddressForm::Ip, None, Some(address)) => {
                Addresses::Prefix6(Prefix::new(u128::from_be_bytes(address), 128, 128))
            }
            _ => Addresses::One(nid),
        };
        NidRange { net: Some(nid.net()), addresses }
    }
}

impl fmt::Display for NidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(net) = self.net else { return f.write_str("*") };
        match &self.addresses {
            Addresses::All => write!(f, "*@{net}"),
            Addresses::Octets(octets) => {
                let [a, b, c, d] = &**octets;
                write!(f, "{a:#}.{b:#}.{c:#}.{d:#}@{net}")
            }
            Addresses::Numbers(numbers) => write!(f, "{numbers}@{net}"),
            Addresses::Prefix4(prefix) => {
                let base = Ipv4Addr::from(prefix.base as u32);
                write!(f, "{base}/{}@{net}", 32 - prefix.free.count_ones())
            }
            Addresses::Prefix6(Prefix { base, free: 0 }) => write!(f, "{}@{net}", Ipv6Addr::from(*base)),
            Addresses::Prefix6(prefix) => {
                write!(f, "{}/{}@{net}", Ipv6Addr::from(prefix.base), prefix.free.leading_zeros())
            }
            Addresses::One(nid) => fmt::Display::fmt(nid, f),
        }
    }
}

impl fmt::Debug for NidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Prefix {
    /// Creates the prefix of the first `bits` bits of an address of `width` bits.
    fn new(address: u128, width: u32, bits: u32) -> Prefix {
        let free = match width - bits {
            0 => 0,
            free => u128::MAX >> (128 - free),
        };
        Prefix { base: address & !free, free }
    }

    fn contains(self, address: u128) -> bool {
        address & !self.free == self.base
    }

    fn iter(self) -> impl Iterator<Item = u128> {
        (0..=self.free).map(move |offset| self.base | offset)
    }
}

impl Expression<'_> {
    /// Returns the error for `part`, a slice of the expression, which is not as expected.
    pub(crate) fn error(self, part: &str, expected: &'static str) -> NidError {
        let text = text::truncate(self.text);
        NidError::Expression { text, position: self.position_of(part), value: text::truncate(part), expected }
    }

    /// Returns the error for an exceeded limit; `part` is the first item above it.
    pub(crate) fn too_long(self, what: &'static str, part: &str, limit: usize) -> NidError {
        NidError::ListTooLong { what, position: self.position_of(part), limit }
    }

    fn position_of(self, part: &str) -> usize {
        let within = (part.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        self.position + if within <= self.text.len() { within } else { 0 }
    }
}
