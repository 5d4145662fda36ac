//! The interface between a test and the environment of kcore that it controls.

use std::sync::Arc;

use lnet_api::{Errno, LNet};
use lnet_nid::{MatchBits, ProcessId};
use lnet_proto::WireHandle;

/// Completes a message that has begun to arrive, or loses the rest of it.
pub(crate) type Finish<'a> = Box<dyn FnOnce(Result<(), Errno>) + 'a>;

/// An LNet, and a network that the test controls.
pub(crate) trait World: Send + Sync {
    /// Returns the node's LNet: the fake's or the engine's.
    fn lnet(&self) -> Arc<dyn LNet>;

    /// Returns the PUTs and GETs that were started and whose sending has not ended, oldest first.
    fn outgoing(&self) -> Vec<SentMessage>;

    /// Ends the sending of a PUT or GET with this result.
    fn leave(&self, message: &SentMessage, result: Result<(), Errno>);

    /// Begins to deliver a message. Returns `None` if it is not received.
    fn arrive(&self, message: &Arriving) -> Option<Finish<'_>>;

    /// Checks that LNet's tables agree with each other, and that nothing is on its way.
    fn audit(&self);
}

/// A message that a program has started, as the network sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentMessage {
    /// The id that the world has given the message.
    pub(crate) id: u64,
    pub(crate) is_get: bool,
    pub(crate) to: ProcessId,
    pub(crate) portal: u32,
    pub(crate) bits: MatchBits,
    pub(crate) offset: u32,
    /// 0 for a GET.
    pub(crate) hdr_data: u64,
    /// Bytes sent, or requested.
    pub(crate) length: usize,
    /// Payload of a PUT; empty for a GET.
    pub(crate) payload: Vec<u8>,
    /// Set if an ACK is requested.
    pub(crate) ack: bool,
    /// The handle that an answer names; only where there is a wire.
    pub(crate) handle: WireHandle,
}

/// A message from a peer.
#[derive(Debug, Clone)]
pub(crate) struct Arriving {
    pub(crate) from: ProcessId,
    pub(crate) body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Put {
        portal: u32,
        bits: MatchBits,
        hdr_data: u64,
        payload: Vec<u8>,
    },
    Get {
        portal: u32,
        bits: MatchBits,
        length: u32,
    },
    Reply {
        to: SentMessage,
        payload: Vec<u8>,
    },
    /// An ACK, requested or not.
    Ack {
        to: SentMessage,
    },
}

impl SentMessage {
    /// Returns the answer to a GET.
    pub(crate) fn reply(&self, payload: Vec<u8>) -> Arriving {
        assert!(self.is_get);
        Arriving { from: self.to, body: Body::Reply { to: self.clone(), payload } }
    }

    /// Returns the ACK of a PUT, whether it was requested or not.
    pub(crate) fn ack(&self) -> Arriving {
        Arriving { from: self.to, body: Body::Ack { to: self.clone() } }
    }
}
