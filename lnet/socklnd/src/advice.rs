//! Advice for failed connections over TCP.

use lnet_api::Errno;
use lnet_lnd::{Cause, ConnFailure, ConnStep};

/// Returns the advice; `None` if there is none specific to TCP.
pub(crate) fn advice(failure: &ConnFailure) -> Option<&'static str> {
    Some(match (failure.step, failure.cause) {
        (ConnStep::Handshake, Cause::NotLNet) => {
            "the program that listens there is not an LNet node: is the address right, and the port the node's accept_port?"
        }
        (ConnStep::Handshake, Cause::Version) => {
            "which release of LNet does the node run? nlx speaks versions 2 to 4 of the hello, after version 1 of \
             the connection request, or 2 on IPv6 networks"
        }
        (ConnStep::Handshake, Cause::WrongNode) => {
            "another node has that address: ask for a NID that 'lctl list_nids' names there"
        }
        _ => return advice_on_errno(failure),
    })
}

fn advice_on_errno(failure: &ConnFailure) -> Option<&'static str> {
    Some(match (failure.step, failure.errno) {
        (ConnStep::Bind | ConnStep::Connect, Errno::EMFILE) => {
            "this process has as many files and connections open as it may: see 'ulimit -n'"
        }
        (ConnStep::Bind | ConnStep::Connect, Errno::ENFILE) => {
            "this host has as many files open as it may: see 'sysctl fs.file-nr'"
        }
        (_, Errno::ENOMEM) => "this host is short of memory: see 'free'",
        (ConnStep::Bind, Errno::EADDRINUSE) | (ConnStep::Connect, Errno::EADDRNOTAVAIL) => {
            "all source ports of this host are in use: see 'ss -tan' and 'sysctl net.ipv4.ip_local_port_range'"
        }
        (ConnStep::Bind, Errno::EADDRNOTAVAIL) => "does this host still have the address of its NID?",
        (ConnStep::Connect, Errno::EINVAL) => {
            "can that node be reached from the address of this one's NID? loopback reaches this host alone"
        }
        (ConnStep::Connect, Errno::ECONNREFUSED) => {
            "no process listens there, or a firewall rejects it: is LNet up on that node, with the same accept_port? what does \
             'nft list ruleset' say there?"
        }
        (ConnStep::Connect, Errno::EACCES | Errno::EPERM) => {
            "a firewall or a route forbids it: see 'nft list ruleset' on both hosts and between, and 'ip route get ADDRESS'"
        }
        (ConnStep::Connect, Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {
            "is the host up, the address right, and the port open in its firewall? a firewall that rejects connections has the same effect"
        }
        (ConnStep::Handshake, Errno::ECONNRESET | Errno::EPIPE) => {
            "the node closed the connection: it does not have this NID, it accepts privileged source ports only (run as root, \
             give the program CAP_NET_BIND_SERVICE, or set accept=all there), it has just gone down or restarted, or a firewall between lets TCP connect and drops \
             what follows"
        }
        (ConnStep::Handshake, Errno::ETIMEDOUT) => {
            "something accepts connections there but does not speak LNet, or a firewall between lets TCP connect and drops \
             what follows"
        }
        (ConnStep::Handshake, Errno::EALREADY) => {
            "both nodes connect to each other at once and neither gives way, or the node has connections of this one's \
             that are broken, which it has not noticed yet; try again"
        }
        (ConnStep::Handshake, Errno::ENOBUFS) => {
            "the handshake does not fit into a socket's send buffer: raise tx_buffer_size, or set it to 0"
        }
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// The system errors that may be returned before a byte is sent.
    #[test]
    fn each_shortage_has_its_advice() {
        for (step, errno, words) in [
            (ConnStep::Bind, Errno::EMFILE, "ulimit -n"),
            (ConnStep::Bind, Errno::ENFILE, "fs.file-nr"),
            (ConnStep::Bind, Errno::EADDRINUSE, "source ports"),
            (ConnStep::Bind, Errno::EADDRNOTAVAIL, "address of its NID"),
            (ConnStep::Connect, Errno::EADDRNOTAVAIL, "source ports"),
            (ConnStep::Connect, Errno::EINVAL, "loopback"),
            (ConnStep::Connect, Errno::ECONNREFUSED, "a firewall rejects"),
            (ConnStep::Connect, Errno::EACCES, "nft list ruleset"),
            (ConnStep::Established, Errno::ENOMEM, "memory"),
        ] {
            let advice = advice(&ConnFailure::new(step, errno, "")).unwrap();
            assert!(advice.contains(words), "{advice}");
        }
    }
}
