//! Addresses of transfer machines and their text, `nid:pid:portal:tmid` (motr-transport 3.1;
//! S-402).

use std::fmt;
use std::str::FromStr;

use crate::{CoreError, Nid, Pid};

/// Length of the longest address text in bytes: a NID (63), three colons, two 32-bit numbers and a
/// transfer machine id.
pub const ADDRESS_TEXT_MAX: usize = 63 + 3 + 10 + 10 + 4;

/// Text in place of a transfer machine id that requests the highest free one.
const DYNAMIC: &str = "*";

/// The id of a transfer machine among those with the same NID, PID and portal: 1 to 4095.
///
/// 0 is no id: with counter 0 it would make match bits of 0, which LNet does not permit
/// (motr-transport 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TmId(u16);

impl TmId {
    /// The lowest id.
    pub const MIN: TmId = TmId(1);
    /// The highest id: ids have 12 bits.
    pub const MAX: TmId = TmId(4095);

    /// Returns the id with this value.
    ///
    /// # Errors
    /// [`CoreError::TmIdRange`] (EINVAL) unless `value` is 1 to 4095.
    pub const fn new(value: u32) -> Result<TmId, CoreError> {
        if value >= TmId::MIN.0 as u32 && value <= TmId::MAX.0 as u32 {
            Ok(TmId(value as u16))
        } else {
            Err(CoreError::TmIdRange { value })
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for TmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The address of a transfer machine: `10.72.49.14@o2ib0:12345:31:7`.
///
/// The text is split from the right, because an IPv6 NID contains colons. Numbers are digits only.
/// The NID includes its network and is no wildcard. All texts of one address parse to equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The interface.
    pub nid: Nid,
    /// LNet's process id; in practice always 12345.
    pub pid: Pid,
    /// The portal. Any number can be printed; transfer machines can use 1 to 63.
    pub portal: u32,
    /// The transfer machine id.
    pub tmid: TmId,
}

/// The address at which a transfer machine is to be started: its last part may be `*` (S-404).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StartAddress {
    /// The interface.
    pub nid: Nid,
    /// LNet's process id.
    pub pid: Pid,
    /// The number of the portal; transfer machines may have 1 to 63.
    pub portal: u32,
    /// The id; `None` (text `*`) requests the highest free one.
    pub tmid: Option<TmId>,
}

impl StartAddress {
    /// Returns the address with this id.
    #[must_use]
    pub const fn with(&self, tmid: TmId) -> Address {
        Address { nid: self.nid, pid: self.pid, portal: self.portal, tmid }
    }
}

impl From<Address> for StartAddress {
    fn from(address: Address) -> StartAddress {
        let Address { nid, pid, portal, tmid } = address;
        StartAddress { nid, pid, portal, tmid: Some(tmid) }
    }
}

impl FromStr for StartAddress {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<StartAddress, CoreError> {
        if text.len() > ADDRESS_TEXT_MAX {
            return Err(CoreError::AddressLength { length: text.len() });
        }
        let mut parts = text.rsplitn(4, ':');
        let mut part =
            || parts.next().ok_or_else(|| malformed(text, "it has no four parts nid:pid:portal:tmid"));
        let (tmid, portal, pid, nid) = (part()?, part()?, part()?, part()?);
        Ok(StartAddress {
            nid: parse_nid(text, nid)?,
            pid: Pid(parse_number(text, pid, "the PID is not a decimal number of 32 bits")?),
            portal: parse_number(text, portal, "the portal is not a decimal number of 32 bits")?,
            tmid: parse_tmid(text, tmid)?,
        })
    }
}

impl FromStr for Address {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Address, CoreError> {
        let start: StartAddress = text.parse()?;
        let tmid = start
            .tmid
            .ok_or_else(|| malformed(text, "* is allowed only where a transfer machine is started"))?;
        Ok(start.with(tmid))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.nid, self.pid.0, self.portal, self.tmid)
    }
}

impl fmt::Display for StartAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tmid {
            Some(tmid) => self.with(tmid).fmt(f),
            None => write!(f, "{}:{}:{}:{DYNAMIC}", self.nid, self.pid.0, self.portal),
        }
    }
}

fn parse_nid(text: &str, nid: &str) -> Result<Nid, CoreError> {
    // LNet's own parser accepts a NID without a network as tcp, and any address before @lo.
    if !nid.contains('@') || (nid.ends_with("@lo") && nid != "0@lo") {
        return Err(malformed(text, "the NID is not <address>@<network>"));
    }
    let parsed: Nid = nid.parse().map_err(|source| CoreError::Nid { source })?;
    if parsed.is_any() {
        return Err(malformed(text, "the NID is a wildcard"));
    }
    Ok(parsed)
}

