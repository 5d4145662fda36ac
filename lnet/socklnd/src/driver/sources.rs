//! The descriptors that a shard watches, and those of them that have something to read.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lnet_lnd::slab::{Key, Slab};

use super::accepting::{Accepting, Listener};
use super::connecting::Connecting;
use super::receive::RxConn;
use crate::sock::Peer;

/// What a watched descriptor is.
pub(super) enum Source {
    Listener(Listener),
    Accepting(Box<Accepting>),
    Connecting(Box<Connecting>),
    Conn(Box<RxConn>),
    /// A connection that broke while the engine was about to resume a message of this peer: it is told so.
    Lost(Arc<Peer>),
    /// A handshake has just ended; what becomes of the place is decided within the same call.
    Vacant,
}

/// The [table](Slab) of what is watched. A name in it is what the poller knows a descriptor by.
pub(super) struct Sources {
    table: Slab<Source>,
    /// Listeners and connections that have, or may have, something to read.
    ready: VecDeque<Key>,
}

impl Deref for Sources {
    type Target = Slab<Source>;

    fn deref(&self) -> &Slab<Source> {
        &self.table
    }
}

impl DerefMut for Sources {
    fn deref_mut(&mut self) -> &mut Slab<Source> {
        &mut self.table
    }
}

impl Sources {
    /// None, of the shard of this number.
    pub(super) fn new(shard: u8) -> Sources {
        Sources { table: Slab::new(shard), ready: VecDeque::new() }
    }

    pub(super) fn listener(&mut self, key: Key) -> Option<&mut Listener> {
        match self.table.get_mut(key)? {
            Source::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn conn(&self, key: Key) -> Option<&RxConn> {
        match self.table.get(key)? {
            Source::Conn(rx) => Some(rx),
            _ => None,
        }
    }

    pub(super) fn conn_mut(&mut self, key: Key) -> Option<&mut RxConn> {
        match self.table.get_mut(key)? {
            Source::Conn(rx) => Some(rx),
            _ => None,
        }
    }

    pub(super) fn accepting(&mut self, key: Key) -> Option<&mut Accepting> {
        match self.table.get_mut(key)? {
            Source::Accepting(accepting) => Some(accepting),
            _ => None,
        }
    }

    /// Takes a handshake out of its place, which stays for the connection.
    pub(super) fn take_accepting(&mut self, key: Key) -> Option<Box<Accepting>> {
        self.accepting(key)?;
        match self.table.replace(key, Source::Vacant)? {
            Source::Accepting(accepting) => Some(accepting),
            _ => None,
        }
    }

    pub(super) fn all_accepting(&self) -> impl Iterator<Item = (Key, &Accepting)> {
        self.table.iter().filter_map(|(key, source)| match source {
            Source::Accepting(accepting) => Some((key, &**accepting)),
            _ => None,
        })
    }

    pub(super) fn connecting(&mut self, key: Key) -> Option<&mut Connecting> {
        match self.table.get_mut(key)? {
            Source::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Takes an attempt out of its place, which stays.
    pub(super) fn take_connecting(&mut self, key: Key) -> Option<Box<Connecting>> {
        self.connecting(key)?;
        match self.table.replace(key, Source::Vacant)? {
            Source::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    pub(super) fn keys_of_connecting(&self, are_such: impl Fn(&Connecting) -> bool) -> Vec<Key> {
        self.keys(|source| matches!(source, Source::Connecting(connecting) if are_such(connecting)))
    }

    /// Whether this is a connection that is read from.
    pub(super) fn is_open(&self, key: Key) -> bool {
        self.conn(key).is_some_and(|rx| !rx.is_held())
    }

    /// Whether anything has something to read.
    pub(super) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Queues a source that has something to read.
    pub(super) fn make_ready(&mut self, key: Key) {
        let queued = match self.table.get_mut(key) {
            Some(Source::Conn(rx)) => &mut rx.queued,
            Some(Source::Listener(listener)) => &mut listener.queued,
            _ => return,
        };
        if !std::mem::replace(queued, true) {
            self.ready.push_back(key);
        }
    }

    /// The first in the queue, which it leaves.
    pub(super) fn next_ready(&mut self) -> Option<Key> {
        self.ready.pop_front()
    }
}
