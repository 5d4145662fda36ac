//! The end of connections in use, over any kind of network (lnet-wire 28 and 34).

use std::net::SocketAddr;
use std::sync::Arc;

use lnet_api::Errno;
use smallvec::smallvec;
use tracing::{debug, info};

use crate::counting::CountsLife;
use crate::protocol::{Connection, Conns, Driver};
use crate::shard_table::ShardKey;
use crate::{Cause, ConnFailure, Peer, Protocol, Turn};

/// The connections of a peer that end when one breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseScope {
    /// Only the broken connection, which the peer does not need: this is no failure, and the others
    /// stay in use.
    Surplus,
    /// Only the broken connection.
    One,
    /// All connections to the peer.
    All,
}

/// A connection in use.
pub struct InUse<P: Protocol> {
    /// The peer at the other end.
    pub peer: Arc<Peer<P>>,
    /// The LND's connection.
    pub conn: Arc<P::Conn>,
    /// The address of the other end.
    pub address: SocketAddr,
}

/// Closes a connection that broke for this reason, and the others that end with it
/// ([`Driver::ends_with`]). Messages in flight on them fail; messages that wait for the peer are
/// sent over other connections, or new ones.
pub fn close_broken<P: Protocol>(
    driver: &mut P::Driver,
    turn: Turn<'_, P>,
    key: ShardKey,
    failure: ConnFailure,
) {
    let Some(InUse { peer, conn, address }) = driver.in_use(turn, key) else { return };
    let ends = driver.ends_with(turn, key, &failure);
    let conns: Conns<P> =
        if ends == CloseScope::All { peer.state.lock().conns.clone() } else { smallvec![conn] };
    let (errno, cause) = (failure.errno, failure.cause);
    if ends == CloseScope::Surplus {
        debug!(peer = %peer.key.id, %errno, "the peer closed a surplus connection; the others stay open");
    } else {
        let failure = turn.connection_failed(&peer, address, failure);
        // The end of a peer to which nothing is being sent is not logged for operators.
        if cause == Cause::Closed && conns.iter().all(|conn| conn.is_idle()) {
            debug!(%failure, ?ends, "the peer has closed connections");
        } else {
            info!(%failure, ?ends, "connections to the peer are closed");
        }
    }
    close(driver, turn, &peer, &conns, errno);
    driver.advance_peer(turn, &peer);
}

/// Closes all connections to a peer.
pub fn close_peer<P: Protocol>(driver: &mut P::Driver, turn: Turn<'_, P>, peer: &Arc<Peer<P>>, errno: Errno) {
    let conns = peer.state.lock().conns.clone();
    close(driver, turn, peer, &conns, errno);
}

/// Closes connections of a peer; with the last connection the peer is reported as lost. The peer's
/// link rules are updated even if there are no connections: the incarnation that they have recorded
/// is no longer valid.
fn close<P: Protocol>(
    driver: &mut P::Driver,
    turn: Turn<'_, P>,
    peer: &Arc<Peer<P>>,
    gone: &Conns<P>,
    errno: Errno,
) {
    let lost = {
        let mut state = peer.state.lock();
        state.conns.retain(|conn| gone.iter().all(|gone| !Arc::ptr_eq(gone, conn)));
        P::closed(&mut state, gone, turn.now_ns);
        state.conns.is_empty() && !gone.is_empty()
    };
    turn.shard.counters.rx.closes().add(gone.len());
    end_conns(driver, turn, peer, gone, errno);
    if lost {
        turn.shard.counters.rx.peers_lost().one();
        peer.ni.upcalls.peer_lost(peer.key.ni, peer.key.id, errno);
    }
}

/// Ends connections that have been removed from their peer's state.
pub(crate) fn end_conns<P: Protocol>(
    driver: &mut P::Driver,
    turn: Turn<'_, P>,
    peer: &Arc<Peer<P>>,
    gone: &Conns<P>,
    errno: Errno,
) {
    for conn in gone {
        driver.end_conn(turn, peer, conn, errno);
        driver.core().held.lose(turn, conn.key());
    }
}
