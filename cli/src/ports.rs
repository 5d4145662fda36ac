//! The listening sockets of this host, from the kernel's own table, so that no port has to be
//! tried.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The state LISTEN in that table.
const LISTEN: &str = "0A";

/// Returns whether a socket of this network namespace listens on the port and on the address, or on
/// all addresses. A table that cannot be read counts as empty.
pub(crate) fn listens(address: IpAddr, port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(listener).any(|(ip, at)| {
        at == port && (ip == address || (ip.is_unspecified() && (ip.is_ipv6() || address.is_ipv4())))
    })
}

/// Returns whether this process has the privileges to listen on a port.
pub(crate) fn may_listen(port: u16) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let free_from = read("/proc/sys/net/ipv4/ip_unprivileged_port_start").trim().parse().unwrap_or(1024);
    port >= free_from || may_bind_service(&read("/proc/self/status"))
}

/// Returns whether the capability CAP_NET_BIND_SERVICE is effective: `CapEff:\t0000000000000400`.
fn may_bind_service(status: &str) -> bool {
    const CAP_NET_BIND_SERVICE: u32 = 10;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_none_or(|bits| bits >> CAP_NET_BIND_SERVICE & 1 == 1)
}

/// Parses a line `sl local_address rem_address st …`.
fn listener(line: &str) -> Option<(IpAddr, u16)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, state) = (words.next()?, words.nth(1)?);
    let (address, port) = local.split_once(':').filter(|_| state == LISTEN)?;
    Some((ip(address)?, u16::from_str_radix(port, 16).ok()?))
}

/// Parses an address: words of four bytes, each a number in this machine's byte order.
fn ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (at, place) in bytes.chunks_exact_mut(4).enumerate() {
        place.copy_from_slice(&word(at * 8)?);
    }
    Some(Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ports_below_1024_need_the_capability() {
        assert!(may_listen(65_535));
        assert!(may_bind_service("CapPrm:\t0\nCapEff:\t0000000000000400\n"));
        assert!(!may_bind_service("CapPrm:\tffffffffffffffff\nCapEff:\t00000000000003ff\n"));
        assert!(may_bind_service("what is not known stands in nobody's way"));
    }

    #[test]
    fn only_a_listener_is_found() {
        for (here, other) in [("127.44.0.1", "127.44.0.2"), ("::1", "fd77::1")] {
            let here: IpAddr = here.parse().unwrap();
            let Ok(listener) = TcpListener::bind((here, 0)) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert!(listens(here, port) && !listens(other.parse().unwrap(), port));
        }
        let all = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(listens(Ipv4Addr::LOCALHOST.into(), all.local_addr().unwrap().port()));
        assert_eq!(listener("what: is no such line"), None);
    }
}
