//! The connection for the next message to a peer, and the address of a peer.

use crate::o2ib::{Peer, PeerState};
use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::connection::Connection;

/// Returns the connection for the next message: one that has room, if there is one, so that a slow
/// connection does not delay messages that another can carry.
pub(crate) fn choose(state: &mut PeerState) -> Option<&Arc<Connection>> {
    let id = match &state.conns[..] {
        [] => return None,
        [only] => return Some(only),
        conns => {
            let has_room = |id| conns.iter().any(|conn| conn.id == id && conn.check_room().is_ok());
            state.links.pick(has_room).or_else(|| state.links.pick(|_| true))?
        }
    };
    state.conns.iter().find(|conn| conn.id == id)
}

/// Returns the address of the peer's NID with this port. A NID without an address does not become a
/// peer.
pub(crate) fn address_of(peer: &Peer, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(peer.key.id.nid.ipv4().unwrap_or(peer.ni.own.ip), port)
}
