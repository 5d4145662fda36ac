//! Messages that the engine holds back: PUTs for which a lazy portal has no entry yet (lnet-semantics 11).
//!
//! They wait without a time limit. Up to a [limit](HeldLimits) they are taken into memory, where they stop nothing. What is beyond stays on
//! its connection, which over TCP is not read meanwhile, or keeps its receive buffer and with it a credit of the peer's, over verbs; the peer
//! is shown that this node lives ([`crate::life`]). Or it is dropped, if that is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{Delivery, Errno, RxContext, RxToken};
use lnet_region::{IoVec, ReadVec, Region, WriteVec};

use crate::config::Config;
use crate::counting::CountsLife;
use crate::life::sign_period_ns;
use crate::protocol::Driver;
use crate::slab::{Key, Slab};
use crate::{Ni, Peer, Protocol, Turn};

/// What a message in memory counts for beside its payload: what is known of it here and in the engine.
const BOOKKEEPING_BYTES: usize = 1024;

/// Memory that is shorter is not registered with a device.
const PAGE_BYTES: usize = 4096;

/// How much of what the engine holds back is taken into memory, by the LND of one kind of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLimits {
    /// Of one peer, in KiB; a message counts for its memory and 1 KiB (`held_peer_kb`).
    pub peer_kb: u32,
    /// Of all peers, in KiB (`held_kb`).
    pub all_kb: u32,
    /// A message beyond is dropped and counted, instead of staying on its connection (`held_full=drop`).
    pub drop_beyond: bool,
}

impl Default for HeldLimits {
    /// A message of the greatest length and many small ones of a peer; as much of 8 such peers.
    fn default() -> HeldLimits {
        HeldLimits { peer_kb: 2048, all_kb: 16_384, drop_beyond: false }
    }
}

/// The messages of a shard that are held back, by the names that the engine has for them.
pub struct HeldTable<P: Protocol> {
    table: Slab<Held<P>>,
    /// Those that end with a connection.
    by_conn: BTreeSet<(Key, Key)>,
    /// When the peers of those that stay on connections are shown next that this node lives.
    sign_ns: Option<u64>,
}

struct Held<P: Protocol> {
    peer: Arc<Peer<P>>,
    token: RxToken,
    place: Place<P>,
}

/// Where it is.
enum Place<P: Protocol> {
    /// On its connection.
    Conn { conn: Key, what: P::Held },
    /// On the way from there into memory. The engine may have gone on with it meanwhile.
    Coming { conn: Key, counted: usize, resumed: Option<Option<Delivery>> },
    /// In memory, whatever becomes of its connection.
    Memory { counted: usize, payload: Option<ReadVec> },
    /// Lost, while the engine was about to resume it. The engine learns that when it does.
    Lost,
}

impl<P: Protocol> Place<P> {
    /// The connection with which it ends.
    fn conn(&self) -> Option<Key> {
        match self {
            Place::Conn { conn, .. } | Place::Coming { conn, .. } => Some(*conn),
            Place::Memory { .. } | Place::Lost => None,
        }
    }
}

/// In what kind of memory a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// As long as its payload.
    Heap,
    /// In pages of its own, which a device can write to.
    Pages,
}

impl Memory {
    /// How many bytes a payload takes.
    const fn bytes(self, length: usize) -> usize {
        match self {
            Memory::Heap => length,
            Memory::Pages => length.next_multiple_of(PAGE_BYTES),
        }
    }

    fn region(self, length: usize) -> Option<Region> {
        match self {
            Memory::Heap => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(length).ok()?;
                bytes.resize(length, 0);
                Region::from_vec(bytes).ok()
            }
            Memory::Pages => Region::pages(self.bytes(length)).ok(),
        }
    }
}

/// What becomes of a message that the engine holds back.
pub enum Admitted {
    /// Its payload goes into this memory, none if it has none, and [`HeldTable::came`] says when it is there.
    Memory(Key, Option<WriteVec>),
    /// It stays where it is: [`HeldTable::keep`].
    Conn,
    /// It is dropped: its payload is thrown away.
    Dropped,
}

impl<P: Protocol> HeldTable<P> {
    /// None, of the shard of this number, which is below [`MAX_SHARDS`](lnet_api::MAX_SHARDS).
    pub(crate) fn new(shard: usize) -> HeldTable<P> {
        HeldTable { table: Slab::new(shard as u8), by_conn: BTreeSet::new(), sign_ns: None }
    }

    /// The name of the next message that is held back. The engine gets it with each message that it may hold back: another thread may
    /// resume the message before the driver knows that it is held.
    pub fn next(&self) -> RxContext {
        RxContext(self.table.next_key().0)
    }

