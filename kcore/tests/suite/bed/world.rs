//! The abstraction: what surrounds kcore, as a test commands it.

use std::sync::Arc;

use lnet_api::{Errno, LNet};
use lnet_nid::{MatchBits, ProcessId};
use lnet_proto::WireHandle;

/// Ends what has begun: all of a message is there, or its end was lost.
pub(crate) type Finish<'a> = Box<dyn FnOnce(Result<(), Errno>) + 'a>;

/// An LNet, and a network that does as it is told.
pub(crate) trait World: Send + Sync {
    /// The LNet.
    fn lnet(&self) -> Arc<dyn LNet>;

    /// The PUTs and GETs that were started and have neither left nor failed to, oldest first.
    fn outgoing(&self) -> Vec<Outgoing>;

    /// One of them leaves, or fails to.
    fn leave(&self, message: &Outgoing, result: Result<(), Errno>);

    /// A message begins to arrive. `None` if nobody takes it.
    fn arrive(&self, message: &Arriving) -> Option<Finish<'_>>;

    /// LNet's tables agree with each other, and nothing is on its way.
    fn audit(&self);
}

/// A message that a program has started, as the network sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// The world's name for it.
    pub(crate) id: u64,
    pub(crate) is_get: bool,
    pub(crate) to: ProcessId,
    pub(crate) portal: u32,
    pub(crate) bits: MatchBits,
    pub(crate) offset: u32,
    /// 0 for a GET.
    pub(crate) hdr_data: u64,
    /// Bytes sent, or asked for.
    pub(crate) length: usize,
    /// Empty for a GET.
    pub(crate) payload: Vec<u8>,
    /// Whether an ACK is wanted.
    pub(crate) ack: bool,
    /// What an answer names; only where there is a wire.
    pub(crate) handle: WireHandle,
}

/// A message from elsewhere.
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
        to: Outgoing,
        payload: Vec<u8>,
    },
    /// Whether it was asked for or not.
    Ack {
        to: Outgoing,
    },
}

impl Outgoing {
    /// The answer to a GET.
    pub(crate) fn reply(&self, payload: Vec<u8>) -> Arriving {
        assert!(self.is_get);
        Arriving { from: self.to, body: Body::Reply { to: self.clone(), payload } }
    }

    /// The answer to a PUT that asks for it; else noise.
    pub(crate) fn ack(&self) -> Arriving {
        Arriving { from: self.to, body: Body::Ack { to: self.clone() } }
    }
}
