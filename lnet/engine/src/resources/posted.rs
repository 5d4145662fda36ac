//! The state of portals: match entries, the MDs attached to them, and how these take messages.

use std::sync::Arc;

use lnet_api::{Errno, Event, EventKind, LNetError, Md, MdHandle, MdOptions, MeHandle, MeSpec, Position};
use lnet_api::{Unlink, Verdict};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use nlx_sync::RuleEnd;

use super::entry::{MatchEntry, PortalKind};
use super::matching::{Found, ListPosition, Match, MatchRequest, Search, try_reserved};
use super::table::MatchTable;
use super::{Intake, MdTable, Receiving, Resources, deliver_payload};
use crate::common::Common;
use crate::drops::DropReason;
use crate::message::{Launch, MessageOp, OutgoingMessage, ack_of, is_push};
use crate::names::{MdLocation, MdName};
use crate::placement::{EntryPlacement, PLACED};
use crate::portal_state::PortalState;
use crate::slab::{Key, NONE};
use crate::work::DeferredWork;

/// One partition of the MEs, and of the MDs attached to them.
pub(crate) struct Posted {
    pub(super) mds: MdTable,
    /// The state of the portals that all partitions share.
    pub(super) portals: Arc<[PortalState]>,
    /// The match entries, by portal.
    pub(super) tables: Box<[MatchTable]>,
}

/// The MD that was attached, as the engine continues with it.
pub(crate) struct Attached {
    pub(crate) handle: MdHandle,
    /// Index of the entry's portal.
    pub(crate) portal: usize,
    /// True if messages wait on the portal: until they have tried the MD, no other PUT gets it.
    pub(crate) reserved: bool,
}

/// Result of a PUT or GET in one partition.
pub(crate) enum MatchAttempt {
    /// The message is received, or its reception has started.
    Taken(Verdict),
    /// An entry here matches, but cannot take the message.
    Refused(DropReason),
    /// No entry here matches.
    Nothing,
}

impl MatchAttempt {
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, MatchAttempt::Nothing)
    }
}

impl Resources for Posted {
    fn mds(&self) -> &MdTable {
        &self.mds
    }

    fn mds_mut(&mut self) -> &mut MdTable {
        &mut self.mds
    }

    /// Marks the MD as dead; also removes its ME if the ME was posted with `auto_unlink`.
    fn retire(&mut self, md: u32) {
        let objects = &mut self.mds.objects;
        objects.md_mut(md).dead = true;
        let me = std::mem::replace(&mut objects.md_mut(md).me, NONE);
        if me != NONE {
            let MatchEntry { portal, auto_unlink, ref mut md, .. } = objects[me];
            *md = NONE;
            self.tables[portal.index()].attached -= 1;
            if auto_unlink {
                self.remove_entry(me);
            }
        }
    }
}

impl Posted {
    pub(crate) fn new(common: &Arc<Common>, portals: &Arc<[PortalState]>, partition: usize) -> Posted {
        let room = common.room(partition);
        Posted {
            mds: MdTable::new(common, MdLocation { bound: false, partition }),
            portals: portals.clone(),
            tables: (0..Portal::COUNT).map(|_| MatchTable::new(&room)).collect(),
        }
    }

    /// Returns the partition of a new entry (S-308): on a unique portal that of its source; on a
    /// wildcard portal the caller's if `spec` says so, otherwise the home of its bits or of the
    /// portal.
    pub(crate) fn home(common: &Common, portal: &PortalState, spec: &MeSpec) -> usize {
        match (PortalKind::of(&spec.match_id, spec.ignore_bits), spec.position) {
            (PortalKind::Unique, _) => spec.match_id.nid.cpt_of(common.partitions()),
            (PortalKind::Wildcard, Position::Local) => common.current_partition(),
            (PortalKind::Wildcard, _) => {
                portal.placements().home(spec.portal.index(), exact_bits(spec), common.partitions())
            }
        }
    }