    /// The engine holds a message of this connection back, as it was asked under the [next](HeldTable::next) name. Its payload has so
    /// many bytes, for which `memory` makes a region.
    pub fn admit(
        &mut self,
        turn: Turn<'_, P>,
        (peer, conn): (&Arc<Peer<P>>, Key),
        token: RxToken,
        length: usize,
        memory: Memory,
    ) -> Admitted {
        if let Some(counted) = count_in(turn, peer, memory.bytes(length)) {
            if let Some(sink) = sink_of(length, memory) {
                let place = Place::Coming { conn, counted, resumed: None };
                let key = self.enter(turn, peer, token, place);
                return Admitted::Memory(key, sink);
            }
            count_out(turn, peer, counted);
        }
        if drop_instead(turn, peer, token) { Admitted::Dropped } else { Admitted::Conn }
    }

    /// A message stays on its connection.
    pub fn keep(
        &mut self,
        turn: Turn<'_, P>,
        (peer, conn): (&Arc<Peer<P>>, Key),
        token: RxToken,
        what: P::Held,
    ) {
        self.note_sign(turn.now_ns, peer);
        self.enter(turn, peer, token, Place::Conn { conn, what });
    }

    /// When peers are to be shown next that this node lives, if any are.
    pub(crate) const fn sign_ns(&self) -> Option<u64> {
        self.sign_ns
    }

    fn note_sign(&mut self, now_ns: u64, peer: &Peer<P>) {
        let at_ns = now_ns.saturating_add(sign_period_ns(peer.ni.timeout_ns));
        self.sign_ns = Some(self.sign_ns.map_or(at_ns, |sign_ns| sign_ns.min(at_ns)));
    }

    /// Adds the peers to a list that are to be shown now that this node lives: it holds messages of theirs on connections. Each is there
    /// once.
    pub(crate) fn take_signs(&mut self, now_ns: u64, peers: &mut Vec<Arc<Peer<P>>>) {
        if self.sign_ns.take_if(|sign_ns| *sign_ns <= now_ns).is_none() {
            return;
        }
        for (_, key) in &self.by_conn {
            if let Some(Held { peer, place: Place::Conn { .. }, .. }) = self.table.get(*key) {
                peers.push(peer.clone());
            }
        }
        peers.sort_unstable_by_key(|peer| peer.key);
        peers.dedup_by(|other, peer| Arc::ptr_eq(other, peer));
        for peer in &*peers {
            self.note_sign(now_ns, peer);
        }
    }

    /// The payload of a message that was just admitted cannot come into memory after all: it stays on its connection, or is dropped
    /// (`false`).
    pub fn stay(&mut self, turn: Turn<'_, P>, key: Key, what: P::Held) -> bool {
        let Some(Held { peer, token, place }) = self.table.get_mut(key) else { return false };
        let Place::Coming { conn, counted, .. } = *place else { return false };
        count_out(turn, peer, counted);
        if drop_instead(turn, peer, *token) {
            self.leave(turn, key);
            return false;
        }
        *place = Place::Conn { conn, what };
        let peer = peer.clone();
        self.note_sign(turn.now_ns, &peer);
        true
    }

    fn enter(&mut self, turn: Turn<'_, P>, peer: &Arc<Peer<P>>, token: RxToken, place: Place<P>) -> Key {
        let conn = place.conn();
        let key = self.table.insert(Held { peer: peer.clone(), token, place });
        self.by_conn.extend(conn.map(|conn| (conn, key)));
        self.tell_count(turn);
        key
    }

    /// The payload of a message is in memory.
    pub fn came(&mut self, turn: Turn<'_, P>, key: Key, payload: Option<ReadVec>) {
        // It may be gone with its NI.
        let Some(Held { peer, place, .. }) = self.table.get_mut(key) else { return };
        let Place::Coming { conn, counted, resumed } = place else { return };
        let counted = *counted;
        turn.shard.counters.rx.held_in_memory().one();
        self.by_conn.remove(&(*conn, key));
        match resumed.take() {
            None => *place = Place::Memory { counted, payload },
            Some(delivery) => {
                let peer = peer.clone();
                self.leave(turn, key);
                count_out(turn, &peer, counted);
                deliver(&peer, payload, delivery);
            }
        }
    }

    /// The payload of a message does not come into memory, or the message is lost with its connection.
    pub fn fail(&mut self, turn: Turn<'_, P>, key: Key, errno: Errno) {
        let Some(Held { peer, token, place }) = self.table.get_mut(key) else { return };
        let (peer, token) = (peer.clone(), *token);
        if !matches!(place, Place::Lost) {
            turn.shard.counters.rx.held_lost().one();
        }
        if let Some(conn) = place.conn() {
            self.by_conn.remove(&(conn, key));
        }
        let resumed = match std::mem::replace(place, Place::Lost) {
            Place::Coming { counted, resumed, .. } => {
                count_out(turn, &peer, counted);
                resumed
            }
            Place::Memory { counted, .. } => {
                count_out(turn, &peer, counted);
                None
            }
            Place::Conn { .. } | Place::Lost => None,
        };
        match resumed {
            Some(delivery) => {
                self.leave(turn, key);
                lose(&peer, delivery, errno);
            }
            None if peer.ni.upcalls.forget_delayed(token) => drop(self.leave(turn, key)),
            None => {}
        }
    }

