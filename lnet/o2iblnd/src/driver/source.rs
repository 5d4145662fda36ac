//! What the channel of a shard tells of.

use std::net::Ipv4Addr;

use lnet_lnd::slab::Key;
use lnet_lnd::sources::Queued;

use super::opening::{Opening, Stage};
use super::rx_conn::RxConn;
use crate::fabric::{self, Token};

/// What a token of the channel names.
pub(super) enum Source {
    Listener(Listening),
    Opening(Box<Opening>),
    Conn(Box<RxConn>),
    /// A place that is kept for what is being made.
    Vacant,
}

/// A listener, for all NIs of an address.
pub(super) struct Listening {
    pub(super) _listener: Box<dyn fabric::Listener>,
    pub(super) ip: Ipv4Addr,
}

/// All of it, by the channel's [tokens](token). Those connections queue that are looked at by each poll, for they are not armed.
pub(super) type Sources = lnet_lnd::sources::Sources<Source>;

lnet_lnd::variants!(Source { opening, opening_mut: Opening(Opening), conn, conn_mut: Conn(RxConn) });

impl Queued for Source {
    fn queued(&mut self) -> Option<&mut bool> {
        self.conn_mut().map(|rx| &mut rx.busy)
    }
}

/// Ends an attempt, whose place in the table stays for the connection.
pub(super) fn take_opening(sources: &mut Sources, key: Key) -> Option<Box<Opening>> {
    let opening = sources.take(key, Source::Vacant, |source| match source {
        Source::Opening(opening) => Ok(opening),
        other => Err(other),
    })?;
    // What is known of this side's attempt; the peer's is another.
    if !matches!(opening.stage, Stage::Accepting { .. }) {
        opening.peer.state.lock().step = None;
    }
    Some(opening)
}

/// What the channel knows a source by.
pub(super) fn token(key: Key) -> Token {
    Token(key.0)
}

/// The source that the channel knows by this.
pub(super) fn key(token: Token) -> Key {
    Key(token.0)
}
