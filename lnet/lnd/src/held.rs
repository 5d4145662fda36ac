//! Messages that the engine holds back: PUTs for which a lazy portal has no entry yet
//! (lnet-semantics 11).
//!
//! They wait without a time limit. Up to a [limit](HeldLimits) they are taken into memory, where
//! they block nothing. A message beyond the limit stays on its connection: over TCP the connection
//! is not read meanwhile, over verbs the message keeps its receive buffer and with it a credit of
//! the peer's; this node then sends the peer signs of life ([`crate::life`]). With `held_full=drop`
//! it is dropped instead.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{Errno, PayloadTarget, RxContext, RxToken};
use lnet_region::{IoVec, ReadVec, Region, WriteVec};

use crate::config::Config;
use crate::counting::CountsLife;
use crate::life::sign_period_ns;
use crate::protocol::Driver;
use crate::shard_table::{ShardKey, ShardTable};
use crate::{Ni, Peer, Protocol, Turn};

/// Bytes that a message in memory counts beside its payload: its state here and in the engine.
const BOOKKEEPING_BYTES: usize = 1024;

/// Memory shorter than this is not registered with a device.
const PAGE_BYTES: usize = 4096;

/// Limits for held messages in memory, for the LND of one kind of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLimits {
    /// Limit for one peer, in KiB; a message counts its memory and 1 KiB (`held_peer_kb`).
    pub peer_kb: u32,
    /// Limit for all peers together, in KiB (`held_kb`).
    pub all_kb: u32,
    /// True if a message beyond the limit is dropped and counted, instead of staying on its
    /// connection (`held_full=drop`).
    pub drop_beyond: bool,
}

impl Default for HeldLimits {
    /// Returns 2 MiB for a peer, enough for a message of the greatest length and many small ones;
    /// and 16 MiB for all, 8 such peers.
    fn default() -> HeldLimits {
        HeldLimits { peer_kb: 2048, all_kb: 16_384, drop_beyond: false }
    }
}

/// The held messages of a shard, by the keys that the engine has for them.
pub struct HeldTable<P: Protocol> {
    table: ShardTable<HeldMessage<P>>,
    /// The messages that end with a connection, as pairs of connection and message.
    by_conn: BTreeSet<(ShardKey, ShardKey)>,
    /// Time of the next keepalives to the peers whose messages stay on connections.
    sign_ns: Option<u64>,
}

struct HeldMessage<P: Protocol> {
    peer: Arc<Peer<P>>,
    token: RxToken,
    place: HeldPlace<P>,
}

/// Location of a held message.
enum HeldPlace<P: Protocol> {
    /// The message is on its connection.
    Conn { conn: ShardKey, message: P::Held },
    /// The message is on the way from its connection into memory; the engine may already have
    /// resumed it.
    Coming { conn: ShardKey, counted: usize, resumed: Option<Option<PayloadTarget>> },
    /// The message is in memory, and survives the end of its connection.
    Memory { counted: usize, payload: Option<ReadVec> },
    /// The message was lost before the engine resumed it. The engine gets the error when it does
    /// so.
    Lost,
}

impl<P: Protocol> HeldPlace<P> {
    /// Returns the connection whose end also ends the message.
    fn conn(&self) -> Option<ShardKey> {
        match self {
            HeldPlace::Conn { conn, .. } | HeldPlace::Coming { conn, .. } => Some(*conn),
            HeldPlace::Memory { .. } | HeldPlace::Lost => None,
        }
    }
}

/// The kind of memory in which a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldMemory {
    /// Heap memory of the payload's length.
    Heap,
    /// Whole pages, which a device can write to.
    Pages,
}

impl HeldMemory {
    /// Returns the number of bytes that a payload occupies.
    const fn bytes(self, length: usize) -> usize {
        match self {
            HeldMemory::Heap => length,
            HeldMemory::Pages => length.next_multiple_of(PAGE_BYTES),
        }
    }

