//! Sending: the choice of a connection, in the caller's own thread.

use std::sync::Arc;

use lnet_api::{Errno, Sent, Tx};
use lnet_lnd::peer::PeerKey;
use lnet_nid::Nid;
use lnet_proto::MessageType;
use lnet_proto::sock::Version;

use crate::SockConfig;
use crate::choice::Load;
use crate::lnd::Shared;
use crate::outgoing::wire_len;
use crate::peer::{Choose, Peer};

/// Sends a message on the best connection to its peer; without one it waits until the driver has made one.
///
/// For an answer a connection is opened only to a peer that has proven its address. Anybody can ask in the name of a host that
/// knows nothing of it, and go: that host would get a connection from a privileged port of this node, and the answer would
/// hold credits of all others until then.
pub(crate) fn send(shared: &Shared, mut tx: Tx) -> Sent {
    loop {
        let peer = match peer_for(shared, &tx) {
            Ok(peer) => peer,
            Err(errno) => return Sent::Now(Err(errno)),
        };
        let mut state = peer.state.lock();
        match state.retired {
            Some(Errno::EAGAIN) => continue,
            Some(errno) => return Sent::Now(Err(errno)),
            None => {}
        }
        let config = &shared.config;
        if let Some(conn) = state.choose(config.round_robin, |conn| load(config, &tx, conn.version)) {
            let conn = conn.clone();
            drop(state);
            return conn.send(&mut tx);
        }
        if is_answer(&tx) && !state.own.proven {
            peer.shard.counters.tx.answers_withheld.one();
            return Sent::Now(Err(Errno::EHOSTUNREACH));
        }
        if peer.key.id.pid.is_userspace() {
            return Sent::Now(Err(Errno::EHOSTUNREACH));
        }
        return peer.wait(state, tx);
    }
}

/// What a message is to the choice of a connection.
pub(crate) fn load(config: &SockConfig, tx: &Tx, version: Version) -> Load {
    Load::Message { bytes: wire_len(&tx.header, version), min_bulk: config.min_bulk as usize }
}

/// The peer of a message; made if it is not there, except for one that can only connect in.
fn peer_for(shared: &Shared, tx: &Tx) -> Result<Arc<Peer>, Errno> {
    let key = PeerKey { ni: tx.ni, id: tx.peer };
    if let Some(peer) = shared.peers.get(key) {
        return Ok(peer);
    }
    let ni = shared.nis.get(tx.ni).ok_or(Errno::ESHUTDOWN)?;
    if tx.peer.pid.is_userspace() || tx.peer.nid.net() != tx.ni.net() || tx.peer.nid == tx.ni {
        return Err(Errno::EHOSTUNREACH);
    }
    // The same node under another PID has proven its address for this one too.
    let proven = is_answer(tx) && is_proven(shared, tx.ni, tx.peer.nid);
    let peer = shared.peer_of(&ni, tx.peer).ok_or(Errno::ESHUTDOWN)?;
    peer.state.lock().own.proven |= proven;
    Ok(peer)
}

fn is_proven(shared: &Shared, ni: Nid, nid: Nid) -> bool {
    let peers = shared.peers.all(|peer| peer.key.ni == ni && peer.key.id.nid == nid);
    peers.iter().any(|peer| peer.state.lock().own.proven)
}

/// Whether a message answers one that came.
fn is_answer(tx: &Tx) -> bool {
    matches!(tx.header.message_type(), MessageType::Ack | MessageType::Reply)
}
