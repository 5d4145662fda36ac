//! The costs of the storage client's interface without a network: time, bytes and allocations.

use std::sync::Arc;
use std::time::Duration;

use nlx::{Buffer, Domain, EndPoint, IoVec, Op, Region, TmOptions, TransferMachine};
use nlx_kcore::Kcore;

use crate::error::{BenchError, Result};
use crate::heap::Watch;
use crate::measure::Round;
use crate::meter::{self, Sample, Timed};
use crate::ours::engine::cost::allocations_of;
use crate::ours::engine::node::Node;
use crate::ours::kcore::PORTAL;
use crate::ours::kcore::silent::{IdleDrive, NullLnet};

/// Bytes of a message, and of a buffer.
const LENGTH: usize = 64;

/// Operations between two readings of the clock.
const BATCH: u64 = 256;

/// Timeouts are between this and twice this: none expires during a measurement.
const TIMEOUT_SECONDS: u64 = 3600;

/// A message of a transfer machine to itself, both of whose operations have a timeout, beside
/// `PENDING` other operations with a timeout: nanoseconds.
pub(crate) fn with_timeouts<const PENDING: usize>(round: &Round) -> Result<Sample> {
    letters(round, Letter::new(PENDING)?)
}

/// A message as in [`with_timeouts`], but without a timeout, beside the same pending operations.
pub(crate) fn without_timeouts<const PENDING: usize>(round: &Round) -> Result<Sample> {
    letters(round, Letter { timeouts: false, ..Letter::new(PENDING)? })
}

fn letters(round: &Round, mut letter: Letter) -> Result<Sample> {
    let timed = Timed::warm(round.time, || (0..BATCH).try_for_each(|_| letter.send()).map(|()| BATCH))?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Registering a buffer and releasing it: nanoseconds.
pub(crate) fn register(round: &Round) -> Result<Sample> {
    let (domain, memory) = (silent(), memory()?);
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            drop(registered(&domain, &memory)?);
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Resident memory of each of `TMS` transfer machines without operations: bytes.
pub(crate) fn machine<const TMS: usize>(_: &Round) -> Result<Sample> {
    let domain = silent();
    let mut tms = Vec::with_capacity(TMS);
    let before = meter::resident_bytes()?;
    for _ in 0..TMS {
        tms.push(start(&domain)?);
    }
    Ok(Sample::of((meter::resident_bytes()? - before) / TMS as f64))
}

/// Bytes of each of `PEERS` end points.
pub(crate) fn end_point<const PEERS: u32>(_: &Round) -> Result<Sample> {
    let domain = silent();
    let tm = start(&domain)?;
    let mut peers = Vec::with_capacity(PEERS as usize);
    let watch = Watch::begin();
    for number in 0..PEERS {
        let [_, a, b, c] = number.to_be_bytes();
        let address = format!("10.{a}.{b}.{c}@tcp:12345:31:1");
        peers.push(tm.end_point(&address).map_err(BenchError::nlx("name a peer"))?);
    }
    Ok(Sample::of(watch.bytes() as f64 / f64::from(PEERS)))
}

/// Bytes of each of `BUFFERS` registered buffers, without its memory.
pub(crate) fn buffer<const BUFFERS: usize>(_: &Round) -> Result<Sample> {
    let (domain, memory) = (silent(), memory()?);
    let mut buffers = Vec::with_capacity(BUFFERS);
    let watch = Watch::begin();
    for _ in 0..BUFFERS {
        buffers.push(registered(&domain, &memory)?);
    }
    Ok(Sample::of(watch.bytes() as f64 / BUFFERS as f64))
}

/// Allocations per operation with a timeout, with its posting and its events.
pub(crate) fn allocations(_: &Round) -> Result<Sample> {
    let mut letter = Letter::new(0)?;
    allocations_of(2, || letter.send())
}

/// A transfer machine that sends to itself.
struct Letter {
    own: EndPoint,
    buffers: Vec<Buffer>,
    timeouts: bool,
    random: u64,
    tm: TransferMachine,
    _node: Node,
}

impl Letter {
    /// Creates one with this number of posted passive buffers that have a timeout.
    fn new(pending: usize) -> Result<Letter> {
        let node = Node::new(1)?;
        let domain = Domain::over(Kcore::new(node.lnet(), IdleDrive::new()));
        let (tm, memory) = (start(&domain)?, memory()?);
        let buffers = vec![registered(&domain, &memory)?, registered(&domain, &memory)?];
        let own = tm.own_end_point().clone();
        let random = 0x2545_f491_4f6c_dd1d;
        let mut letter = Letter { own, buffers, timeouts: true, random, tm, _node: node };
        for _ in 0..pending {
            let (buffer, timeout) = (registered(&domain, &memory)?, letter.timeout());
            letter
                .tm
                .start(Op::passive_receive(buffer).timeout(timeout))
                .map_err(BenchError::nlx("stage a buffer"))?;
        }
        Ok(letter)
    }

    fn timeout(&mut self) -> Option<Duration> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let nanoseconds = self.random % (TIMEOUT_SECONDS * 1_000_000_000);
        self.timeouts.then(|| Duration::from_secs(TIMEOUT_SECONDS) + Duration::from_nanos(nanoseconds))
    }

    fn send(&mut self) -> Result<()> {
        let wrong = |value| BenchError::Wrong { subject: "events of a message", value, expected: 2 };
        let (Some(from), Some(to)) = (self.buffers.pop(), self.buffers.pop()) else { return Err(wrong(0)) };
        let (first, second) = (self.timeout(), self.timeout());
        self.tm
            .start(Op::receive(to).min_receive_size(LENGTH).timeout(first))
            .map_err(BenchError::nlx("post a receive buffer"))?;
        self.tm
            .start(Op::send(from, &self.own).length(LENGTH).timeout(second))
            .map_err(BenchError::nlx("send a message"))?;
        while let Some(event) = self.tm.take().map_err(BenchError::nlx("take an event"))? {
            event.status.map_err(BenchError::nlx("a message"))?;
            drop(event.message);
            self.buffers.extend(event.buffer);
        }
        match self.buffers.len() {
            2 => Ok(()),
            ended => Err(wrong(ended as u64)),
        }
    }
}

/// Returns a domain over an LNet that does nothing.
fn silent() -> Domain {
    Domain::over(Kcore::new(Arc::new(NullLnet::default()), IdleDrive::new()))
}

fn start(domain: &Domain) -> Result<TransferMachine> {
    let address = format!("0@lo:12345:{PORTAL}:*");
    domain
        .transfer_machine(&address, TmOptions::default())
        .map_err(BenchError::nlx("start a transfer machine"))
}

fn memory() -> Result<IoVec> {
    Region::heap(LENGTH).map(IoVec::whole).map_err(BenchError::nlx("take memory"))
}

/// Returns a buffer; all share this memory, whose content does not matter.
fn registered(domain: &Domain, memory: &IoVec) -> Result<Buffer> {
    domain.register(memory.clone()).map_err(BenchError::nlx("register a buffer"))
}
