//! Advice for connections over verbs that fail.

use lnet_api::Errno;
use lnet_lnd::{Cause, ConnFailure, ConnStep};
use lnet_proto::ib::RejectReason;

/// Returns advice for the operator; `None` if the failure is not specific to verbs.
pub(crate) fn advice(failure: &ConnFailure) -> Option<&'static str> {
    Some(match (failure.step, failure.cause) {
        (_, Cause::NotLNet) => {
            "the program that listens there is not an LNet node: is the address right, and the port the node's service?"
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
        _ => return advice_on_errno(failure),
    })
}

fn advice_on_errno(failure: &ConnFailure) -> Option<&'static str> {
    Some(match (failure.step, failure.errno) {
        (_, Errno::ENODEV | Errno::ENETDOWN) => {
            "the RDMA device is gone or its port is down: see 'nlx net devices' and 'rdma link'"
        }
        (ConnStep::Queues, Errno::ENOMEM) => {
            "memory for the queues cannot be locked: raise 'ulimit -l', or lower peer_credits"
        }
        (ConnStep::Queues, _) => {
            "the device cannot make such queues: see 'nlx o2iblnd-calc', or lower peer_credits"
        }
        (ConnStep::Resolve, Errno::EADDRINUSE | Errno::EADDRNOTAVAIL) => {
            "all privileged source ports are in use: set use_privileged_port to 0"
        }
        (ConnStep::Resolve, _) => {
            "is the host up, the address right, and its RDMA port up? see 'rdma link' on both"
        }
        (ConnStep::Connect, Errno::ECONNREFUSED | Errno::EHOSTUNREACH) => {
            "no process listens there: is LNet up on that node, with an o2ib network and the same service?"
        }
        (ConnStep::Connect, Errno::ETIMEDOUT) => {
            "the node does not answer: is LNet up there, and does RDMA get through?"
        }
        (_, Errno::ENOMEM) => {
            "this host is short of memory, or of memory that may be locked: see 'ulimit -l'"
        }
        _ => return None,
    })
}
