//! Operations of a transfer machine of the Core interface with itself.

use std::sync::Arc;

use lnet_region::{IoVec, Region};
use nlx_core::{BufferHandle, Core, CoreTm, Operation, OperationKind};
use nlx_kcore::Kcore;

use super::callback::receive;
use super::silent::{IdleDrive, NullLnet};
use super::{LENGTH, PORTAL, start};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::ours::engine::node::Node;

/// Messages between two readings of the clock.
const BATCH: u64 = 256;

/// Messages of 64 bytes of a transfer machine to itself: each posts a buffer, sends one, and takes
/// both events: nanoseconds.
pub(crate) fn put(round: &Round) -> Result<Sample> {
    let letter = Letter::new()?;
    let timed = Timed::warm(round.time, || (0..BATCH).try_for_each(|_| letter.send()).map(|()| BATCH))?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Registering a buffer and deregistering it: nanoseconds.
pub(crate) fn register(round: &Round) -> Result<Sample> {
    let core = Kcore::new(Arc::new(NullLnet::default()), IdleDrive::new());
    let memory = memory()?;
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            let buffer = core.register(&memory).map_err(BenchError::nlx("register a buffer"))?;
            core.deregister(buffer).map_err(BenchError::nlx("deregister a buffer"))?;
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// A transfer machine that sends to itself.
pub(super) struct Letter {
    tm: Box<dyn CoreTm>,
    buffers: [BufferHandle; 2],
    _node: Node,
}

impl Letter {
    pub(super) fn new() -> Result<Letter> {
        let node = Node::new(1)?;
        let core = Kcore::new(node.lnet(), IdleDrive::new());
        let buffer = || core.register(&memory()?).map_err(BenchError::nlx("register a buffer"));
        let buffers = [buffer()?, buffer()?];
        Ok(Letter { tm: start(&*core, PORTAL, 2)?, buffers, _node: node })
    }

    pub(super) fn send(&self) -> Result<()> {
        let [from, to] = self.buffers;
        receive(&*self.tm, to, 1)?;
        let kind = OperationKind::Send { length: LENGTH, to: self.tm.address() };
        let operation = Operation { buffer: from, cookie: 0, kind };
        self.tm.submit(&operation).map_err(BenchError::nlx("send a message"))?;
        let mut ended = 0;
        while let Some(event) = self.tm.event_get().map_err(BenchError::nlx("take an event"))? {
            ended += u64::from(event.status().is_ok());
        }
        match ended {
            2 => Ok(()),
            value => Err(BenchError::Wrong { subject: "events of a message", value, expected: 2 }),
        }
    }
}

fn memory() -> Result<IoVec> {
    Region::heap(LENGTH as usize).map(IoVec::whole).map_err(BenchError::nlx("take memory"))
}
