//! The tables of event queues, match entries and MDs.

use std::collections::BTreeMap;

use lnet_api::{
    EqHandle, Event, Handler, LNetError, Md, MdHandle, MdOptions, MeHandle, MeSpec, Position, Unlink,
};
use lnet_nid::{MatchBits, Portal, ProcessId};

use crate::descriptor::{Descriptor, matches};
use crate::queue::Queue;
use crate::rules::{self, PortalType};

/// All objects. The three kinds share one sequence of handles, so a handle of another kind is
/// invalid.
pub(crate) struct Tables {
    handles: u64,
    pub(crate) eqs: BTreeMap<EqHandle, Queue>,
    mes: BTreeMap<MeHandle, MatchEntry>,
    pub(crate) mds: BTreeMap<MdHandle, Descriptor>,
    portals: [PortalState; Portal::COUNT],
    pub(crate) lenient: bool,
    /// True if every unlink finds a message in flight.
    pub(crate) busy: bool,
}

struct MatchEntry {
    spec: MeSpec,
    md: Option<MdHandle>,
    made_by: u64,
}

#[derive(Default)]
struct PortalState {
    first: Option<PortalType>,
    /// The entries in the order in which they are tried.
    order: Vec<MeHandle>,
    lazy: bool,
}

/// The result of an unlink.
pub(crate) enum Unlinked {
    /// The MD was idle: UNLINK is its only event.
    Idle(Box<Descriptor>),
    /// The MD's last event is still to come.
    Busy,
}

impl Tables {
    pub(crate) fn new() -> Tables {
        Tables {
            handles: 0,
            eqs: BTreeMap::new(),
            mes: BTreeMap::new(),
            mds: BTreeMap::new(),
            portals: std::array::from_fn(|_| PortalState::default()),
            lenient: false,
            busy: false,
        }
    }

    fn new_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    /// Returns the result of a check, which a lenient LNet ignores.
    fn rule(&self, checked: Result<(), LNetError>) -> Result<(), LNetError> {
        if self.lenient { Ok(()) } else { checked }
    }

    pub(crate) fn enter_eq(&mut self, queue: Queue) -> Result<EqHandle, LNetError> {
        rules::check_room("event queues", self.eqs.len())?;
        let eq = EqHandle(self.new_handle());
        self.eqs.insert(eq, queue);
        Ok(eq)
    }

    pub(crate) fn eq(&mut self, eq: EqHandle) -> Result<&mut Queue, LNetError> {
        self.eqs.get_mut(&eq).ok_or(LNetError::NoSuch { object: "EQ", handle: eq.0 })
    }

    pub(crate) fn free_eq(&mut self, eq: EqHandle) -> Result<(), LNetError> {
        self.eq(eq)?;
        let used = self.mds.values().any(|md| md.eq == Some(eq));
        self.rule(if used { Err(LNetError::Busy { object: "EQ", handle: eq.0 }) } else { Ok(()) })?;
        self.eqs.remove(&eq);
        Ok(())
    }

    pub(crate) fn enter_me(
        &mut self,
        beside: Option<MeHandle>,
        me: &MeSpec,
        made_by: u64,
    ) -> Result<MeHandle, LNetError> {
        rules::check_room("match entries", self.mes.len())?;
        let place = beside.map(|handle| self.me(handle).map(|entry| entry.spec)).transpose()?;
        self.rule(place.map_or(Ok(()), |spec| rules::check_beside(&spec, me)))?;
        let ordered = beside.is_some() || me.position == Position::Before;
        self.rule(PortalType::check(self.portals[me.portal.index()].first, me, ordered))?;
        let handle = MeHandle(self.new_handle());
        let PortalState { first, order, .. } = &mut self.portals[me.portal.index()];
        first.get_or_insert(PortalType::of(me));
        let at = beside.and_then(|beside| order.iter().position(|other| *other == beside));
        match (me.position, at) {
            (Position::Before, _) => order.insert(at.unwrap_or(0), handle),
            (_, Some(at)) => order.insert(at + 1, handle),
            (_, None) => order.push(handle),
        }
        self.mes.insert(handle, MatchEntry { spec: *me, md: None, made_by });
        Ok(handle)
    }

    fn me(&self, me: MeHandle) -> Result<&MatchEntry, LNetError> {
        self.mes.get(&me).ok_or(LNetError::NoSuch { object: "ME", handle: me.0 })
    }

    /// Returns the MD of an entry, if it has one.
    pub(crate) fn md_of(&self, me: MeHandle) -> Result<Option<MdHandle>, LNetError> {
        Ok(self.me(me)?.md)
    }

    pub(crate) fn remove_me(&mut self, me: MeHandle) {
        if let Some(entry) = self.mes.remove(&me) {
            self.portals[entry.spec.portal.index()].order.retain(|other| *other != me);
        }
    }

    fn check_eq(&mut self, md: &Md) -> Result<(), LNetError> {
        rules::check_room("memory descriptors", self.mds.len())?;
        md.eq.map_or(Ok(()), |eq| self.eq(eq).map(drop))
    }

    /// Attaches an MD. On an error the entry is removed, unless it has another MD.
    pub(crate) fn attach(
        &mut self,
        me: MeHandle,
        md: Md,
        unlink: Unlink,
        made_by: u64,
    ) -> Result<MdHandle, LNetError> {
        let entry = self.me(me)?;
        let spec = entry.spec;
        if entry.md.is_some() {
            return Err(LNetError::Busy { object: "ME", handle: me.0 });
        }
        let checked = self.rule(md.check_attached()).and_then(|()| self.check_eq(&md));
        checked.inspect_err(|_| self.remove_me(me))?;
        let handle = MdHandle(self.new_handle());
        self.mes.entry(me).and_modify(|entry| entry.md = Some(handle));
        let md = Descriptor::new(handle, md, unlink, Some((me, spec)), made_by);
        self.mds.insert(handle, md);
        Ok(handle)
    }

