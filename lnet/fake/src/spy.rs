//! A recorder for the calls and events of a real LNet.

use std::sync::Arc;

use lnet_api::{
    Distance, DropWatcher, EqHandle, Errno, Event, EventHandler, Get, Handler, LNet, LNetError, Md, MdHandle,
    MeHandle, MeSpec, Polled, Put, Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use parking_lot::Mutex;

use crate::fake::{as_scripted, assert_fallible};
use crate::script::{CALLS_MAX, Script};
use crate::{Call, CallKind};

/// An LNet that records calls and events, and lets a test refuse some calls. Everything else is
/// left to the LNet below: a node, an engine or a [`crate::FakeLnet`]. So one test can check a
/// program's calls to LNet, or its handling of a refusal, with and without a network.
///
/// ```
/// use lnet_api::{Errno, LNet};
/// use lnet_fake::{CallKind, EventLog, FakeLnet, Spy};
///
/// let spy = Spy::new(FakeLnet::new(&["10.0.0.1@tcp"]));
/// spy.fail(CallKind::EqAlloc, Errno::ENOMEM);
/// assert_eq!(spy.eq_alloc(EventLog::new()).unwrap_err().errno(), Errno::ENOMEM);
/// let eq = spy.eq_alloc(EventLog::new())?;
/// spy.eq_free(eq)?;
/// assert_eq!(spy.take_kinds(), [CallKind::EqAlloc, CallKind::EqAlloc, CallKind::EqFree]);
/// # Ok::<(), lnet_api::LNetError>(())
/// ```
pub struct Spy {
    lnet: Arc<dyn LNet>,
    script: Mutex<Script>,
    record: Arc<Mutex<SpyRecord>>,
}

/// The record of events and objects of the LNet below.
#[derive(Default)]
struct SpyRecord {
    events: Vec<Event>,
    mds_made: usize,
    mds_ended: usize,
    last_md: Option<MdHandle>,
    last_eq: Option<EqHandle>,
}

/// A wrapper of the program's handler that records events first.
struct RecordingHandler {
    handler: Handler,
    record: Arc<Mutex<SpyRecord>>,
}

impl EventHandler for RecordingHandler {
    fn event(&self, event: &Event) {
        {
            let record = &mut *self.record.lock();
            assert!(record.events.len() < CALLS_MAX, "{CALLS_MAX} events were noted, and none was taken");
            record.events.push(*event);
            record.mds_ended += usize::from(event.unlinked);
        }
        self.handler.event(event);
    }

    fn wake(&self) {
        self.handler.wake();
    }
}

impl Spy {
    /// Makes a recorder above this LNet.
    pub fn new(lnet: Arc<dyn LNet>) -> Arc<Spy> {
        Arc::new(Spy { lnet, script: Mutex::default(), record: Arc::default() })
    }

    /// Returns and removes the calls since they were last taken, in order, including refused ones.
    /// A query that repeats the one before it is recorded once.
    pub fn take_calls(&self) -> Vec<Call> {
        self.script.lock().take_calls()
    }

    /// Returns the kinds of the calls since they were last taken, without
    /// [queries](Call::is_query), and removes the calls.
    pub fn take_kinds(&self) -> Vec<CallKind> {
        self.take_calls().iter().filter(|call| !call.is_query()).map(Call::kind).collect()
    }

    /// Returns and removes the events passed to handlers since they were last taken, each recorded
    /// before it is passed to its handler. Events that are only polled are not included.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.record.lock().events)
    }

    /// Refuses the next call of this kind with an errno, and does not pass it to the LNet below. A
    /// second use refuses the call after it as well.
    ///
    /// # Panics
    /// For calls that cannot fail.
    pub fn fail(&self, kind: CallKind, errno: Errno) {
        assert_fallible(kind);
        self.script.lock().refuse_next(kind, as_scripted(errno));
    }

    /// Returns the number of MDs whose last event has not been passed to a handler. An MD without a
    /// handler remains in the count.
    pub fn mds(&self) -> usize {
        let record = self.record.lock();
        record.mds_made.saturating_sub(record.mds_ended)
    }

    /// Returns the newest MD, not counting those that ended inside the call that made them.
    ///
    /// # Panics
    /// If there was none.
    pub fn last_md(&self) -> MdHandle {
        self.record.lock().last_md.expect("an MD was made")
    }

    /// Returns the newest event queue.
    ///
    /// # Panics
    /// If none was made.
    pub fn last_eq(&self) -> EqHandle {
        self.record.lock().last_eq.expect("an event queue was made")
    }

    /// Records a call; refuses it if the test has planned a refusal.
    fn enter(&self, call: Call) -> Result<(), LNetError> {
        self.script.lock().enter(call).map(drop)
    }

    fn recording(&self, handler: Handler) -> Arc<dyn EventHandler> {
        Arc::new(RecordingHandler { handler, record: self.record.clone() })
    }

    fn made_eq(&self, eq: EqHandle) -> EqHandle {
        self.record.lock().last_eq = Some(eq);
        eq
    }

    fn made_md(&self, md: MdHandle) -> MdHandle {
        self.count_md(Some(md));
        md
    }

    /// Records an MD that was made; `None` is one that ended inside the call.
    fn made_sender(&self, md: Option<MdHandle>) {
        if let Some(md) = md {
            self.script.lock().set_made(md);
        }
        self.count_md(md);
    }

    fn count_md(&self, md: Option<MdHandle>) {
        let record = &mut *self.record.lock();
        record.mds_made += 1;
        record.last_md = md.or(record.last_md);
    }
}

