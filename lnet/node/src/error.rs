use std::path::PathBuf;

use lnet_api::{Errno, LNetError};
use lnet_cpt::CptError;
use lnet_nid::{Net, Nid, printable};
use lnet_socklnd::BadTunable;

use crate::conf::Place;

/// Why a node could not be configured, started or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The text of a network, or of several, cannot be read.
    #[error("network '{}', byte {position}: {}", printable(text), printable(reason))]
    Network {
        /// The text.
        text: String,
        /// Where, in bytes from the start.
        position: usize,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The text of networks is longer than any sensible one.
    #[error("networks of {bytes} bytes: at most {max} are read")]
    NetworksLength {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A configuration file, or a text in its form, says what cannot be.
    #[error("{place}: '{}': {}", printable(key), printable(reason))]
    Config {
        /// The file and the line.
        place: Place,
        /// The key, the tunable's name, or the word that stands there.
        key: String,
        /// What is wrong with it, and what would be right.
        reason: String,
        /// EINVAL; ENOENT for `ip2nets` of which no entry is for this host.
        errno: Errno,
    },
    /// A configuration file cannot be read at all.
    #[error("{}{}: {}", shown(file), in_words(*line), printable(reason))]
    File {
        /// The file.
        file: PathBuf,
        /// The line, from 1, if the fault has one.
        line: Option<usize>,
        /// Why not.
        reason: String,
        /// The errno.
        errno: Errno,
    },
    /// A tunable that is not known, or a value that it cannot have.
    #[error("{}={}: {}", printable(name), printable(value), printable(reason))]
    Tunable {
        /// Its name, behind the NID of the NI if it is that NI's own.
        name: String,
        /// The value.
        value: String,
        /// What is wrong, and what would be right.
        reason: String,
        /// EINVAL; ENOENT for `ip2nets` of which no entry is for this host.
        errno: Errno,
    },
    /// No address of this host fits a pattern of `ip2nets`.
    #[error("ip2nets: no address of this host fits any of its patterns; it has {addresses}")]
    NoEntry {
        /// The host's addresses.
        addresses: String,
    },
    /// A network of a type that no driver here serves.
    #[error(
        "network '{}': there is no driver for its type, only for tcp and o2ib, for instance 'tcp(eth0)' or 'o2ib(ib0)'",
        printable(net)
    )]
    NoDriver {
        /// The network, as it prints.
        net: String,
    },
    /// A network cannot have RDMA: no device, no library, or no driver in this program.
    #[error("network '{}': {}", printable(net), printable(reason))]
    Rdma {
        /// The network, as it prints.
        net: String,
        /// What is missing, and what to do.
        reason: String,
        /// ENODEV without a device, ENOSYS without libraries or driver; else what the system said.
        errno: Errno,
    },
    /// A network is bound to a CPU partition that is not there.
    #[error(
        "network '{}': there is no CPU partition {cpt}: the node has {partitions}, numbered from 0",
        printable(net)
    )]
    NoSuchPartition {
        /// The network, as it prints.
        net: String,
        /// The partition asked for.
        cpt: usize,
        /// How many there are.
        partitions: usize,
    },
    /// The CPU partitions cannot be made as the tunables say.
    #[error("{}: {source}", printable(tunables))]
    Partitions {
        /// The tunables that were given, as they are written: `cpu_npartitions=4`.
        tunables: String,
        /// What is wrong with them on this machine.
        source: CptError,
    },
    /// There is no such interface, or it has no address that can be used.
    #[error("interface '{}': {}", printable(name), printable(reason))]
    Interface {
        /// The interface's name, or the address.
        name: String,
        /// What is wrong, and what there is instead.
        reason: String,
    },
    /// No network is configured, and none can be chosen.
    #[error("no network: no interface but loopback is up; name one, for instance 'tcp(127.0.0.1)'")]
    NoNetwork,
    /// The same NID is configured twice.
    #[error("{nid} is configured twice")]
    Twice {
        /// The NID.
        nid: Nid,
    },
    /// The same interface is configured twice on a network.
    #[error("{net} has the interface '{}' twice", printable(name))]
    TwiceOn {
        /// The network.
        net: Net,
        /// The interface.
        name: String,
    },
    /// More interfaces than a node can have.
    #[error("{count} interfaces are configured; a node has {max} at the most")]
    TooMany {
        /// How many are configured.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// LNet refused, most often because an address or a NID is in use.
    #[error("{nid} cannot be started: {source}")]
    Start {
        /// The NID.
        nid: Nid,
        /// LNet's reason.
        source: LNetError,
    },
    /// An NI cannot be removed, most often because there is none of that NID.
    #[error("{nid} cannot be removed: {source}")]
    Remove {
        /// The NID.
        nid: Nid,
        /// LNet's reason.
        source: LNetError,
    },
    /// The node has no NI of this NID.
    #[error("{nid} is not a NID of this node")]
    NoNi {
        /// The NID.
        nid: Nid,
    },
    /// A fault rule that the node cannot have, or has no more.
    #[error("fault rule: {source}")]
    Fault {
        /// Why not.
        source: LNetError,
    },
    /// The node has been shut down.
    #[error("the node has been shut down")]
    Ended,
    /// This is a forked child of the process in which the node runs.
    #[error("the node runs in process {process}, of which this is a forked child")]
    Forked {
        /// The id of that process.
        process: u32,
    },
    /// The system refused something else.
    #[error("cannot {}: {}", printable(what), words(*errno))]
    System {
        /// What was attempted.
        what: String,
        /// The errno.
        errno: Errno,
    },
}

