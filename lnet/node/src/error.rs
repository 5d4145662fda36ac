//! The errors of a node.

use std::path::PathBuf;

use lnet_api::{Errno, LNetError};
use lnet_cpt::CptError;
use lnet_nid::{Net, Nid, printable};
use lnet_socklnd::BadTunable;

use crate::conf::SourceLine;

/// Errors of configuring, starting or changing a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The text of one or several networks is invalid.
    #[error("network '{}', byte {position}: {}", printable(text), printable(reason))]
    Network {
        /// The text of the networks.
        text: String,
        /// The position of the error, in bytes from the start.
        position: usize,
        /// The error in the text, and the correct form.
        reason: String,
    },
    /// The text of networks is too long.
    #[error("the list of networks has {bytes} bytes: at most {max} are read")]
    NetworksLength {
        /// The length of the text, in bytes.
        bytes: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// A configuration file, or a text in its form, has an invalid entry.
    #[error("{at}: '{}': {}", printable(key), printable(reason))]
    Config {
        /// The file and the line.
        at: SourceLine,
        /// The key, the tunable's name, or the word there.
        key: String,
        /// The error, and the correct form.
        reason: String,
        /// EINVAL; ENOENT if no entry of `ip2nets` matches this host.
        errno: Errno,
    },
    /// A configuration file cannot be read.
    #[error("{}{}: {}", printable_path(file), line_text(*line), printable(reason))]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The line, from 1, if the error has one.
        line: Option<usize>,
        /// The reason why the file cannot be read, or what is wrong at this line.
        reason: String,
        /// The errno of the failed system call, or of the error in the file.
        errno: Errno,
    },
    /// An unknown tunable, or an invalid value.
    #[error("{}={}: {}", printable(name), printable(value), printable(reason))]
    Tunable {
        /// The tunable's name, preceded by the NID for a tunable of one NI.
        name: String,
        /// The value that was given.
        value: String,
        /// The error, and the correct form.
        reason: String,
        /// EINVAL; ENOENT if no entry of `ip2nets` matches this host.
        errno: Errno,
    },
    /// No address of this host matches a pattern of `ip2nets`.
    #[error("ip2nets: no address of this host fits any of its patterns; it has {addresses}")]
    NoEntry {
        /// The host's addresses.
        addresses: String,
    },
    /// A network of a type without a driver.
    #[error(
        "network '{}': there is no driver for its type, only for tcp and o2ib, for instance 'tcp(eth0)' or 'o2ib(ib0)'",
        printable(net)
    )]
    NoDriver {
        /// The text of the network, as it prints.
        net: String,
    },
    /// A network cannot use RDMA: no device, no library, or no driver in this program.
    #[error("network '{}': {}", printable(net), printable(reason))]
    Rdma {
        /// The text of the network, as it prints.
        net: String,
        /// The missing part, and the remedy.
        reason: String,
        /// ENODEV without a device, ENOSYS without libraries or driver; otherwise the system's
        /// error.
        errno: Errno,
    },
    /// A network is bound to a CPU partition that does not exist.
    #[error(
        "network '{}': there is no CPU partition {cpt}: the node has {partitions}, numbered from 0",
        printable(net)
    )]
    NoSuchPartition {
        /// The text of the network, as it prints.
        net: String,
        /// The requested partition.
        cpt: usize,
        /// The number of partitions of the node.
        partitions: usize,
    },
    /// The CPU partitions cannot be created from the tunables.
    #[error("{}: {source}", printable(tunables))]
    Partitions {
        /// The tunables as written: `cpu_npartitions=4`.
        tunables: String,
        /// The error with them on this machine.
        source: CptError,
    },
    /// The interface does not exist, or has no usable address.
    #[error("interface '{}': {}", printable(name), printable(reason))]
    Interface {
        /// The interface's name, or the address.
        name: String,
        /// The error, and the existing interfaces.
        reason: String,
    },
    /// No network is configured, and none can be chosen.
    #[error("no network: no interface but loopback is up; name one, for instance 'tcp(127.0.0.1)'")]
    NoNetwork,
    /// The same NID is configured twice.
    #[error("{nid} is configured twice")]
    Twice {
        /// The NID that occurs twice.
        nid: Nid,
    },
    /// The same interface is configured twice on a network.
    #[error("{net} has the interface '{}' twice", printable(name))]
    TwiceOn {
        /// The network with the interface.
        net: Net,
        /// The name of the interface.
        name: String,
    },
    /// More interfaces than a node can have.
    #[error("{count} interfaces are configured: a node can have at most {max}")]
    TooMany {
        /// The configured number.
        count: usize,
        /// The maximum number, [`MAX_INTERFACES`](crate::MAX_INTERFACES).
        max: usize,
    },
    /// LNet refused, most often because an address or a NID is in use.
    #[error("{nid} cannot be started: {source}")]
    Start {
        /// The NID of the NI.
        nid: Nid,
        /// The error that LNet returned.
        source: LNetError,
    },
    /// An NI cannot be removed, most often because it does not exist.
    #[error("{nid} cannot be removed: {source}")]
    Remove {
        /// The NID of the NI.
        nid: Nid,
        /// The error that LNet returned.
        source: LNetError,
    },
    /// The node has no NI with this NID.
    #[error("{nid} is not a NID of this node")]
    NoNi {
        /// The NID that was given.
        nid: Nid,
    },
    /// A fault rule that is invalid, or no longer exists.
    #[error("fault rule: {source}")]
    Fault {
        /// The error that LNet returned.
        source: LNetError,
    },
    /// The node has been shut down.
    #[error("the node has been shut down")]
    Ended,
    /// This is a forked child of the process in which the node runs.
    #[error("the node runs in process {process}, of which this is a forked child")]
    Forked {
        /// The id of the process in which the node runs.
        process: u32,
    },
    /// Any other error of the system.
    #[error("cannot {}: {}", printable(what), errno_text(*errno))]
    System {
        /// The action that failed, as a verb with its object.
        what: String,
        /// The errno that the system returned.
        errno: Errno,
    },
}

impl NodeError {
    /// Creates the error for an invalid value of the tunable `name`.
    pub(crate) fn tunable(name: impl ToString, error: BadTunable) -> NodeError {
        let BadTunable { value, rule, .. } = error;
        let reason = format!("it must be {rule}");
        NodeError::Tunable { name: name.to_string(), value, reason, errno: Errno::EINVAL }
    }

    /// Returns the reason of a [`NodeError::Network`], without the text.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            NodeError::Network { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Returns the errno with which LNet reports the error.
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

/// Returns the text of an errno, followed by its name.
pub(crate) fn errno_text(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc().to_lowercase())
}

fn line_text(line: Option<usize>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}

/// Returns a path, escaped for printing.
pub(crate) fn printable_path(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of files, keys, values and interfaces are foreign input: their control characters must
    /// not reach a terminal.
    #[test]
    fn errors_send_no_commands_to_a_terminal() {
        const FOREIGN: &str = "x\u{1b}]0;\u{9b}2J\u{202e}\ny";
        let text = || FOREIGN.to_string();
        let at = SourceLine { file: Some(FOREIGN.into()), line: 1 };
        let errno = Errno::EINVAL;
        let errors = [
            NodeError::Network { text: text(), position: 0, reason: text() },
            NodeError::Config { at, key: text(), reason: text(), errno },
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
