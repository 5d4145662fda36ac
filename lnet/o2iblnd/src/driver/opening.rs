//! A connection that is being opened, by either side.

use crate::o2ib::{Ni, Peer};
use std::net::SocketAddrV4;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::{ConnParams, Link};

use crate::buffers::Buffers;
use crate::fabric::{COMPLETIONS_PER_LOOK, Endpoint, PostError, QueueSizes, ReceiveWork};
use crate::links::LinkId;
use crate::sizes::{self, ConnSizes};
use lnet_lnd::admission::Permit;

/// Bytes that a send shall carry in itself, if the device can: a message without payload, but for what a descriptor adds.
const INLINE: u32 = 220;

pub(super) struct Opening {
    /// Goes before the memory of its queues does.
    pub(super) endpoint: Box<dyn Endpoint>,
    pub(super) queues: Option<Queues>,
    pub(super) peer: Arc<Peer>,
    pub(super) id: LinkId,
    /// Where the peer is, or connects from.
    pub(super) address: SocketAddrV4,
    pub(super) stage: Stage,
    pub(super) begun_ns: u64,
    /// Of a peer's attempt.
    pub(super) permit: Option<Permit>,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// The way is looked for.
    Resolving,
    /// The peer is asked.
    Asking,
    /// The peer was accepted.
    Accepting { link: Link, params: ConnParams },
}

/// The queues of an endpoint, and the memory of their messages.
pub(super) struct Queues {
    pub(super) sizes: ConnSizes,
    pub(super) made: QueueSizes,
    pub(super) buffers: Buffers,
}

impl Queues {
    /// Posts all receives, in several calls.
    pub(super) fn post_receives(&self, endpoint: &dyn Endpoint) -> Result<(), PostError> {
        let receive = &self.buffers.receive;
        let works: Vec<ReceiveWork> = (0..receive.buffers.len()).map(|place| receive.work(place)).collect();
        works.chunks(COMPLETIONS_PER_LOOK).try_for_each(|works| endpoint.post_receives(works))
    }
}

/// Makes queues of this depth and for so many fragments, or as deep ones as the device can have.
pub(super) fn make_queues(
    endpoint: &mut dyn Endpoint,
    ni: &Ni,
    params: ConnParams,
    now_ns: u64,
) -> Result<Queues, String> {
    let limits = *endpoint.device().limits();
    let text = |error: sizes::SizesError| error.to_string();
    let (depth, fragments) = (ni.own.depths.at_most(params.queue_depth, now_ns), params.max_fragments);
    let mut sizes = sizes::connection(&ni.own.adjusted, depth, fragments, &limits).map_err(text)?;
    let made = loop {
        match endpoint.make_queues(&sizes.queues(INLINE)) {
            Ok(made) => break made,
            // Anything else is not for their size.
            Err(error) if !matches!(error.errno, Errno::ENOMEM | Errno::EINVAL) => {
                return Err(error.to_string());
            }
            Err(error) => match sizes::shallower(&ni.own.adjusted, &sizes, &limits).map_err(text)? {
                Some(less) => {
                    ni.own.depths.note(less.depth, now_ns);
                    sizes = less;
                }
                None => return Err(error.to_string()),
            },
        }
    };
    let (receives, sends) = (sizes.receives as usize, usize::from(sizes.concurrent_sends.max(1)));
    let buffers = Buffers::new(endpoint.device(), receives, sends).map_err(|error| error.to_string())?;
    Ok(Queues { sizes, made, buffers })
}