    /// A connection has ended, and with it what is held back on it.
    pub(crate) fn lose(&mut self, turn: Turn<'_, P>, ended: Key) {
        while let Some(&(_, key)) = self.by_conn.range((ended, Key(0))..).next().filter(|of| of.0 == ended) {
            self.fail(turn, key, Errno::ECONNRESET);
        }
    }

    /// An NI has ended, for which no upcall is made any more but that its messages are to be forgotten.
    pub(crate) fn end_ni(&mut self, turn: Turn<'_, P>, ni: &Arc<Ni<P>>) {
        for key in self.table.keys(|held| Arc::ptr_eq(&held.peer.ni, ni)) {
            self.fail(turn, key, Errno::ESHUTDOWN);
            self.leave(turn, key);
        }
    }

    fn leave(&mut self, turn: Turn<'_, P>, key: Key) -> Option<Held<P>> {
        let held = self.table.remove(key);
        if let Some(conn) = held.as_ref().and_then(|held| held.place.conn()) {
            self.by_conn.remove(&(conn, key));
        }
        self.tell_count(turn);
        held
    }

    fn tell_count(&self, turn: Turn<'_, P>) {
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
    let table = &mut driver.core().held;
    if let Some(Held { place: Place::Coming { resumed, .. }, .. }) = table.table.get_mut(key) {
        *resumed = Some(delivery);
        return;
    }
    // Its NI may be gone, and no upcall is made for that.
    let Some(Held { peer, place, .. }) = table.leave(turn, key) else { return };
    match place {
        Place::Conn { conn, what } => driver.resume(turn, conn, what, delivery),
        Place::Memory { counted, payload } => {
            count_out(turn, &peer, counted);
            // If nothing else is known of the peer, its entry goes.
            driver.core().timers.note_period(turn.now_ns);
            deliver(&peer, payload, delivery);
        }
        Place::Coming { .. } | Place::Lost => lose(&peer, delivery, Errno::ECONNRESET),
    }
}

/// Copies what is in memory to its place. Its bytes were counted when they came.
fn deliver<P: Protocol>(peer: &Peer<P>, payload: Option<ReadVec>, delivery: Option<Delivery>) {
    let Some(Delivery { token, sink }) = delivery else { return };
    if let (Some(mut sink), Some(payload)) = (sink, payload) {
        lnet_region::copy(&payload, &mut sink);
    }
    peer.ni.upcalls.finalize_rx(token, Ok(()));
}

fn lose<P: Protocol>(peer: &Peer<P>, delivery: Option<Delivery>, errno: Errno) {
    if let Some(Delivery { token, sink }) = delivery {
        drop(sink);
        peer.ni.upcalls.finalize_rx(token, Err(errno));
    }
}

/// Counts a message that is taken into memory; `None` if it is beyond a limit.
fn count_in<P: Protocol>(turn: Turn<'_, P>, peer: &Peer<P>, bytes: usize) -> Option<usize> {
    let HeldLimits { peer_kb, all_kb, .. } = turn.shared.config.held();
    let bytes = bytes + BOOKKEEPING_BYTES;
    let fits = |held: usize, most_kb: u32| Some(held + bytes).filter(|sum| *sum <= most_kb as usize * 1024);
    let mut state = peer.state.lock();
    let of_peer = fits(state.held_bytes, peer_kb)?;
    // One counter for all shards.
    let all = &turn.shared.held_bytes;
    all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| fits(held, all_kb)).ok()?;
    state.held_bytes = of_peer;
    Some(bytes)
}

/// It has left the memory.
fn count_out<P: Protocol>(turn: Turn<'_, P>, peer: &Peer<P>, bytes: usize) {
    turn.shared.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    peer.state.lock().held_bytes -= bytes;
}

/// A message for which there is no memory is dropped, if that is asked for.
fn drop_instead<P: Protocol>(turn: Turn<'_, P>, peer: &Peer<P>, token: RxToken) -> bool {
    let dropped = turn.shared.config.held().drop_beyond && peer.ni.upcalls.drop_delayed(token);
    if dropped {
        turn.shard.counters.rx.held_dropped().one();
    }
    dropped
}

/// Memory for a payload; `None` if there is none to be had.
fn sink_of(length: usize, memory: Memory) -> Option<Option<WriteVec>> {
    if length == 0 {
        return Some(None);
    }
    IoVec::whole(memory.region(length)?).write(0..length).ok().map(Some)
}