    fn region(self, length: usize) -> Option<Region> {
        match self {
            HeldMemory::Heap => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(length).ok()?;
                bytes.resize(length, 0);
                Region::from_vec(bytes).ok()
            }
            HeldMemory::Pages => Region::pages(self.bytes(length)).ok(),
        }
    }
}

/// The result of [`HeldTable::admit`].
pub enum HoldDecision {
    /// The payload goes into this memory (none for an empty payload); [`HeldTable::came`] reports
    /// its arrival.
    Memory(ShardKey, Option<WriteVec>),
    /// The message stays on its connection: [`HeldTable::keep`] records it.
    Conn,
    /// The message is dropped, and its payload is to be discarded.
    Dropped,
}

impl<P: Protocol> HeldTable<P> {
    /// Makes an empty table for the shard with this number, which is below
    /// [`MAX_SHARDS`](lnet_api::MAX_SHARDS).
    pub(crate) fn new(shard: usize) -> HeldTable<P> {
        HeldTable { table: ShardTable::new(shard as u8), by_conn: BTreeSet::new(), sign_ns: None }
    }

    /// Returns the key of the next held message. The engine gets it with each message that it may
    /// hold back: another thread may resume the message before the driver has recorded that it is
    /// held.
    pub fn next(&self) -> RxContext {
        RxContext(self.table.next_key().0)
    }

    /// Admits a message of this connection that the engine holds back; the engine got the
    /// [next](HeldTable::next) key for it. `length` is the payload's length, for which `memory`
    /// makes a region.
    pub fn admit(
        &mut self,
        turn: Turn<'_, P>,
        (peer, conn): (&Arc<Peer<P>>, ShardKey),
        token: RxToken,
        length: usize,
        memory: HeldMemory,
    ) -> HoldDecision {
        if let Some(counted) = count_in(turn, peer, memory.bytes(length)) {
            if let Some(sink) = sink_of(length, memory) {
                let place = HeldPlace::Coming { conn, counted, resumed: None };
                let key = self.enter(turn, peer, token, place);
                return HoldDecision::Memory(key, sink);
            }
            count_out(turn, peer, counted);
        }
        if drop_instead(turn, peer, token) { HoldDecision::Dropped } else { HoldDecision::Conn }
    }

    /// Records a message that stays on its connection.
    pub fn keep(
        &mut self,
        turn: Turn<'_, P>,
        (peer, conn): (&Arc<Peer<P>>, ShardKey),
        token: RxToken,
        message: P::Held,
    ) {
        self.note_sign(turn.now_ns, peer);
        self.enter(turn, peer, token, HeldPlace::Conn { conn, message });
    }

    /// Returns the time at which signs of life are due next; `None` if no message is held on a
    /// connection.
    pub(crate) const fn sign_ns(&self) -> Option<u64> {
        self.sign_ns
    }

    fn note_sign(&mut self, now_ns: u64, peer: &Peer<P>) {
        let at_ns = now_ns.saturating_add(sign_period_ns(peer.ni.timeout_ns));
        self.sign_ns = Some(self.sign_ns.map_or(at_ns, |sign_ns| sign_ns.min(at_ns)));
    }

    /// Appends the peers to which a sign of life is due now, because their messages are held on
    /// connections, each once.
    pub(crate) fn take_signs(&mut self, now_ns: u64, peers: &mut Vec<Arc<Peer<P>>>) {
        if self.sign_ns.take_if(|sign_ns| *sign_ns <= now_ns).is_none() {
            return;
        }
        for (_, key) in &self.by_conn {
            if let Some(HeldMessage { peer, place: HeldPlace::Conn { .. }, .. }) = self.table.get(*key) {
                peers.push(peer.clone());
            }
        }
        peers.sort_unstable_by_key(|peer| peer.key);
        peers.dedup_by(|other, peer| Arc::ptr_eq(other, peer));
        for peer in &*peers {
            self.note_sign(now_ns, peer);
        }
    }

