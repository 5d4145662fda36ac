//! Receive buffers that a transfer machine gets from a pool by itself (motr-transport 2.11).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nlx_core::Queue;
use parking_lot::Mutex;

use crate::pool::{CustomerId, within};
use crate::{Buffer, BufferPool, Colour, Domain, Error, Machine, Receive, Refused};

/// The fewest receive buffers: while one is full and on its way to the client, the other takes what comes (motr-transport
/// 2.11).
const BUFFERS_MIN: usize = 2;

/// How a transfer machine takes receive buffers from a pool ([`crate::MachineBuilder::pool`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provision {
    /// How each of them takes messages.
    pub receive: Receive,
    /// How many are to be posted; less than 2 is 2.
    pub buffers: usize,
    /// Of which colour: best one of its own for each transfer machine.
    pub colour: Colour,
}

/// What keeps a transfer machine in receive buffers.
///
/// The lock of `wants` comes before that of the machine and that of the pool, and is held while buffers are posted: so the
/// numbers add up whoever posts. Nothing of the client's is called under it, and no buffer dropped.
pub(crate) struct Provisioner {
    pool: BufferPool,
    receive: Receive,
    wants: Mutex<Wants>,
    /// How many buffers are missing.
    deficit: AtomicUsize,
}

struct Wants {
    buffers: usize,
    colour: Colour,
    /// The machine, as the pool knows it once it has joined.
    customer: CustomerId,
    /// The machine has begun to stop.
    over: bool,
}

/// What came of posting buffers.
#[derive(Default)]
struct Posted {
    /// How many were left in the pool when the last was taken.
    left: Option<usize>,
    /// One that could not be posted.
    refused: Option<Buffer>,
}

impl Provisioner {
    /// # Errors
    /// EINVAL for a pool of another domain, a colour that the pool does not have, or numbers that do not fit its buffers;
    /// EFBIG if these are large.
    pub(crate) fn new(
        domain: &Domain,
        pool: &BufferPool,
        provision: Provision,
    ) -> Result<Provisioner, Error> {
        let Provision { receive, buffers, colour } = provision;
        if !Arc::ptr_eq(domain.inner(), pool.domain().inner()) {
            return Err(Error::OtherDomain);
        }
        pool.check(colour)?;
        let (bytes, limits) = (pool.buffer_bytes(), domain.limits());
        if bytes > limits.buffer_bytes_max {
            return Err(Error::Large { bytes, limit: limits.buffer_bytes_max });
        }
        within("the least room of a receive buffer from a pool", receive.min_receive_size, 1, bytes)?;
        let (messages, most) = (receive.max_messages as usize, limits.messages_max as usize);
        within("the number of messages of a receive buffer from a pool", messages, 1, most)?;
        let wants =
            Wants { buffers: buffers.max(BUFFERS_MIN), colour, customer: CustomerId::default(), over: false };
        let (wants, deficit) = (Mutex::new(wants), AtomicUsize::new(0));
        Ok(Provisioner { pool: pool.clone(), receive, wants, deficit })
    }

    /// A callback may have stopped the machine already.
    fn join(&self, machine: &Arc<Machine>) {
        let mut wants = self.wants.lock();
        if !wants.over {
            let machine = Arc::downgrade(machine);
            let refill = move || machine.upgrade().inspect(|machine| machine.top_up()).is_some();
            wants.customer = self.pool.join(Arc::new(refill));
        }
    }

    fn post(&self, machine: &Machine) -> Posted {
        let wants = self.wants.lock();
        let mut posted = Posted::default();
        if wants.over {
            return posted;
        }
        let mut missing = wants.buffers.saturating_sub(machine.posted(Queue::MessageReceive));
        while missing > 0
            && let Some((buffer, left)) = self.pool.take_for(wants.customer, wants.colour)
        {
            posted.left = Some(left);
            match machine.receive(buffer, self.receive, None) {
                Ok(_) => missing -= 1,
                Err(Refused { buffer, error }) => {
                    tracing::debug!(address = %machine.address(), %error, "a receive buffer of a pool was refused");
                    self.pool.refused_by(wants.customer);
                    posted.refused = Some(buffer);
                    break;
                }
            }
        }
        self.note(machine, wants.customer, missing);
        posted
    }

    fn note(&self, machine: &Machine, customer: CustomerId, missing: usize) {
        let before = self.deficit.swap(missing, Ordering::Relaxed);
        if missing > before {
            let failures = (missing - before) as u64;
            let mut inner = machine.inner.lock();
            let counters = inner.statistics.of(Queue::MessageReceive);
            // What is wanted may be any number.
            counters.failures = counters.failures.saturating_add(failures);
        }
        if missing == 0 && before > 0 {
            self.pool.sate(customer);
        }
    }
}

impl Machine {
    /// Has its receive buffers come from a pool, from now on.
    pub(crate) fn begin_provisioning(self: &Arc<Machine>) {
        if let Some(provisioner) = &self.provisioner {
            provisioner.join(self);
            self.top_up();
        }
    }

    /// Takes from the pool what it wants for, if it has one. Called without any lock.
    pub(crate) fn top_up(&self) {
        let Some(provisioner) = &self.provisioner else { return };
        let Posted { left, refused } = provisioner.post(self);
        if let Some(buffer) = refused {
            provisioner.pool.put_refused(buffer);
        }
        if let Some(left) = left {
            provisioner.pool.tell_if_short(left);
        }
    }

    pub(crate) fn end_provisioning(&self) {
        let Some(provisioner) = &self.provisioner else { return };
        let mut wants = provisioner.wants.lock();
        if !std::mem::replace(&mut wants.over, true) {
            provisioner.deficit.store(0, Ordering::Relaxed);
            provisioner.pool.leave(wants.customer);
        }
    }

    /// Changes how many receive buffers it takes from its pool, and takes what is missing before this returns; what the pool
    /// does not have is the [`Machine::deficit`]. Less than 2 is 2. Buffers that are posted already stay posted.
    ///
    /// # Errors
    /// [`Error::NoPool`] (EINVAL) without a pool.
    pub fn set_provision(&self, buffers: usize) -> Result<(), Error> {
        let provisioner = self.provisioner()?;
        provisioner.wants.lock().buffers = buffers.max(BUFFERS_MIN);
        self.top_up();
        Ok(())
    }

    /// How many receive buffers are missing because the pool had none. They are posted as soon as it has; meanwhile each one
    /// that is newly missing counts as a failure in the statistics of [`Queue::MessageReceive`]. 0 without a pool.
    pub fn deficit(&self) -> usize {
        self.provisioner.as_ref().map_or(0, |provisioner| provisioner.deficit.load(Ordering::Relaxed))
    }

    /// The colour of the buffers that it takes from its pool.
    pub fn colour(&self) -> Colour {
        self.provisioner().map_or(Colour::Any, |provisioner| provisioner.wants.lock().colour)
    }

    fn provisioner(&self) -> Result<&Provisioner, Error> {
        self.domain.check_here()?;
        self.provisioner.as_ref().ok_or(Error::NoPool)
    }

    /// Changes the colour of the buffers that it will take from its pool.
    ///
    /// # Errors
    /// [`Error::NoPool`] (EINVAL) without a pool, [`Error::Colour`] (EINVAL) for a colour that the pool does not have.
    pub fn set_colour(&self, colour: Colour) -> Result<(), Error> {
        let provisioner = self.provisioner()?;
        provisioner.pool.check(colour)?;
        provisioner.wants.lock().colour = colour;
        Ok(())
    }
}
