//! A scripted LNet: it records what it is asked, makes any call fail, completes operations inside the call that started
//! them, and injects events in any order (S-7, S-417).

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{
    Clock, Distance, Drive, EqHandle, Errno, Event, EventHandler, EventKind, Get, LNet, LNetError, LndError,
    Md, MdHandle, MeHandle, MeSpec, Poll, Polled, Put, Tokens, Unlink,
};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use parking_lot::Mutex;

/// The calls of LNet, without their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    EqAlloc,
    EqFree,
    MeAttach,
    MdAttach,
    MdBind,
    MdUnlink,
    Put,
    Get,
}

/// A call as it was made.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    EqAlloc,
    EqFree(EqHandle),
    MeAttach(MeSpec),
    MdAttach(Md),
    MdBind(Md),
    MdUnlink(MdHandle),
    Put(Put),
    Get(Get),
}

impl Call {
    pub(crate) fn kind(&self) -> CallKind {
        match self {
            Call::EqAlloc => CallKind::EqAlloc,
            Call::EqFree(_) => CallKind::EqFree,
            Call::MeAttach(_) => CallKind::MeAttach,
            Call::MdAttach(_) => CallKind::MdAttach,
            Call::MdBind(_) => CallKind::MdBind,
            Call::MdUnlink(_) => CallKind::MdUnlink,
            Call::Put(_) => CallKind::Put,
            Call::Get(_) => CallKind::Get,
        }
    }
}

/// An event to be injected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Happening {
    kind: EventKind,
    unlinked: bool,
    status: Result<(), Errno>,
    length: u32,
    offset: u64,
    hdr_data: u64,
    initiator: ProcessId,
}

impl Happening {
    /// A success of no bytes after which the MD lives on.
    pub(crate) fn new(kind: EventKind) -> Happening {
        let initiator = ProcessId::ANY;
        Happening { kind, unlinked: false, status: Ok(()), length: 0, offset: 0, hdr_data: 0, initiator }
    }

    /// The MD is gone with it.
    pub(crate) fn last(mut self) -> Happening {
        self.unlinked = true;
        self
    }

    pub(crate) fn failed(mut self, errno: Errno) -> Happening {
        self.status = Err(errno);
        self
    }

    pub(crate) fn moved(mut self, length: u32, offset: u64) -> Happening {
        (self.length, self.offset) = (length, offset);
        self
    }

    pub(crate) fn from(mut self, initiator: ProcessId, hdr_data: u64) -> Happening {
        (self.initiator, self.hdr_data) = (initiator, hdr_data);
        self
    }
}

/// The stand-in.
pub(crate) struct FakeLnet {
    local_ids: Vec<ProcessId>,
    script: Mutex<Script>,
}

#[derive(Default)]
struct Script {
    calls: Vec<Call>,
    handles: u64,
    handlers: BTreeMap<EqHandle, Arc<dyn EventHandler>>,
    entries: Vec<MeHandle>,
    mds: BTreeMap<MdHandle, Md>,
    /// The next call of this kind fails.
    failures: VecDeque<(CallKind, Errno)>,
    /// The next call of this kind brings this event before it returns.
    inside: VecDeque<(CallKind, Happening)>,
    /// Explicit unlinks find their MD busy: no event comes until it is injected.
    busy: bool,
}

impl FakeLnet {
    /// A node with these NIDs and LNet's PID.
    pub(crate) fn new(nids: &[&str]) -> Arc<FakeLnet> {
        let local = |text: &&str| ProcessId::lnet(text.parse().unwrap());
        Arc::new(FakeLnet { local_ids: nids.iter().map(local).collect(), script: Mutex::default() })
    }

    /// The next call of this kind is refused.
    pub(crate) fn fail(&self, kind: CallKind, errno: Errno) {
        self.script.lock().failures.push_back((kind, errno));
    }

    /// The next call of this kind brings an event before it returns, as the loopback does.
    pub(crate) fn complete_inside(&self, kind: CallKind, happening: Happening) {
        self.script.lock().inside.push_back((kind, happening));
    }

