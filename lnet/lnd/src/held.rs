//! Messages that the engine holds back: PUTs for which a lazy portal has no entry yet (lnet-semantics 11).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{Delivery, Errno, RxContext, RxToken};

use crate::protocol::Driver;
use crate::slab::{Key, Slab};
use crate::{Ni, Peer, Protocol, Turn};

/// The messages of a shard that are held back, by the names that the engine has for them.
pub struct HeldTable<P: Protocol> {
    table: Slab<Held<P>>,
    /// Those of each connection.
    by_conn: BTreeSet<(Key, Key)>,
}

enum Held<P: Protocol> {
    /// The engine may resume it.
    Back { peer: Arc<Peer<P>>, conn: Key, token: RxToken, what: P::Held },
    /// Its connection ended while the engine was about to resume it. The engine learns that when it does.
    Lost { peer: Arc<Peer<P>> },
}

impl<P: Protocol> HeldTable<P> {
    /// None, of the shard of this number, which is below [`MAX_SHARDS`](lnet_api::MAX_SHARDS).
    pub(crate) fn new(shard: usize) -> HeldTable<P> {
        HeldTable { table: Slab::new(shard as u8), by_conn: BTreeSet::new() }
    }

    /// The name of the next message that is held back. The engine is told it with every message that it may hold back, for another
    /// thread may resume the message before the driver knows that it is held.
    pub fn next(&self) -> RxContext {
        RxContext(self.table.next_key().0)
    }

    /// The engine holds a message of this connection back, as it was asked under the [next](HeldTable::next) name.
    pub fn keep(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>, conn: Key, token: RxToken, what: P::Held) {
        let key = self.table.insert(Held::Back { peer: peer.clone(), conn, token, what });
        self.by_conn.insert((conn, key));
        self.count(turn);
    }

    /// A connection has ended, and what is held back of it with it.
    pub(crate) fn lose(&mut self, turn: Turn<'_, P>, ended: Key) {
        while let Some(&(conn, key)) = self.by_conn.range((ended, Key(0))..).next().filter(|of| of.0 == ended)
        {
            self.by_conn.remove(&(conn, key));
            if let Some(Held::Back { peer, token, .. }) = self.table.get(key) {
                let peer = peer.clone();
                if peer.ni.upcalls.forget_delayed(*token) {
                    self.table.remove(key);
                } else {
                    self.table.replace(key, Held::Lost { peer });
                }
            }
        }
        self.count(turn);
    }

    /// An NI has ended, for which no upcall is made any more.
    pub(crate) fn end_ni(&mut self, turn: Turn<'_, P>, ni: &Arc<Ni<P>>) {
        for key in self.table.keys(|held| matches!(held, Held::Lost { peer } if Arc::ptr_eq(&peer.ni, ni))) {
            self.table.remove(key);
        }
        self.count(turn);
    }

    fn take(&mut self, turn: Turn<'_, P>, key: Key) -> Option<Held<P>> {
        let held = self.table.remove(key);
        if let Some(Held::Back { conn, .. }) = &held {
            self.by_conn.remove(&(*conn, key));
        }
        self.count(turn);
        held
    }

    fn count(&self, turn: Turn<'_, P>) {
        turn.shard.held.store(self.table.len(), Ordering::Relaxed);
    }
}

/// The engine goes on with a message that it has held back, or throws it away.
pub(crate) fn resume<P: Protocol>(
    driver: &mut P::Driver,
    turn: Turn<'_, P>,
    key: Key,
    delivery: Option<Delivery>,
) {
    match driver.core().held.take(turn, key) {
        Some(Held::Back { conn, what, .. }) => driver.resume(turn, conn, what, delivery),
        Some(Held::Lost { peer }) => {
            if let Some(Delivery { token, sink }) = delivery {
                drop(sink);
                peer.ni.upcalls.finalize_rx(token, Err(Errno::ECONNRESET));
            }
        }
        // The NI is gone, and no upcall is made for it.
        None => drop(delivery),
    }
}
