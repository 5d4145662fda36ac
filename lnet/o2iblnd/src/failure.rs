use std::fmt;

use lnet_api::Errno;
use lnet_lnd::{Cause, FailedStep};
use lnet_proto::ib::RejectReason;

/// How far a connection had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Finding the peer's address and the way to it.
    Resolve,
    /// Making queues, and registering their memory.
    Queues,
    /// Asking, and the answer (lnet-wire 34).
    Connect,
    /// Afterwards: the connection was in use.
    Established,
}

/// Why the last connection to a peer failed.
pub type Failure = lnet_lnd::Failure<Step>;

/// The same before it is known of whom.
pub(crate) type Miss = lnet_lnd::Miss<Step>;

impl FailedStep for Step {
    fn advice(failure: &Failure) -> &'static str {
        match (failure.step, failure.cause) {
            (_, Cause::NotLNet) => {
                "what listens there is no LNet node: is the address right, and the port the node's service?"
            }
            (_, Cause::Version) => "which release of LNet does the node run? nlx speaks version 0x12",
            (_, Cause::WrongNode) => {
                "another node has that address, or it has restarted: ask for a NID that 'lctl list_nids' names there"
            }
            (_, Cause::Rejected(reason)) => match reason {
                RejectReason::NoResources => "the node is short of memory or queues: see its log",
                RejectReason::Fatal => {
                    "the node does not have this NID on that device, or takes privileged source ports only \
                     (require_privileged_port): run as root or set it to 0 there"
                }
                RejectReason::Early => "the node's NI is not up yet; try again",
                RejectReason::MsgQueueSize | RejectReason::RdmaFrags => {
                    "the nodes do not agree on peer_credits or fragments: see 'nlx o2iblnd-calc'"
                }
                _ => "try again",
            },
            (_, Cause::Protocol) => "the node breaks the protocol: which release of LNet does it run?",
            (_, Cause::Errno) => advice_on_errno(failure),
        }
    }
}

fn advice_on_errno(failure: &Failure) -> &'static str {
    match (failure.step, failure.errno) {
        (_, Errno::ENODEV | Errno::ENETDOWN) => {
            "the RDMA device is gone or its port is down: see 'nlx net devices' and 'rdma link'"
        }
        (Step::Queues, Errno::ENOMEM) => {
            "memory for the queues cannot be locked: raise 'ulimit -l', or lower peer_credits"
        }
        (Step::Queues, _) => {
            "the device cannot make such queues: see 'nlx o2iblnd-calc', or lower peer_credits"
        }
        (Step::Resolve, Errno::EADDRINUSE | Errno::EADDRNOTAVAIL) => {
            "all privileged source ports are in use: set use_privileged_port to 0"
        }
        (Step::Resolve, _) => {
            "is the host up, the address right, and its RDMA port up? see 'rdma link' on both"
        }
        (Step::Connect, Errno::ECONNREFUSED | Errno::EHOSTUNREACH) => {
            "nobody listens there: is LNet up on that node, with an o2ib network and the same service?"
        }
        (Step::Connect, Errno::ETIMEDOUT) => {
            "the node does not answer: is LNet up there, and does RDMA get through?"
        }
        (Step::Established, Errno::ETIMEDOUT) => {
            "the node no longer answers: is it up, and the network between?"
        }
        (Step::Established, Errno::ECONNRESET) => {
            "the node went down or restarted; it is connected to again when needed"
        }
        (_, Errno::ENOMEM) => {
            "this host is short of memory, or of memory that may be locked: see 'ulimit -l'"
        }
        _ => "try again",
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Resolve => "finding the way",
            Step::Queues => "making queues",
            Step::Connect => "connecting",
            Step::Established => "connection",
        })
    }
}