    /// Posts an entry at the head or the tail of its portal; this partition is its home.
    ///
    /// # Errors
    /// EPERM if the portal takes no such entry, ENOMEM if there are too many, or no memory.
    pub(crate) fn attach_entry(&mut self, spec: &MeSpec) -> Result<MeHandle, LNetError> {
        let MdTable { common, objects, location, .. } = &mut self.mds;
        objects.check_room()?;
        let (portal, partitions) = (spec.portal.index(), common.partitions());
        let (state, table) = (&self.portals[portal], &mut self.tables[portal]);
        let kind = state.decide(spec)?;
        let index = table.post(objects, &common.hasher, kind, spec)?;
        if kind == PortalKind::Wildcard && partitions > 1 {
            let entry = &mut objects[index];
            entry.turn = table.placed.turn(state, spec.position);
            entry.placement = match spec.position {
                Position::Local => EntryPlacement::Local,
                _ => EntryPlacement::of(portal, exact_bits(spec), location.partition, partitions),
            };
            table.placed.enter(state, entry.placement, entry.is_masked());
        }
        Ok(common.handles.me(location.partition, objects.key(index)))
    }

    /// Posts an entry right before or after another.
    ///
    /// # Errors
    /// The errors of [`Posted::attach_entry`]; ENOENT if the other is gone, EINVAL if it is on another
    /// portal.
    pub(crate) fn insert_entry(
        &mut self,
        (beside, key): (MeHandle, Key),
        spec: &MeSpec,
    ) -> Result<MeHandle, LNetError> {
        let MdTable { common, objects, location, .. } = &mut self.mds;
        let neighbour = objects.entry(key).ok_or_else(|| no_entry(beside))?;
        if neighbour.portal != spec.portal {
            let rule = "it must be the portal of the neighbouring entry";
            return Err(LNetError::Invalid { field: "portal", value: u64::from(spec.portal.get()), rule });
        }
        let (portal, partitions, turn) = (spec.portal.index(), common.partitions(), neighbour.turn);
        let (state, table) = (&self.portals[portal], &mut self.tables[portal]);
        if state.decide(spec)? == PortalKind::Unique {
            let rule = "entries of a unique portal have no order, so none can be put beside another";
            return Err(PortalState::refusal(spec, rule));
        }
        let index = table.insert(objects, &common.hasher, key.index, spec)?;
        if partitions > 1 {
            let entry = &mut objects[index];
            entry.turn = turn;
            entry.placement = EntryPlacement::of(portal, exact_bits(spec), location.partition, partitions);
            table.placed.enter(state, entry.placement, entry.is_masked());
        }
        Ok(common.handles.me(location.partition, objects.key(index)))
    }

    /// Removes an entry with its MD, regardless of the MD's options. Without `idle`, the MD's
    /// pending answers are withdrawn. With `idle`, the MD's messages in flight end as if it were
    /// still attached.
    ///
    /// # Errors
    /// ENOENT if it is gone.
    pub(crate) fn unlink_entry(
        &mut self,
        (me, key): (MeHandle, Key),
        idle: bool,
        work: &mut DeferredWork,
    ) -> Result<(), LNetError> {
        let md = self.mds.objects.entry(key).ok_or_else(|| no_entry(me))?.md;
        if md == NONE {
            self.remove_entry(key.index);
            return Ok(());
        }
        self.mds.objects[key.index].auto_unlink = true;
        match () {
            () if !idle => self.unlink_by_owner(md, work),
            () if self.mds.objects.md(md).busy > 0 => self.retire(md),
            () => self.unlink(md, self.mds.common.event(EventKind::Unlink), work),
        }
        Ok(())
    }

    fn remove_entry(&mut self, me: u32) {
        let objects = &mut self.mds.objects;
        let MatchEntry { portal, placement, .. } = objects[me];
        let table = &mut self.tables[portal.index()];
        table.withdraw(objects, me);
        if placement != EntryPlacement::Home {
            let state = &self.portals[portal.index()];
            table.placed.leave(state, placement, objects[me].is_masked());
            if !state.is_active(self.mds.location.partition) {
                // No message searches this partition, so none would unpublish them.
                table.placed.unpublish_unused(state);
            }
        }
        objects.remove_entry(me);
    }

