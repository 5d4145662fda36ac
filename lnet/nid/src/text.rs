//! The texts of NIDs and networks (lnet-wire 4).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::{Net, NetType, Nid, NidError};

/// The text of the wildcard in input.
const ANY_INPUT: &str = "*";

/// The text of the wildcard in output.
pub(crate) const ANY_OUTPUT: &str = "<?>";

/// The maximum length of a text, in bytes. A NID's text takes at most 64 bytes with its terminator;
/// a process id in front of it (`LNET_PID_ANY-`) 13 more.
const TEXT_MAX: usize = 63 + 13;

/// The network of a NID text without `@`.
pub(crate) const DEFAULT_NET: Net = Net::TCP;

/// The form of the address in a NID's text, which depends on the network type.
#[derive(Clone, Copy)]
pub(crate) enum AddressForm {
    /// The form of `lo`: any text, which means 0.
    Loopback,
    /// Dotted IPv4, or IPv6 in its compressed text.
    Ip,
    /// Dotted IPv4 alone.
    Ipv4,
    /// A 32-bit number, decimal or hexadecimal behind `0x`.
    Number,
    /// Unknown form: 1 to 8 hexadecimal digits, or 32 of them for a 16-byte address.
    Hex,
}

impl AddressForm {
    pub(crate) fn of(net_type: NetType) -> AddressForm {
        match net_type {
            NetType::LO => AddressForm::Loopback,
            NetType::TCP | NetType::O2IB | NetType::EFA => AddressForm::Ip,
            NetType::GIP => AddressForm::Ipv4,
            NetType::GNI | NetType::KFI | NetType::PTLF | NetType::BXI3F => AddressForm::Number,
            _ => AddressForm::Hex,
        }
    }

    pub(crate) fn expected(self) -> &'static str {
        match self {
            AddressForm::Loopback => "0",
            AddressForm::Ip => "an IPv4 or IPv6 address",
            AddressForm::Ipv4 => "an IPv4 address",
            AddressForm::Number => "a number of 0 to 4294967295",
            AddressForm::Hex => "a hexadecimal number of 1 to 8 or 32 digits",
        }
    }
}

/// `<address>@<net>`: `10.0.0.1@tcp1`, `fd00::1@tcp`, `17@gni`, `0@lo`. Without `@` the network is
/// `tcp`.
///
/// `*` is the wildcard, and so is its output, `<?>`. A NID without a text of its network type
/// prints, and is parsed, as hexadecimal address and numeric network: `a000001@<17:0>`. Numbers
/// have no sign, blank or leading zero.
impl FromStr for Nid {
    type Err = NidError;