    /// Records that the payload of a message that was just admitted cannot be taken into memory.
    /// Returns `true` if the message stays on its connection, `false` if it is dropped.
    pub fn stay(&mut self, turn: Turn<'_, P>, key: ShardKey, message: P::Held) -> bool {
        let Some(HeldMessage { peer, token, place }) = self.table.get_mut(key) else { return false };
        let HeldPlace::Coming { conn, counted, .. } = *place else { return false };
        count_out(turn, peer, counted);
        if drop_instead(turn, peer, *token) {
            self.leave(turn, key);
            return false;
        }
        *place = HeldPlace::Conn { conn, message };
        let peer = peer.clone();
        self.note_sign(turn.now_ns, &peer);
        true
    }

    fn enter(
        &mut self,
        turn: Turn<'_, P>,
        peer: &Arc<Peer<P>>,
        token: RxToken,
        place: HeldPlace<P>,
    ) -> ShardKey {
        let conn = place.conn();
        let key = self.table.insert(HeldMessage { peer: peer.clone(), token, place });
        self.by_conn.extend(conn.map(|conn| (conn, key)));
        self.publish_count(turn);
        key
    }

    /// Records that the payload of a message is in memory.
    pub fn came(&mut self, turn: Turn<'_, P>, key: ShardKey, payload: Option<ReadVec>) {
        // The entry may have been removed with its NI.
        let Some(HeldMessage { peer, place, .. }) = self.table.get_mut(key) else { return };
        let HeldPlace::Coming { conn, counted, resumed } = place else { return };
        let counted = *counted;
        turn.shard.counters.rx.held_in_memory().one();
        self.by_conn.remove(&(*conn, key));
        match resumed.take() {
            None => *place = HeldPlace::Memory { counted, payload },
            Some(delivery) => {
                let peer = peer.clone();
                self.leave(turn, key);
                count_out(turn, &peer, counted);
                deliver(&peer, payload, delivery);
            }
        }
    }

