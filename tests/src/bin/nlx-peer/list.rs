//! The commands that run a list of operations, which both ends derive from one seed: `Expect` posts
//! the buffers at the target, `Run` starts the operations at the initiator. Every event and every
//! byte must match the list.

use lnet_api::{AckRequest, Event, EventKind, Get, MdOptions, MeSpec, Position, Put, Threshold, Unlink};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};

use crate::memory::Scattered;
use crate::op::{Kind, PeerOp};
use crate::station::{Job, Outcome, PeerNode, Tag};
use crate::words::Words;

/// The common state of both ends of a list.
struct List {
    seed: u64,
    max: usize,
    count: u32,
    /// The other end's process id.
    peer: ProcessId,
    /// The operations that have started and not ended.
    open: Vec<Option<(PeerOp, Scattered)>>,
    ended: u32,
    failed: Vec<String>,
}

impl List {
    fn new(words: &Words<'_>, peer: &str) -> Result<List, String> {
        let peer = ProcessId { nid: words.value::<Nid>(peer)?, pid: Pid::LNET };
        let count = words.value("count")?;
        let open = (0..count).map(|_| None).collect();
        let (seed, max) = (words.value("seed")?, words.value_or("max", 1 << 20)?);
        Ok(List { seed, max, count, peer, open, ended: 0, failed: Vec::new() })
    }

    /// Ends an operation after its last event at this end, and checks it with `judge`.
    fn end(&mut self, number: u32, judge: impl FnOnce(&PeerOp, &Scattered) -> Result<(), String>) -> Outcome {
        let Some((op, memory)) = self.open.get_mut(number as usize).and_then(Option::take) else {
            return Outcome::Wrong(format!("operation {number} has ended already"));
        };
        self.ended += 1;
        if let Err(reason) = judge(&op, &memory) {
            return Outcome::Wrong(format!("operation {number}: {reason}: {op:?}"));
        }
        if self.ended == self.count {
            let (ok, failed) = (self.count as usize - self.failed.len(), self.failed.len());
            return Outcome::Done(format!("ok={ok} failed={failed} errors={}", self.failed.join(",")));
        }
        Outcome::GoesOn
    }
}

/// The target's end: posts a buffer per operation and prints `posted`, then `done` when all have
/// been used.
pub(crate) struct Expect(List);

impl Expect {
    pub(crate) fn new(words: &Words<'_>, station: &PeerNode) -> Result<Expect, String> {
        let mut list = List::new(words, "from")?;
        for number in 0..list.count {
            let op = PeerOp::nth(list.seed, number, list.max);
            let memory = Scattered::new(&op.targets()[0], op.fragments[1], op.seed)?;
            let me = MeSpec {
                portal: op.portal,
                match_id: if op.unique { list.peer } else { ProcessId::ANY },
                match_bits: op.match_bits,
                ignore_bits: MatchBits(0),
                unlink: Unlink::Auto,
                position: Position::After,
            };
            let way = if op.kind == Kind::Get { MdOptions::OP_GET } else { MdOptions::OP_PUT };
            let managed = if op.managed { MdOptions::MANAGE_REMOTE } else { MdOptions::empty() };
            let tag = Tag { job: words.job, number };
            let md =
                station.md(&memory.memory, Threshold::Limited(1), way | managed | MdOptions::TRUNCATE, tag);
            let me = station.lnet().me_attach(&me).map_err(|error| error.to_string())?;
            station.lnet().md_attach(me, md, Unlink::Auto).map_err(|error| error.to_string())?;
            list.open[number as usize] = Some((op, memory));
        }
        station.say("posted", words.job, "");
        Ok(Expect(list))
    }
}

