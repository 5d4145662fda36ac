//! Answers to pings, and reception of pushes.

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

/// Bytes that are kept of one push: 255 NIDs. A longer list is cut off, and ignored.
const PUSH_BYTES: u32 = 4096;

/// Buffers for pushes: while the content of one is read, the other receives. If both are full,
/// pushes are acknowledged and their content is lost: they block no connection, and their node is
/// known by the NID that it uses.
const PUSH_BUFFERS: usize = 2;

/// Size of a buffer: room for 16 pushes of the longest kind, or several hundred of the usual kind.
const PUSH_BUFFER_BYTES: usize = 16 * PUSH_BYTES as usize;

/// Pushes into one buffer before its content is read: bounds the number of pushes to remember.
const PUSHES_PER_BUFFER: u32 = 64;

/// The node's services on portal 0.
pub(crate) struct PingTarget {
    engine: Weak<Engine>,
    published: Mutex<Published>,
}

/// The entry of the current ping info, and its sequence number.
#[derive(Default)]
struct Published {
    sequence: u32,
    me: Option<MeHandle>,
}

impl PingTarget {
    pub(crate) fn new(engine: Weak<Engine>) -> PingTarget {
        PingTarget { engine, published: Mutex::default() }
    }

    /// Posts the ping info and the buffers for pushes. The node is new, so its tables have room.
    pub(crate) fn start(&self, engine: &Engine) {
        self.publish(engine);
        if let Err(error) = self.take_pushes(engine) {
            // Without the buffers, pushes are acknowledged and their content is ignored.
            tracing::error!(%error, "no memory for the buffers of pushes: pushes are acknowledged, but their NIDs are ignored");
        }
    }

    fn take_pushes(&self, engine: &Engine) -> Result<(), LNetError> {
        let pushes = Arc::new(Pushes::new(self.engine.clone())?);
        let eq = engine.eq_alloc(pushes.clone())?;
        pushes.start(engine, eq);
        Ok(())
    }

    /// Returns the content of a push: this node's NIs, with the last published sequence number.
    pub(crate) fn push_content(&self, engine: &Engine) -> Result<IoVec, LNetError> {
        let sequence = self.published.lock().sequence;
        bytes_of(&ping_info(engine, sequence)?)
    }

    /// Posts the present list of NIs under a new sequence number. The new entry is posted before
    /// the old one is unlinked, so that no ping in between finds none. Pending answers with the old
    /// list are not cancelled, as nothing would repeat them.
    pub(crate) fn publish(&self, engine: &Engine) {
        let mut published = self.published.lock();
        published.sequence += 1;
        let info = ping_info(engine, published.sequence);
        match info.and_then(|info| post(engine, &info)) {
            Ok(me) => {
                if let Some(old) = published.me.replace(me) {
                    // Only this function knows the handle, so the entry exists until it is unlinked
                    // here.
                    let _ = engine.unlink_entry(old, true);
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot publish the new list of NIs: pings get the previous one")
            }
        }
    }
}

/// Returns this node's ping info: it takes part in discovery, and does not route (lnet-wire 19,
/// level B).
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

/// Returns the bytes of a ping info.
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
    /// Index of the buffer in which the push lies.
    buffer: usize,
    offset: usize,
    length: usize,
    /// True if nothing of the push was cut off or lost.
    complete: bool,
    /// The source NID in the push's header.
    source: Nid,
    /// The NID over whose connection the push arrived.
    sender: Nid,
    /// True for the last push of the buffer.
    last: bool,
}

/// Handler of pushes: records them as they arrive, reads them after the lock is released, and posts
/// the buffers again.
struct Pushes {
    engine: Weak<Engine>,
    buffers: SmallVec<[IoVec; PUSH_BUFFERS]>,
    /// Queue of the pushes to read; it has room for all pushes that the buffers can take.
    arrived: Mutex<VecDeque<Push>>,
    /// Held by the one thread that reads the pushes. Their order matters: a buffer is posted again
    /// after its last push.
    reading: Mutex<()>,
    /// Rate limits of the changes by pushes; used by the thread that reads.
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
            tracing::error!(%error, "cannot post a buffer for pushes again: fewer pushes can arrive at a time");
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
        engine.pings().push_backs().pushed_back(|nid| nid == push.source || nis().any(|ni| ni.nid == nid));
        if let Some(info) = &info {
            learn(engine, push, info, &self.rates);
        }
        if push.last {
            self.repost(engine, push.buffer);
        }
    }

    /// Returns the content of a push; `None` if it is cut off, or no ping info (lnet-wire 17).
    fn content(&self, push: &Push) -> Option<PingInfo> {
        if !push.complete || push.length == 0 {
            return None;
        }
        let bytes = self.buffers[push.buffer].read(push.offset..push.offset + push.length).ok()?;
        bytes.as_slice().and_then(|bytes| PingInfo::parse(bytes).ok())
    }
}

/// Stores the NIDs of a node that announces itself as one peer.
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
        // Posting a buffer may cause the next push, and with it a nested call of this method on
        // this thread: the nested call leaves the push to the outer one.
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
