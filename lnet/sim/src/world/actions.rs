//! The operations of programs.

use lnet_api::{AckRequest, Get, LNet, Md, MdHandle, MdOptions, MeSpec, Position, Put, Threshold, Unlink};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use lnet_region::{Fragment, IoVec, ReadVec, Region, WriteVec};

use super::World;
use crate::model::{NewMd, NewMe};

/// The portals of the programs: two with wildcard entries, one of them without local ones, and
/// usually one with unique entries.
const PORTALS: [u32; 3] = [10, 11, 34];

/// The limit for leases of programs at a time.
const LEASES_MAX: usize = 6;

/// The number of different match bits; few, so that messages meet buffers.
const BITS: u64 = 4;

/// A lease of a program on bytes of an MD.
pub(super) struct ProgramLease {
    pub(super) node: usize,
    md: NewMd,
    name: u64,
    _lease: Slice,
}

/// A lease of bytes, which no message can use for writing while it lasts.
#[allow(dead_code, reason = "held, and dropped")]
enum Slice {
    Read(ReadVec),
    Written(WriteVec),
}

impl World {
    pub(super) fn act(&mut self) {
        if self.rng.chance(self.scenario.trouble) {
            return self.make_trouble();
        }
        let node = self.rng.index(self.nodes.len());
        match self.rng.below(100) {
            0..36 => self.post(node),
            36..66 => self.put(node),
            66..82 => self.get(node),
            82..89 => self.unlink_md(node),
            89..92 => self.unlink_me(node),
            92..95 => self.change_lazy(node),
            95..98 => self.look(node),
            98 => self.call_in_vain(node),
            _ => self.advance(node),
        }
    }

    fn portal(&mut self) -> Portal {
        let [one, other, unique] = PORTALS;
        Portal::new(self.rng.pick(&[one, one, other, other, unique])).unwrap_or(Portal::RESERVED)
    }

    fn some_nid(&mut self) -> Nid {
        let node = self.rng.index(self.nodes.len());
        let at = self.rng.index(self.nodes[node].nids.len());
        self.nodes[node].nids[at]
    }

    fn unlink(&mut self) -> Unlink {
        if self.rng.chance(7_500) { Unlink::Auto } else { Unlink::Retain }
    }

    fn spec(&mut self) -> MeSpec {
        let portal = self.portal();
        let unique = portal.get() == PORTALS[2];
        // Some entries do not fit their portal.
        let unique = unique != self.rng.chance(200);
        let one = self.some_nid();
        let ignore = if unique { 0 } else { self.rng.pick(&[0, 0, 0, 1, 1 << 52, u64::MAX]) };
        let id = match self.rng.below(4) {
            _ if unique => ProcessId::lnet(one),
            0 => ProcessId::new(one, Pid::ANY),
            1 => ProcessId::new(Nid::ANY, Pid::LNET),
            _ => ProcessId::ANY,
        };
        let other = if portal.get() == PORTALS[0] { Position::After } else { Position::Local };
        let positions = [Position::After, other, Position::Before, other];
        MeSpec {
            portal,
            match_id: id,
            match_bits: self.bits(),
            ignore_bits: MatchBits(ignore),
            unlink: self.unlink(),
            position: self.rng.pick(&positions),
        }
    }

    /// Returns match bits of one of two transfer machines.
    fn bits(&mut self) -> MatchBits {
        let number = self.rng.below(BITS);
        MatchBits((number & 1) << 52 | number >> 1)
    }

    /// Allocates memory with random content, in one to three pieces.
    fn memory(&mut self, bytes: usize) -> Option<IoVec> {
        let region = Region::heap(bytes.max(1) + 8).ok()?;
        let cuts = if bytes < 3 { 0 } else { self.rng.index(3) };
        let piece = bytes / (cuts + 1);
        let mut fragments = Vec::new();
        for cut in 0..=cuts {
            let length = if cut == cuts { bytes - piece * cuts } else { piece };
            // Between the pieces there is a gap of one byte.
            fragments.push(Fragment::new(region.clone(), cut * (piece + 1), length.max(1)).ok()?);
        }
        let memory = IoVec::new(fragments).ok()?.trimmed(bytes).ok()?;
        let content: Vec<u8> = (0..bytes).map(|_| self.rng.next_u64() as u8).collect();
        memory.write(0..bytes).ok()?.copy_from(0, &content);
        Some(memory)
    }

