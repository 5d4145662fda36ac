//! The cost of LNet's event callback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lnet_api::{Event, EventKind, Handler};
use lnet_nid::{Nid, ProcessId};
use lnet_region::{IoVec, Region};
use nlx_core::{BufferHandle, Core, CoreTm, Operation, OperationKind};
use nlx_kcore::Kcore;

use super::silent::{IdleDrive, NullLnet};
use super::{LENGTH, PORTAL, start};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::Sample;

/// Callbacks between two readings of the clock: the yield of a busy poll of the network.
const BATCH: usize = 64;

/// Transfer machines on one portal: fewer than there are ids.
const PER_PORTAL: usize = 4000;

/// An event callback of LNet with `COUNT` other transfer machines, `COUNT` receive buffers posted
/// on this one and `COUNT` events waiting to be taken: nanoseconds. Each callback is for another
/// buffer than the one before, the worst case for memory, and the last of its operation; afterwards
/// the buffer is posted again.
pub(crate) fn among<const COUNT: usize>(round: &Round) -> Result<Sample> {
    let mut setup = CallbackSetup::new(COUNT)?;
    let (mut events, mut spent) = (0, Duration::ZERO);
    // The first batches only warm up.
    let mut left = COUNT.div_ceil(BATCH);
    while spent < round.time {
        let marks = [(); BATCH].map(|()| setup.any());
        let begin = Instant::now();
        for mark in marks {
            setup.handler.event(&message(mark));
        }
        setup.handler.wake();
        let took = begin.elapsed();
        setup.take_and_post(BATCH)?;
        if left > 0 {
            left -= 1;
            continue;
        }
        (events, spent) = (events + BATCH, spent + took);
    }
    Ok(Sample::of(spent.as_secs_f64() * 1e9 / events as f64))
}

struct CallbackSetup {
    lnet: Arc<NullLnet>,
    handler: Handler,
    tm: Box<dyn CoreTm>,
    /// The marks of the MDs of posted buffers.
    posted: Vec<u64>,
    random: u64,
    _others: Vec<Box<dyn CoreTm>>,
}

impl CallbackSetup {
    fn new(count: usize) -> Result<CallbackSetup> {
        let lnet = Arc::new(NullLnet::default());
        let core = Kcore::new(lnet.clone(), IdleDrive::new());
        let other = |number: usize| start(&*core, PORTAL + 1 + (number / PER_PORTAL) as u32, 1);
        let others = (0..count).map(other).collect::<Result<Vec<_>>>()?;
        // Those that are posted, those whose events wait, and a batch.
        let buffers = 2 * count + BATCH;
        let tm = start(&*core, PORTAL, buffers as u32)?;
        let memory = IoVec::whole(Region::heap(LENGTH as usize).map_err(BenchError::nlx("take memory"))?);
        let post = |_| {
            let buffer = core.register(&memory).map_err(BenchError::nlx("register a buffer"))?;
            receive(&*tm, buffer, 1)?;
            Ok(lnet.user_ptr())
        };
        let posted = (0..buffers).map(post).collect::<Result<Vec<_>>>()?;
        let handler =
            lnet.handler().ok_or(BenchError::Wrong { subject: "event queues", value: 0, expected: 1 })?;
        let mut setup =
            CallbackSetup { lnet, handler, tm, posted, random: 0x2545_f491_4f6c_dd1d, _others: others };
        for _ in 0..count {
            let mark = setup.any();
            setup.handler.event(&message(mark));
        }
        Ok(setup)
    }

    /// Removes and returns one of the posted buffers.
    fn any(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let at = (self.random % self.posted.len() as u64) as usize;
        self.posted.swap_remove(at)
    }

    fn take_and_post(&mut self, events: usize) -> Result<()> {
        for taken in 0..events as u64 {
            let event = self.tm.event_get().map_err(BenchError::nlx("take an event"))?;
            let event = event.ok_or(BenchError::Wrong {
                subject: "events of a batch",
                value: taken,
                expected: events as u64,
            })?;
            receive(&*self.tm, event.buffer(), 1)?;
            self.posted.push(self.lnet.user_ptr());
        }
        Ok(())
    }
}

/// Returns the event of a message that fills its buffer.
fn message(mark: u64) -> Event {
    let mut event = Event::blank(EventKind::Put, ProcessId::lnet(Nid::LOOPBACK));
    (event.user_ptr, event.mlength, event.hdr_data, event.unlinked) = (mark, 8, 7 << 52 | 31, true);
    event
}

/// Posts a receive buffer.
pub(super) fn receive(tm: &dyn CoreTm, buffer: BufferHandle, max_messages: u32) -> Result<()> {
    let kind = OperationKind::Receive { min_receive_size: LENGTH, max_messages };
    let operation = Operation { buffer, cookie: 0, kind };
    tm.submit(&operation).map(drop).map_err(BenchError::nlx("post a receive buffer"))
}
