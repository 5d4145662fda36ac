//! Networks: a network type and a number, `tcp1`.

use std::fmt;
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::NidError;
use crate::text;

/// The type of a network, which names its driver (lnet-wire 1).
///
/// Any byte is a value; only those with a [`NetType::name`] have a text.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct NetType(pub u8);

/// The names in the order in which texts are compared with them (lnet-wire 4).
const NAMES: [(NetType, &str); 9] = [
    (NetType::LO, "lo"),
    (NetType::TCP, "tcp"),
    (NetType::O2IB, "o2ib"),
    (NetType::GNI, "gni"),
    (NetType::GIP, "gip"),
    (NetType::PTLF, "ptlf"),
    (NetType::KFI, "kfi"),
    (NetType::EFA, "efa"),
    (NetType::BXI3F, "bxi3f"),
];

impl NetType {
    /// TCP sockets: `tcp`.
    pub const TCP: NetType = NetType(2);
    /// RDMA verbs: `o2ib`.
    pub const O2IB: NetType = NetType(5);
    /// Loopback, built into every node: `lo`.
    pub const LO: NetType = NetType(9);
    /// Cray Gemini and Aries: `gni`.
    pub const GNI: NetType = NetType(13);
    /// Reserved: IP over Gemini.
    pub const GIP: NetType = NetType(14);
    /// Portals 4.
    pub const PTLF: NetType = NetType(15);
    /// Kernel fabric interface.
    pub const KFI: NetType = NetType(16);
    /// A reserved number without a name.
    pub const TOFU: NetType = NetType(17);
    /// Elastic fabric adapter.
    pub const EFA: NetType = NetType(18);
    /// BXI version 3.
    pub const BXI3F: NetType = NetType(19);
    /// The type of the wildcard NID and network.
    pub const ANY: NetType = NetType(0xff);

    /// Returns the name in texts, or `None` for a type without one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(known, _)| *known == self).map(|(_, name)| *name)
    }

    /// Returns the names of all types that have one.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, name)| *name)
    }

    /// Returns the type whose name `text` starts with, and the rest of the text.
    pub(crate) fn strip_name(text: &str) -> Option<(NetType, &str)> {
        NAMES.iter().find_map(|(net_type, name)| Some((*net_type, text.strip_prefix(name)?)))
    }
}

impl fmt::Display for NetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "<{}>", self.0),
        }
    }
}

impl fmt::Debug for NetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A network: type in bits 16 to 23, number in bits 0 to 15 (lnet-wire 2).
///
/// Text: the type's name and the number, which is omitted if 0 (`tcp`, `tcp1`). The wildcard prints
/// as `<?>` and is also parsed from `*`. A type without a name has the text `<type:number>`, and so
/// does `lo` with a number, which its name cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Net(u32);

impl Net {
    /// The network `tcp`, which a NID text without a network has.
    pub const TCP: Net = Net::new(NetType::TCP, 0);
    /// The network `o2ib`.
    pub const O2IB: Net = Net::new(NetType::O2IB, 0);
    /// The network `lo`.
    pub const LO: Net = Net::new(NetType::LO, 0);
    /// The wildcard: every network.
    pub const ANY: Net = Net(u32::MAX);

    /// Returns the network of this type and number. Any number of [`NetType::ANY`] is [`Net::ANY`].
    #[must_use]
    pub const fn new(net_type: NetType, number: u16) -> Net {
        if net_type.0 == NetType::ANY.0 {
            return Net::ANY;
        }
        Net((net_type.0 as u32) << 16 | number as u32)
    }

    /// Returns the network with this 32-bit id; ignores the bits above the type (lnet-wire 2).
    #[must_use]
    pub const fn from_id(id: u32) -> Net {
        Net::new(NetType((id >> 16) as u8), id as u16)
    }

    /// Returns the 32-bit network id.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.0
    }

    /// Returns the network's type.
    #[must_use]
    pub const fn net_type(self) -> NetType {
        NetType((self.0 >> 16) as u8)
    }

    /// Returns the network's number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0 as u16
    }

    /// Returns whether this is [`Net::ANY`].
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.net_type().0 == NetType::ANY.0
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str(text::ANY_OUTPUT);
        }
        match (self.net_type().name(), self.number()) {
            (Some(name), 0) => f.write_str(name),
            (Some(name), number) if self.net_type() != NetType::LO => write!(f, "{name}{number}"),
            (_, number) => write!(f, "<{}:{number}>", self.net_type().0),
        }
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Net {
    type Err = NidError;

    fn from_str(text: &str) -> Result<Net, NidError> {
        text::check_length(text)?;
        if text::is_any(text) {
            return Ok(Net::ANY);
        }
        text::parse_net(text, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_printed() {
        let table = [
            ("lo", Net::LO, "lo"),
            ("tcp", Net::TCP, "tcp"),
            ("tcp0", Net::TCP, "tcp"),
            ("tcp1", Net::from_id(0x0002_0001), "tcp1"),
            ("o2ib65535", Net::from_id(0x0005_ffff), "o2ib65535"),
            ("bxi3f3", Net::from_id(0x0013_0003), "bxi3f3"),
            ("<17:4>", Net::from_id(0x0011_0004), "<17:4>"),
            ("<2:4>", Net::from_id(0x0002_0004), "tcp4"),
            ("<9:4>", Net::from_id(0x0009_0004), "<9:4>"),
            ("*", Net::ANY, "<?>"),
            ("<?>", Net::ANY, "<?>"),
        ];
        for (input, net, output) in table {
            assert_eq!(input.parse(), Ok(net), "{input}");
            assert_eq!(net.to_string(), output);
            assert_eq!(format!("{net:?}"), output);
        }
    }

    #[test]
    fn malformed_networks_are_refused() {
        let table = [
            "",
            "t",
            "TCP",
            "tc p",
            " tcp",
            "tcp ",
            "tcp-1",
            "tcp+1",
            "tcp65536",
            "tcp1x",
            "tcp0x1",
            "lo0",
            "lo1",
            "<256:0>",
            "<255:0>",
            "<2:65536>",
            "<2>",
            "<2:>",
            "<:2>",
            "<2:1",
            "tcp99999999999999999999",
            "mx",
        ];
        for text in table {
            let error = text.parse::<Net>().unwrap_err();
            assert_eq!(error.errno(), 22);
            assert!(error.to_string().contains(text), "{error} names {text}");
        }
    }

    #[test]
    fn ids_ignore_the_bits_above_the_type() {
        assert_eq!(Net::from_id(0x4502_0001), Net::new(NetType::TCP, 1));
        assert_eq!(Net::from_id(0x00ff_0001), Net::ANY);
        assert_eq!(Net::from_id(Net::ANY.id()), Net::ANY);
    }
}