    pub(crate) fn bind(&mut self, md: Md, unlink: Unlink, made_by: u64) -> Result<MdHandle, LNetError> {
        self.rule(md.check_bound())?;
        self.check_eq(&md)?;
        let handle = MdHandle(self.new_handle());
        let md = Descriptor::new(handle, md, unlink, None, made_by);
        self.mds.insert(handle, md);
        Ok(handle)
    }

    /// Binds an MD and runs `act`; if that is refused, the MD is removed.
    pub(crate) fn bind_for<R>(
        &mut self,
        md: Md,
        made_by: u64,
        act: impl FnOnce(&mut Tables, MdHandle) -> Result<R, LNetError>,
    ) -> Result<(MdHandle, R), LNetError> {
        self.rule(md.check_sent())?;
        let made = self.bind(md, Unlink::Auto, made_by)?;
        match act(self, made) {
            Ok(result) => Ok((made, result)),
            Err(refused) => {
                self.remove_md(made);
                Err(refused)
            }
        }
    }

    /// Returns an MD that has not been unlinked.
    pub(crate) fn live(&mut self, md: MdHandle) -> Result<&mut Descriptor, LNetError> {
        let live = self.mds.get_mut(&md).filter(|md| !md.aborted);
        live.ok_or(LNetError::NoSuch { object: "MD", handle: md.0 })
    }

    /// Returns an MD that can send another PUT or GET.
    pub(crate) fn sendable(&mut self, md: MdHandle) -> Result<&mut Descriptor, LNetError> {
        let lenient = self.lenient;
        let found = self.live(md)?;
        if found.entry.is_some() || (found.is_exhausted() && !lenient) {
            return Err(LNetError::NoSuch { object: "MD", handle: md.0 });
        }
        Ok(found)
    }

    pub(crate) fn unlink(&mut self, md: MdHandle) -> Result<Unlinked, LNetError> {
        let busy = self.busy;
        let found = self.live(md)?;
        found.aborted = busy || found.is_sending();
        if found.aborted {
            self.detach(md);
            return Ok(Unlinked::Busy);
        }
        self.detach(md);
        let gone = self.mds.remove(&md).ok_or(LNetError::NoSuch { object: "MD", handle: md.0 })?;
        Ok(Unlinked::Idle(Box::new(gone)))
    }

    /// Frees the entry of an MD, or removes it with the MD.
    fn detach(&mut self, md: MdHandle) {
        let Some(me) = self.mds.get(&md).and_then(|md| Some(md.entry?.0)) else { return };
        match self.mes.get_mut(&me) {
            Some(entry) if entry.md == Some(md) && entry.spec.unlink == Unlink::Auto => self.remove_me(me),
            Some(entry) if entry.md == Some(md) => entry.md = None,
            _ => {}
        }
    }

    /// Removes an MD whose last event has been made.
    pub(crate) fn remove_md(&mut self, md: MdHandle) {
        self.detach(md);
        self.mds.remove(&md);
    }

    /// Queues an event for polling; returns the handler that is to be called.
    pub(crate) fn queue(&mut self, eq: Option<EqHandle>, event: &Event) -> Option<Handler> {
        let queue = self.eqs.get_mut(&eq?)?;
        queue.keep(event);
        queue.handler.clone()
    }

    /// Returns the MD that a message matches first (lnet-semantics 9 and 10).
    pub(crate) fn matching(
        &self,
        allows: MdOptions,
        source: ProcessId,
        portal: Portal,
        bits: MatchBits,
    ) -> Option<MdHandle> {
        let entries = || self.portals[portal.index()].order.iter().filter_map(|me| self.mes.get(me));
        // Entries with ignore bits are tried first.
        let (masked, exact) = (
            entries().filter(|me| me.spec.ignore_bits.0 != 0),
            entries().filter(|me| me.spec.ignore_bits.0 == 0),
        );
        masked
            .chain(exact)
            .filter(|me| matches(&me.spec, source, bits))
            .filter_map(|me| self.mds.get(&me.md?))
            .find(|md| md.takes(allows))
            .map(|md| md.handle)
    }

    pub(crate) fn set_lazy(&mut self, portal: Portal, lazy: bool) {
        self.portals[portal.index()].lazy = lazy && portal != Portal::RESERVED;
    }

    pub(crate) fn is_lazy(&self, portal: Portal) -> bool {
        self.portals[portal.index()].lazy
    }

    pub(crate) fn me_count(&self) -> usize {
        self.mes.len()
    }

    /// Returns whether a handle with this value was ever returned.
    pub(crate) fn was_given(&self, handle: u64) -> bool {
        (1..=self.handles).contains(&handle)
    }

    /// Describes each object that exists.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = String> {
        let eqs = self
            .eqs
            .iter()
            .map(|(eq, queue)| format!("EQ {:#x} of call {} was not freed", eq.0, queue.made_by));
        let mes = self.mes.iter().map(|(me, entry)| {
            let MeSpec { portal, match_bits, .. } = entry.spec;
            format!(
                "ME {:#x} of call {} (portal {portal}, bits {match_bits}) was not unlinked",
                me.0, entry.made_by
            )
        });
        let mds = self.mds.values().map(|md| {
            let what = match (md.aborted, md.is_sending()) {
                (true, _) => "was unlinked, but its last event has not come",
                (false, true) => "was not unlinked, and is still sending",
                (false, false) => "was not unlinked",
            };
            format!("MD {:#x} of call {} ({} bytes) {what}", md.handle.0, md.made_by, md.memory.len())
        });
        eqs.chain(mes).chain(mds)
    }
}
