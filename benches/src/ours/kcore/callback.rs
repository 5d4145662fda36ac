use std::sync::Arc;
use std::time::{Duration, Instant};

use lnet_api::{Event, EventHandler, EventKind};
use lnet_nid::{Nid, ProcessId};
use lnet_region::{IoVec, Region};
use nlx_core::{BufferHandle, Core, CoreTm, Operation, OperationKind};
use nlx_kcore::Kcore;

use super::silent::{Silent, Still};
use super::{LENGTH, PORTAL, start};
use crate::error::{BenchError, Result};
use crate::keys;
use crate::measure::Round;
use crate::meter::Sample;

/// Callbacks between two looks at the clock: what a busy poll of the network brings.
const BATCH: usize = 64;

/// Transfer machines on one portal: fewer than there are ids.
const PER_PORTAL: usize = 4000;

/// An event callback of LNet with `COUNT` other transfer machines, `COUNT` receive buffers posted on this one and `COUNT`
/// events waiting to be taken: nanoseconds. Each is for another buffer than the one before, as memory likes it least.
pub(crate) fn among<const COUNT: usize>(round: &Round) -> Result<Sample> {
    let rig = Rig::new(COUNT)?;
    let (mut at, mut events, mut spent) = (0, 0_u64, Duration::ZERO);
    // The first batches only warm up.
    let mut left = COUNT.div_ceil(BATCH);
    while spent < round.time {
        let begin = Instant::now();
        for _ in 0..BATCH {
            rig.handler.event(&rig.message(at));
            at = rig.next[at] as usize;
        }
        rig.handler.wake();
        let took = begin.elapsed();
        rig.take(BATCH)?;
        if left > 0 {
            left -= 1;
            continue;
        }
        (events, spent) = (events + BATCH as u64, spent + took);
    }
    Ok(Sample::of(spent.as_secs_f64() * 1e9 / events as f64))
}

struct Rig {
    handler: Arc<dyn EventHandler>,
    tm: Box<dyn CoreTm>,
    /// The marks of the buffers' MDs.
    marks: Vec<u64>,
    /// Which buffer's turn is next.
    next: Vec<u32>,
    _others: Vec<Box<dyn CoreTm>>,
}

impl Rig {
    fn new(count: usize) -> Result<Rig> {
        let lnet = Arc::new(Silent::default());
        let core = Kcore::new(lnet.clone(), Still::new());
        let other = |number: usize| start(&*core, PORTAL + 1 + (number / PER_PORTAL) as u32, 1);
        let others = (0..count).map(other).collect::<Result<Vec<_>>>()?;
        // Room for one event of each buffer that waits, and for a batch.
        let messages = (1 + BATCH.div_ceil(count)) as u32;
        let tm = start(&*core, PORTAL, count as u32 * messages)?;
        let memory = IoVec::whole(Region::heap(LENGTH as usize).map_err(BenchError::nlx("take memory"))?);
        let post = |_| {
            let buffer = core.register(&memory).map_err(BenchError::nlx("register a buffer"))?;
            receive(&*tm, buffer, messages)?;
            Ok(lnet.user_ptr())
        };
        let marks = (0..count).map(post).collect::<Result<Vec<_>>>()?;
        let handler =
            lnet.handler().ok_or(BenchError::Wrong { what: "event queues", value: 0, expected: 1 })?;
        let rig = Rig { handler, tm, marks, next: keys::chain(count), _others: others };
        for number in 0..count {
            rig.handler.event(&rig.message(number));
        }
        Ok(rig)
    }

    /// A message has come into a buffer, which may take more.
    fn message(&self, buffer: usize) -> Event {
        let mut event = Event::blank(EventKind::Put, ProcessId::lnet(Nid::LOOPBACK));
        (event.user_ptr, event.mlength, event.hdr_data) = (self.marks[buffer], 8, 7 << 52 | 31);
        event
    }

    fn take(&self, events: usize) -> Result<()> {
        let taken = (0..events).filter_map(|_| self.tm.event_get()).count();
        match taken == events {
            true => Ok(()),
            false => Err(BenchError::Wrong {
                what: "events of a batch",
                value: taken as u64,
                expected: events as u64,
            }),
        }
    }
}

/// Posts a receive buffer.
pub(super) fn receive(tm: &dyn CoreTm, buffer: BufferHandle, max_messages: u32) -> Result<()> {
    let kind = OperationKind::Receive { min_receive_size: LENGTH, max_messages };
    let operation = Operation { buffer, cookie: 0, kind };
    tm.submit(&operation).map(drop).map_err(BenchError::nlx("post a receive buffer"))
}