impl Job for Expect {
    fn event(&mut self, _: &PeerNode, number: u32, event: &Event) -> Outcome {
        let peer = self.0.peer;
        self.0.end(number, |op, memory| {
            let kind = if op.kind == Kind::Get { EventKind::Get } else { EventKind::Put };
            let got = (event.kind, event.status, event.unlinked, event.initiator, event.match_bits);
            let wanted = (kind, Ok(()), true, peer, op.match_bits);
            if got != wanted {
                return Err(format!("{got:?}, not {wanted:?}"));
            }
            let got = (event.rlength as usize, event.mlength as usize, event.offset as usize, event.hdr_data);
            let rlength = if op.kind == Kind::Get { 0 } else { op.length };
            let wanted = (rlength, op.moved(), op.offset, op.hdr_data());
            if got != wanted {
                return Err(format!("lengths, offset and data {got:?}, not {wanted:?}"));
            }
            memory.check(&op.targets()[1])
        })
    }
}

/// The initiator's end: runs the operations and prints `done` when all have ended. Failures of the
/// network are counted; any other fault is `wrong`.
pub(crate) struct Run {
    list: List,
    begun: u32,
    in_flight: u32,
    /// ACKs and REPLYs of operations that have not ended: the operation, the number of bytes
    /// transferred, the offset.
    answers: Vec<(u32, usize, u64)>,
}

impl Run {
    pub(crate) fn new(words: &Words<'_>, station: &PeerNode) -> Result<Run, String> {
        let (list, in_flight) = (List::new(words, "to")?, words.value_or("inflight", 16)?);
        let mut run = Run { list, begun: 0, in_flight, answers: Vec::new() };
        run.go_on(words.job, station)?;
        Ok(run)
    }

    fn go_on(&mut self, job: u32, station: &PeerNode) -> Result<(), String> {
        while self.begun < self.list.count && self.begun - self.list.ended < self.in_flight {
            let number = self.begun;
            let op = PeerOp::nth(self.list.seed, number, self.list.max);
            let memory = Scattered::new(&op.initiators()[0], op.fragments[0], !op.seed)?;
            self.begun += 1;
            self.begin(station, &op, &memory, Tag { job, number })?;
            self.list.open[number as usize] = Some((op, memory));
        }
        Ok(())
    }

    fn begin(&self, station: &PeerNode, op: &PeerOp, memory: &Scattered, tag: Tag) -> Result<(), String> {
        let operations = if op.kind == Kind::Put { 1 } else { 2 };
        let md = station.md(&memory.memory, Threshold::Limited(operations), MdOptions::empty(), tag);
        let lnet = station.lnet();
        let md = lnet.md_bind(md, Unlink::Auto).map_err(|error| error.to_string())?;
        let (source, target) = (None, self.list.peer);
        let (portal, match_bits, offset) = (op.portal, op.match_bits, op.offset as u32);
        let begun = if op.kind == Kind::Get {
            lnet.get(&Get { source, md, target, portal, match_bits, offset })
        } else {
            let ack = if op.kind == Kind::AckedPut { AckRequest::Ack } else { AckRequest::NoAck };
            lnet.put(&Put { source, md, ack, target, portal, match_bits, offset, hdr_data: op.hdr_data() })
        };
        begun.map_err(|error| error.to_string())
    }
}

impl Job for Run {
    fn event(&mut self, station: &PeerNode, number: u32, event: &Event) -> Outcome {
        if let Err(errno) = event.status {
            self.list.failed.push(format!("{errno:?}"));
        }
        let answer = matches!(event.kind, EventKind::Ack | EventKind::Reply) && event.status.is_ok();
        if answer {
            self.answers.push((number, event.mlength as usize, event.offset));
        }
        if !event.unlinked {
            return Outcome::GoesOn;
        }
        // The ACK or REPLY may come before the SEND event.
        let answer =
            self.answers.iter().position(|(of, ..)| *of == number).map(|at| self.answers.swap_remove(at));
        let outcome = self.list.end(number, |op, memory| {
            let wanted = (op.kind != Kind::Put).then(|| (number, op.moved(), 0));
            if event.status.is_err() {
                return Ok(());
            }
            if answer != wanted {
                return Err(format!("the answer is {answer:?}, not {wanted:?}"));
            }
            memory.check(&op.initiators()[1])
        });
        match self.go_on(event_job(event), station) {
            Ok(()) => outcome,
            Err(reason) => Outcome::Wrong(reason),
        }
    }
}

fn event_job(event: &Event) -> u32 {
    Tag::from(event.user_ptr).job
}
