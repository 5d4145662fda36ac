//! Pings and pushes to other nodes.

use std::sync::{Arc, OnceLock};

use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventHandler, EventKind, Get, LNet, LNetError, LndError, Md,
    MdHandle, MdOptions, Put, Sleeper, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::ping::PingInfo;
use lnet_proto::{PING_PORTAL, ProtoError};
use lnet_region::{IoVec, Region};
use parking_lot::Mutex;

use super::back::PushBacks;
use crate::Engine;
use crate::slab::{INDEX_BITS, Key, Slab, slab};

/// Maximum number of pings at a time. A tool pings one node, a program at its start some hundreds.
const PINGS_MAX: usize = 1024;

/// Maximum size of a sink: the longest ping info, with large NIDs throughout.
const SINK_BYTES_MAX: usize = 32 + 24 * lnet_proto::ping::NIS_MAX;

/// A ping in flight, see [`Engine::ping`]. Dropping it ends it.
#[must_use]
pub struct Ping {
    exchange: Exchange,
    needs: Option<usize>,
}

impl Ping {
    pub(crate) fn start(
        engine: Arc<Engine>,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        sink_bytes: usize,
    ) -> Result<Ping, LNetError> {
        let sink = IoVec::whole(Region::heap(sink_bytes.clamp(1, SINK_BYTES_MAX)).map_err(no_memory)?);
        let exchange = Exchange::new(engine, target, sleeper, sink)?;
        let (portal, match_bits, offset) = (PING_PORTAL, MatchBits::PING, 0);
        exchange.engine.get(&Get { source, md: exchange.md, target, portal, match_bits, offset })?;
        Ok(Ping { exchange, needs: None })
    }

    /// Returns the node's answer, or the error; `None` while neither has arrived. Further calls
    /// return the same.
    ///
    /// # Errors
    /// [`LNetError::Lnd`] with EPROTO for an answer that is no ping info or longer than the sink;
    /// with ETIMEDOUT if none arrived in the transaction timeout; otherwise the error of the
    /// network, such as EHOSTUNREACH or ECONNREFUSED.
    pub fn poll(&mut self) -> Option<Result<PingInfo, LNetError>> {
        Some(self.exchange.outcome("no answer")?.and_then(|length| self.parse(length as usize)))
    }

    /// Returns the length of the whole answer after one that was cut off, as far as its beginning
    /// contains it.
    #[must_use]
    pub fn needs(&self) -> Option<usize> {
        self.needs
    }

    fn parse(&mut self, length: usize) -> Result<PingInfo, LNetError> {
        let Exchange { memory: sink, .. } = &self.exchange;
        let in_use = |_| self.exchange.failure("the answer's buffer is in use", Errno::EBUSY);
        let answer = sink.read(0..length).map_err(in_use)?;
        let parsed = PingInfo::parse(answer.as_slice().unwrap_or(&[]));
        drop(answer);
        if let Err(ProtoError::Truncated { needed, .. }) = parsed {
            self.needs = (length == sink.len()).then_some(needed);
        }
        parsed.map_err(|error| self.exchange.failure(&format!("bad answer: {error}"), Errno::EPROTO))
    }
}

/// A PUT that waits for its ACK, see [`Engine::push`] and [`Engine::put_acknowledged`]. Dropping it
/// ends it.
#[must_use]
pub struct Push {
    exchange: Exchange,
    /// The target may push back; the wait for that starts with the outcome of this push.
    answered_by_push: bool,
}

impl Push {
    pub(crate) fn start(
        engine: Arc<Engine>,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        (portal, match_bits): (Portal, MatchBits),
        content: IoVec,
    ) -> Result<Push, LNetError> {
        let exchange = Exchange::new(engine, target, sleeper, content)?;
        let Exchange { engine, md, .. } = &exchange;
        let answered_by_push = portal == PING_PORTAL && !engine.is_local(target.nid);
        if answered_by_push {
            engine.pings().push_backs.push_started(target.nid, engine.common().now_ns());
        }
        let put =
            Put { source, md: *md, ack: AckRequest::Ack, target, portal, match_bits, offset: 0, hdr_data: 0 };
        if let Err(error) = engine.put(&put) {
            if answered_by_push {
                engine.pings().push_backs.failed(target.nid);
            }
            return Err(error);
        }
        Ok(Push { exchange, answered_by_push })
    }

    /// Returns the number of bytes that the node accepted, or the error; `None` while neither is
    /// known.
    ///
    /// # Errors
    /// The errors of [`Ping::poll`], except for EPROTO.
    pub fn poll(&mut self) -> Option<Result<u32, LNetError>> {
        let outcome = self.exchange.outcome("no acknowledgement")?;
        let Exchange { engine, target, .. } = &self.exchange;
        if std::mem::take(&mut self.answered_by_push) {
            match outcome {
                Ok(_) => engine.pings().push_backs.acknowledged(target.nid, engine.common().now_ns()),
                Err(_) => engine.pings().push_backs.failed(target.nid),
            }
        }
        Some(outcome)
    }
}

