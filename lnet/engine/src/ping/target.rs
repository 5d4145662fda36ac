//! Answering pings, and taking pushes.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lnet_api::{
    EqHandle, Event, EventHandler, EventKind, LNet, LNetError, Md, MdHandle, MdOptions, MeHandle, MeSpec,
    Position, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Nid};
use lnet_proto::PING_PORTAL;
use lnet_proto::ping::{Features, PingInfo};
use lnet_region::{IoVec, Region};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::rate::PushRates;
use crate::Engine;
use crate::net::PushedNids;

/// Bytes kept of one push: 255 NIDs. The rest of a longer list is cut off, and such a list is not believed.
const PUSH_BYTES: u32 = 4096;

/// Buffers for pushes: while the content of one is read, the other takes what comes. If both are full, pushes are
/// acknowledged and their content is lost: it holds up no connection, and their node is known by the NID it uses.
const PUSH_BUFFERS: usize = 2;

/// Bytes of a buffer: room for 16 pushes of the longest kind, or several hundred of the usual kind.
const PUSH_BUFFER_BYTES: usize = 16 * PUSH_BYTES as usize;

/// Pushes into one buffer before its content is read: bounds what is remembered of those that have arrived.
const PUSHES_PER_BUFFER: u32 = 64;

/// The node's services on portal 0.
pub(crate) struct PingTarget {
    engine: Weak<Engine>,
    published: Mutex<Published>,
}

/// The ping info that is posted, and its number.
#[derive(Default)]
struct Published {
    sequence: u32,
    me: Option<MeHandle>,
}

impl PingTarget {
    pub(crate) fn new(engine: Weak<Engine>) -> PingTarget {
        PingTarget { engine, published: Mutex::default() }
    }

    /// Posts everything for the first time. The node is new, so its tables have room.
    pub(crate) fn start(&self, engine: &Engine) {
        self.publish(engine);
        if let Err(error) = self.take_pushes(engine) {
            // They find no buffer then, and are acknowledged.
            tracing::error!(%error, "no memory for pushes: what they tell is lost");
        }
    }

    fn take_pushes(&self, engine: &Engine) -> Result<(), LNetError> {
        let pushes = Arc::new(Pushes::new(self.engine.clone())?);
        let eq = engine.eq_alloc(pushes.clone())?;
        pushes.start(engine, eq);
        Ok(())
    }

    /// What a push tells of this node: its list of NIs under the number that was last published.
    pub(crate) fn push_content(&self, engine: &Engine) -> Result<IoVec, LNetError> {
        let sequence = self.published.lock().sequence;
        bytes_of(&ping_info(engine, sequence)?)
    }

    /// Posts the list of NIs as it is now, under a new sequence number. The new one is posted before the old one goes, so
    /// that no ping in between finds nothing; and answers with the old one that have not left yet still do, for nobody
    /// sends them again.
    pub(crate) fn publish(&self, engine: &Engine) {
        let mut published = self.published.lock();
        published.sequence += 1;
        let info = ping_info(engine, published.sequence);
        match info.and_then(|info| post(engine, &info)) {
            Ok(me) => {
                if let Some(old) = published.me.replace(me) {
                    // Nobody else knows the handle, and the entry stays until it is unlinked here.
                    let _ = engine.unlink_entry(old, true);
                }
            }
            Err(error) => tracing::error!(%error, "pings get an outdated list of NIs"),
        }
    }
}

/// What this node is: it takes part in discovery, and does not forward (lnet-wire 19, level B).
fn ping_info(engine: &Engine, sequence: u32) -> Result<PingInfo, LNetError> {
    let nis = engine.published_nis().map_err(no_memory)?;
    let mut features =
        Features::NI_STATUS | Features::RTE_DISABLED | Features::MULTI_RAIL | Features::DISCOVERY;
    if nis.iter().any(|ni| !ni.nid.is_nid4()) {
        features |= Features::LARGE_ADDR;
    }
    if nis.first().is_some_and(|ni| !ni.nid.is_nid4()) {
        features |= Features::PRIMARY_LARGE;
    }
    Ok(PingInfo { features, pid: engine.common().config.pid, sequence, nis })
}

/// The bytes of a ping info.
fn bytes_of(info: &PingInfo) -> Result<IoVec, LNetError> {
    let memory = IoVec::whole(Region::heap(info.encoded_len()).map_err(no_memory)?);
    let mut lease = memory.write(0..memory.len()).map_err(no_memory)?;
    if let Some(bytes) = lease.as_mut_slice() {
        let emitted = info.emit(bytes);
        debug_assert!(emitted.is_ok(), "a list of {} NIs has a valid ping info", info.nis.len());
    }
    drop(lease);
    Ok(memory)
}

fn post(engine: &Engine, info: &PingInfo) -> Result<MeHandle, LNetError> {
    let memory = bytes_of(info)?;
    let me = engine.me_attach(&spec(Unlink::Retain, Position::Before))?;
    let md = Md {
        memory,
        threshold: Threshold::Infinite,
        max_size: 0,
        options: MdOptions::OP_GET | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq: None,
    };
    engine.md_attach(me, md, Unlink::Retain)?;
    Ok(me)
}

fn spec(unlink: Unlink, position: Position) -> MeSpec {
    MeSpec { unlink, position, ..MeSpec::new(PING_PORTAL, MatchBits::PING) }
}

