//! The sources of a shard's channel events.

use std::net::Ipv4Addr;

use lnet_lnd::shard_table::ShardKey;
use lnet_lnd::sources::Queued;

use super::opening::{Opening, Stage};
use super::rx_conn::RxConn;
use crate::fabric::{self, ChannelToken};

/// An object of the driver that a token of the channel names.
pub(super) enum EventSource {
    Listener(Listening),
    Opening(Box<Opening>),
    Conn(Box<RxConn>),
    /// A reserved entry for an object that is being made.
    Vacant,
}

/// A listener, for all NIs of an address.
pub(super) struct Listening {
    pub(super) _listener: Box<dyn fabric::Listener>,
    pub(super) ip: Ipv4Addr,
}

/// All sources, by the channel's [tokens](token). Its queue holds the busy connections, which each
/// poll includes as they are not armed.
pub(super) type EventSources = lnet_lnd::sources::EventSources<EventSource>;

lnet_lnd::variants!(EventSource { opening, opening_mut: Opening(Opening), conn, conn_mut: Conn(RxConn) });

impl Queued for EventSource {
    fn queued(&mut self) -> Option<&mut bool> {
        self.conn_mut().map(|rx| &mut rx.busy)
    }
}

/// Removes an attempt; its entry in the table stays for the connection.
pub(super) fn take_opening(sources: &mut EventSources, key: ShardKey) -> Option<Box<Opening>> {
    let opening = sources.take(key, EventSource::Vacant, |source| match source {
        EventSource::Opening(opening) => Ok(opening),
        other => Err(other),
    })?;
    // `step` describes this side's attempt, not the peer's.
    if !matches!(opening.stage, Stage::Accepting { .. }) {
        opening.peer.state.lock().step = None;
    }
    Some(opening)
}

/// Returns the channel's token for the key of a source.
pub(super) fn token(key: ShardKey) -> ChannelToken {
    ChannelToken(key.0)
}

/// Returns the key of the source that a token names.
pub(super) fn key(token: ChannelToken) -> ShardKey {
    ShardKey(token.0)
}
