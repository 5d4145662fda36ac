//! The fake LNet for the program above it: the implementation of the trait.

use std::sync::Arc;

use lnet_api::{
    Distance, DropWatcher, EqHandle, EventHandler, Get, Handler, LNet, LNetError, Md, MdHandle, MeHandle,
    MeSpec, Polled, Put, Unlink,
};
use lnet_nid::{Nid, Portal, ProcessId};
use lnet_region::{ReadVec, RegionError};
use parking_lot::{Mutex, MutexGuard};

use crate::descriptor::Descriptor;
use crate::fake::{FakeState, assert_outside};
use crate::queue::Queue;
use crate::tables::Tables;
use crate::{Call, CallKind, FakeLnet, ScriptedEvent, rules};

impl FakeLnet {
    /// Records a call; returns its number, and the locked state.
    fn enter(&self, call: Call) -> Result<(u64, MutexGuard<'_, FakeState>), LNetError> {
        assert_outside();
        let mut state = self.state.lock();
        let number = state.script.enter(call)?;
        Ok((number, state))
    }

    fn sender(
        &self,
        tables: &Tables,
        source: Option<Nid>,
        target: ProcessId,
    ) -> Result<ProcessId, LNetError> {
        match rules::sender(&self.own, source, target.nid) {
            Err(_) if tables.lenient => Ok(self.own.first().copied().unwrap_or(ProcessId::ANY)),
            found => found,
        }
    }

    /// Starts a PUT; returns its payload.
    fn begin_put(&self, tables: &mut Tables, put: &Put) -> Result<Option<ReadVec>, LNetError> {
        tables.sendable(put.md)?;
        let from = self.sender(tables, put.source, put.target)?;
        let md = tables.sendable(put.md)?;
        let lease = lease_whole(md)?;
        let payload = lease_whole(md)?;
        md.begin_put(put, from, lease);
        Ok(payload)
    }

    /// Starts a GET.
    fn begin_get(&self, tables: &mut Tables, get: &Get) -> Result<(), LNetError> {
        tables.sendable(get.md)?;
        let from = self.sender(tables, get.source, get.target)?;
        tables.sendable(get.md)?.begin_get(get, from);
        Ok(())
    }

    /// Delivers the events planned for a PUT's call, or those of the responder.
    fn go_on_with_put(&self, put: &Put, inside: Option<Vec<ScriptedEvent>>, payload: Option<ReadVec>) {
        if let Some(scripted_events) = inside {
            drop(payload);
            return self.play(put.md, scripted_events);
        }
        let answer = self
            .on_put
            .lock()
            .as_mut()
            .map(|answer| answer(put, &payload.as_ref().map(ReadVec::to_vec).unwrap_or_default()));
        drop(payload);
        self.respond(put.md, answer.map(|answer| answer.for_put(put)).unwrap_or_default());
    }

    /// Delivers the events planned for a GET's call, or those of the responder.
    fn go_on_with_get(&self, get: &Get, inside: Option<Vec<ScriptedEvent>>) {
        if let Some(scripted_events) = inside {
            return self.play(get.md, scripted_events);
        }
        let answer = self.on_get.lock().as_mut().map(|answer| answer(get));
        self.respond(get.md, answer.map(|answer| answer.for_get()).unwrap_or_default());
    }

    /// Returns the MD unless its last event has been delivered; `gate` is the MD's.
    fn unless_ended(&self, md: MdHandle, gate: &Mutex<()>) -> Option<MdHandle> {
        let _none_is_delivered = gate.lock();
        self.has_md(md).then_some(md)
    }

    /// Delivers the events planned for this call.
    fn play(&self, md: MdHandle, scripted_events: Vec<ScriptedEvent>) {
        for scripted_event in scripted_events {
            self.inject_here(md, &scripted_event);
        }
    }

    /// Delivers the responder's events until the MD ends.
    fn respond(&self, md: MdHandle, scripted_events: Vec<ScriptedEvent>) {
        for scripted_event in scripted_events {
            if self.inject_here(md, &scripted_event).unlinked {
                break;
            }
        }
    }
}

