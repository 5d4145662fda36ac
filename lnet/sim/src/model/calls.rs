//! The calls of programs: each is applied to the model first, and returns the expected result.

use lnet_api::{
    AckRequest, Errno, Event, EventKind, Get, Md, MdHandle, MdOptions, MeHandle, MeSpec, NiLimits, Position,
    Put, Threshold, Unlink,
};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};

use super::Model;
use super::node::{Lease, Md as MdModel, Me, Ni, Node, Out, OutKind, PortalEntry, Response};
use crate::Rng;

/// The model's id of a match entry.
pub(crate) type NewMe = u64;
/// The model's id of an MD: its `user_ptr`.
pub(crate) type NewMd = u64;

impl Model {
    pub(crate) fn add_node(&mut self, pid: Pid, cookie: u64, timeout_ns: u64) -> usize {
        self.nodes.push(Node::new(pid, cookie, timeout_ns, self.partitions));
        self.nodes.len() - 1
    }

    /// Replaces a node that has died: its objects are gone, and its memory is free. Returns that
    /// memory.
    pub(crate) fn restart_node(&mut self, node: usize, cookie: u64, now_ns: u64) -> Vec<lnet_region::IoVec> {
        let (pid, timeout_ns) = (self.nodes[node].pid, self.nodes[node].timeout_ns);
        let fresh = Node { now_ns, ..Node::new(pid, cookie, timeout_ns, self.partitions) };
        let dead = std::mem::replace(&mut self.nodes[node], fresh);
        self.owners.retain(|_, owner| *owner != node);
        dead.mds.into_values().map(|md| md.memory).collect()
    }

    /// Adds an NI whose peers belong to these partitions.
    pub(crate) fn add_ni(&mut self, node: usize, nid: Nid, limits: NiLimits, cpts: Vec<usize>) {
        self.owners.insert(nid, node);
        self.nodes[node].nis.push(Ni { nid, cpts, limits, stopping: false });
    }

    /// Marks an NI as about to stop.
    pub(crate) fn stop_ni(&mut self, node: usize, nid: Nid) {
        if let Some(ni) = self.nodes[node].nis.iter_mut().find(|ni| ni.nid == nid) {
            ni.stopping = true;
        }
        let queued_ack = |out: &Out| out.kind == OutKind::Ack && out.token.is_none() && out.ni == Some(nid);
        self.nodes[node].outs.retain(|_, out| !queued_ack(out));
        self.drop_waiting(node, |waiting| waiting.from.ni == Some(nid));
    }

    /// Removes an NI that has stopped.
    pub(crate) fn ni_gone(&mut self, node: usize, nid: Nid) {
        self.owners.remove(&nid);
        let node_ = &mut self.nodes[node];
        let left = node_.outs.values().any(|out| out.ni == Some(nid))
            || node_.responses.iter().any(|response| response.ni == Some(nid));
        node_.nis.retain(|ni| ni.nid != nid);
        // The number of late ACKs is unknown, as some of them may have ended with the NI.
        if left {
            self.fail(|| format!("node {node}: something of {nid} outlives it"));
        }
    }

    pub(crate) fn me_attach(&mut self, node: usize, spec: &MeSpec) -> Result<NewMe, Errno> {
        let (id, here, partitions) = (self.id(), self.here, self.partitions);
        let node = &mut self.nodes[node];
        let unique = !spec.match_id.nid.is_any() && !spec.match_id.pid.is_any() && spec.ignore_bits.0 == 0;
        let index = spec.portal.index();
        let gathers = node.entries(index).any(|(_, _, me)| me.is_masked() && !me.is_local());
        let portal = &mut node.portals[index];
        let before = spec.position == Position::Before;
        if portal.unique.is_some_and(|is| is != unique) || (unique && before) {
            return Err(Errno::EPERM);
        }
        portal.unique = Some(unique);
        let partition = match spec.position {
            _ if unique => 0,
            Position::Local => here,
            // While there are entries with ignore bits, one partition has all entries that a
            // message may match.
            _ if gathers || spec.ignore_bits.0 != 0 => index % partitions,
            // The partition follows from the transfer machine's id.
            _ => (index + (spec.match_bits.0 >> 52) as usize) % partitions,
        };
        let in_owner_process = |listed: &PortalEntry| listed.partition == partition;
        let place = match spec.position {
            Position::Before => 0,
            Position::After => portal.list.len(),
            // The entry goes behind all entries that were posted in its partition.
            Position::Local => {
                portal.list.iter().rposition(in_owner_process).map_or(portal.list.len(), |at| at + 1)
            }
        };
        portal.list.insert(place, PortalEntry { me: id, partition });
        portal.tables[partition].local |= !unique && partitions > 1 && spec.position == Position::Local;
        node.mes.insert(id, Me { spec: *spec, handle: None, md: None });
        Ok(id)
    }

