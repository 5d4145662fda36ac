//! The life of MEs and MDs, as their owner sees it (lnet-semantics 2 to 7).

use lnet_api::{LNetError, Md, MdHandle, MeHandle, MeSpec, Position, Unlink};
use lnet_nid::Nid;

use crate::engine::Engine;
use crate::names::Place;
use crate::portal::Kind;
use crate::portal_state::PortalState;
use crate::resources::Resources;
use crate::slab::NONE;
use crate::work::Work;

impl Engine {
    pub(crate) fn attach_entry(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        let portal = &self.portals[me.portal.index()];
        let kind = Kind::of(&me.match_id, me.ignore_bits);
        let partition = self.home(kind, me);
        let part = &mut *self.posted.lock(partition);
        part.objects.check_room()?;
        portal.decide(me)?;
        let table = &mut part.tables[me.portal.index()];
        let index = table.post(&mut part.objects, &self.common.hasher, kind, me)?;
        Ok(self.common.handles.me(partition, part.objects.key(index)))
    }

    /// The partition of a new entry (S-308): on a unique portal that of its source; on a wildcard portal the caller's if
    /// it says so, else always the same one.
    fn home(&self, kind: Kind, me: &MeSpec) -> usize {
        match (kind, me.position) {
            (Kind::Unique, _) => self.source_partition(me.match_id.nid),
            (Kind::Wildcard, Position::Local) => self.common.here(),
            (Kind::Wildcard, _) => me.portal.index() % self.common.partitions(),
        }
    }

    /// The partition of the entries for one source on unique portals.
    pub(crate) fn source_partition(&self, nid: Nid) -> usize {
        nid.cpt_of(self.common.partitions())
    }

    pub(crate) fn insert_entry(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        if me.position == Position::Local {
            let rule = "an entry is inserted before or after another";
            return Err(LNetError::Invalid { field: "position", value: me.position as u64, rule });
        }
        let gone = LNetError::NoSuch { object: "ME", handle: beside.0 };
        let (partition, key) = self.common.handles.open_me(beside).ok_or(gone.clone())?;
        let part = &mut *self.posted.lock(partition);
        let neighbour = part.objects.entry(key).ok_or(gone)?;
        if neighbour.portal != me.portal {
            let rule = "it must be the portal of the entry beside";
            return Err(LNetError::Invalid { field: "portal", value: u64::from(me.portal.get()), rule });
        }
        if self.portals[me.portal.index()].decide(me)? == Kind::Unique {
            let rule = "entries of a unique portal have no order, so none can be put beside another";
            return Err(PortalState::refusal(me, rule));
        }
        let table = &mut part.tables[me.portal.index()];
        let index = table.insert(&mut part.objects, &self.common.hasher, key.index, me)?;
        Ok(self.common.handles.me(partition, part.objects.key(index)))
    }

    pub(crate) fn unlink_entry(&self, me: MeHandle, work: &mut Work) -> Result<(), LNetError> {
        self.end_entry(me, |part, md| part.unlink_by_owner(&self.common, md, work))
    }

    /// As [`Engine::unlink_entry`], but messages that the MD has taken already end as if it were still there: no answer is
    /// taken back.
    pub(crate) fn retire_entry(&self, me: MeHandle, work: &mut Work) -> Result<(), LNetError> {
        self.end_entry(me, |part, md| part.unlink_when_idle(&self.common, md, work))
    }

    fn end_entry(&self, me: MeHandle, end: impl FnOnce(&mut Resources, u32)) -> Result<(), LNetError> {
        let gone = LNetError::NoSuch { object: "ME", handle: me.0 };
        let (partition, key) = self.common.handles.open_me(me).ok_or(gone.clone())?;
        let part = &mut *self.posted.lock(partition);
        let md = part.objects.entry(key).ok_or(gone)?.md;
        if md == NONE {
            part.remove_entry(key.index);
        } else {
            // It goes with its MD, however it was posted.
            part.objects[key.index].auto_unlink = true;
            end(part, md);
        }
        Ok(())
    }

    pub(crate) fn attach_md(
        &self,
        me: MeHandle,
        md: Md,
        unlink: Unlink,
        work: &mut Work,
    ) -> Result<MdHandle, LNetError> {
        let gone = LNetError::NoSuch { object: "ME", handle: me.0 };
        let (partition, key) = self.common.handles.open_me(me).ok_or(gone.clone())?;
        let (handle, portal, waited_for) = {
            let part = &mut *self.posted.lock(partition);
            let entry = part.objects.entry(key).ok_or(gone)?;
            if entry.md != NONE {
                return Err(LNetError::Busy { object: "ME", handle: me.0 });
            }
            let portal = entry.portal.index();
            let made = md.check_attached().and_then(|()| part.enter_md(&self.common, md, key.index, unlink));
            let index = made.inspect_err(|_| part.remove_entry(key.index))?;
            part.objects[key.index].md = index;
            let table = &mut part.tables[portal];
            (table.attached, table.attached_at_ns) = (table.attached + 1, self.common.now_ns());
            self.portals[portal].activate(partition);
            // Those that wait come first: until they have been asked, no other PUT gets it.
            let waited_for = self.portals[portal].has_waiting();
            part.objects.md_mut(index).reserved = waited_for;
            (part.md_handle(&self.common, index), portal, waited_for)
        };
        if waited_for {
            self.retry_delayed(portal, partition, key, work);
        }
        Ok(handle)
    }

    pub(crate) fn bind_md(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        md.check_bound()?;
        let part = &mut *self.bound.lock(self.common.here());
        let index = part.enter_md(&self.common, md, NONE, unlink)?;
        Ok(part.md_handle(&self.common, index))
    }

    pub(crate) fn unlink_md(&self, md: MdHandle, work: &mut Work) -> Result<(), LNetError> {
        let gone = LNetError::NoSuch { object: "MD", handle: md.0 };
        let (Place { bound, partition }, key) = self.common.handles.open_md(md).ok_or(gone.clone())?;
        let part = &mut *self.table(bound).lock(partition);
        let index = part.live_md(key).ok_or(gone)?;
        part.unlink_by_owner(&self.common, index, work);
        Ok(())
    }
}