    fn from_str(text: &str) -> Result<Nid, NidError> {
        check_length(text)?;
        if is_any(text) {
            return Ok(Nid::ANY);
        }
        let (address, net) = match text.split_once('@') {
            Some((address, net)) => (address, parse_net(text, net)?),
            None => (text, DEFAULT_NET),
        };
        let numeric_net = text.ends_with('>');
        let form = if numeric_net { AddressForm::Hex } else { AddressForm::of(net.net_type()) };
        parse_address(net, form, address).ok_or_else(|| NidError::Address {
            text: text.to_owned(),
            address: address.to_owned(),
            expected: form.expected(),
        })
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str(ANY_OUTPUT);
        }
        let net = self.net();
        match (AddressForm::of(net.net_type()), self.address4(), self.address16()) {
            (AddressForm::Ip | AddressForm::Ipv4, Some(octets), _) => {
                write!(f, "{}@{net}", Ipv4Addr::from(octets))
            }
            (AddressForm::Ip, None, Some(octets)) => write!(f, "{}@{net}", Ipv6Addr::from(octets)),
            (AddressForm::Number | AddressForm::Loopback, Some(octets), _) => {
                write!(f, "{}@{net}", u32::from_be_bytes(octets))
            }
            (_, Some(octets), _) => {
                let number = net.number();
                write!(f, "{:x}@<{}:{number}>", u32::from_be_bytes(octets), net.net_type().0)
            }
            // An invalid size code, which no constructor accepts, prints all bytes.
            (_, None, _) => {
                let number = net.number();
                let address = self.address_bytes().try_into().map_or(0, u128::from_be_bytes);
                write!(f, "{address:032x}@<{}:{number}>", net.net_type().0)
            }
        }
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Refuses a text that is too long for a name, so that the functions below never process or copy
/// more than [`TEXT_MAX`] bytes.
pub(crate) fn check_length(text: &str) -> Result<(), NidError> {
    if text.len() <= TEXT_MAX {
        return Ok(());
    }
    Err(NidError::TooLong { text: truncate(text), length: text.len(), limit: TEXT_MAX })
}

/// Returns the part of a text for an error: its first [`TEXT_MAX`] bytes.
pub(crate) fn truncate(text: &str) -> String {
    let head = text.chars().scan(0, |bytes, c| {
        *bytes += c.len_utf8();
        (*bytes <= TEXT_MAX).then_some(c)
    });
    head.collect()
}

pub(crate) fn is_any(text: &str) -> bool {
    text == ANY_INPUT || text == ANY_OUTPUT
}

/// Parses the network `net`, a part of `text`.
pub(crate) fn parse_net(text: &str, net: &str) -> Result<Net, NidError> {
    if let Some(numeric) = net.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        return parse_numeric_net(text, net, numeric);
    }
    let (net_type, number) = NetType::strip_name(net).ok_or_else(|| unknown_net(text, net))?;
    match number {
        "" => Ok(Net::new(net_type, 0)),
        _ if net_type == NetType::LO => Err(net_number(text, number, 0)),
        _ => Ok(Net::new(net_type, parse_net_number(text, number)?)),
    }
}

fn parse_numeric_net(text: &str, net: &str, numeric: &str) -> Result<Net, NidError> {
    let (net_type, number) = numeric.split_once(':').ok_or_else(|| unknown_net(text, net))?;
    // The limit is 254, because 255 is the wildcard's type, which has a separate text.
    let net_type = parse_decimal(net_type, 254).ok_or_else(|| unknown_net(text, net))?;
    Ok(Net::new(NetType(net_type as u8), parse_net_number(text, number)?))
}

fn parse_net_number(text: &str, number: &str) -> Result<u16, NidError> {
    let limit = u32::from(u16::MAX);
    parse_decimal(number, limit).map(|value| value as u16).ok_or_else(|| net_number(text, number, limit))
}

pub(crate) fn parse_address(net: Net, form: AddressForm, address: &str) -> Option<Nid> {
    match form {
        AddressForm::Loopback => Some(Nid::LOOPBACK),
        AddressForm::Ipv4 => Some(Nid::new_v4(net, address.parse().ok()?)),
        AddressForm::Ip => Some(Nid::new_ip(net, address.parse().ok()?)),
        AddressForm::Number => Some(Nid::new_numeric(net, parse_number(address)?)),
        AddressForm::Hex => {
            let nid = if address.len() == 32 && address.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                Nid::large(net, u128::from_str_radix(address, 16).ok()?.to_be_bytes())
            } else {
                Nid::new_numeric(net, parse_hex(address)?)
            };
            nid.canonical().ok()
        }
    }
}

/// Returns the value of one or more decimal digits, if not above `limit`.
pub(crate) fn parse_decimal(digits: &str, limit: u32) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|value| *value <= limit)
}

/// Returns the value of a decimal number, or of a hexadecimal one with `0x`.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => parse_hex(digits),
        None => parse_decimal(text, u32::MAX),
    }
}

fn parse_hex(digits: &str) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

fn unknown_net(text: &str, net: &str) -> NidError {
    NidError::NetType { text: text.to_owned(), net: net.to_owned() }
}