impl NodeError {
    /// A tunable, called `name` here, has a value that cannot be.
    pub(crate) fn tunable(name: impl ToString, error: BadTunable) -> NodeError {
        let BadTunable { value, rule, .. } = error;
        let reason = format!("it must be {rule}");
        NodeError::Tunable { name: name.to_string(), value, reason, errno: Errno::EINVAL }
    }

    /// What is wrong with a text of networks, without the text.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            NodeError::Network { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// The errno that LNet users know.
    pub fn errno(&self) -> Errno {
        match self {
            NodeError::Network { .. }
            | NodeError::NetworksLength { .. }
            | NodeError::NoDriver { .. }
            | NodeError::TwiceOn { .. }
            | NodeError::NoSuchPartition { .. }
            | NodeError::Twice { .. }
            | NodeError::TooMany { .. } => Errno::EINVAL,
            NodeError::Partitions { source, .. } => source.errno(),
            NodeError::Interface { .. } => Errno::ENODEV,
            NodeError::NoNetwork => Errno::ENETDOWN,
            NodeError::Start { source, .. }
            | NodeError::Remove { source, .. }
            | NodeError::Fault { source } => source.errno(),
            NodeError::NoNi { .. } => Errno::EADDRNOTAVAIL,
            NodeError::Ended => Errno::ESHUTDOWN,
            NodeError::Forked { .. } => Errno::ESTALE,
            NodeError::NoEntry { .. } => Errno::ENOENT,
            NodeError::Config { errno, .. }
            | NodeError::Tunable { errno, .. }
            | NodeError::Rdma { errno, .. }
            | NodeError::File { errno, .. }
            | NodeError::System { errno, .. } => *errno,
        }
    }
}

/// An errno as people read it, and its name.
pub(crate) fn words(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc().to_lowercase())
}

fn in_words(line: Option<usize>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}

/// A path as it is printed.
pub(crate) fn shown(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file's name, a key, a value and an interface come from elsewhere.
    #[test]
    fn errors_send_no_commands_to_a_terminal() {
        const FOREIGN: &str = "x\u{1b}]0;\u{9b}2J\u{202e}\ny";
        let text = || FOREIGN.to_string();
        let place = Place { file: Some(FOREIGN.into()), line: 1 };
        let errno = Errno::EINVAL;
        let errors = [
            NodeError::Network { text: text(), position: 0, reason: text() },
            NodeError::Config { place, key: text(), reason: text(), errno },
            NodeError::File { file: FOREIGN.into(), line: None, reason: text(), errno },
            NodeError::Tunable { name: text(), value: text(), reason: text(), errno },
            NodeError::NoDriver { net: text() },
            NodeError::Rdma { net: text(), reason: text(), errno },
            NodeError::NoSuchPartition { net: text(), cpt: 0, partitions: 1 },
            NodeError::Interface { name: text(), reason: text() },
            NodeError::TwiceOn { net: Net::TCP, name: text() },
            NodeError::System { what: text(), errno },
        ];
        for error in errors {
            let shown = error.to_string();
            assert!(shown.chars().all(lnet_nid::is_printable), "{shown:?}");
            assert!(shown.contains(r"\u{9b}2J\u{202e}\ny"), "{shown}");
        }
    }
}
