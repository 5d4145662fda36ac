//! Sending: the choice of a connection, on the caller's own thread.

use lnet_api::{Errno, Sent, Tx};
use lnet_nid::Nid;
use lnet_proto::MessageType;
use lnet_proto::sock::Version;

use crate::SockConfig;
use crate::choice::MessageClass;
use crate::outbox_message::wire_len;
use crate::peer::Choose;
use crate::sock::Shared;

/// Sends a message on the best connection to its peer. Without one the message waits until the
/// driver has opened one.
///
/// For an answer, a connection is opened only to a peer that has proven its address. Any host can
/// send a request under the address of another host and leave: the other host would get a
/// connection from a privileged port of this node, and until then the answer would hold credits
/// that others need.
pub(crate) fn send(shared: &Shared, mut tx: Tx) -> Result<Sent, Errno> {
    loop {
        let peer = shared.peer_for(&tx)?;
        let Some(mut state) = peer.enter()? else { continue };
        let config = &shared.config;
        if let Some(conn) = state.choose(config.round_robin, |conn| load(config, &tx, conn.version)) {
            let conn = conn.clone();
            drop(state);
            return Ok(conn.send(&mut tx));
        }
        if is_answer(&tx) {
            match state.own.proven {
                Some(true) => {}
                Some(false) => {
                    peer.shard.counters.tx.answers_withheld.one();
                    return Err(Errno::EHOSTUNREACH);
                }
                None => {
                    drop(state);
                    let proven = is_proven(shared, tx.ni, tx.peer.nid);
                    peer.state.lock().own.proven.get_or_insert(proven);
                    continue;
                }
            }
        }
        if peer.key.id.pid.is_userspace() {
            return Err(Errno::EHOSTUNREACH);
        }
        return peer.wait(state, tx);
    }
}

/// Returns the message's properties for the choice of a connection.
pub(crate) fn load(config: &SockConfig, tx: &Tx, version: Version) -> MessageClass {
    MessageClass::Message { bytes: wire_len(&tx.header, version), min_bulk: config.min_bulk as usize }
}

/// Returns whether a node has proven its address under any PID, which counts for all its PIDs.
fn is_proven(shared: &Shared, ni: Nid, nid: Nid) -> bool {
    let peers = shared.peers.all(|peer| peer.key.ni == ni && peer.key.id.nid == nid);
    peers.iter().any(|peer| peer.state.lock().own.proven == Some(true))
}

/// Returns whether a message answers a received one.
fn is_answer(tx: &Tx) -> bool {
    matches!(tx.header.message_type(), MessageType::Ack | MessageType::Reply)
}
