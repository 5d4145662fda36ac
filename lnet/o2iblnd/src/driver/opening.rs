//! A connection that is being opened, by either side.

use crate::o2ib::{Ni, Peer};
use std::net::SocketAddrV4;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::{ConnParams, Link};

use crate::buffers::ConnBuffers;
use crate::fabric::{COMPLETIONS_PER_LOOK, Endpoint, PostError, QueueSizes, ReceiveWork};
use crate::links::LinkId;
use crate::sizes::{self, ConnSizes};
use lnet_lnd::admission::Permit;

/// The requested inline size, if the device supports it: a message without payload, except long
/// descriptors.
const INLINE: u32 = 220;

pub(super) struct Opening {
    /// The endpoint. Declared before the queues' memory, so that it is dropped first.
    pub(super) endpoint: Box<dyn Endpoint>,
    pub(super) queues: Option<Queues>,
    pub(super) peer: Arc<Peer>,
    pub(super) id: LinkId,
    /// The peer's address, or the address from which the peer connects.
    pub(super) address: SocketAddrV4,
    pub(super) stage: Stage,
    pub(super) begun_ns: u64,
    /// The admission permit; `None` for an attempt of this side.
    pub(super) permit: Option<Permit>,
}

/// The stage of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// The route is being resolved.
    Resolving,
    /// The request has been sent to the peer.
    Asking,
    /// The peer was accepted.
    Accepting { link: Link, params: ConnParams },
}

/// The memory of the message buffers, and the sizes of an endpoint's queues.
pub(super) struct Queues {
    pub(super) sizes: ConnSizes,
    pub(super) made: QueueSizes,
    pub(super) buffers: ConnBuffers,
}

impl Queues {
    /// Posts all receive buffers, in several calls.
    pub(super) fn post_receives(&self, endpoint: &dyn Endpoint) -> Result<(), PostError> {
        let receive = &self.buffers.receive;
        let works: Vec<ReceiveWork> = (0..receive.buffers.len()).map(|index| receive.work(index)).collect();
        works.chunks(COMPLETIONS_PER_LOOK).try_for_each(|works| endpoint.post_receives(works))
    }
}

/// Makes queues for these parameters, or the deepest that the device can make.
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
            // Other errors do not depend on the size, so a smaller one would not help.
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
    let buffers = ConnBuffers::new(endpoint.device(), receives, sends).map_err(|error| error.to_string())?;
    Ok(Queues { sizes, made, buffers })
}
