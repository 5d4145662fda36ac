use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_proto::sock::Keepalive;

use crate::choice::{Load, choose};
use crate::conn::Conn;
use crate::sock::PeerState;

/// What the TCP LND keeps of a peer under its lock.
#[derive(Default)]
pub struct OfState {
    /// Messages given to one of its connections, where they take turns.
    uses: u64,
    /// A connection has shown that it is there under its NID's address: it came from there, or this side opened it. A privileged
    /// source port proves that root has opened the connection on some host, not on which. `None` until that is asked for the first time.
    pub(crate) proven: Option<bool>,
    /// Of its live connections; `None` until they are first looked at.
    pub(crate) keepalive: Option<Keepalive>,
}

/// The choice of a connection.
pub(crate) trait Choose {
    /// The connection for an LNet message of this payload length, or for a NOOP; they take turns if `in_turn`.
    fn choose(&mut self, in_turn: bool, load: impl Fn(&Conn) -> Load) -> Option<&Arc<Conn>>;

    /// The connection for acks and keepalives.
    fn choose_for_noop(&mut self) -> Option<&Arc<Conn>> {
        self.choose(false, |_| Load::Noop)
    }
}

impl Choose for PeerState {
    fn choose(&mut self, in_turn: bool, load: impl Fn(&Conn) -> Load) -> Option<&Arc<Conn>> {
        let load = load(self.conns.first()?);
        let place = choose(self.conns.iter().map(|conn| conn.candidate()), load)?;
        let conn = self.conns.get(place)?;
        if in_turn {
            self.own.uses += 1;
            conn.used.store(self.own.uses, Ordering::Relaxed);
        }
        Some(conn)
    }
}