    /// Posts an entry directly before or after another one of the same portal.
    pub(crate) fn me_insert(&mut self, node: usize, beside: NewMe, spec: &MeSpec) -> Result<NewMe, Errno> {
        let id = self.id();
        let node = &mut self.nodes[node];
        if spec.position == Position::Local {
            return Err(Errno::EINVAL);
        }
        if !node.mes.contains_key(&beside) {
            return Err(Errno::ENOENT);
        }
        let portal = &mut node.portals[spec.portal.index()];
        let unique = !spec.match_id.nid.is_any() && !spec.match_id.pid.is_any() && spec.ignore_bits.0 == 0;
        let place = portal.find(beside).ok_or(Errno::ENOENT)?;
        if portal.unique != Some(false) || unique {
            return Err(Errno::EPERM);
        }
        let after = usize::from(spec.position != Position::Before);
        let partition = portal.list[place].partition;
        portal.list.insert(place + after, PortalEntry { me: id, partition });
        node.mes.insert(id, Me { spec: *spec, handle: None, md: None });
        Ok(id)
    }

    /// Returns the portal of an entry.
    pub(crate) fn portal_of(&self, node: usize, me: NewMe) -> Option<lnet_nid::Portal> {
        self.nodes[node].mes.get(&me).map(|me| me.spec.portal)
    }

    pub(crate) fn name_me(&mut self, node: usize, me: NewMe, handle: MeHandle) {
        if let Some(me) = self.nodes[node].mes.get_mut(&me) {
            me.handle = Some(handle);
        }
    }

    fn enter_md(&mut self, node: usize, md: &Md, me: Option<u64>, unlink: Unlink) -> NewMd {
        let id = self.id();
        let shadow = md.memory.read(0..md.memory.len()).map(|bytes| bytes.to_vec()).unwrap_or_default();
        let model = MdModel {
            memory: md.memory.clone(),
            shadow,
            handle: None,
            me,
            bound: me.is_none(),
            auto: unlink == Unlink::Auto,
            options: md.options,
            left: match md.threshold {
                Threshold::Limited(left) => Some(left),
                Threshold::Infinite => None,
            },
            max_size: md.options.contains(MdOptions::MAX_SIZE).then_some(u64::from(md.max_size)),
            offset: 0,
            dead: false,
            aborted: false,
            busy: 0,
            leases: Vec::new(),
        };
        self.nodes[node].mds.insert(id, model);
        id
    }

    pub(crate) fn md_bind(&mut self, node: usize, md: &Md, unlink: Unlink) -> NewMd {
        self.enter_md(node, md, None, unlink)
    }

    /// Attaches an MD to an entry that has none.
    pub(crate) fn md_attach(&mut self, node: usize, me: NewMe, md: &Md, unlink: Unlink) -> NewMd {
        let id = self.enter_md(node, md, Some(me), unlink);
        let node_ = &mut self.nodes[node];
        let Some(entry) = node_.mes.get_mut(&me) else { return id };
        entry.md = Some(id);
        let portal = entry.spec.portal;
        let portal_ = &mut node_.portals[portal.index()];
        if let Some(place) = portal_.find(me) {
            let table = &mut portal_.tables[portal_.list[place].partition];
            (table.active, table.posted_ns) = (true, node_.now_ns);
        }
        self.retry(node, portal.get(), me);
        id
    }

