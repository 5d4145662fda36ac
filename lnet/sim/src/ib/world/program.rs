//! What programs do.

use lnet_api::{AckRequest, Get, LNet, LNetError, Md, MdOptions, MeSpec, Position, Put, Threshold, Unlink};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_region::{Fragment, IoVec, MAX_FRAGMENTS, Region, RegionError};

use super::IbWorld;
use super::ledger::{Kind, Operation, Party, pattern};
use super::node::portals;

/// Sizes either side of a boundary: an IMMEDIATE message's payload, memory that is worth registering, LNet's maximum.
const SIZES: [usize; 10] = [0, 1, 3_975, 3_976, 3_977, 4_096, 8_191, 65_537, 300_000, 1 << 20];

impl IbWorld {
    pub(super) fn act(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..8 => {
                self.unlink_one();
                Ok(())
            }
            8..20 if self.scenario.lazy > 0 => self.post_one_late(),
            _ => self.operate(),
        }
    }

    /// Begins operations between two nodes that are there.
    fn operate(&mut self) -> Result<(), String> {
        let from = self.rng.index(self.nodes.len());
        let to = self.rng.index(self.nodes.len());
        let burst = self.rng.pick(&[1, 1, 1, 2, 10, 40]);
        if from == to {
            return Ok(());
        }
        for _ in 0..burst {
            let kind = self.rng.pick(&[Kind::Put { ack: true }, Kind::Put { ack: false }, Kind::Get]);
            let late = kind != Kind::Get && self.rng.chance(self.scenario.lazy);
            self.begin(from, to, kind, late)?;
        }
        Ok(())
    }

    fn size(&mut self) -> usize {
        let size = match self.rng.below(10) {
            0..5 => self.rng.below(200) as usize,
            5..7 => self.rng.below(20_000) as usize,
            _ => self.rng.pick(&SIZES),
        };
        size.min(self.scenario.longest)
    }

    /// Memory in some pieces: with gaps between them, or each in a region of its own.
    fn memory(&mut self, size: usize, fill: Option<u64>) -> Result<IoVec, RegionError> {
        let most = self.rng.pick(&[1, 1, 1, 3, MAX_FRAGMENTS]);
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

    fn party(&self, node: usize) -> Party {
        (node, self.nodes[node].life)
    }

    /// Posts a buffer at the target, unless that is done later, and asks the initiator to begin; gives the operation's number.
    pub(super) fn begin(
        &mut self,
        from: usize,
        to: usize,
        kind: Kind,
        late: bool,
    ) -> Result<Option<u64>, String> {
        if !self.nodes[from].alive || !self.nodes[from].up || !self.nodes[to].alive {
            return Ok(None);
        }
        let number = self.ledger.next();
        let size = self.size();
        let is_put = kind != Kind::Get;
        let text = |error: RegionError| error.to_string();
        let memory = [
            self.memory(size, is_put.then_some(number)).map_err(text)?,
            self.memory(size, (!is_put).then_some(number)).map_err(text)?,
        ];
        let mut operation = Operation::new(kind, self.party(from), self.party(to), size, memory);
        operation.begun_ns = self.net.now_ns();
        operation.late = late;
        self.trace(|| {
            format!("node {from}: operation {number}: {kind:?} of {size} bytes to {to}, late: {late}")
        });
        self.ledger.operations.insert(number, operation);
        self.ledger.seen.operations += 1;
        if !late {
            self.post(number)?;
        }
        self.initiate(number)?;
        Ok(Some(number))
    }

    /// Posts the buffer of an operation.
    fn post(&mut self, number: u64) -> Result<(), String> {
        let Some(operation) = self.ledger.operations.get_mut(&number) else { return Ok(()) };
        let (to, life) = operation.to;
        let target = &self.nodes[to];
        if target.life != life || !target.alive {
            return Ok(());
        }
        let spec = MeSpec {
            portal: portals()[usize::from(operation.late)],
            match_id: ProcessId::ANY,
            match_bits: MatchBits(number),
            ignore_bits: MatchBits(1 << 63),
            unlink: Unlink::Retain,
            position: Position::After,
        };
        let allows = if operation.kind == Kind::Get { MdOptions::OP_GET } else { MdOptions::OP_PUT };
        let md = Md {
            memory: operation.memory[1].clone(),
            // More than is needed, so that a message that comes twice is noticed.
            threshold: Threshold::Infinite,
            max_size: 0,
            options: allows | MdOptions::MANAGE_REMOTE,
            user_ptr: number << 1 | 1,
            eq: Some(target.eq),
        };
        let posted: Result<_, LNetError> = (|| {
            let me = target.engine.me_attach(&spec)?;
            target.engine.md_attach(me, md, Unlink::Retain)?;
            Ok(me)
        })();
        operation.me = Some(posted.map_err(|error| format!("node {to} posts a buffer: {error}"))?);
        Ok(())
    }

    /// Binds what the initiator sends from, or receives into, and begins.
    fn initiate(&mut self, number: u64) -> Result<(), String> {
        let Some(operation) = self.ledger.operations.get_mut(&number) else { return Ok(()) };
        let (from, to) = (operation.from.0, operation.to.0);
        let node = &self.nodes[from];
        let answers = u32::from(operation.kind != Kind::Put { ack: false });
        let md = Md {
            memory: operation.memory[0].clone(),
            threshold: Threshold::Limited(1 + answers),
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: number << 1,
            eq: Some(node.eq),
        };
        let md = node.engine.md_bind(md, Unlink::Auto).map_err(|error| error.to_string())?;
        operation.md = Some(md);
        let (source, target) = (Some(node.nid), ProcessId::lnet(self.nodes[to].nid));
        let (portal, match_bits): (Portal, _) = (portals()[usize::from(operation.late)], MatchBits(number));
        let begun = match operation.kind {
            Kind::Get => node.engine.get(&Get { source, md, target, portal, match_bits, offset: 0 }),
            Kind::Put { ack } => node.engine.put(&Put {
                source,
                md,
                ack: if ack { AckRequest::Ack } else { AckRequest::NoAck },
                target,
                portal,
                match_bits,
                offset: 0,
                hdr_data: number,
            }),
        };
        match begun {
            Ok(()) => Ok(()),
            Err(LNetError::NoRoute { .. } | LNetError::NotLocal { .. } | LNetError::ShuttingDown) => {
                operation.unlinked = true;
                let _ = self.nodes[from].engine.md_unlink(md);
                Ok(())
            }
            Err(error) => Err(format!("operation {number} is refused: {error}")),
        }
    }

    /// Posts the buffer of an operation that went to a lazy portal.
    fn post_one_late(&mut self) -> Result<(), String> {
        let unposted = |(number, it): (&u64, &Operation)| (it.late && it.me.is_none()).then_some(*number);
        let unposted: Vec<u64> = self.ledger.operations.iter().filter_map(unposted).collect();
        if unposted.is_empty() {
            return Ok(());
        }
        let number = unposted[self.rng.index(unposted.len())];
        self.trace(|| format!("the buffer of operation {number} is posted"));
        self.post(number)
    }

    pub(super) fn post_all_late(&mut self) -> Result<(), String> {
        let unposted = |(number, it): (&u64, &Operation)| (it.late && it.me.is_none()).then_some(*number);
        let unposted: Vec<u64> = self.ledger.operations.iter().filter_map(unposted).collect();
        unposted.into_iter().try_for_each(|number| self.post(number))
    }

    /// Unlinks some operation in flight.
    fn unlink_one(&mut self) {
        let open: Vec<u64> = self.ledger.open().map(|(number, _)| number).collect();
        if open.is_empty() {
            return;
        }
        let number = open[self.rng.index(open.len())];
        self.trace(|| format!("operation {number} is unlinked"));
        let Some(operation) = self.ledger.operations.get_mut(&number) else { return };
        operation.unlinked = true;
        let (node, md) = (operation.from.0, operation.md);
        if let Some(md) = md {
            // ENOENT: it ends by itself at this moment.
            let _ = self.nodes[node].engine.md_unlink(md);
        }
    }

    /// What a node was told since this was last asked goes to the ledger.
    pub(super) fn take_events(&mut self, node: usize) -> Result<(), String> {
        let events = std::mem::take(&mut *self.nodes[node].inbox.0.lock());
        let party = self.party(node);
        for event in events {
            self.trace(|| {
                let (number, side) = (event.user_ptr >> 1, event.user_ptr & 1);
                let end = if event.unlinked { ", its last" } else { "" };
                format!(
                    "node {node}: operation {number}, side {side}: {:?} {:?}{end}",
                    event.kind, event.status
                )
            });
            self.ledger.event(party, &event)?;
        }
        Ok(())
    }
}
