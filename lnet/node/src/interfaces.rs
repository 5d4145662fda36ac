//! The host's interfaces and addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use lnet_nid::Nid;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::{DEFAULT_ACCEPT_PORT, NodeError};

/// An interface that is up, with one of its IPv4 addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, for instance `eth0`.
    pub name: String,
    /// The address.
    pub address: Ipv4Addr,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

impl Interface {
    /// All interfaces that are up and have an IPv4 address, in the system's order.
    ///
    /// # Errors
    /// [`NodeError::System`] with what the system said.
    pub fn all() -> Result<Vec<Interface>, NodeError> {
        let list = getifaddrs()
            .map_err(|errno| NodeError::System { what: "list the interfaces".to_string(), errno })?;
        let usable = list.filter_map(|entry| {
            let address = entry.address?.as_sockaddr_in()?.ip();
            let up = entry.flags.contains(InterfaceFlags::IFF_UP);
            let loopback = entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
            up.then_some(Interface { name: entry.interface_name, address, loopback })
        });
        Ok(usable.collect())
    }

    /// The address that `text` means: an interface's first one, or the address itself, if the host has it. All of
    /// 127.0.0.0/8 is the host's.
    ///
    /// # Errors
    /// [`NodeError::Interface`], naming the interfaces there are.
    pub fn resolve(text: &str) -> Result<Ipv4Addr, NodeError> {
        let all = Interface::all()?;
        let refuse = |reason: String| NodeError::Interface { name: text.to_string(), reason };
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            let ours = address.is_loopback() || all.iter().any(|interface| interface.address == address);
            return if ours {
                Ok(address)
            } else {
                Err(refuse("no interface of this host has the address".into()))
            };
        }
        let found = all.iter().find(|interface| interface.name == text).map(|interface| interface.address);
        found.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|interface| interface.name.as_str()).collect();
            refuse(format!("not there, not up, or without an IPv4 address; there are: {}", names.join(", ")))
        })
    }
}

/// The address from which this host would send to a node: what the routing table says.
pub fn source_towards(target: Nid) -> Option<Ipv4Addr> {
    let to = target.ipv4().filter(|_| !target.is_loopback())?;
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).ok()?;
    socket.connect(SocketAddr::from((to, DEFAULT_ACCEPT_PORT))).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_or_an_address_of_the_host_resolves() {
        assert_eq!(Interface::resolve("lo").unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(Interface::resolve("127.8.9.10").unwrap(), Ipv4Addr::new(127, 8, 9, 10));
    }

    #[test]
    fn what_the_host_does_not_have_is_refused_by_name() {
        let error = Interface::resolve("no-such-if0").unwrap_err().to_string();
        assert!(error.contains("'no-such-if0'") && error.contains("lo"), "{error}");
        // A documentation address (RFC 5737) is nobody's.
        assert!(Interface::resolve("192.0.2.1").unwrap_err().to_string().contains("192.0.2.1"));
    }

    #[test]
    fn the_source_towards_loopback_is_loopback() {
        let target: Nid = "127.0.0.2@tcp".parse().unwrap();
        assert!(source_towards(target).unwrap().is_loopback());
        assert_eq!(source_towards(Nid::LOOPBACK), None);
    }
}
