//! Asking a node who it is.

use std::sync::{Arc, OnceLock};

use lnet_api::{
    EqHandle, Errno, Event, EventHandler, EventKind, Get, LNet, LNetError, LndError, Md, MdHandle, MdOptions,
    Sleeper, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::PING_PORTAL;
use lnet_proto::ping::PingInfo;
use lnet_region::{IoVec, Region};
use parking_lot::Mutex;

use crate::Engine;
use crate::slab::{Key, Slab};

/// The most pings at a time. A tool pings one node, a program at its start some hundreds.
const PINGS_MAX: usize = 1024;

/// Bytes asked for: as many as user space's ping buffers have (lnet-wire 15), enough for 255 NIDs.
const SINK_BYTES: usize = 4096;

const _: () = assert!(SINK_BYTES as u32 >= lnet_proto::ping::SINK_LENGTH_MIN);

/// A ping under way, see [`Engine::ping`]. Dropping it ends it.
#[must_use]
pub struct Ping {
    engine: Arc<Engine>,
    slot: Key,
    md: MdHandle,
    target: ProcessId,
    sink: IoVec,
}

impl Ping {
    pub(crate) fn start(
        engine: Arc<Engine>,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<dyn Sleeper>,
    ) -> Result<Ping, LNetError> {
        let no_memory = |_| LNetError::TooMany { objects: "pings", limit: PINGS_MAX };
        let sink = IoVec::whole(Region::heap(SINK_BYTES).map_err(no_memory)?);
        let eq = engine.pings().eq(&engine)?;
        let slot = engine.pings().records.enter(sleeper)?;
        let md = Md {
            memory: sink.clone(),
            threshold: Threshold::Limited(2),
            max_size: 0,
            options: MdOptions::TRACK_RESPONSE,
            user_ptr: slot.to_bits(),
            eq: Some(eq),
        };
        let md = match engine.md_bind(md, Unlink::Auto) {
            Ok(md) => md,
            Err(error) => {
                engine.pings().records.forget(slot);
                return Err(error);
            }
        };
        // From here on dropping the ping tidies up.
        let ping = Ping { engine, slot, md, target, sink };
        let (portal, match_bits, offset) = (PING_PORTAL, MatchBits::PING, 0);
        ping.engine.get(&Get { source, md, target, portal, match_bits, offset })?;
        Ok(ping)
    }

    /// What the node answered, or why there is no answer; `None` as long as neither is known. Asked again, it says the
    /// same.
    ///
    /// # Errors
    /// [`LNetError::Lnd`] with EPROTO for an answer that is no ping info or longer than 4 KiB; with ETIMEDOUT if none came
    /// in the transaction timeout; with EHOSTUNREACH, ECONNREFUSED or whatever else the network reported.
    pub fn poll(&mut self) -> Option<Result<PingInfo, LNetError>> {
        let outcome = self.engine.pings().records.outcome(self.slot)?;
        Some(match outcome {
            Ok(length) => self.parse(length),
            Err(errno) => Err(self.failure("no answer", errno)),
        })
    }

    fn parse(&self, length: u32) -> Result<PingInfo, LNetError> {
        let in_use = |_| self.failure("the answer's buffer is in use", Errno::EBUSY);
        let answer = self.sink.read(0..length as usize).map_err(in_use)?;
        let bytes = answer.as_slice().unwrap_or(&[]);
        PingInfo::parse(bytes).map_err(|error| self.failure(&format!("bad answer: {error}"), Errno::EPROTO))
    }

    fn failure(&self, what: &str, errno: Errno) -> LNetError {
        LndError { what: format!("ping of {}: {what}", self.target.nid), errno }.into()
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        self.engine.pings().records.forget(self.slot);
        // It may have ended already, which is as good.
        let _ = self.engine.md_unlink(self.md);
    }
}

/// The engine's side of all pings: one event queue for them.
#[derive(Default)]
pub(crate) struct PingSource {
    eq: OnceLock<EqHandle>,
    records: Arc<Records>,
}

impl PingSource {
    fn eq(&self, engine: &Engine) -> Result<EqHandle, LNetError> {
        if let Some(&eq) = self.eq.get() {
            return Ok(eq);
        }
        let made = engine.eq_alloc(self.records.clone())?;
        let eq = *self.eq.get_or_init(|| made);
        if eq != made {
            // Another thread was faster; nothing uses this one.
            let _ = engine.eq_free(made);
        }
        Ok(eq)
    }
}

/// The pings that somebody still waits for. Those given up have no record: their events name none.
struct Records(Mutex<Inner>);

struct Inner {
    pings: Slab<Record>,
    /// Whom to wake; has room for every ping.
    to_wake: Vec<Arc<dyn Sleeper>>,
}

struct Record {
    /// Until it is to be woken.
    sleeper: Option<Arc<dyn Sleeper>>,
    /// Bytes of the answer.
    outcome: Option<Result<u32, Errno>>,
}

impl Default for Records {
    fn default() -> Records {
        Records(Mutex::new(Inner { pings: Slab::new(PINGS_MAX), to_wake: Vec::new() }))
    }
}

impl Records {
    fn enter(&self, sleeper: Arc<dyn Sleeper>) -> Result<Key, LNetError> {
        let inner = &mut *self.0.lock();
        let room = inner.pings.len() + 1;
        let key = match inner.to_wake.try_reserve(room) {
            Ok(()) if inner.pings.reserve() => {
                inner.pings.insert(Record { sleeper: Some(sleeper), outcome: None })
            }
            _ => None,
        };
        key.ok_or(LNetError::TooMany { objects: "pings", limit: PINGS_MAX })
    }

    fn outcome(&self, slot: Key) -> Option<Result<u32, Errno>> {
        self.0.lock().pings.get(slot)?.outcome
    }

    fn forget(&self, slot: Key) {
        // The record is dropped after the lock.
        let _record = self.0.lock().pings.remove(slot);
    }
}

impl EventHandler for Records {
    fn event(&self, event: &Event) {
        let inner = &mut *self.0.lock();
        let Some(record) = inner.pings.get_mut(Key::from_bits(event.user_ptr)) else { return };
        let outcome = match (event.kind, event.status) {
            (_, Err(errno)) => Err(errno),
            (EventKind::Reply, Ok(())) => Ok(event.mlength),
            (_, Ok(())) if event.unlinked => Err(Errno::ECANCELED),
            _ => return,
        };
        if record.outcome.is_none() {
            record.outcome = Some(outcome);
            inner.to_wake.extend(record.sleeper.take());
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