    pub(crate) fn name_md(&mut self, node: usize, md: NewMd, handle: MdHandle) {
        let Some(known) = self.nodes[node].mds.get_mut(&md) else { return };
        if *known.handle.get_or_insert(handle) != handle {
            self.fail(|| format!("node {node}: MD {md} has two handles"));
        }
    }

    pub(crate) fn md_unlink(&mut self, node: usize, md: NewMd) -> Result<(), Errno> {
        if self.nodes[node].mds.get(&md).is_none_or(|md| md.dead) {
            return Err(Errno::ENOENT);
        }
        let event = self.nodes[node].blank(EventKind::Unlink);
        let busy = self.nodes[node].unlink(md, event, Ok(()));
        self.seen.unlinked_busy += u64::from(busy);
        self.seen.unlinked_idle += u64::from(!busy);
        Ok(())
    }

    pub(crate) fn me_unlink(&mut self, node: usize, me: NewMe) -> Result<(), Errno> {
        let gone = self.nodes[node].remove_me(me).ok_or(Errno::ENOENT)?;
        match gone.md {
            Some(md) => self.md_unlink(node, md),
            None => Ok(()),
        }
    }

    pub(crate) fn set_lazy(&mut self, node: usize, portal: u32, lazy: bool) {
        self.nodes[node].portals[portal as usize].lazy = lazy;
        if !lazy {
            self.drop_waiting(node, |waiting| waiting.portal == portal);
        }
    }

    pub(crate) fn put(&mut self, node: usize, md: NewMd, put: &Put) -> Result<(), Errno> {
        let (ni, source) = self.sendable(node, md, put.source, put.target)?;
        let response = self.id();
        let node_ = &mut self.nodes[node];
        let whole = (0, node_.md(md).len());
        if !node_.md(md).is_free(whole, false) {
            return Err(Errno::EBUSY);
        }
        let length = whole.1 as u32;
        let event = Event {
            target: put.target,
            portal: put.portal.get(),
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            rlength: length,
            mlength: length,
            offset: u64::from(put.offset),
            ..node_.blank(EventKind::Send)
        };
        let wanted = put.ack == AckRequest::Ack;
        let ack_wmd = if wanted { WireHandle::new(node_.cookie, put.md.0) } else { WireHandle::NONE };
        let body = Body::Put {
            ack_wmd,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            portal: put.portal.get(),
            offset: put.offset,
        };
        let header =
            Header { dest: put.target, src: ProcessId::new(source, node_.pid), payload_length: length, body };
        let out = Out {
            kind: OutKind::Put,
            md: Some(md),
            ni,
            peer: put.target.nid,
            header,
            range: whole,
            event: Some(event),
            deadline_ns: 0,
            response: if wanted { response } else { 0 },
            token: None,
        };
        if wanted {
            self.expect(node, response, md, EventKind::Ack, put.target, ni, source);
        }
        self.begin(node, out);
        Ok(())
    }

    pub(crate) fn get(&mut self, node: usize, md: NewMd, get: &Get) -> Result<(), Errno> {
        let (ni, source) = self.sendable(node, md, get.source, get.target)?;
        let response = self.id();
        let node_ = &mut self.nodes[node];
        let length = node_.md(md).len() as u32;
        let event = Event {
            target: get.target,
            portal: get.portal.get(),
            match_bits: get.match_bits,
            rlength: length,
            mlength: length,
            offset: u64::from(get.offset),
            ..node_.blank(EventKind::Send)
        };
        let body = Body::Get {
            return_wmd: WireHandle::new(node_.cookie, get.md.0),
            match_bits: get.match_bits,
            portal: get.portal.get(),
            src_offset: get.offset,
            sink_length: length,
        };
        let header =
            Header { dest: get.target, src: ProcessId::new(source, node_.pid), payload_length: 0, body };
        let out = Out {
            kind: OutKind::Get,
            md: Some(md),
            ni,
            peer: get.target.nid,
            header,
            range: (0, 0),
            event: Some(event),
            deadline_ns: 0,
            response,
            token: None,
        };
        self.expect(node, response, md, EventKind::Reply, get.target, ni, source);
        self.begin(node, out);
        Ok(())
    }

