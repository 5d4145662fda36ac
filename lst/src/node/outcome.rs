//! The outcome of a request at a test node: a reply, work for units, or a drop.

use lnet_proto::lst::{LstService, MESSAGE_LEN, Reply, Request};
use lnet_proto::{ByteOrder, ProtoError};
use nix::errno::Errno;
use thiserror::Error;

use super::Units;

/// A reply, ready to be PUT to the reply portal of the request's source, without ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyMessage {
    /// The match bits that the request asked for.
    pub reply_id: u64,
    /// The payload of the PUT.
    pub bytes: [u8; MESSAGE_LEN],
}

impl ReplyMessage {
    pub(super) fn new(reply_id: u64, reply: &Reply) -> ReplyMessage {
        ReplyMessage { reply_id, bytes: reply.emit() }
    }
}

/// What the caller does about a framework request.
#[derive(Debug)]
pub enum Outcome {
    /// It sends the answer.
    Reply(ReplyMessage),
    /// It hands the units to its drivers and sends the answer.
    Run(ReplyMessage, Units),
    /// It GETs the list of destinations from the request's source, then calls
    /// [`super::Framework::fetched`].
    Fetch(Fetch),
    /// It does nothing; the request has been counted as dropped.
    Drop(RequestDropReason),
}

/// A TEST request whose list of destinations is to be fetched.
#[derive(Clone, Copy, Debug)]
pub struct Fetch {
    /// Match bits of the list, at the reply portal of the request's source.
    pub bulk_id: u64,
    /// Its bytes: at most 1 MiB.
    pub length: usize,
    pub(super) request: Request,
    pub(super) order: ByteOrder,
}

/// Why a request gets no reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestDropReason {
    /// It is no message of its service.
    #[error("malformed request: {0}")]
    Malformed(#[from] ProtoError),
    /// The request is for a service that this part of the node does not have.
    #[error("{0} is not served here")]
    NotServed(LstService),
    /// The node has no test with a server of this data service.
    #[error("no test has a server of {0}")]
    NoServer(LstService),
    /// The opcode of a BATCH is unknown.
    #[error("unknown opcode {0} of a BATCH")]
    Opcode(u32),
    /// The list of destinations, or bulk data, could not be transferred.
    #[error("the transfer failed: {0}")]
    Bulk(Errno),
    /// The session has ended since the request was received.
    #[error("the session has ended")]
    Aborted,
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShutDown,
}
