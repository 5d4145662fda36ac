//! The operations of programs.

use lnet_api::{
    AckRequest, Get, LNet, LNetError, Lnd, Md, MdOptions, MeSpec, Position, Put, Threshold, Unlink, corked,
};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_region::{Fragment, IoVec, MAX_FRAGMENTS, Region, RegionError};

use super::node::{Call, Called, make};
use super::operations::{Kind, Operation, pattern};
use super::{Later, World};
use crate::kit::Transport;

const PORTAL: u32 = 34;

/// The time within which a scheduler thread takes a shard without a driver.
const SCHED_THREAD_NS: u64 = 10_000_000;

/// The time after which a call planned for an upcall is made outside of it.
const NESTED_NS: u64 = 2_000_000_000;

impl<T: Transport> World<T> {
    pub(super) fn act(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..8 => self.unlink_one(),
            8..12 => self.poll_for_no_reason(),
            12..22 if self.scenario.lazy > 0 => self.attend_to_lazy(),
            _ => self.operate(),
        }
    }

    /// Begins an operation between two nodes that are alive.
    fn operate(&mut self) -> Result<(), String> {
        let from = self.rng.index(self.nodes.len());
        let to = self.rng.index(self.nodes.len());
        let burst = self.rng.pick(&[1, 1, 1, 2, T::BURST_MAX]);
        if from == to || !self.scenario.transport.is_reached(to) {
            return Ok(());
        }
        if burst > 1 && self.rng.chance(self.scenario.corked) {
            self.seen.nodes.corked += 1;
            return corked(|| self.operate_in_a_row(from, to, burst));
        }
        self.operate_in_a_row(from, to, burst)
    }

    fn operate_in_a_row(&mut self, from: usize, to: usize, count: u32) -> Result<(), String> {
        for _ in 0..count {
            let kind = self.rng.pick(&[Kind::Put { ack: true }, Kind::Put { ack: false }, Kind::Get]);
            if matches!(kind, Kind::Put { .. }) && self.rng.chance(self.scenario.lazy) {
                self.begin_unposted(from, to, kind)?;
            } else {
                self.begin(from, to, kind)?;
            }
        }
        Ok(())
    }

    fn size(&mut self) -> usize {
        if self.settling && self.rng.chance(T::FILLING) {
            return self.longest_at_end();
        }
        let size = match self.rng.below(10) {
            0..5 => self.rng.below(200) as usize,
            5..8 => self.rng.pick(&T::SIZES[..T::USUAL_SIZES]),
            8 => self.rng.below(20_000) as usize,
            _ => self.rng.pick(T::SIZES),
        };
        // At the end every message must arrive in time, over any network, so payloads are shorter.
        size.min(if self.settling { self.longest_at_end() } else { self.scenario.longest })
    }

    fn longest_at_end(&self) -> usize {
        self.scenario.transport.longest_at_end().min(self.scenario.longest)
    }

    /// Allocates memory in several pieces: with gaps between them, or each in a separate region.
    fn memory(&mut self, size: usize, fill: Option<u64>) -> Result<IoVec, RegionError> {
        let most = self.rng.pick(&[1, 1, 3, MAX_FRAGMENTS]);
        let apart = self.rng.chance(2_000);
        let pieces = most.clamp(1, size.max(1));
        let length = size / pieces;
        let whole = Region::heap(size + pieces + 1)?;
        let piece = |piece: usize| {
            let rest = if piece + 1 == pieces { size - length * piece } else { length }.max(1);
            match apart {
                true => Fragment::new(Region::heap(rest)?, 0, rest),
                false => Fragment::new(whole.clone(), piece * (length + 1), rest),
            }
        };
        let fragments: Vec<Fragment> = (0..pieces).map(piece).collect::<Result<_, _>>()?;
        let memory = IoVec::new(fragments)?.trimmed(size)?;
        if let Some(number) = fill {
            memory.write(0..size)?.copy_from(0, &pattern(number, size));
        }
        Ok(memory)
    }

    /// Posts a buffer at the target, then starts the initiator; returns the operation's number.
    pub(super) fn begin(&mut self, from: usize, to: usize, kind: Kind) -> Result<Option<u64>, String> {
        let portal = Portal::new(PORTAL).unwrap_or(Portal::RESERVED);
        self.begin_at(from, to, kind, portal, true)
    }

    /// Begins an operation as [`World::begin`] does, at a given portal; the buffer may be posted
    /// later.
    pub(super) fn begin_at(
        &mut self,
        from: usize,
        to: usize,
        kind: Kind,
        portal: Portal,
        posted: bool,
    ) -> Result<Option<u64>, String> {
        let ni = self.rng.index(self.scenario.nis);
        let nids = (self.nodes[from].nids[ni], self.nodes[to].nids[ni]);
        if !self.nodes[from].alive || !self.nodes[to].alive || !self.nodes[from].up.contains(&nids.0) {
            return Ok(None);
        }
        let number = self.table.next();
        let size = self.size();
        let is_put = kind != Kind::Get;
        let fills = [is_put, !is_put].map(|fills| fills.then_some(number));
        let text = |error: RegionError| error.to_string();
        let memory = [self.memory(size, fills[0]).map_err(text)?, self.memory(size, fills[1]).map_err(text)?];
        let operation = Operation {
            kind,
            from: self.party(from),
            to: self.party(to),
            nids,
            begun_ns: self.net.now_ns(),
            size,
            memory,
            md: None,
            me: None,
            sent: None,
            answered: None,
            delivered: 0,
            failed: 0,
            met: false,
            unlinked: false,
            ended: false,
        };
        self.trace(|| format!("node {from}: operation {number}: {kind:?} of {size} bytes to {}", nids.1));
        self.table.begin(number, operation);
        if posted {
            self.post(number, portal)?;
        }
        let call = self.bind(number, portal)?;
        if self.rng.chance(self.scenario.nested) && !self.settling {
            self.nodes[from].inbox.nested.lock().push_back((number, call));
            self.plan_later(NESTED_NS, Later::Nested(from));
            self.seen.nodes.nested += 1;
        } else {
            self.call(from, number, call)?;
        }
        self.check()?;
        Ok(Some(number))
    }

    /// Posts the buffer of an operation.
    pub(super) fn post(&mut self, number: u64, portal: Portal) -> Result<(), String> {
        let here = self.rng.index(self.scenario.partitions);
        let position = self.rng.pick(&[Position::After, Position::Local, Position::Before]);
        let Some(operation) = self.table.operations.get_mut(&number) else { return Ok(()) };
        let spec = MeSpec {
            portal,
            match_id: ProcessId::ANY,
            match_bits: MatchBits(number),
            // The ignore bit makes the portal a wildcard portal.
            ignore_bits: MatchBits(1 << 63),
            unlink: Unlink::Retain,
            position,
        };
        let is_put = operation.kind != Kind::Get;
        let allows = if is_put { MdOptions::OP_PUT } else { MdOptions::OP_GET };
        let target = &self.nodes[operation.to.node];
        let md = Md {
            memory: operation.memory[1].clone(),
            // The threshold has no limit, so that a message that arrives twice is detected.
            threshold: Threshold::Infinite,
            max_size: 0,
            options: allows | MdOptions::MANAGE_REMOTE,
            user_ptr: number << 1 | 1,
            eq: Some(target.eq),
        };
        let posted: Result<_, LNetError> = lnet_cpt::with_partition(here, || {
            let me = target.engine.me_attach(&spec)?;
            target.engine.md_attach(me, md, Unlink::Retain)?;
            Ok(me)
        });
        let to = operation.to.node;
        operation.me = Some(posted.map_err(|error| format!("node {to} posts a buffer: {error}"))?);
        Ok(())
    }

    /// Binds the memory from which the initiator sends, or into which it receives; returns the call
    /// that starts the operation. For every second operation the call itself binds the memory.
    fn bind(&mut self, number: u64, portal: Portal) -> Result<Call, String> {
        let Some(operation) = self.table.operations.get_mut(&number) else {
            return Err("no such".to_owned());
        };
        let Operation { kind, from, nids, .. } = *operation;
        let answers = u32::from(kind != Kind::Put { ack: false });
        let md = Md {
            memory: operation.memory[0].clone(),
            threshold: Threshold::Limited(1 + answers),
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: number << 1,
            eq: Some(self.nodes[from.node].eq),
        };
        let (source, target, match_bits) = (Some(nids.0), ProcessId::lnet(nids.1), MatchBits(number));
        let get = Get { source, md: (), target, portal, match_bits, offset: 0 };
        let ack = if kind == (Kind::Put { ack: true }) { AckRequest::Ack } else { AckRequest::NoAck };
        let put = Put { source, md: (), ack, target, portal, match_bits, offset: 0, hdr_data: number };
        if number.is_multiple_of(2) {
            return Ok(match kind {
                Kind::Get => Call::BindGet(get.with_md(md).0),
                Kind::Put { .. } => Call::BindPut(put.with_md(md).0),
            });
        }
        let md = self.nodes[from.node].engine.md_bind(md, Unlink::Auto);
        let md = md.map_err(|error| format!("node {} binds a buffer: {error}", from.node))?;
        operation.md = Some(md);
        Ok(match kind {
            Kind::Get => Call::Get(get.with_md(md).0),
            Kind::Put { .. } => Call::Put(put.with_md(md).0),
        })
    }

    /// Makes a call outside of all upcalls.
    fn call(&mut self, node: usize, number: u64, call: Call) -> Result<(), String> {
        let here = self.rng.index(self.scenario.partitions);
        let engine = self.nodes[node].engine.clone();
        let result = lnet_cpt::with_partition(here, || make(&engine, call));
        self.come_for_what_is_left(node);
        self.called(number, result)
    }

    /// Plans a poll for messages that the LND leaves to the next poll: of the sending thread, or of
    /// a scheduler thread.
    fn come_for_what_is_left(&mut self, node: usize) {
        for shard in 0..self.nodes[node].shards.len() {
            if !self.nodes[node].lnd.arm(shard) {
                let at_ns = self.net.now_ns() + self.rng.between((0, SCHED_THREAD_NS));
                self.plan_poll(node, shard, at_ns);
            }
        }
    }

    /// Handles the result of a call. Its MD is unlinked now if that was requested before. A refused
    /// call has begun nothing: its buffer is unlinked, if there is one.
    pub(super) fn called(&mut self, number: u64, result: Called) -> Result<(), String> {
        let Some(operation) = self.table.operations.get_mut(&number) else { return Ok(()) };
        let error = match result {
            Ok(None) => return Ok(()),
            Ok(Some(md)) => {
                operation.md = Some(md);
                if operation.unlinked && operation.from.life == self.nodes[operation.from.node].life {
                    // ENOENT means that the MD is just being unlinked automatically.
                    let _ = self.nodes[operation.from.node].engine.md_unlink(md);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let legal =
            matches!(error, LNetError::NoRoute { .. } | LNetError::NotLocal { .. } | LNetError::ShuttingDown);
        // The MD was unlinked before the operation began.
        let stale = matches!(error, LNetError::NoSuch { .. }) && operation.unlinked;
        if !legal && !stale {
            return Err(format!("operation {number} is refused: {error}"));
        }
        operation.unlinked = true;
        let (node, md) = (operation.from.node, operation.md);
        if let Some(md) = md.filter(|_| operation.from.life == self.nodes[node].life) {
            let _ = self.nodes[node].engine.md_unlink(md);
        } else if md.is_none() && !operation.ended {
            // There will be no event for the operation.
            operation.ended = true;
            self.table.seen.unlinked += 1;
        }
        Ok(())
    }

    /// Makes the planned nested calls that no upcall has made.
    pub(super) fn call_nested(&mut self, node: usize) -> Result<(), String> {
        loop {
            let next = self.nodes[node].inbox.nested.lock().pop_front();
            let Some((number, call)) = next else { return Ok(()) };
            self.call(node, number, call)?;
        }
    }

    /// Unlinks an operation in flight.
    fn unlink_one(&mut self) -> Result<(), String> {
        let open: Vec<u64> = self.table.open().map(|(number, _)| number).collect();
        if open.is_empty() {
            return Ok(());
        }
        let number = open[self.rng.index(open.len())];
        self.trace(|| format!("operation {number} is unlinked"));
        let Some(operation) = self.table.operations.get_mut(&number) else { return Ok(()) };
        operation.unlinked = true;
        let (node, md) = (operation.from.node, operation.md);
        if let Some(md) = md {
            // ENOENT means that the MD is just being unlinked automatically.
            let _ = self.nodes[node].engine.md_unlink(md);
        }
        Ok(())
    }

    fn poll_for_no_reason(&mut self) -> Result<(), String> {
        let node = self.rng.index(self.nodes.len());
        if !self.nodes[node].alive || self.nodes[node].shards.is_empty() {
            return Ok(());
        }
        let shard = self.rng.index(self.nodes[node].shards.len());
        if self.nodes[node].shards[shard].asleep_until_ns > self.net.now_ns() {
            return Ok(());
        }
        self.poll(node, shard)
    }
}