    /// Handles the failure to take a payload into memory, or the loss of a message with its
    /// connection.
    pub fn fail(&mut self, turn: Turn<'_, P>, key: ShardKey, errno: Errno) {
        let Some(HeldMessage { peer, token, place }) = self.table.get_mut(key) else { return };
        let (peer, token) = (peer.clone(), *token);
        if !matches!(place, HeldPlace::Lost) {
            turn.shard.counters.rx.held_lost().one();
        }
        if let Some(conn) = place.conn() {
            self.by_conn.remove(&(conn, key));
        }
        let resumed = match std::mem::replace(place, HeldPlace::Lost) {
            HeldPlace::Coming { counted, resumed, .. } => {
                count_out(turn, &peer, counted);
                resumed
            }
            HeldPlace::Memory { counted, .. } => {
                count_out(turn, &peer, counted);
                None
            }
            HeldPlace::Conn { .. } | HeldPlace::Lost => None,
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

    /// Fails the messages held on a connection that has ended.
    pub(crate) fn lose(&mut self, turn: Turn<'_, P>, ended: ShardKey) {
        while let Some(&(_, key)) =
            self.by_conn.range((ended, ShardKey(0))..).next().filter(|of| of.0 == ended)
        {
            self.fail(turn, key, Errno::ECONNRESET);
        }
    }

    /// Fails and removes the messages of an NI that has ended. The only upcall made for it is that
    /// its messages are forgotten.
    pub(crate) fn end_ni(&mut self, turn: Turn<'_, P>, ni: &Arc<Ni<P>>) {
        for key in self.table.keys(|held| Arc::ptr_eq(&held.peer.ni, ni)) {
            self.fail(turn, key, Errno::ESHUTDOWN);
            self.leave(turn, key);
        }
    }

    fn leave(&mut self, turn: Turn<'_, P>, key: ShardKey) -> Option<HeldMessage<P>> {
        let held = self.table.remove(key);
        if let Some(conn) = held.as_ref().and_then(|held| held.place.conn()) {
            self.by_conn.remove(&(conn, key));
        }
        self.publish_count(turn);
        held
    }

    fn publish_count(&self, turn: Turn<'_, P>) {
        turn.shard.held.store(self.table.len(), Ordering::Relaxed);
    }
}

/// Continues with a message that the engine has held back, or discards it.
pub(crate) fn resume<P: Protocol>(
    driver: &mut P::Driver,
    turn: Turn<'_, P>,
    key: ShardKey,
    delivery: Option<PayloadTarget>,
) {
    let table = &mut driver.core().held;
    if let Some(HeldMessage { place: HeldPlace::Coming { resumed, .. }, .. }) = table.table.get_mut(key) {
        *resumed = Some(delivery);
        return;
    }
    // The entry may have been removed with its NI, which makes no upcall.
    let Some(HeldMessage { peer, place, .. }) = table.leave(turn, key) else { return };
    match place {
        HeldPlace::Conn { conn, message } => driver.resume(turn, conn, message, delivery),
        HeldPlace::Memory { counted, payload } => {
            count_out(turn, &peer, counted);
            // The peer's entry is removed if it holds nothing else.
            driver.core().timers.note_period(turn.now_ns);
            deliver(&peer, payload, delivery);
        }
        HeldPlace::Coming { .. } | HeldPlace::Lost => lose(&peer, delivery, Errno::ECONNRESET),
    }
}

/// Copies a payload from memory into its sink. Its bytes were counted when they arrived.
fn deliver<P: Protocol>(peer: &Peer<P>, payload: Option<ReadVec>, delivery: Option<PayloadTarget>) {
    let Some(PayloadTarget { token, sink }) = delivery else { return };
    if let (Some(mut sink), Some(payload)) = (sink, payload) {
        lnet_region::copy(&payload, &mut sink);
    }
    peer.ni.upcalls.finalize_rx(token, Ok(()));
}

fn lose<P: Protocol>(peer: &Peer<P>, delivery: Option<PayloadTarget>, errno: Errno) {
    if let Some(PayloadTarget { token, sink }) = delivery {
        drop(sink);
        peer.ni.upcalls.finalize_rx(token, Err(errno));
    }
}

/// Counts the bytes of a message that is taken into memory; `None` if that exceeds a limit.
fn count_in<P: Protocol>(turn: Turn<'_, P>, peer: &Peer<P>, bytes: usize) -> Option<usize> {
    let HeldLimits { peer_kb, all_kb, .. } = turn.shared.config.held();
    let bytes = bytes + BOOKKEEPING_BYTES;
    let fits = |held: usize, most_kb: u32| Some(held + bytes).filter(|sum| *sum <= most_kb as usize * 1024);
    let mut state = peer.state.lock();
    let of_peer = fits(state.held_bytes, peer_kb)?;
    // One counter serves all shards.
    let all = &turn.shared.held_bytes;
    all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| fits(held, all_kb)).ok()?;
    state.held_bytes = of_peer;
    Some(bytes)
}

/// Subtracts the bytes of a message that has left memory.
fn count_out<P: Protocol>(turn: Turn<'_, P>, peer: &Peer<P>, bytes: usize) {
    turn.shared.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    peer.state.lock().held_bytes -= bytes;
}

/// Drops a message for which there is no memory, if `held_full=drop`; returns whether it did.
fn drop_instead<P: Protocol>(turn: Turn<'_, P>, peer: &Peer<P>, token: RxToken) -> bool {
    let dropped = turn.shared.config.held().drop_beyond && peer.ni.upcalls.drop_delayed(token);
    if dropped {
        turn.shard.counters.rx.held_dropped().one();
    }
    dropped
}

/// Allocates memory for a payload; `None` if the allocation fails.
fn sink_of(length: usize, memory: HeldMemory) -> Option<Option<WriteVec>> {
    if length == 0 {
        return Some(None);
    }
    IoVec::whole(memory.region(length)?).write(0..length).ok().map(Some)
}