fn net_number(text: &str, number: &str, limit: u32) -> NidError {
    NidError::NetNumber { text: text.to_owned(), number: number.to_owned(), limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_are_read_and_printed() {
        let table = [
            ("10.0.0.1@tcp", 0x0002_0000_0a00_0001, "10.0.0.1@tcp"),
            ("10.0.0.1", 0x0002_0000_0a00_0001, "10.0.0.1@tcp"),
            ("10.0.0.1@tcp1", 0x0002_0001_0a00_0001, "10.0.0.1@tcp1"),
            ("192.168.5.4@o2ib2", 0x0005_0002_c0a8_0504, "192.168.5.4@o2ib2"),
            ("0@lo", 0x0009_0000_0000_0000, "0@lo"),
            ("anything@lo", 0x0009_0000_0000_0000, "0@lo"),
            ("17@gni", 0x000d_0000_0000_0011, "17@gni"),
            ("0x11@gni3", 0x000d_0003_0000_0011, "17@gni3"),
            ("4294967295@kfi", 0x0010_0000_ffff_ffff, "4294967295@kfi"),
            ("1.2.3.4@efa", 0x0012_0000_0102_0304, "1.2.3.4@efa"),
            ("a000001@<17:2>", 0x0011_0002_0a00_0001, "a000001@<17:2>"),
            ("a000001@<2:2>", 0x0002_0002_0a00_0001, "10.0.0.1@tcp2"),
            ("*", u64::MAX, "<?>"),
            ("<?>", u64::MAX, "<?>"),
        ];
        for (input, nid4, output) in table {
            let nid: Nid = input.parse().unwrap();
            assert_eq!(nid.to_nid4(), Some(nid4), "{input}");
            assert_eq!(nid.to_string(), output);
            assert_eq!(format!("{nid:?}"), output);
        }
    }

    #[test]
    fn large_nids_are_read_and_printed() {
        for text in ["fd00::1@tcp", "::@o2ib7", "2001:db8:1:2:3:4:5:6@efa1"] {
            let nid: Nid = text.parse().unwrap();
            assert_eq!((nid.to_nid4(), nid.to_string().as_str()), (None, text));
        }
        let unnamed = Nid::large(Net::new(NetType::GNI, 1), [0xab; 16]);
        assert_eq!(unnamed.to_string(), format!("{}@<13:1>", "ab".repeat(16)));
    }

    #[test]
    fn malformed_nids_are_refused_with_the_part_that_is_wrong() {
        let table = [
            ("", "address \"\""),
            ("@tcp", "address \"\""),
            ("10.0.0@tcp", "address \"10.0.0\""),
            ("10.0.0.256@tcp", "address \"10.0.0.256\""),
            (" 10.0.0.1@tcp", "address \" 10.0.0.1\""),
            ("[fd00::1]@tcp", "address \"[fd00::1]\""),
            ("fd00::1@gni", "address \"fd00::1\""),
            ("host@tcp", "address \"host\""),
            ("1@gip", "address \"1\" in \"1@gip\" is not an IPv4 address"),
            ("-1@gni", "address \"-1\""),
            ("+1@gni", "address \"+1\""),
            ("4294967296@gni", "address \"4294967296\""),
            ("0x@gni", "address \"0x\""),
            ("0x100000000@gni", "address \"0x100000000\""),
            ("g@<17:2>", "address \"g\""),
            ("1@<9:0>", "address \"1\""),
            ("0@lo1", "network number \"1\" in \"0@lo1\" is not a decimal number of 0 to 0"),
            ("10.0.0.1@tcp65536", "network number \"65536\""),
            ("10.0.0.1@tcp 1", "network number \" 1\""),
            ("10.0.0.1@tcp@tcp", "network number \"@tcp\""),
            ("10.0.0.1@", "network \"\""),
            ("10.0.0.1@mx", "network \"mx\""),
            ("10.0.0.1@<255:0>", "network \"<255:0>\""),
            ("*@tcp", "address \"*\""),
        ];
        for (text, part) in table {
            let error = text.parse::<Nid>().unwrap_err();
            assert!(error.to_string().starts_with(part), "{text}: {error}");
        }
    }

    #[test]
    fn long_texts_are_refused_before_they_are_looked_at() {
        let text = format!("{}@tcp", "\u{e9}".repeat(1 << 20));
        let NidError::TooLong { text: head, length, limit } = text.parse::<Nid>().unwrap_err() else {
            panic!("a text of {} bytes was looked at", text.len());
        };
        assert_eq!((length, limit), (text.len(), TEXT_MAX));
        assert!(head.len() <= TEXT_MAX && text.starts_with(&head));
    }
}
