//! The fake LNet for its test: the script, the injected events and the record.

use std::borrow::Borrow;
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use lnet_api::{
    DropWatcher, EqHandle, Errno, Event, EventKind, Get, LNetError, LndError, MdHandle, MdOptions, Put,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_region::IoVec;
use parking_lot::Mutex;

use crate::partitions::{Partitions, peer_of};
use crate::script::Script;
use crate::tables::{Tables, Unlinked};
use crate::{Answer, Call, CallKind, ScriptedEvent};

type OnPut = Box<dyn FnMut(&Put, &[u8]) -> Answer<()> + Send>;
type OnGet = Box<dyn FnMut(&Get) -> Answer<Vec<u8>> + Send>;

thread_local! {
    /// True while an event callback runs on this thread.
    static IN_EVENT: Cell<bool> = const { Cell::new(false) };
}

/// The number of objects of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objects {
    /// Event queues.
    pub eqs: usize,
    /// Match entries, with or without an MD.
    pub mes: usize,
    /// MDs, including unlinked ones whose last event is still to come.
    pub mds: usize,
}

/// A scripted LNet; see the [crate's page](crate) for its use.
///
/// Any thread may call its methods. Events are delivered on the thread that injects them (but see
/// [`FakeLnet::with_partitions`]), or on the thread whose call they complete.
pub struct FakeLnet {
    pub(crate) own: Vec<ProcessId>,
    pub(crate) partitions: Partitions,
    pub(crate) watcher: OnceLock<Arc<dyn DropWatcher>>,
    pub(crate) state: Mutex<FakeState>,
    pub(crate) on_put: Mutex<Option<OnPut>>,
    pub(crate) on_get: Mutex<Option<OnGet>>,
}

pub(crate) struct FakeState {
    pub(crate) script: Script,
    pub(crate) tables: Tables,
}

impl FakeLnet {
    /// Makes a node with these NIDs and LNet's PID. It reaches itself, and every node of these
    /// networks.
    ///
    /// # Panics
    /// If one of the texts is not a NID.
    pub fn new(nids: &[&str]) -> Arc<FakeLnet> {
        FakeLnet::build(nids, Partitions::Unknown)
    }

    /// Makes a node with several CPU partitions. Injected events are delivered on new threads,
    /// never on the injecting one, and each thread acts for the partition of the peer's NID
    /// ([`lnet_nid::Nid::cpt_of`]), as the threads of a node do. So handlers run on threads that
    /// they have not seen before, and concurrently if several threads inject. [`FakeLnet::inject`]
    /// returns when the event has been handled. Events that complete inside a call are delivered on
    /// the calling thread, as without partitions.
    ///
    /// # Panics
    /// If one of the texts is not a NID, or `partitions` is 0.
    pub fn with_partitions(nids: &[&str], partitions: usize) -> Arc<FakeLnet> {
        assert!(partitions > 0, "a node has at least one partition");
        FakeLnet::build(nids, Partitions::Threads(partitions))
    }

    fn build(nids: &[&str], partitions: Partitions) -> Arc<FakeLnet> {
        let own = nids.iter().map(|text| match text.parse() {
            Ok(nid) => ProcessId::lnet(nid),
            Err(error) => panic!("{text:?} is no NID: {error}"),
        });
        let state = FakeState { script: Script::default(), tables: Tables::new() };
        Arc::new(FakeLnet {
            own: own.collect(),
            partitions,
            watcher: OnceLock::new(),
            state: Mutex::new(state),
            on_put: Mutex::default(),
            on_get: Mutex::default(),
        })
    }

    /// Sets whether LNet's rules are ignored. A lenient LNet takes calls that the real one refuses
    /// for their portal type, options, lengths or route, lets an exhausted MD send, and frees
    /// queues in use; only handles must be valid. By default the rules are enforced: the real LNet
    /// also refuses every call that the fake refuses.
    pub fn set_lenient(&self, lenient: bool) {
        self.state.lock().tables.lenient = lenient;
    }