/// One message to portal 0 of another node, and its answer.
struct Exchange {
    engine: Arc<Engine>,
    slot: Key,
    md: MdHandle,
    target: ProcessId,
    memory: IoVec,
}

impl Exchange {
    /// Creates an exchange whose message is not sent yet. Dropping it removes its record and its
    /// MD.
    fn new(
        engine: Arc<Engine>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        memory: IoVec,
    ) -> Result<Exchange, LNetError> {
        let eq = engine.pings().eq(&engine)?;
        let slot = engine.pings().records.enter(sleeper)?;
        let md = Md {
            memory: memory.clone(),
            threshold: Threshold::Limited(2),
            max_size: 0,
            options: MdOptions::TRACK_RESPONSE,
            user_ptr: slot.to_bits(INDEX_BITS),
            eq: Some(eq),
        };
        match engine.md_bind(md, Unlink::Auto) {
            Ok(md) => Ok(Exchange { engine, slot, md, target, memory }),
            Err(error) => {
                engine.pings().records.forget(slot);
                Err(error)
            }
        }
    }

    fn outcome(&self, without: &str) -> Option<Result<u32, LNetError>> {
        let outcome = self.engine.pings().records.outcome(self.slot)?;
        Some(outcome.map_err(|errno| self.failure(without, errno)))
    }

    fn failure(&self, problem: &str, errno: Errno) -> LNetError {
        LndError { what: format!("ping of {}: {problem}", self.target.nid), errno }.into()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.engine.pings().records.forget(self.slot);
        // Fails if the MD has already ended.
        let _ = self.engine.md_unlink(self.md);
    }
}

fn no_memory<E>(_: E) -> LNetError {
    LNetError::TooMany { objects: "pings", limit: PINGS_MAX }
}

/// The engine's state of all pings and pushes: one event queue for them, and the peers that may
/// push back.
#[derive(Default)]
pub(crate) struct Pings {
    eq: OnceLock<EqHandle>,
    records: Arc<PingRecords>,
    push_backs: PushBacks,
}

impl Pings {
    /// Returns the peers to which this node has pushed.
    pub(crate) fn push_backs(&self) -> &PushBacks {
        &self.push_backs
    }

    fn eq(&self, engine: &Engine) -> Result<EqHandle, LNetError> {
        if let Some(&eq) = self.eq.get() {
            return Ok(eq);
        }
        let made = engine.eq_alloc(self.records.clone())?;
        let eq = *self.eq.get_or_init(|| made);
        if eq != made {
            // Another thread has stored its queue first; nothing uses this one.
            let _ = engine.eq_free(made);
        }
        Ok(eq)
    }
}

/// The records of the pings in use. A dropped ping has no record: its events find none.
struct PingRecords(Mutex<PingTable>);

struct PingTable {
    pings: Slab<PingRecord>,
    /// Sleepers to wake. The list has room for every ping, so it does not allocate.
    to_wake: Vec<Arc<Sleeper>>,
}

struct PingRecord {
    /// The thread to wake when the outcome is known; `None` once it is to be woken.
    sleeper: Option<Arc<Sleeper>>,
    /// The outcome: the length of the answer in bytes, or the error.
    outcome: Option<Result<u32, Errno>>,
}

impl Default for PingRecords {
    fn default() -> PingRecords {
        PingRecords(Mutex::new(PingTable { pings: slab(PINGS_MAX), to_wake: Vec::new() }))
    }
}

impl PingRecords {
    fn enter(&self, sleeper: Arc<Sleeper>) -> Result<Key, LNetError> {
        let table = &mut *self.0.lock();
        let room = table.pings.len() + 1;
        let key = match table.to_wake.try_reserve(room) {
            Ok(()) if table.pings.make_room() => {
                table.pings.insert(PingRecord { sleeper: Some(sleeper), outcome: None })
            }
            _ => None,
        };
        key.ok_or(LNetError::TooMany { objects: "pings", limit: PINGS_MAX })
    }

    fn outcome(&self, slot: Key) -> Option<Result<u32, Errno>> {
        self.0.lock().pings.get(slot)?.outcome
    }

    fn forget(&self, slot: Key) {
        // The record is dropped after the lock is released.
        let _record = self.0.lock().pings.remove(slot);
    }
}

impl EventHandler for PingRecords {
    fn event(&self, event: &Event) {
        let table = &mut *self.0.lock();
        let Some(record) = table.pings.get_mut(Key::from_bits(event.user_ptr, INDEX_BITS)) else { return };
        let outcome = match (event.kind, event.status) {
            (_, Err(errno)) => Err(errno),
            (EventKind::Reply | EventKind::Ack, Ok(())) => Ok(event.mlength),
            (_, Ok(())) if event.unlinked => Err(Errno::ECANCELED),
            _ => return,
        };
        if record.outcome.is_none() {
            record.outcome = Some(outcome);
            table.to_wake.extend(record.sleeper.take());
        }
    }

    fn wake(&self) {
        loop {
            let next = self.0.lock().to_wake.pop();
            match next {
                Some(sleeper) => sleeper.wake(),
                None => return,
            }
        }
    }
}
