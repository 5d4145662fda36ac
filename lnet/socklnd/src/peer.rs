use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_proto::sock::Keepalive;

use crate::choice::{MessageClass, choose};
use crate::conn::Conn;
use crate::sock::PeerState;

/// TCP state of a peer, under the peer's lock.
#[derive(Default)]
pub struct OfState {
    /// Number of messages given to the peer's connections, by which equally good ones take turns.
    uses: u64,
    /// True if a connection has proven the peer's address: it came from the NID's address, or this
    /// side opened it. A privileged source port proves that root opened the connection on some
    /// host, but not on which one. `None` until the first check.
    pub(crate) proven: Option<bool>,
    /// The keepalive timer of the live connections; `None` until the first check.
    pub(crate) keepalive: Option<Keepalive>,
}

/// Chooses one of a peer's connections for a message.
pub(crate) trait Choose {
    /// Returns the best connection for a load, which may depend on the connection's version;
    /// equally good ones take turns if `in_turn`.
    fn choose(&mut self, in_turn: bool, load: impl Fn(&Conn) -> MessageClass) -> Option<&Arc<Conn>>;

    /// Returns the connection for acknowledgements and keepalives.
    fn choose_for_noop(&mut self) -> Option<&Arc<Conn>> {
        self.choose(false, |_| MessageClass::Noop)
    }
}

impl Choose for PeerState {
    fn choose(&mut self, in_turn: bool, load: impl Fn(&Conn) -> MessageClass) -> Option<&Arc<Conn>> {
        let load = load(self.conns.first()?);
        let index = choose(self.conns.iter().map(|conn| conn.candidate()), load)?;
        let conn = self.conns.get(index)?;
        if in_turn {
            self.own.uses += 1;
            conn.used.store(self.own.uses, Ordering::Relaxed);
        }
        Some(conn)
    }
}