    /// Returns the calls since they were last taken, in order. A query that repeats the one before
    /// it is recorded once.
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().script.calls().to_vec()
    }

    /// Returns the same calls and removes them from the record.
    pub fn take_calls(&self) -> Vec<Call> {
        self.state.lock().script.take_calls()
    }

    /// Returns the kinds of the calls since they were last taken, without
    /// [queries](Call::is_query), and removes these calls from the record.
    pub fn take_kinds(&self) -> Vec<CallKind> {
        self.take_calls().iter().filter(|call| !call.is_query()).map(Call::kind).collect()
    }

    /// Returns the calls of a kind since they were last taken.
    pub fn calls_of(&self, kind: CallKind) -> Vec<Call> {
        self.state.lock().script.calls().iter().filter(|call| call.kind() == kind).cloned().collect()
    }

    /// Returns the PUTs since the calls were last taken, each as the PUT of an MD that has a
    /// handle.
    pub fn puts(&self) -> Vec<Put> {
        let put = |call| match call {
            Call::Put(put) | Call::BindPut { put, .. } => Some(put),
            _ => None,
        };
        self.calls().into_iter().filter_map(put).collect()
    }

    /// Returns the GETs since the calls were last taken, each as the GET of an MD that has a
    /// handle.
    pub fn gets(&self) -> Vec<Get> {
        let get = |call| match call {
            Call::Get(get) | Call::BindGet { get, .. } => Some(get),
            _ => None,
        };
        self.calls().into_iter().filter_map(get).collect()
    }

    /// Refuses the next call of this kind with an errno, as if a driver failed. If a refusal is
    /// planned already, this one is for the call after that.
    pub fn fail(&self, kind: CallKind, errno: Errno) {
        self.fail_with(kind, as_scripted(errno));
    }

    /// Does what [`FakeLnet::fail`] does, with an error of LNet.
    pub fn fail_with(&self, kind: CallKind, error: LNetError) {
        assert_fallible(kind);
        self.state.lock().script.refuse_next(kind, error);
    }

    /// Refuses the `nth` call of this kind from now on; the next is number 1.
    pub fn fail_nth(&self, kind: CallKind, nth: u64, errno: Errno) {
        assert_fallible(kind);
        self.state.lock().script.refuse(kind, nth, as_scripted(errno));
    }

    /// Delivers these events inside the next successful `MdAttach`, `Put`, `Get`, `BindPut` or
    /// `BindGet`, before it returns, as the loopback does. If events are planned for that call
    /// already, these are for the next one. Takes precedence over [`FakeLnet::on_put`] and
    /// [`FakeLnet::on_get`].
    ///
    /// # Panics
    /// For other kinds of calls, in which no event can come.
    pub fn complete_inside(&self, kind: CallKind, scripted_events: impl IntoIterator<Item = ScriptedEvent>) {
        use CallKind::{BindGet, BindPut, Get, MdAttach, Put};
        let brings = matches!(kind, MdAttach | Put | Get | BindPut | BindGet);
        assert!(brings, "no event can come inside {kind:?}");
        self.state.lock().script.complete_inside(kind, scripted_events.into_iter().collect());
    }

    /// Sets the responder that decides the result of each PUT from its arguments and its payload.
    /// Without it PUTs stay in flight.
    ///
    /// The responder runs inside the call; it must not call this LNet.
    pub fn on_put(&self, answer: impl FnMut(&Put, &[u8]) -> Answer<()> + Send + 'static) {
        *self.on_put.lock() = Some(Box::new(answer));
    }

    /// Sets the responder that decides the result of each GET from its arguments. Without it GETs
    /// stay in flight.
    ///
    /// The responder runs inside the call; it must not call this LNet.
    pub fn on_get(&self, answer: impl FnMut(&Get) -> Answer<Vec<u8>> + Send + 'static) {
        *self.on_get.lock() = Some(Box::new(answer));
    }

    /// Sets whether every MD has a message in flight when it is unlinked: it gets no UNLINK, and
    /// ends with the last event that the test injects. Otherwise only MDs with a PUT or GET whose
    /// SEND has not been delivered have one.
    pub fn set_busy(&self, busy: bool) {
        self.state.lock().tables.busy = busy;
    }

    /// Delivers an event to an MD: writes the payload, queues the event or passes it to the handler
    /// on this thread, and wakes the handler. Returns the event.
    ///
    /// # Panics
    /// If LNet would not give the event (see [`ScriptedEvent::impossible`]), in particular after an
    /// MD's last event; and from inside an event callback.
    #[track_caller]
    pub fn inject(&self, md: MdHandle, scripted_event: impl Borrow<ScriptedEvent>) -> Event {
        assert_outside();
        let scripted_event = scripted_event.borrow();
        let peer = || self.could_happen(md, scripted_event).map_or(Nid::ANY, |event| peer_of(&event));
        expect_possible(md, scripted_event, self.partitions.run(peer, || self.happen(md, scripted_event)))
    }

    /// Delivers an event as [`FakeLnet::inject`] does, on this thread.
    #[track_caller]
    pub(crate) fn inject_here(&self, md: MdHandle, scripted_event: &ScriptedEvent) -> Event {
        assert_outside();
        expect_possible(md, scripted_event, self.happen(md, scripted_event))
    }

    /// Returns the event that [`FakeLnet::inject`] would deliver, without delivering it.
    ///
    /// # Errors
    /// The reason why LNet would not deliver the event.
    pub fn could_happen(
        &self,
        md: MdHandle,
        scripted_event: impl Borrow<ScriptedEvent>,
    ) -> Result<Event, String> {
        let tables = &self.state.lock().tables;
        tables.mds.get(&md).ok_or_else(|| gone(tables, md))?.preview(scripted_event.borrow(), &self.own)
    }

    /// Delivers an event without an MD, which the real LNet never does. Only the fields set in
    /// `scripted_event` are filled in.
    ///
    /// # Panics
    /// If there is no such event queue.
    #[track_caller]
    pub fn inject_stray(&self, eq: EqHandle, scripted_event: impl Borrow<ScriptedEvent>) -> Event {
        assert_outside();
        let scripted_event = scripted_event.borrow();
        let event = scripted_event.over(Event::blank(scripted_event.kind, ProcessId::ANY));
        let handler = {
            let tables = &mut self.state.lock().tables;
            assert!(tables.eqs.contains_key(&eq), "EQ {:#x} does not exist", eq.0);
            tables.queue(Some(eq), &event)
        };
        if let Some(handler) = handler {
            self.partitions.run(
                || peer_of(&event),
                || {
                    inside(|| handler.event(&event));
                    handler.wake();
                },
            );
        }
        event
    }

    /// Returns the MD that a PUT or GET from `source` would match first; none if the message would
    /// be dropped, or wait on a lazy portal. The message's length is not checked.
    ///
    /// # Panics
    /// For other kinds than PUT and GET.
    pub fn matching(
        &self,
        kind: EventKind,
        source: ProcessId,
        portal: Portal,
        bits: MatchBits,
    ) -> Option<MdHandle> {
        let allows = match kind {
            EventKind::Put => MdOptions::OP_PUT,
            EventKind::Get => MdOptions::OP_GET,
            other => panic!("{other:?} matches nothing: only PUTs and GETs do"),
        };
        self.state.lock().tables.matching(allows, source, portal, bits)
    }

    /// Returns whether PUTs that match nothing wait on this portal.
    pub fn is_lazy(&self, portal: Portal) -> bool {
        self.state.lock().tables.is_lazy(portal)
    }

    /// Returns whether the MD exists, so that its last event is still to come.
    pub fn has_md(&self, md: MdHandle) -> bool {
        self.state.lock().tables.mds.contains_key(&md)
    }

    /// Returns the memory of an MD.
    ///
    /// # Panics
    /// If there is no such MD.
    pub fn memory(&self, md: MdHandle) -> IoVec {
        let state = self.state.lock();
        match state.tables.mds.get(&md) {
            Some(found) => found.memory.clone(),
            None => panic!("{}", gone(&state.tables, md)),
        }
    }

    /// Returns the bytes of an MD: the payload of its PUT, or the answer to a GET.
    ///
    /// # Panics
    /// If there is no such MD, or its memory is being written to.
    pub fn payload(&self, md: MdHandle) -> Vec<u8> {
        let memory = self.memory(md);
        match memory.read(0..memory.len()) {
            Ok(lease) => lease.to_vec(),
            Err(error) => panic!("the memory of MD {:#x} cannot be read: {error}", md.0),
        }
    }

    /// Returns the newest MD.
    ///
    /// # Panics
    /// If there is no MD.
    pub fn last_md(&self) -> MdHandle {
        *self.state.lock().tables.mds.last_key_value().expect("there is an MD").0
    }

    /// Returns the newest event queue.
    ///
    /// # Panics
    /// If there is no event queue.
    pub fn last_eq(&self) -> EqHandle {
        *self.state.lock().tables.eqs.last_key_value().expect("there is an event queue").0
    }

    /// Returns the number of existing objects.
    pub fn objects(&self) -> Objects {
        let tables = &self.state.lock().tables;
        Objects { eqs: tables.eqs.len(), mes: tables.me_count(), mds: tables.mds.len() }
    }

    /// Checks that each queue was freed, each entry and MD was unlinked, and each planned refusal
    /// and completion was used.
    ///
    /// # Panics
    /// With a list of the objects that are left, and the number of the call that made each.
    #[track_caller]
    pub fn assert_quiet(&self) {
        let left: Vec<String> = {
            let FakeState { tables, script } = &*self.state.lock();
            tables.leftovers().chain(script.open()).collect()
        };
        assert!(left.is_empty(), "the program left this behind:\n  {}", left.join("\n  "));
    }

    /// Delivers an event to an MD.
    ///
    /// # Errors
    /// The reason why LNet would not give the event.
    pub(crate) fn happen(&self, md: MdHandle, scripted_event: &ScriptedEvent) -> Result<Event, String> {
        let gate = {
            let tables = &self.state.lock().tables;
            tables.mds.get(&md).map(|md| md.gate.clone()).ok_or_else(|| gone(tables, md))?
        };
        let one_at_a_time = gate.lock();
        let (event, handler) = {
            let tables = &mut self.state.lock().tables;
            if !tables.mds.contains_key(&md) {
                return Err(gone(tables, md));
            }
            let found = tables.mds.get_mut(&md).expect("it is there");
            let (eq, memory) = (found.eq, found.memory.clone());
            let event = found.happen(scripted_event, &self.own)?;
            write(&memory, scripted_event, &event)?;
            if event.unlinked {
                tables.remove_md(md);
            }
            (event, tables.queue(eq, &event))
        };
        if let Some(handler) = handler {
            inside(|| handler.event(&event));
            drop(one_at_a_time);
            handler.wake();
        }
        Ok(event)
    }

    /// Unlinks an MD explicitly; an idle MD gets its UNLINK at once.
    pub(crate) fn unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        let gate = self.state.lock().tables.live(md)?.gate.clone();
        let one_at_a_time = gate.lock();
        let (event, handler) = {
            let tables = &mut self.state.lock().tables;
            let Unlinked::Idle(gone) = tables.unlink(md)? else { return Ok(()) };
            let event = gone.unlink_event();
            (event, tables.queue(gone.eq, &event))
        };
        if let Some(handler) = handler {
            inside(|| handler.event(&event));
            drop(one_at_a_time);
            handler.wake();
        }
        Ok(())
    }
}