fn parse_number(text: &str, digits: &str, rule: &'static str) -> Result<u32, CoreError> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(malformed(text, rule));
    }
    digits.parse().map_err(|_| malformed(text, rule))
}

fn parse_tmid(text: &str, tmid: &str) -> Result<Option<TmId>, CoreError> {
    if tmid == DYNAMIC {
        return Ok(None);
    }
    TmId::new(parse_number(text, tmid, "the transfer machine id is neither a decimal number nor *")?)
        .map(Some)
}

fn malformed(text: &str, rule: &'static str) -> CoreError {
    CoreError::AddressText { text: text.to_owned(), rule }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Errno;

    fn refused<T: FromStr<Err = CoreError> + fmt::Debug>(text: &str) {
        let error = text.parse::<T>().expect_err(text);
        assert_eq!(error.errno(), Errno::EINVAL, "{text}: {error}");
    }

    // The examples and valid vectors of motr-transport 3.1.
    // Covers: S-402, MT-7, MT-130, MT-210
    #[test]
    fn good_addresses_are_read_and_printed() {
        for text in [
            "127.0.0.1@tcp:12345:30:10",
            "127.0.0.1@tcp:12345:30:*",
            "4.4.4.4@tcp:42:29:28",
            "10.72.49.14@o2ib:12345:31:7",
            "0@lo:12345:42:1000",
            "192.168.96.128@tcp1:12345:32:*",
            "0@lo:12345:34:1",
            "172.18.1.1@tcp:12345:40:401",
            "255.0.0.0@tcp:12345:1:1",
            "172.18.50.40@o2ib:12345:34:1",
            "172.18.50.40@o2ib1:12345:34:1",
            "fd00::1@tcp:12345:31:7",
            "::@tcp2:4294967295:4294967295:4095",
        ] {
            let start: StartAddress = text.parse().unwrap();
            assert_eq!(start.to_string(), text);
            match start.tmid {
                Some(tmid) => assert_eq!(text.parse(), Ok(start.with(tmid))),
                None => refused::<Address>(text),
            }
        }
    }

    // Covers: S-402, MT-7
    #[test]
    fn the_parts_are_what_the_text_says() {
        let address: Address = "4.4.4.4@tcp:42:29:28".parse().unwrap();
        let nid: Nid = "4.4.4.4@tcp".parse().unwrap();
        assert_eq!(address, Address { nid, pid: Pid(42), portal: 29, tmid: TmId::new(28).unwrap() });
        let same: Address = "4.4.4.4@tcp0:42:29:28".parse().unwrap();
        assert_eq!(same, address);
    }

    // The invalid vectors of motr-transport 3.1. A PID other than 12345 is well formed; a transfer
    // machine cannot be started with it.
    // Covers: S-402, MT-8, MT-14, MT-130
    #[test]
    fn bad_addresses_are_refused() {
        for text in [
            "",
            ":",
            ":::",
            "::::",
            "127.0.0.1@tcp",
            "127.0.0.1@tcp:12345:30",
            "xyz@tcp:12345:30:10",
            "127.0.0:12345:30:10",
            "127.0.0.1:12345:30:10",
            "127.0.0.1@tcp:xyz:30:10",
            "127.0.0.1@tcp:12345:xyz:10",
            "127.0.0.1@tcp:12345:30:xyz",
            "127.0.0.1@tcp:12345:30:-10",
            "127.0.0.1@tcp:12345:30:4096",
            "127.0.0.1@tcp:12345:30:0",
            "127.0.0.1@tcp:12345:30:",
            "127.0.0.1@tcp::30:10",
            "127.0.0.1@tcp:+1:30:10",
            "127.0.0.1@tcp:0x1:30:10",
            "127.0.0.1@tcp:4294967296:30:10",
            "127.0.0.1@tcp:12345: 30:10",
            "127.0.0.1@tcp:12345:30:**",
            "*:12345:30:10",
            "<?>:12345:30:10",
            " 0@lo:12345:34:1",
            "0@lo:12345:34:1 ",
            "1@lo:12345:34:1",
            "172.16.64.1:12345:45:41",
            "256.0.0.0@tcp:12345:1:1",
        ] {
            refused::<StartAddress>(text);
            refused::<Address>(text);
        }
        assert!("127.0.0.1@tcp:12345:30:1".parse::<Address>().is_ok());
    }

    #[test]
    fn an_endless_text_is_refused_before_it_is_looked_at() {
        let text = format!("127.0.0.1@tcp:12345:30:{}", "1".repeat(1 << 20));
        assert_eq!(text.parse::<Address>(), Err(CoreError::AddressLength { length: text.len() }));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}", numbers in "[0-9:*@a-z.]{0,60}") {
            for text in [text, numbers] {
                if let Ok(start) = text.parse::<StartAddress>() {
                    prop_assert_eq!(start.to_string().parse(), Ok(start));
                }
            }
        }
    }
}
