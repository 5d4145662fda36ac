//! What the channel of a shard tells of, and those connections that each poll looks at.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};

use lnet_lnd::slab::{Key, Slab};

use super::opening::Opening;
use super::rx_conn::RxConn;
use crate::fabric::{self, Token};

/// A connection of several busy ones on which nothing has come for so many polls is armed, and no more looked at by each poll.
const IDLE_POLLS: u32 = 256;

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

/// The [table](Slab) of what the channel tells of. A name in it is the channel's [`token`].
pub(super) struct Sources {
    table: Slab<Source>,
    /// Connections that are looked at by each poll, for they are not armed.
    busy: VecDeque<Key>,
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
        Sources { table: Slab::new(shard), busy: VecDeque::new() }
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

    pub(super) fn conns_mut(&mut self) -> impl Iterator<Item = (Key, &mut RxConn)> {
        self.table.iter_mut().filter_map(|(key, source)| match source {
            Source::Conn(rx) => Some((key, &mut **rx)),
            _ => None,
        })
    }

    pub(super) fn opening(&mut self, key: Key) -> Option<&mut Opening> {
        match self.table.get_mut(key)? {
            Source::Opening(opening) => Some(opening),
            _ => None,
        }
    }

    /// Ends an attempt, whose place in the table stays for the connection.
    pub(super) fn take_opening(&mut self, key: Key) -> Option<Box<Opening>> {
        self.opening(key)?.peer.state.lock().step = None;
        match self.table.replace(key, Source::Vacant)? {
            Source::Opening(opening) => Some(opening),
            _ => None,
        }
    }

    /// Has each poll look at a connection.
    pub(super) fn make_busy(&mut self, key: Key) {
        if let Some(rx) = self.conn_mut(key)
            && !std::mem::replace(&mut rx.busy, true)
        {
            rx.idle = 0;
            self.busy.push_back(key);
        }
    }

    /// How many connections each poll looks at.
    pub(super) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// The first of them, which leaves the queue until it has been [looked at](Sources::looked_at).
    pub(super) fn next_busy(&mut self) -> Option<Key> {
        self.busy.pop_front()
    }

    /// Such a connection had so many completions. It queues again, unless it is one of several and has been idle for long.
    pub(super) fn looked_at(&mut self, key: Key, count: usize) {
        let many = self.busy.len() > 1;
        let Some(rx) = self.conn_mut(key) else { return };
        rx.idle = if count == 0 { rx.idle.saturating_add(1) } else { 0 };
        if !many || rx.idle < IDLE_POLLS || !rx.settle_down() {
            self.busy.push_back(key);
        }
    }

    /// Arms all of them but those on which something has come; whether there are none of these.
    pub(super) fn settle_all(&mut self) -> bool {
        let mut quiet = true;
        for _ in 0..self.busy.len() {
            let Some(key) = self.busy.pop_front() else { break };
            if self.conn_mut(key).is_some_and(|rx| !rx.settle_down()) {
                self.busy.push_back(key);
                quiet = false;
            }
        }
        quiet
    }

    /// Whether sends on one of them are to be carried out by a program.
    pub(super) fn awaits_program(&self) -> bool {
        self.busy.iter().any(|key| self.conn(*key).is_some_and(RxConn::awaits_program))
    }
}

/// What the channel knows a source by.
pub(super) fn token(key: Key) -> Token {
    Token(key.0)
}

/// The source that the channel knows by this.
pub(super) fn key(token: Token) -> Key {
    Key(token.0)
}
