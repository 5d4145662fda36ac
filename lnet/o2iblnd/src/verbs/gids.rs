//! The choice of a port's GID for a connection.
//!
//! On InfiniBand a port has one relevant GID, its first. On RoCE it has several: for each address
//! of its network interface, and for each version of the protocol. The connection manager uses the
//! one for the address that the connection is bound to, with the version that is set for the port
//! (v2 unless an administrator has changed it).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The encapsulation of messages with a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand, without further encapsulation.
    Infiniband,
    /// RoCE version 1: Ethernet frames, which routers do not forward.
    RoceV1,
    /// RoCE version 2: UDP.
    RoceV2,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidKind::Infiniband => "IB",
            GidKind::RoceV1 => "RoCE v1",
            GidKind::RoceV2 => "RoCE v2",
        })
    }
}

/// A GID of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gid {
    /// The GID's index in the port's table.
    pub index: u32,
    /// The GID's 16 bytes, in network order.
    pub gid: Ipv6Addr,
    /// The encapsulation of messages with this GID.
    pub kind: GidKind,
    /// The network interface to which the GID belongs, if any.
    pub netdev: Option<String>,
    /// The use of the GID by connections.
    pub usage: Usage,
}

impl Gid {
    /// Returns the IPv4 address that the GID contains.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped()
    }
}

/// The use of a GID by connections, or the reason why none uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// An NI with this address uses it.
    Address(Ipv4Addr),
    /// All NIs of the port use it.
    Port,
    /// Not used: the connection manager is set to this other version.
    Version(GidKind),
    /// Not used: NIs have IPv4 addresses, and this GID contains none.
    NotIpv4,
    /// Not used: an earlier GID with the same address is.
    Later,
}

impl Usage {
    /// Returns whether an NI uses the GID.
    #[must_use]
    pub fn is_used(&self) -> bool {
        matches!(self, Usage::Address(_) | Usage::Port)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Usage::Address(address) => write!(f, "used: for the address {address}"),
            Usage::Port => f.write_str("used: the first of an InfiniBand port"),
            Usage::Version(wanted) => {
                write!(f, "not used: the connection manager is set to {wanted} (default_roce_mode)")
            }
            Usage::NotIpv4 => f.write_str("not used: has no IPv4 address"),
            Usage::Later => f.write_str("not used: another comes first"),
        }
    }
}

/// Sets the usage of each GID of a port, if the connection manager is set to version `wanted`.
pub(super) fn assign(gids: &mut [Gid], wanted: GidKind) {
    for index in 0..gids.len() {
        let (before, rest) = gids.split_at_mut(index);
        let Some(gid) = rest.first_mut() else { return };
        gid.usage = match (gid.kind, gid.address()) {
            (GidKind::Infiniband, _) if before.is_empty() => Usage::Port,
            (GidKind::Infiniband, _) => Usage::Later,
            (_, None) => Usage::NotIpv4,
            (kind, _) if kind != wanted => Usage::Version(wanted),
            (_, Some(address)) if before.iter().any(|gid| gid.usage == Usage::Address(address)) => {
                Usage::Later
            }
            (_, Some(address)) => Usage::Address(address),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usages(wanted: GidKind, gids: &[(&str, GidKind)]) -> Vec<Usage> {
        let gid = |(index, (gid, kind)): (usize, &(&str, GidKind))| Gid {
            index: index as u32,
            gid: gid.parse().unwrap(),
            kind: *kind,
            netdev: None,
            usage: Usage::Later,
        };
        let mut gids: Vec<Gid> = gids.iter().enumerate().map(gid).collect();
        assign(&mut gids, wanted);
        gids.iter().map(|gid| gid.usage).collect()
    }

    /// The GIDs of a card: each address occurs twice, once for each version.
    const CARD: [(&str, GidKind); 5] = [
        ("fe80::5054:ff:fe77:1", GidKind::RoceV1),
        ("fe80::5054:ff:fe77:1", GidKind::RoceV2),
        ("::ffff:10.77.0.1", GidKind::RoceV1),
        ("::ffff:10.77.0.1", GidKind::RoceV2),
        ("::ffff:10.77.0.1", GidKind::RoceV2),
    ];

    #[test]
    fn roce_uses_the_version_and_the_address() {
        let address = Usage::Address(Ipv4Addr::new(10, 77, 0, 1));
        let (v1, v2) = (Usage::Version(GidKind::RoceV1), Usage::Version(GidKind::RoceV2));
        let none = Usage::NotIpv4;
        assert_eq!(usages(GidKind::RoceV2, &CARD), [none, none, v2, address, Usage::Later]);
        assert_eq!(usages(GidKind::RoceV1, &CARD), [none, none, address, v1, v1]);
    }

    #[test]
    fn infiniband_uses_the_first() {
        let gids = [("fe80::2:c903:0:1", GidKind::Infiniband), ("fe80::2:c903:0:2", GidKind::Infiniband)];
        assert_eq!(usages(GidKind::RoceV2, &gids), [Usage::Port, Usage::Later]);
    }
}