fn no_memory<E>(_: E) -> LNetError {
    LNetError::TooMany { objects: "ping buffers", limit: PUSH_BUFFERS + 1 }
}

/// A push that has arrived.
#[derive(Debug, Clone, Copy)]
struct Push {
    /// Which buffer it lies in.
    buffer: usize,
    offset: usize,
    length: usize,
    /// Nothing of it was cut off or lost.
    complete: bool,
    /// Whom it says it is from.
    source: Nid,
    /// Over whose connection it came.
    sender: Nid,
    /// The buffer took its last push.
    last: bool,
}

/// Takes pushes: notes them as they come, reads them when the lock is released, and posts the buffers anew.
struct Pushes {
    engine: Weak<Engine>,
    buffers: SmallVec<[IoVec; PUSH_BUFFERS]>,
    /// Has room for all that the buffers can take.
    arrived: Mutex<VecDeque<Push>>,
    /// Held by the one thread that reads them. Their order matters: a buffer is posted again after its last push.
    reading: Mutex<()>,
    /// What they may change; used by that thread.
    rates: Mutex<PushRates>,
    eq: Mutex<Option<EqHandle>>,
}

impl Pushes {
    fn new(engine: Weak<Engine>) -> Result<Pushes, LNetError> {
        let mut arrived = VecDeque::new();
        arrived.try_reserve_exact(PUSH_BUFFERS * PUSHES_PER_BUFFER as usize).map_err(no_memory)?;
        let mut buffers = SmallVec::new();
        for _ in 0..PUSH_BUFFERS {
            buffers.push(IoVec::whole(Region::heap(PUSH_BUFFER_BYTES).map_err(no_memory)?));
        }
        let (arrived, reading, eq) = (Mutex::new(arrived), Mutex::new(()), Mutex::new(None));
        let rates = Mutex::new(PushRates::new());
        Ok(Pushes { engine, buffers, arrived, reading, rates, eq })
    }

    fn start(&self, engine: &Engine, eq: EqHandle) {
        *self.eq.lock() = Some(eq);
        for buffer in 0..PUSH_BUFFERS {
            self.repost(engine, buffer);
        }
    }

    fn repost(&self, engine: &Engine, buffer: usize) {
        if let Err(error) = self.try_repost(engine, buffer) {
            tracing::error!(%error, "a buffer for pushes is lost");
        }
    }

    fn try_repost(&self, engine: &Engine, buffer: usize) -> Result<MdHandle, LNetError> {
        let me = engine.me_attach(&spec(Unlink::Auto, Position::After))?;
        let md = Md {
            memory: self.buffers[buffer].clone(),
            threshold: Threshold::Limited(PUSHES_PER_BUFFER),
            max_size: PUSH_BYTES,
            options: MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::MAX_SIZE,
            user_ptr: buffer as u64,
            eq: *self.eq.lock(),
        };
        engine.md_attach(me, md, Unlink::Auto)
    }

    fn take(&self, engine: &Engine, push: &Push) {
        let info = self.content(push);
        let nis = || info.iter().flat_map(|info| &info.nis);
        engine.pings().push_backs().heard(|nid| nid == push.source || nis().any(|ni| ni.nid == nid));
        if let Some(info) = &info {
            learn(engine, push, info, &self.rates);
        }
        if push.last {
            self.repost(engine, push.buffer);
        }
    }

    /// What a push says; `None` if it is cut off, or no ping info (lnet-wire 17).
    fn content(&self, push: &Push) -> Option<PingInfo> {
        if !push.complete || push.length == 0 {
            return None;
        }
        let bytes = self.buffers[push.buffer].read(push.offset..push.offset + push.length).ok()?;
        bytes.as_slice().and_then(|bytes| PingInfo::parse(bytes).ok())
    }
}

/// Has the node remember the NIDs of a node that calls itself one peer.
fn learn(engine: &Engine, push: &Push, info: &PingInfo, rates: &Mutex<PushRates>) {
    let Some(primary) = info.primary().filter(|_| info.features.contains(Features::MULTI_RAIL)) else {
        return;
    };
    let nids = std::iter::once(primary).chain(info.nis.iter().map(|ni| ni.nid));
    let pushed = PushedNids::new(push.source, push.sender, nids);
    engine.learn(&pushed, |address| rates.lock().admit(address, engine.common().now_ns()));
}

impl EventHandler for Pushes {
    fn event(&self, event: &Event) {
        if event.kind != EventKind::Put {
            return;
        }
        self.arrived.lock().push_back(Push {
            buffer: (event.user_ptr as usize).min(PUSH_BUFFERS - 1),
            offset: event.offset as usize,
            length: event.mlength as usize,
            complete: event.status.is_ok() && event.mlength == event.rlength,
            source: event.source.nid,
            sender: event.sender,
            last: event.unlinked,
        });
    }

    fn wake(&self) {
        let Some(engine) = self.engine.upgrade() else { return };
        // Posting a buffer may bring the next push, and with it another call of this method on this very thread: it
        // leaves the work to the one that is reading.
        while !self.arrived.lock().is_empty() {
            let Some(_reading) = self.reading.try_lock() else { return };
            loop {
                let next = self.arrived.lock().pop_front();
                match next {
                    Some(push) => self.take(&engine, &push),
                    None => break,
                }
            }
        }
    }
}