impl LNet for FakeLnet {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        let (number, mut state) = self.enter(Call::EqAlloc)?;
        state.tables.enter_eq(Queue::called_back(handler, number))
    }

    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        let (number, mut state) = self.enter(Call::EqAllocPolled { count, handler: handler.is_some() })?;
        state.tables.enter_eq(Queue::polled(count, handler.map(Handler::Shared), number)?)
    }

    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        let (_, mut state) = self.enter(Call::EqPoll(eqs.to_vec()))?;
        for &eq in eqs {
            if let Some(polled) = state.tables.eq(eq)?.poll(eq)? {
                return Ok(Some(polled));
            }
        }
        Ok(None)
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        self.enter(Call::EqFree(eq))?.1.tables.free_eq(eq)
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        let (number, mut state) = self.enter(Call::MeAttach(*me))?;
        state.tables.enter_me(None, me, number)
    }

    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        let (number, mut state) = self.enter(Call::MeInsert { beside, me: *me })?;
        state.tables.enter_me(Some(beside), me, number)
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        let attached = self.enter(Call::MeUnlink(me))?.1.tables.md_of(me)?;
        if let Some(md) = attached {
            // The MD may have had its last event already.
            let _ = self.unlink(md);
        }
        self.state.lock().tables.remove_me(me);
        Ok(())
    }

    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        let (handle, inside) = {
            let entered = self.enter(Call::MdAttach { me, md: md.clone(), unlink });
            let (number, mut state) = entered.inspect_err(|_| self.drop_unused(me))?;
            let handle = state.tables.attach(me, md, unlink, number)?;
            (handle, state.script.next_inside(CallKind::MdAttach))
        };
        self.play(handle, inside.unwrap_or_default());
        Ok(handle)
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        let (number, mut state) = self.enter(Call::MdBind { md: md.clone(), unlink })?;
        state.tables.bind(md, unlink, number)
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        drop(self.enter(Call::MdUnlink(md))?);
        self.unlink(md)
    }

    fn put(&self, put: &Put) -> Result<(), LNetError> {
        let (inside, payload) = {
            let (_, mut state) = self.enter(Call::Put(*put))?;
            let payload = self.begin_put(&mut state.tables, put)?;
            (state.script.next_inside(CallKind::Put), payload)
        };
        self.go_on_with_put(put, inside, payload);
        Ok(())
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        let inside = {
            let (_, mut state) = self.enter(Call::Get(*get))?;
            self.begin_get(&mut state.tables, get)?;
            state.script.next_inside(CallKind::Get)
        };
        self.go_on_with_get(get, inside);
        Ok(())
    }

    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        let (call, put, md) = Call::bind_put(put);
        let (put, inside, payload, gate) = {
            let (number, mut state) = self.enter(call)?;
            let FakeState { tables, script } = &mut *state;
            let begin = |tables: &mut Tables, md| self.begin_put(tables, &Put { md, ..put });
            let (made, payload) = tables.bind_for(md, number, begin)?;
            script.set_made(made);
            let gate = tables.live(made)?.gate.clone();
            (Put { md: made, ..put }, script.next_inside(CallKind::BindPut), payload, gate)
        };
        self.go_on_with_put(&put, inside, payload);
        Ok(self.unless_ended(put.md, &gate))
    }

    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        let (call, get, md) = Call::bind_get(get);
        let (get, inside, gate) = {
            let (number, mut state) = self.enter(call)?;
            let FakeState { tables, script } = &mut *state;
            let begin = |tables: &mut Tables, md| self.begin_get(tables, &Get { md, ..get });
            let (made, ()) = tables.bind_for(md, number, begin)?;
            script.set_made(made);
            let gate = tables.live(made)?.gate.clone();
            (Get { md: made, ..get }, script.next_inside(CallKind::BindGet), gate)
        };
        self.go_on_with_get(&get, inside);
        Ok(self.unless_ended(get.md, &gate))
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        if let Ok((_, mut state)) = self.enter(Call::SetLazy { portal, lazy }) {
            state.tables.set_lazy(portal, lazy);
        }
    }

    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        drop(self.enter(Call::WatchDrops)?);
        self.watcher.set(watcher).map_err(|_| LNetError::Busy { object: "watcher of drops", handle: 0 })
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        drop(self.enter(Call::Distance(nid))?);
        rules::distance(&self.own, nid)
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        drop(self.enter(Call::LocalIds));
        self.own.clone()
    }
}

impl FakeLnet {
    /// Removes the entry of a refused attach, unless it has an MD.
    fn drop_unused(&self, me: MeHandle) {
        let tables = &mut self.state.lock().tables;
        if let Ok(None) = tables.md_of(me) {
            tables.remove_me(me);
        }
    }
}

/// Leases the payload of a PUT: it cannot be written to until the PUT has left.
fn lease_whole(md: &Descriptor) -> Result<Option<ReadVec>, LNetError> {
    if md.memory.is_empty() {
        return Ok(None);
    }
    md.memory.outgoing(0..md.memory.len()).map(Some).map_err(|error| match error {
        RegionError::TooManyLeases { max } => {
            LNetError::TooMany { objects: "messages from one region", limit: max }
        }
        _ => LNetError::Busy { object: "the memory of MD", handle: md.handle.0 },
    })
}