    fn begin(&mut self, node: usize, out: Out) {
        if let Some(md) = out.md {
            let md = self.nodes[node].md(md);
            md.consume();
            md.busy += 1;
        }
        let (ni, peer) = (out.ni, out.peer);
        let queue = self.nodes[node].outs.values();
        let crowded = queue.filter(|out| out.ni == ni && out.peer == peer).count() as u64;
        let credits =
            ni.and_then(|ni| self.nodes[node].ni(ni)).map_or(u64::MAX, |ni| ni.limits.peer_credits.into());
        self.seen.waited += u64::from(crowded >= credits);
        self.push(node, out);
    }

    #[allow(clippy::too_many_arguments, reason = "the response's own fields")]
    fn expect(
        &mut self,
        node: usize,
        id: u64,
        md: u64,
        kind: EventKind,
        target: ProcessId,
        ni: Option<Nid>,
        source: Nid,
    ) {
        let node = &mut self.nodes[node];
        let tracked = !node.md(md).options.contains(MdOptions::NO_TRACK_RESPONSE);
        let deadline_ns = tracked.then_some(node.now_ns + node.timeout_ns);
        node.responses.push(Response { id, md, kind, target, ni, source, deadline_ns, sent: false });
    }

    /// Returns the NIs by which an MD is sent, or the error.
    fn sendable(
        &mut self,
        node: usize,
        md: NewMd,
        source: Option<Nid>,
        target: ProcessId,
    ) -> Result<(Option<Nid>, Nid), Errno> {
        let node = &self.nodes[node];
        let usable = node.mds.get(&md).filter(|md| !md.dead && md.bound && !md.is_exhausted());
        usable.ok_or(Errno::ENOENT)?;
        if source.is_some_and(|nid| !node.is_local(nid)) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if node.is_local(target.nid) {
            return Ok((None, target.nid));
        }
        let leads = |ni: &&Ni| ni.nid.net() == target.nid.net() && source.is_none_or(|nid| nid == ni.nid);
        let ni = node.nis.iter().find(leads).ok_or(Errno::EHOSTUNREACH)?;
        Ok((Some(ni.nid), ni.nid))
    }

    /// Begins a program's lease on bytes of an MD, for reading or writing; returns its id.
    pub(crate) fn lease(&mut self, node: usize, md: NewMd, range: (u64, u64), write: bool) -> u64 {
        let id = self.id();
        self.nodes[node].md(md).leases.push(Lease { id, range, write });
        id
    }

    pub(crate) fn give_back(&mut self, node: usize, md: NewMd, lease: u64) {
        if let Some(md) = self.nodes[node].mds.get_mut(&md) {
            md.leases.retain(|known| known.id != lease);
        }
    }

    /// Returns the memory of an MD.
    pub(crate) fn memory(&self, node: usize, md: NewMd) -> Option<lnet_region::IoVec> {
        self.nodes[node].mds.get(&md).map(|md| md.memory.clone())
    }

    /// Returns the MDs of a node with their handles.
    pub(crate) fn mds(&self, node: usize) -> Vec<(NewMd, MdHandle)> {
        let mds = self.nodes[node].mds.iter();
        mds.filter_map(|(&id, md)| md.handle.map(|handle| (id, handle))).collect()
    }

    /// Returns the match entries of a node with their handles, and whether they have an MD.
    pub(crate) fn mes(&self, node: usize) -> Vec<(NewMe, MeHandle, bool)> {
        let mes = self.nodes[node].mes.iter();
        mes.filter_map(|(&id, me)| me.handle.map(|handle| (id, handle, me.md.is_some()))).collect()
    }

    /// Returns a bound MD that takes another operation, if there is one.
    pub(crate) fn some_bound_md(&self, node: usize, rng: &mut Rng) -> Option<(NewMd, MdHandle)> {
        let usable = |md: &MdModel| md.bound && !md.dead && !md.is_exhausted();
        let mds = self.nodes[node].mds.iter().filter(|(_, md)| usable(md));
        let mds: Vec<_> = mds.filter_map(|(&id, md)| md.handle.map(|handle| (id, handle))).collect();
        (!mds.is_empty()).then(|| mds[rng.index(mds.len())])
    }
}
