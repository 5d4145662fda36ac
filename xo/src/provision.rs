//! Provisioning: receive buffers that a transfer machine takes from a pool (motr-transport 2.11).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::pool::{PoolWaiterId, Refill, within};
use crate::{Buffer, BufferPool, Colour, Domain, Error, Op, Refused, Started};

/// The fewest receive buffers: while one is full and on its way to the client, the other receives
/// (motr-transport 2.11).
const BUFFERS_MIN: usize = 2;

/// The receive buffers that a transfer machine takes from a pool ([`crate::MachineBuilder::pool`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provision {
    /// [`Op::min_receive_size`] of each receive buffer.
    pub min_receive_size: usize,
    /// [`Op::max_messages`] of each receive buffer.
    pub max_messages: u32,
    /// The number of receive buffers to keep posted; less than 2 counts as 2.
    pub buffers: usize,
    /// The colour of the buffers; preferably a different one for each transfer machine.
    pub colour: Colour,
}

/// Keeps the receive buffers of a transfer machine posted.
///
/// The lock of `wants` comes before that of the machine and that of the pool, and is held while
/// buffers are posted, so that the count stays exact when several threads post. No code of the
/// client is called under it, and no buffer is dropped.
pub(crate) struct Provisioner {
    pool: BufferPool,
    min_receive_size: usize,
    max_messages: u32,
    wants: Mutex<Wants>,
    /// The number of missing buffers.
    deficit: AtomicUsize,
}

struct Wants {
    buffers: usize,
    colour: Colour,
    /// The machine's id at the pool, once it has joined.
    waiter: PoolWaiterId,
    /// The machine has begun to stop.
    stopping: bool,
}

/// The result of posting buffers.
#[derive(Default)]
pub(crate) struct PostResult {
    /// The number of free buffers in the pool after the last one was taken.
    left: Option<usize>,
    /// A buffer that could not be posted.
    refused: Option<Buffer>,
    /// The number of newly missing buffers.
    failures: u64,
}

impl Provisioner {
    /// Checks the numbers, and creates the provisioner; [`Provisioner::join`] registers it with the
    /// pool.
    ///
    /// # Errors
    /// EINVAL for a pool of another domain, a colour that the pool does not have, or numbers that
    /// do not fit its buffers; EFBIG if these are large.
    pub(crate) fn new(
        domain: &Domain,
        pool: &BufferPool,
        provision: Provision,
    ) -> Result<Provisioner, Error> {
        let Provision { min_receive_size, max_messages, buffers, colour } = provision;
        if !Arc::ptr_eq(domain.inner(), pool.domain().inner()) {
            return Err(Error::OtherDomain);
        }
        pool.check(colour)?;
        let (bytes, limits) = (pool.buffer_bytes(), domain.limits());
        if bytes > limits.buffer_bytes_max {
            return Err(Error::Large { bytes, limit: limits.buffer_bytes_max });
        }
        within("the least room of a receive buffer from a pool", min_receive_size, 1, bytes)?;
        let limit = limits.messages_max as usize;
        within("the number of messages of a receive buffer from a pool", max_messages as usize, 1, limit)?;
        let wants = Wants {
            buffers: buffers.max(BUFFERS_MIN),
            colour,
            waiter: PoolWaiterId::default(),
            stopping: false,
        };
        let (wants, deficit) = (Mutex::new(wants), AtomicUsize::new(0));
        Ok(Provisioner { pool: pool.clone(), min_receive_size, max_messages, wants, deficit })
    }

    /// Registers `refill` with the pool, unless a callback has stopped the machine already.
    pub(crate) fn join(&self, refill: Refill) {
        let mut wants = self.wants.lock();
        if !wants.stopping {
            wants.waiter = self.pool.join(refill);
        }
    }

    /// Posts the missing buffers through `start`; `count` returns the number that is posted.
    pub(crate) fn post(
        &self,
        count: impl FnOnce() -> usize,
        start: impl Fn(Op) -> Result<Started, Refused>,
    ) -> PostResult {
        let wants = self.wants.lock();
        let mut posted = PostResult::default();
        if wants.stopping {
            return posted;
        }
        let mut missing = wants.buffers.saturating_sub(count());
        while missing > 0
            && let Some((buffer, left)) = self.pool.take_for(wants.waiter, wants.colour)
        {
            posted.left = Some(left);
            let op = Op::receive(buffer).min_receive_size(self.min_receive_size);
            match start(op.max_messages(self.max_messages)) {
                Ok(_) => missing -= 1,
                Err(Refused { buffer, .. }) => {
                    self.pool.refused_by(wants.waiter);
                    posted.refused = Some(buffer);
                    break;
                }
            }
        }
        posted.failures = self.set_deficit(wants.waiter, missing);
        posted
    }

    /// Sets the deficit. Returns the number of newly missing buffers.
    fn set_deficit(&self, waiter: PoolWaiterId, missing: usize) -> u64 {
        let before = self.deficit.swap(missing, Ordering::Relaxed);
        if missing == 0 && before > 0 {
            self.pool.refilled(waiter);
        }
        missing.saturating_sub(before) as u64
    }

    /// Handles the result of posting; called without any lock. Returns the number of newly missing
    /// buffers.
    pub(crate) fn settle(&self, posted: PostResult) -> u64 {
        if let Some(buffer) = posted.refused {
            self.pool.put_refused(buffer);
        }
        if let Some(left) = posted.left {
            self.pool.report_shortage(left);
        }
        posted.failures
    }

    /// Stops taking buffers from the pool.
    pub(crate) fn end(&self) {
        let mut wants = self.wants.lock();
        if !std::mem::replace(&mut wants.stopping, true) {
            self.deficit.store(0, Ordering::Relaxed);
            self.pool.leave(wants.waiter);
        }
    }

    pub(crate) fn deficit(&self) -> usize {
        self.deficit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_buffers(&self, buffers: usize) {
        self.wants.lock().buffers = buffers.max(BUFFERS_MIN);
    }

    pub(crate) fn colour(&self) -> Colour {
        self.wants.lock().colour
    }

    pub(crate) fn set_colour(&self, colour: Colour) -> Result<(), Error> {
        self.pool.check(colour)?;
        self.wants.lock().colour = colour;
        Ok(())
    }
}
