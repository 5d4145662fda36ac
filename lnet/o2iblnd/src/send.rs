//! Sending in the caller's own thread.

use std::sync::Arc;

use lnet_api::{Errno, Sent, Tx};
use lnet_lnd::shard_table::ShardKey;
use lnet_proto::ib::IMMEDIATE_MAX;

use crate::connection::{Connection, SendRefused};
use crate::memory::register_source;
use crate::o2ib::{PeerState, Shared};
use crate::op_data::{AskedGet, get_of_name};

/// Sends a message on a connection to its peer; queues it for the driver if no connection has room.
pub(crate) fn send(shared: &Shared, mut tx: Tx) -> Result<Sent, Errno> {
    if let Some(key) = tx.reply_to.and_then(get_of_name) {
        // The GET is removed when its connection is closed.
        let AskedGet { conn, operation } = asked_directly(shared, key).ok_or(Errno::ECONNRESET)?;
        // The payload is registered, because a REPLY of any length is written by RDMA.
        if let Some(payload) = &tx.payload {
            register_source(conn.ni(), payload, conn.shard().own.now_ns());
        }
        return Ok(conn.reply(operation, tx));
    }
    let mut registered = false;
    loop {
        let peer = shared.peer_for(&tx)?;
        if tx.header.payload_length as usize > IMMEDIATE_MAX
            && let Some(payload) = &tx.payload
            && !std::mem::replace(&mut registered, true)
        {
            register_source(&peer.ni, payload, peer.shard.own.now_ns());
        }
        let Some(mut state) = peer.enter()? else { continue };
        // A new message must not overtake waiting ones.
        if state.waiting.is_empty()
            && let Some(conn) = choose(&mut state)
        {
            let conn = conn.clone();
            drop(state);
            match conn.send(tx) {
                Ok(sent) => return Ok(sent),
                Err((back, SendRefused::Full | SendRefused::Closed)) => tx = back,
            }
            state = peer.state.lock();
            if state.retired.is_some() {
                continue;
            }
        }
        return peer.wait(state, tx);
    }
}

/// Removes and returns the GET that the engine answers with this message.
fn asked_directly(shared: &Shared, key: ShardKey) -> Option<AskedGet> {
    shared.shards.slot(key.shard())?.shard.own.gets.lock().remove(key)
}

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