impl LNet for Spy {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        self.enter(Call::EqAlloc)?;
        self.lnet.eq_alloc(self.recording(handler)).map(|eq| self.made_eq(eq))
    }

    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        self.enter(Call::EqAllocPolled { count, handler: handler.is_some() })?;
        let handler = handler.map(|handler| self.recording(Handler::Shared(handler)));
        self.lnet.eq_alloc_polled(count, handler).map(|eq| self.made_eq(eq))
    }

    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        self.enter(Call::EqPoll(eqs.to_vec()))?;
        self.lnet.eq_poll(eqs)
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        self.enter(Call::EqFree(eq))?;
        self.lnet.eq_free(eq)
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.enter(Call::MeAttach(*me))?;
        self.lnet.me_attach(me)
    }

    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.enter(Call::MeInsert { beside, me: *me })?;
        self.lnet.me_insert(beside, me)
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        self.enter(Call::MeUnlink(me))?;
        self.lnet.me_unlink(me)
    }

    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        if let Err(error) = self.enter(Call::MdAttach { me, md: md.clone(), unlink }) {
            // As in LNet, the entry is unlinked when the attach fails.
            let _ = self.lnet.me_unlink(me);
            return Err(error);
        }
        self.lnet.md_attach(me, md, unlink).map(|md| self.made_md(md))
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.enter(Call::MdBind { md: md.clone(), unlink })?;
        self.lnet.md_bind(md, unlink).map(|md| self.made_md(md))
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        self.enter(Call::MdUnlink(md))?;
        self.lnet.md_unlink(md)
    }

    fn put(&self, put: &Put) -> Result<(), LNetError> {
        self.enter(Call::Put(*put))?;
        self.lnet.put(put)
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        self.enter(Call::Get(*get))?;
        self.lnet.get(get)
    }

    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        let (call, unnamed, md) = Call::bind_put(put);
        self.enter(call)?;
        self.lnet.bind_put(unnamed.with_md(md).0).inspect(|&md| self.made_sender(md))
    }

    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        let (call, unnamed, md) = Call::bind_get(get);
        self.enter(call)?;
        self.lnet.bind_get(unnamed.with_md(md).0).inspect(|&md| self.made_sender(md))
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        // `set_lazy` cannot fail, so no refusal can be planned for it.
        let _ = self.enter(Call::SetLazy { portal, lazy });
        self.lnet.set_lazy(portal, lazy);
    }

    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        self.enter(Call::WatchDrops)?;
        self.lnet.watch_drops(watcher)
    }

    fn home(&self, portal: Portal, bits: MatchBits) -> usize {
        self.lnet.home(portal, bits)
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        self.enter(Call::Distance(nid))?;
        self.lnet.distance(nid)
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        // `local_ids` cannot fail, so no refusal can be planned for it.
        let _ = self.enter(Call::LocalIds);
        self.lnet.local_ids()
    }
}