    /// Attaches an MD to an entry. If the MD is refused, the entry is removed; an entry that has an
    /// MD already is kept.
    ///
    /// # Errors
    /// ENOENT if the entry is gone, EBUSY if it has an MD, EINVAL for an invalid MD, ENOMEM if
    /// there are too many.
    pub(crate) fn attach_md(
        &mut self,
        (me, key): (MeHandle, Key),
        md: Md,
        unlink: Unlink,
    ) -> Result<Attached, LNetError> {
        let entry = self.mds.objects.entry(key).ok_or_else(|| no_entry(me))?;
        if entry.md != NONE {
            return Err(LNetError::Busy { object: "ME", handle: me.0 });
        }
        let portal = entry.portal.index();
        let made = md.check_attached().and_then(|()| self.mds.enter(md, key.index, unlink));
        let index = made.inspect_err(|_| self.remove_entry(key.index))?;
        let MdTable { common, objects, location, .. } = &mut self.mds;
        objects[key.index].md = index;
        let table = &mut self.tables[portal];
        (table.attached, table.attached_at_ns) = (table.attached + 1, common.now_ns());
        let state = &self.portals[portal];
        state.activate(location.partition);
        if common.partitions() > 1 {
            PLACED.fence(RuleEnd::Store);
        }
        let reserved = state.has_waiting();
        objects.md_mut(index).reserved = reserved;
        Ok(Attached { handle: self.mds.handle(index), portal, reserved })
    }

    /// Ends the reservation of an entry's MD: all messages may take it.
    pub(crate) fn release(&mut self, me: Key) {
        if let Some(&MatchEntry { md, .. }) = self.mds.objects.entry(me)
            && md != NONE
        {
            self.mds.objects.md_mut(md).reserved = false;
        }
    }

    /// Searches a unique portal, among the entries for one NID of the source's node.
    pub(crate) fn search_unique(
        &mut self,
        portal: usize,
        nid: Nid,
        search: &Search<'_>,
        work: &mut DeferredWork,
    ) -> MatchAttempt {
        let found = self.tables[portal].find_unique(&self.mds.objects, &self.mds.common, nid, search.wanted);
        self.take(search, found, work)
    }

    /// Searches a wildcard portal.
    pub(crate) fn search_wildcard(
        &mut self,
        portal: usize,
        search: &Search<'_>,
        work: &mut DeferredWork,
    ) -> MatchAttempt {
        let table = &self.tables[portal];
        let found = table.find_wildcard(&self.mds.objects, &self.mds.common, search.wanted);
        self.take(search, found, work)
    }

    /// Searches a wildcard portal whose partitions are searched one after the other. If it finds no
    /// buffer, later messages may skip this partition, or all but one.
    pub(crate) fn search_in_turn(
        &mut self,
        portal: usize,
        search: &Search<'_>,
        work: &mut DeferredWork,
    ) -> MatchAttempt {
        let attempt = self.search_wildcard(portal, search, work);
        if attempt.is_nothing() {
            let (state, partition) = (&self.portals[portal], self.mds.location.partition);
            let table = &mut self.tables[portal];
            state.deactivate_if_unused(
                partition,
                table.attached,
                table.attached_at_ns,
                self.mds.common.now_ns(),
            );
            table.placed.unpublish_unused(state);
        }
        attempt
    }

    /// Returns the position in the portal's list of the first matching entry here; `None` if there
    /// is none. Also unpublishes kinds without entries.
    pub(crate) fn list_position(&mut self, portal: usize, wanted: &MatchRequest) -> Option<ListPosition> {
        let table = &mut self.tables[portal];
        table.placed.unpublish_unused(&self.portals[portal]);
        table.list_position(&self.mds.objects, &self.mds.common, wanted)
    }

    /// Tries the buffer of an entry for a PUT that already waits; `None` if the entry is gone.
    pub(crate) fn try_waiting(
        &mut self,
        me: Key,
        search: &Search<'_>,
        work: &mut DeferredWork,
    ) -> Option<MatchAttempt> {
        let found = try_reserved(&self.mds.objects, self.mds.objects.entry(me)?, search.wanted);
        Some(self.take(search, found, work))
    }

