//! `ip2nets`: networks by the host's addresses (lnet-semantics 25), deprecated in LNet.
//!
//! ```text
//! ip2nets := entry { ( ';' | newline ) entry }       # to the separator: a comment
//! entry   := networks pattern { pattern }            tcp(eth0) 10.0.0.* 192.168.[1-9/2].*
//! ```

use std::net::{IpAddr, Ipv4Addr};

use lnet_nid::{Net, Nid, NidList};

use crate::{HostInterface, NetSpec, Networks, NodeError};

/// Returns the networks for the addresses of this host.
pub(crate) fn networks(text: &str) -> Result<Vec<NetSpec>, NodeError> {
    let all = HostInterface::all()?;
    let addresses = all.iter().flat_map(|interface| &interface.addresses);
    let host_addresses = addresses.filter_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    networks_of(text, &host_addresses.collect::<Vec<_>>())
}

/// Returns the networks of a host with these addresses: those of every entry with a matching
/// pattern.
fn networks_of(text: &str, host_addresses: &[Ipv4Addr]) -> Result<Vec<NetSpec>, NodeError> {
    let mut found: Vec<NetSpec> = Vec::new();
    let mut empty = true;
    let entries = text.split([';', '\n']).map(|entry| entry.split('#').next().unwrap_or_default().trim());
    for entry in entries.filter(|entry| !entry.is_empty()) {
        empty = false;
        let (nets, patterns) = read(entry)?;
        let fits =
            |pattern: &NidList| host_addresses.iter().any(|ip| pattern.contains(Nid::new_v4(Net::TCP, *ip)));
        if !patterns.iter().any(fits) {
            continue;
        }
        for spec in nets {
            if found.iter().any(|other| other.net() == spec.net()) {
                return Err(wrong(entry, format!("{} comes from an entry before it too", spec.net())));
            }
            found.push(spec);
        }
    }
    if found.is_empty() && !empty {
        let addresses = host_addresses.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(", ");
        return Err(NodeError::NoEntry { addresses });
    }
    Ok(found)
}

/// Parses an entry. Returns its networks and its patterns.
fn read(entry: &str) -> Result<(Vec<NetSpec>, Vec<NidList>), NodeError> {
    let begins =
        |word: &str| word.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '*' | '['));
    // Parentheses may contain blanks, and words that begin like a pattern.
    let mut depth = 0;
    let mut previous = ' ';
    let start = entry.char_indices().find_map(|(at, next)| {
        let here = depth == 0 && previous.is_whitespace() && begins(&entry[at..]);
        depth += i32::from(next == '(') - i32::from(next == ')');
        previous = next;
        here.then_some(at)
    });
    let start = start.ok_or_else(|| wrong(entry, "an IPv4 pattern must follow, for instance 10.0.0.*"))?;
    let Networks(nets) = entry[..start].parse()?;
    let pattern = |word: &str| {
        let octets = word.split('.').count() == 4 && !word.contains(['@', '/']) || word.contains("[");
        let list = format!("{word}@{}", Net::TCP).parse::<NidList>();
        list.ok()
            .filter(|_| octets)
            .ok_or_else(|| wrong(entry, format!("'{word}' is no pattern of an IPv4 address")))
    };
    let patterns = entry[start..].split_whitespace().map(pattern).collect::<Result<_, _>>()?;
    Ok((nets, patterns))
}

fn wrong(entry: &str, reason: impl Into<String>) -> NodeError {
    NodeError::Network { text: entry.to_string(), position: 0, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use lnet_api::Errno;

    use super::*;

    fn nets(text: &str) -> Result<String, NodeError> {
        let host_addresses =
            ["127.0.0.1", "10.0.1.7", "192.168.3.20"].map(|address| address.parse().unwrap());
        Ok(Networks(networks_of(text, &host_addresses)?).to_string())
    }

    /// The example of lnet-semantics 25.
    #[test]
    fn entries_of_which_a_pattern_fits_give_their_networks() {
        for (text, expected) in [
            ("", ""),
            ("# nothing", ""),
            ("tcp(eth0) 10.0.1.*", "tcp(eth0)"),
            ("tcp(eth0) 10.0.2.* 192.168.[1-9].20; tcp1 10.0.2.*", "tcp(eth0)"),
            (
                "tcp(eth0, 10.0.1.7)[0] 10.*.1.[3-9/2] # ours\ntcp2,tcp3 *.*.*.20",
                "tcp(eth0,10.0.1.7)[0],tcp2,tcp3",
            ),
            ("tcp 10.9.*.*;tcp1 127.0.0.1", "tcp1"),
        ] {
            assert_eq!(nets(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_fits_nothing_is_enoent_and_what_is_wrong_is_named() {
        let none = nets("tcp 10.9.*.*").unwrap_err();
        assert!(none.errno() == Errno::ENOENT && none.to_string().contains("192.168.3.20"), "{none}");
        for (text, word) in [
            ("tcp", "must follow"),
            ("10.0.1.*", "network"),
            ("tcp( 10.0.1.*", "must follow"),
            ("tcp 10.0.1", "'10.0.1' is no pattern"),
            ("tcp 10.0.1.999", "no pattern"),
            ("tcp 10.0.1.* tcp1", "'tcp1' is no pattern"),
            ("tcp 10.0.1.*; tcp0 127.0.0.1", "before"),
        ] {
            let error = nets(text).expect_err(text);
            assert!(error.errno() == Errno::EINVAL && error.to_string().contains(word), "{error}");
        }
    }
}