    fn size(&mut self) -> usize {
        match self.rng.below(10) {
            0 => 0,
            1 => self.rng.below(5_000) as usize,
            _ => self.rng.below(120) as usize,
        }
    }

    fn md(&mut self, node: usize, threshold: Threshold, options: MdOptions) -> Option<Md> {
        let size = self.size();
        let memory = self.memory(size)?;
        let eq = self.rng.index(self.nodes[node].eqs.len());
        let eq = Some(self.nodes[node].eqs[eq]);
        Some(Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq })
    }

    /// Posts an entry, usually with an MD; or attaches an MD to an entry that has none.
    fn post(&mut self, node: usize) {
        if self.rng.chance(1_500) {
            let mes = self.watch.model.lock().mes(node);
            let free: Vec<_> = mes.into_iter().filter(|&(_, _, taken)| !taken).collect();
            if !free.is_empty() {
                let (me, handle, _) = free[self.rng.index(free.len())];
                return self.attach(node, me, handle);
            }
        }
        let mut spec = self.spec();
        let beside = if self.rng.chance(2_000) { self.some_me(node) } else { None };
        let (expected, result) = match beside {
            Some((me, handle)) => {
                let portal = self.watch.model.lock().portal_of(node, me);
                spec.portal = portal.unwrap_or(spec.portal);
                self.trace(|| format!("node {node}: beside ME {me} {spec:?}"));
                let expected = self.watch.model.lock().me_insert(node, me, &spec);
                (expected, self.nodes[node].engine.me_insert(handle, &spec))
            }
            None => {
                self.trace(|| format!("node {node}: {spec:?}"));
                let expected = self.watch.model.lock().me_attach(node, &spec);
                (expected, self.nodes[node].engine.me_attach(&spec))
            }
        };
        self.seen.inserted += u64::from(beside.is_some() && result.is_ok());
        self.compare("posting an entry", expected.map(|_| ()), &result);
        if let (Ok(me), Ok(handle)) = (expected, result) {
            self.watch.model.lock().name_me(node, me, handle);
            if self.rng.chance(9_000) {
                self.attach(node, me, handle);
            }
        }
    }

    fn attach(&mut self, node: usize, me: NewMe, handle: lnet_api::MeHandle) {
        let mut options = self.rng.pick(&[
            MdOptions::OP_PUT,
            MdOptions::OP_PUT,
            MdOptions::OP_GET,
            MdOptions::OP_PUT | MdOptions::OP_GET,
        ]);
        for (option, chance) in
            [(MdOptions::TRUNCATE, 5_000), (MdOptions::MANAGE_REMOTE, 2_500), (MdOptions::ACK_DISABLE, 1_000)]
        {
            options.set(option, self.rng.chance(chance));
        }
        let threshold = match self.rng.below(8) {
            0 => Threshold::Infinite,
            number => Threshold::Limited(1 + (number as u32) / 3),
        };
        let Some(mut md) = self.md(node, threshold, options) else { return };
        if !md.memory.is_empty() && self.rng.chance(1_500) {
            md.options |= MdOptions::MAX_SIZE;
            md.max_size = self.rng.between((1, md.memory.len() as u64)) as u32;
        }
        let unlink = self.unlink();
        let id = self.watch.model.lock().md_attach(node, me, &md, unlink);
        md.user_ptr = id;
        self.trace(|| format!("node {node}: attaches {md:?} {unlink:?}"));
        let result = self.nodes[node].engine.md_attach(handle, md, unlink);
        self.compare("md_attach", Ok(()), &result);
        self.name(node, id, result.ok());
    }

    fn name(&mut self, node: usize, md: NewMd, handle: Option<MdHandle>) {
        if let Some(handle) = handle {
            self.watch.model.lock().name_md(node, md, handle);
        }
    }

    /// Returns an MD for an operation that needs a threshold of `needs`, usually a new one.
    fn bound(&mut self, node: usize, needs: u32) -> Option<(NewMd, MdHandle)> {
        if self.rng.chance(1_500) {
            let known = self.watch.model.lock().some_bound_md(node, &mut self.rng);
            if known.is_some() {
                return known;
            }
        }
        let mut options = MdOptions::empty();
        options.set(MdOptions::NO_TRACK_RESPONSE, self.rng.chance(500));
        options.set(MdOptions::TRUNCATE, self.rng.chance(2_000));
        let threshold = match self.rng.below(10) {
            0 => Threshold::Infinite,
            1 | 2 => Threshold::Limited(needs * self.rng.between((1, 4)) as u32),
            _ => Threshold::Limited(needs),
        };
        let mut md = self.md(node, threshold, options)?;
        let unlink = if self.rng.chance(9_000) { Unlink::Auto } else { Unlink::Retain };
        let id = self.watch.model.lock().md_bind(node, &md, unlink);
        md.user_ptr = id;
        let result = self.nodes[node].engine.md_bind(md, unlink);
        self.compare("md_bind", Ok(()), &result);
        let handle = result.ok()?;
        self.name(node, id, Some(handle));
        Some((id, handle))
    }

    fn target(&mut self, node: usize) -> ProcessId {
        let nid = match self.rng.below(40) {
            0 => Nid::LOOPBACK,
            // A NID that no node has.
            1 => Nid::new_v4(lnet_nid::Net::TCP, std::net::Ipv4Addr::new(10, 77, 9, 9)),
            2 => self.nodes[node].nids[0],
            _ => {
                let other = node + 1 + self.rng.index(self.nodes.len() - 1);
                let nids = &self.nodes[other % self.nodes.len()].nids;
                nids[self.rng.index(nids.len())]
            }
        };
        ProcessId::lnet(nid)
    }

    fn source(&mut self, node: usize) -> Option<Nid> {
        self.rng.chance(1_000).then(|| {
            let at = self.rng.index(self.nodes[node].nids.len());
            self.nodes[node].nids[at]
        })
    }

    fn put(&mut self, node: usize) {
        let ack = self.rng.pick(&[AckRequest::Ack, AckRequest::NoAck]);
        let Some((id, md)) = self.bound(node, if ack == AckRequest::Ack { 2 } else { 1 }) else { return };
        self.puts += 1;
        let put = Put {
            source: self.source(node),
            md,
            ack,
            target: self.target(node),
            portal: self.portal(),
            match_bits: self.bits(),
            offset: self.rng.below(100) as u32,
            hdr_data: self.puts,
        };
        self.trace(|| format!("node {node}: {put:?}"));
        let expected = self.watch.model.lock().put(node, id, &put);
        let result = self.nodes[node].engine.put(&put);
        self.compare("put", expected, &result);
    }

    fn get(&mut self, node: usize) {
        let Some((id, md)) = self.bound(node, 2) else { return };
        let get = Get {
            source: self.source(node),
            md,
            target: self.target(node),
            portal: self.portal(),
            match_bits: self.bits(),
            offset: self.rng.below(100) as u32,
        };
        self.trace(|| format!("node {node}: {get:?}"));
        let expected = self.watch.model.lock().get(node, id, &get);
        let result = self.nodes[node].engine.get(&get);
        self.compare("get", expected, &result);
    }

    fn unlink_md(&mut self, node: usize) {
        let mds = self.watch.model.lock().mds(node);
        if mds.is_empty() {
            return;
        }
        let (id, handle) = mds[self.rng.index(mds.len())];
        self.unlink_one_md(node, id, handle);
    }

    pub(super) fn unlink_one_md(&mut self, node: usize, id: NewMd, handle: MdHandle) {
        self.trace(|| format!("node {node}: unlinks MD {id}"));
        let expected = self.watch.model.lock().md_unlink(node, id);
        let result = self.nodes[node].engine.md_unlink(handle);
        self.compare("md_unlink", expected, &result);
    }

    fn some_me(&mut self, node: usize) -> Option<(NewMe, lnet_api::MeHandle)> {
        let mes = self.watch.model.lock().mes(node);
        let (id, handle, _) = *mes.get(self.rng.index(mes.len()))?;
        Some((id, handle))
    }

    fn unlink_me(&mut self, node: usize) {
        if let Some((id, handle)) = self.some_me(node) {
            self.unlink_one_me(node, id, handle);
        }
    }

    pub(super) fn unlink_one_me(&mut self, node: usize, id: NewMe, handle: lnet_api::MeHandle) {
        self.trace(|| format!("node {node}: unlinks ME {id}"));
        let expected = self.watch.model.lock().me_unlink(node, id);
        let result = self.nodes[node].engine.me_unlink(handle);
        self.compare("me_unlink", expected, &result);
    }

    fn change_lazy(&mut self, node: usize) {
        let (portal, lazy) = (self.portal(), self.rng.chance(6_000));
        self.set_lazy(node, portal, lazy);
    }

    pub(super) fn set_lazy(&mut self, node: usize, portal: Portal, lazy: bool) {
        self.trace(|| format!("node {node}: portal {} lazy: {lazy}", portal.get()));
        self.watch.model.lock().set_lazy(node, portal.get(), lazy);
        self.nodes[node].engine.set_lazy(portal, lazy);
    }

    pub(super) fn portals() -> impl Iterator<Item = Portal> {
        PORTALS.into_iter().filter_map(|portal| Portal::new(portal).ok())
    }

    /// Begins a program's lease for reading or writing an MD's memory, or ends one.
    fn look(&mut self, node: usize) {
        if self.leases.len() == LEASES_MAX || self.rng.chance(3_000) {
            let at = self.rng.index(self.leases.len().max(1));
            return self.end_leases(|index, _| index == at);
        }
        let mds = self.watch.model.lock().mds(node);
        let Some(&(md, _)) = mds.get(self.rng.index(mds.len().max(1))) else { return };
        let memory = self.watch.model.lock().memory(node, md).filter(|memory| !memory.is_empty());
        let Some(memory) = memory else { return };
        let start = self.rng.index(memory.len());
        let range = start..start + 1 + self.rng.index(memory.len() - start);
        let write = self.rng.chance(3_000);
        // While messages use the bytes, the lease is refused.
        let lease = match write {
            true => memory.write(range.clone()).map(Slice::Written),
            false => memory.read(range.clone()).map(Slice::Read),
        };
        if let Ok(lease) = lease {
            self.trace(|| format!("node {node}: leases at {range:?} of MD {md}, writes: {write}"));
            let name = self.watch.model.lock().lease(node, md, (range.start as u64, range.end as u64), write);
            self.leases.push(ProgramLease { node, md, name, _lease: lease });
        }
    }

    /// Ends programs' leases.
    pub(super) fn end_leases(&mut self, which: impl Fn(usize, &ProgramLease) -> bool) {
        let mut model = self.watch.model.lock();
        let mut at = 0;
        self.leases.retain(|look| {
            let ends = which(at, look);
            at += 1;
            if ends {
                model.give_back(look.node, look.md, look.name);
            }
            !ends
        });
    }

    /// Checks that a handle without an object is refused.
    fn call_in_vain(&mut self, node: usize) {
        let handle = MdHandle(self.rng.next_u64() | 1 << 63);
        let result = self.nodes[node].engine.md_unlink(handle);
        self.compare("md_unlink of nothing", Err(lnet_api::Errno::ENOENT), &result);
    }
}