    /// From now on MDs are busy when they are unlinked, or idle again.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.script.lock().busy = busy;
    }

    /// The calls made since this was asked last.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.script.lock().calls)
    }

    /// The kinds of the calls made since they were asked for last.
    pub(crate) fn take_kinds(&self) -> Vec<CallKind> {
        self.take_calls().iter().map(Call::kind).collect()
    }

    /// The MD made last, of those there are.
    pub(crate) fn last_md(&self) -> MdHandle {
        *self.script.lock().mds.last_key_value().expect("there is an MD").0
    }

    /// How many MDs and unused MEs there are.
    pub(crate) fn objects(&self) -> (usize, usize) {
        let script = self.script.lock();
        (script.mds.len(), script.entries.len())
    }

    /// Lets something happen to an MD: the event callback runs on this thread.
    pub(crate) fn inject(&self, md: MdHandle, happening: Happening) {
        let Happening { kind, unlinked, status, length, offset, hdr_data, initiator } = happening;
        let (handler, user_ptr) = {
            let mut script = self.script.lock();
            let described = if unlinked { script.mds.remove(&md) } else { script.mds.get(&md).cloned() };
            let described = described.expect("the MD is there");
            (script.handlers[&described.eq.expect("it has an event queue")].clone(), described.user_ptr)
        };
        handler.event(&Event {
            kind,
            target: ProcessId::ANY,
            initiator,
            source: initiator,
            sender: Nid::ANY,
            portal: 0,
            match_bits: MatchBits(0),
            hdr_data,
            rlength: length,
            mlength: length,
            offset,
            md,
            user_ptr,
            status,
            unlinked,
        });
        handler.wake();
    }

    /// An event for something that was never there.
    pub(crate) fn inject_stray(&self, eq: EqHandle, user_ptr: u64) {
        let handler = self.script.lock().handlers[&eq].clone();
        let event = Event {
            kind: EventKind::Put,
            target: ProcessId::ANY,
            initiator: ProcessId::ANY,
            source: ProcessId::ANY,
            sender: Nid::ANY,
            portal: 0,
            match_bits: MatchBits(0),
            hdr_data: 0,
            rlength: 0,
            mlength: 0,
            offset: 0,
            md: MdHandle(0),
            user_ptr,
            status: Ok(()),
            unlinked: true,
        };
        handler.event(&event);
    }

    /// The event queue made last.
    pub(crate) fn last_eq(&self) -> EqHandle {
        *self.script.lock().handlers.last_key_value().expect("there is an event queue").0
    }

    fn record(&self, call: Call) -> Result<(), LNetError> {
        let mut script = self.script.lock();
        let kind = call.kind();
        script.calls.push(call);
        match script.failures.front() {
            Some(&(failing, errno)) if failing == kind => {
                script.failures.pop_front();
                Err(LNetError::Lnd(LndError { errno, what: "as scripted".into() }))
            }
            _ => Ok(()),
        }
    }

    fn new_handle(&self) -> u64 {
        let mut script = self.script.lock();
        script.handles += 1;
        script.handles
    }

    /// Lets happen what is to happen inside this call.
    fn happen(&self, kind: CallKind, md: MdHandle) {
        while let Some(happening) = self.next_inside(kind) {
            self.inject(md, happening);
        }
    }

    fn next_inside(&self, kind: CallKind) -> Option<Happening> {
        let inside = &mut self.script.lock().inside;
        inside
            .front()
            .is_some_and(|(expected, _)| *expected == kind)
            .then(|| inside.pop_front())?
            .map(|(_, event)| event)
    }

    fn enter_md(&self, md: Md) -> MdHandle {
        let handle = MdHandle(self.new_handle());
        self.script.lock().mds.insert(handle, md);
        handle
    }
}

impl LNet for FakeLnet {
    fn eq_alloc(&self, handler: Arc<dyn EventHandler>) -> Result<EqHandle, LNetError> {
        self.record(Call::EqAlloc)?;
        let eq = EqHandle(self.new_handle());
        self.script.lock().handlers.insert(eq, handler);
        Ok(eq)
    }

    fn eq_alloc_polled(&self, _: usize, _: Option<Arc<dyn EventHandler>>) -> Result<EqHandle, LNetError> {
        unreachable!("kcore takes its events by callback")
    }

    fn eq_poll(&self, _: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        unreachable!("kcore takes its events by callback")
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        self.record(Call::EqFree(eq))?;
        let mut script = self.script.lock();
        if script.mds.values().any(|md| md.eq == Some(eq)) {
            return Err(LNetError::Busy { object: "EQ", handle: eq.0 });
        }
        script.handlers.remove(&eq);
        Ok(())
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.record(Call::MeAttach(*me))?;
        let handle = MeHandle(self.new_handle());
        self.script.lock().entries.push(handle);
        Ok(handle)
    }

    fn me_insert(&self, _: MeHandle, _: &MeSpec) -> Result<MeHandle, LNetError> {
        unreachable!("kcore inserts nothing")
    }

    fn me_unlink(&self, _: MeHandle) -> Result<(), LNetError> {
        unreachable!("a match entry goes with its MD, and kcore keeps no handle of it")
    }

    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        assert_eq!(unlink, Unlink::Auto);
        self.script.lock().entries.retain(|entry| *entry != me);
        self.record(Call::MdAttach(md.clone()))?;
        let handle = self.enter_md(md);
        self.happen(CallKind::MdAttach, handle);
        Ok(handle)
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        assert_eq!(unlink, Unlink::Auto);
        self.record(Call::MdBind(md.clone()))?;
        Ok(self.enter_md(md))
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        self.record(Call::MdUnlink(md))?;
        let (known, busy) = {
            let script = self.script.lock();
            (script.mds.contains_key(&md), script.busy)
        };
        match (known, busy) {
            (false, _) => Err(LNetError::NoSuch { object: "MD", handle: md.0 }),
            (true, true) => Ok(()),
            (true, false) => {
                self.inject(md, Happening::new(EventKind::Unlink).last());
                Ok(())
            }
        }
    }

    fn put(&self, put: &Put) -> Result<(), LNetError> {
        self.record(Call::Put(*put))?;
        self.happen(CallKind::Put, put.md);
        Ok(())
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        self.record(Call::Get(*get))?;
        self.happen(CallKind::Get, get.md);
        Ok(())
    }

    fn set_lazy(&self, _: Portal, _: bool) {
        unreachable!("kcore's portals are not lazy")
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        Err(LNetError::NoRoute { nid })
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        self.local_ids.clone()
    }
}

/// A node without shards, whose clock is set by hand.
pub(crate) struct FakeDrive {
    now_ns: AtomicU64,
    tokens: Tokens,
}

impl FakeDrive {
    pub(crate) fn new() -> Arc<FakeDrive> {
        Arc::new(FakeDrive { now_ns: AtomicU64::new(0), tokens: Tokens::new(0) })
    }

    pub(crate) fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }
}

impl Clock for FakeDrive {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}

impl Drive for FakeDrive {
    fn shards(&self) -> usize {
        0
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn poll(&self, _: usize, _: usize) -> Poll {
        Poll::default()
    }

    fn arm(&self, _: usize) -> bool {
        true
    }

    fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
        unreachable!("there are no shards")
    }
}

/// The PID of every fake node.
pub(crate) const PID: Pid = Pid::LNET;