/// Panics if called inside an event callback: the real LNet would hold one of its locks there.
#[track_caller]
pub(crate) fn assert_outside() {
    assert!(!IN_EVENT.get(), "LNet was called from inside an event callback");
}

#[track_caller]
fn expect_possible(md: MdHandle, scripted_event: &ScriptedEvent, happened: Result<Event, String>) -> Event {
    match happened {
        Ok(event) => event,
        Err(why) => panic!("MD {:#x}: {:?} cannot happen: {why}", md.0, scripted_event.kind),
    }
}

pub(crate) fn assert_fallible(kind: CallKind) {
    assert!(!matches!(kind, CallKind::SetLazy | CallKind::LocalIds), "{kind:?} cannot fail");
}

pub(crate) fn as_scripted(errno: Errno) -> LNetError {
    LNetError::Lnd(LndError { what: "as scripted".into(), errno })
}

fn gone(tables: &Tables, md: MdHandle) -> String {
    match tables.was_given(md.0) {
        true => format!("{:#x} is no MD, or it is gone: it has had its last event", md.0),
        false => format!("there never was an MD {:#x}", md.0),
    }
}

/// Runs a callback of the program, which must not call LNet.
pub(crate) fn inside(callback: impl FnOnce()) {
    /// Clears the flag when dropped, also if the handler panics.
    struct Mark;
    impl Drop for Mark {
        fn drop(&mut self) {
            IN_EVENT.set(false);
        }
    }
    IN_EVENT.set(true);
    let _mark = Mark;
    callback();
}

/// Writes a payload to the place that its event names.
fn write(memory: &IoVec, scripted_event: &ScriptedEvent, event: &Event) -> Result<(), String> {
    let Some(bytes) = &scripted_event.bytes else { return Ok(()) };
    let start = if event.kind == EventKind::Put { event.offset as usize } else { 0 };
    let bytes = &bytes[..bytes.len().min(event.mlength as usize)];
    if bytes.is_empty() {
        return Ok(());
    }
    match memory.incoming(start..start.saturating_add(bytes.len())) {
        Ok(mut lease) => {
            lease.copy_from(0, bytes);
            Ok(())
        }
        Err(_) if scripted_event.impossible => Ok(()),
        Err(error) => Err(format!("its payload cannot be written: {error}")),
    }
}