    /// Delivers the message to the MD that was found.
    fn take(&mut self, search: &Search<'_>, found: Found, work: &mut DeferredWork) -> MatchAttempt {
        let found = match found {
            Found::Nothing => return MatchAttempt::Nothing,
            Found::TooLong => return MatchAttempt::Refused(DropReason::TooLong),
            Found::Match(found) => found,
        };
        if !search.wanted.is_put() {
            return self.take_get(search, &found, work);
        }
        // An empty message touches no memory.
        let sink = match found.mlength {
            0 => None,
            _ => match self.mds.objects.md(found.md).memory.incoming(found.range()) {
                Ok(sink) => Some(sink),
                Err(_) => return MatchAttempt::Refused(DropReason::Busy),
            },
        };
        if !self.mds.receiving.make_room() {
            return MatchAttempt::Refused(DropReason::NoRoom);
        }
        self.consume(&found);
        let event = search.put_event(&self.mds.common, found.mlength, found.offset);
        let kind = if is_push(search.message.header) { Intake::Push } else { Intake::Put };
        let wants_no_ack = self.mds.objects.md(found.md).options.contains(MdOptions::ACK_DISABLE);
        let ack = if wants_no_ack { WireHandle::NONE } else { ack_of(search.message.header) };
        let receiving = Receiving { kind, md: found.md, back: search.message.inbound.back, event, ack };
        MatchAttempt::Taken(deliver_payload(self, receiving, sink, work))
    }

    fn take_get(&mut self, search: &Search<'_>, found: &Match, work: &mut DeferredWork) -> MatchAttempt {
        let Body::Get { return_wmd, match_bits, portal, .. } = search.message.header.body else {
            return MatchAttempt::Refused(DropReason::NoMatch);
        };
        let Ok(payload) = self.mds.objects.md(found.md).memory.outgoing(found.range()) else {
            return MatchAttempt::Refused(DropReason::Busy);
        };
        self.consume(found);
        self.mds.counters.recv_count += 1;
        let event = Event {
            portal,
            match_bits,
            mlength: found.mlength,
            offset: found.offset,
            ..search.message.inbound.event(&self.mds.common, EventKind::Get, search.message.header)
        };
        let header = Header {
            dest: search.message.header.src,
            src: ProcessId::new(search.message.header.dest.nid, self.mds.common.config.pid),
            payload_length: found.mlength,
            body: Body::Reply { dst_wmd: return_wmd },
        };
        let payload = (!payload.is_empty()).then_some(payload);
        let md = Some(MdName { location: self.mds.location, key: self.mds.objects.key(found.md) });
        let message = OutgoingMessage { op: MessageOp::Reply, md, event, response: Key::NULL };
        let (path, reply_to) = (search.message.inbound.back, Some(search.message.inbound.rx));
        work.launches.push(Launch { path, message, header, payload, reply_to });
        MatchAttempt::Taken(Verdict::Done)
    }

    /// Counts a match: the ME ends now if the MD is exhausted, the MD when its last message is done
    /// (S-108).
    fn consume(&mut self, found: &Match) {
        let md = self.mds.objects.md_mut(found.md);
        md.busy += 1;
        md.consume_range(found.offset, found.mlength);
        if md.auto_unlink && md.is_exhausted() {
            self.retire(found.md);
        }
    }

    /// Receives a push for which there is no buffer.
    pub(crate) fn receive_without_buffer(&mut self, search: &Search<'_>, work: &mut DeferredWork) -> Verdict {
        if !self.mds.receiving.make_room() {
            return Verdict::Discard;
        }
        let (back, ack) = (search.message.inbound.back, ack_of(search.message.header));
        let event = search.put_event(&self.mds.common, 0, 0);
        deliver_payload(self, Receiving { kind: Intake::Put, md: NONE, back, event, ack }, None, work)
    }

    /// Reports to the MD of a REPLY that it has left or failed.
    pub(crate) fn reply_left(
        &mut self,
        message: &OutgoingMessage,
        result: Result<(), Errno>,
        work: &mut DeferredWork,
    ) {
        if let Some(MdName { key, .. }) = message.md {
            self.finish(key.index, &message.event, result, work);
        }
    }
}

/// Returns the match bits of an entry without ignore bits.
fn exact_bits(spec: &MeSpec) -> Option<MatchBits> {
    (spec.ignore_bits.0 == 0).then_some(spec.match_bits)
}

fn no_entry(me: MeHandle) -> LNetError {
    LNetError::NoSuch { object: "ME", handle: me.0 }
}
