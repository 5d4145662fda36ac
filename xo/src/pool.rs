//! Buffers that are used again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::panics::contain;
use crate::{Buffer, Domain, Error, Refused};

mod customers;
mod home;
mod shape;
mod shelf;

pub(crate) use home::{Guest, Member};
pub(crate) use shape::within;
pub use shelf::Colour;

use customers::Customers;
pub(crate) use customers::{CustomerId, Refill};
use home::{Resident, Return};
use shape::Shape;
use shelf::Shelf;

/// What a pool has too little of when nobody says how much that is (motr-transport 2.10).
const THRESHOLD: usize = 2;

/// Told of what happens in a pool, on the thread on which it happens and without any lock.
type Told = Arc<dyn Fn(&BufferPool) + Send + Sync>;

/// What the buffers of a pool are like, and who is told when they run short.
#[derive(Clone)]
#[must_use = "it is made into a pool by `Domain::pool`"]
pub struct PoolOptions {
    shape: Shape,
    threshold: usize,
    below_threshold: Option<Told>,
    not_empty: Option<Told>,
}

impl PoolOptions {
    /// Buffers of this many bytes in one piece, without colours, and with a threshold of 2.
    pub fn new(bytes: usize) -> PoolOptions {
        PoolOptions {
            shape: Shape { segments: 1, segment_bytes: bytes, alignment: 1, colours: 0 },
            threshold: THRESHOLD,
            below_threshold: None,
            not_empty: None,
        }
    }

    /// Buffers of this many segments, each of the bytes given before. One that has several is read and written through
    /// [`crate::Buffer::memory`].
    pub fn segments(self, segments: usize) -> PoolOptions {
        PoolOptions { shape: Shape { segments, ..self.shape }, ..self }
    }

    /// Segments begin at multiples of this many bytes, a power of two up to 4096. The first one always begins a page.
    pub fn alignment(self, alignment: usize) -> PoolOptions {
        PoolOptions { shape: Shape { alignment, ..self.shape }, ..self }
    }

    /// This many colours ([`crate::Colour`]), at most 65536.
    pub fn colours(self, colours: u32) -> PoolOptions {
        PoolOptions { shape: Shape { colours, ..self.shape }, ..self }
    }

    /// The pool runs short when it has fewer free buffers than this, and [`BufferPool::prune`] leaves so many.
    pub fn threshold(self, threshold: usize) -> PoolOptions {
        PoolOptions { threshold, ..self }
    }

    /// Called whenever a buffer was taken and fewer are left free than the threshold: the place for
    /// [`BufferPool::provision`]. Runs on the thread that took the buffer, without any lock of ours. While it runs, no other
    /// call begins; if it has made the pool grow, and that has run short again meanwhile, it is called once more.
    pub fn below_threshold(self, told: impl Fn(&BufferPool) + Send + Sync + 'static) -> PoolOptions {
        PoolOptions { below_threshold: Some(Arc::new(told)), ..self }
    }

    /// Called when a buffer came into a pool that had none free. Runs on the thread that let go of the buffer, without any
    /// lock of ours; transfer machines that want for buffers have been served before, and others may have taken it since.
    pub fn not_empty(self, told: impl Fn(&BufferPool) + Send + Sync + 'static) -> PoolOptions {
        PoolOptions { not_empty: Some(Arc::new(told)), ..self }
    }
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("segments", &self.shape.segments)
            .field("segment_bytes", &self.shape.segment_bytes)
            .field("alignment", &self.shape.alignment)
            .field("colours", &self.shape.colours)
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}

/// How many buffers a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// Buffers in the pool.
    pub free: usize,
    /// Buffers that belong to the pool, wherever they are.
    pub total: usize,
}

/// Registered buffers that are used again (motr-transport 2.10). Clones share the pool.
///
/// A buffer of a pool goes back when it is dropped, whoever drops it and for whatever reason, under the colour it was got
/// for: a transfer machine that stops or fails loses none. If a [`crate::Message`] lends bytes of it out, it is free when the
/// message is gone as well. Buffers that are out when the last clone of their pool goes are freed when they are dropped.
///
/// ```
/// use nlx::{Colour, Domain, NodeConfig, PoolCounts, PoolOptions};
///
/// let domain = Domain::in_process(&NodeConfig::new())?;
/// let pool = domain.pool(PoolOptions::new(64 << 10).colours(2))?;
/// assert_eq!(pool.provision(8)?, 8);
/// let buffer = pool.get(Colour::Of(1))?.expect("eight are free");
/// assert_eq!(pool.counts(), PoolCounts { free: 7, total: 8 });
/// drop(buffer);
/// assert_eq!(pool.counts(), PoolCounts { free: 8, total: 8 });
/// # Ok::<(), nlx::Error>(())
/// ```
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    domain: Domain,
    options: PoolOptions,
    inner: Mutex<Inner>,
    /// A buffer has come; for those that wait for one.
    came: Condvar,
    /// How often the pool has run short since a thread began to tell of it ([`PoolOptions::below_threshold`]).
    shortages: AtomicUsize,
}

struct Inner {
    free: Shelf<Resident>,
    total: usize,
    customers: Customers,
}

static_assertions::assert_impl_all!(BufferPool: Send, Sync);

impl Domain {
    /// A pool of buffers of this domain, empty for now ([`BufferPool::provision`]).
    ///
    /// # Errors
    /// [`Error::PoolOption`] (EINVAL) for an option out of bounds.
    pub fn pool(&self, options: PoolOptions) -> Result<BufferPool, Error> {
        options.shape.check()?;
        let free = Shelf::new(options.shape.colours);
        let inner = Inner { free, total: 0, customers: Customers::default() };
        let (domain, shortages) = (self.clone(), AtomicUsize::new(0));
        let shared = Shared { domain, options, inner: Mutex::new(inner), came: Condvar::new(), shortages };
        Ok(BufferPool { shared: Arc::new(shared) })
    }
}

impl BufferPool {
    /// Adds buffers of new memory. Gives how many: fewer than asked for if memory or a limit ran out before the last.
    ///
    /// # Errors
    /// What kept the very first from being added, as [`Domain::register`].
    pub fn provision(&self, buffers: usize) -> Result<usize, Error> {
        for added in 0..buffers {
            match self.shared.make() {
                Ok(resident) => self.shared.add(resident),
                Err(error) if added == 0 => return Err(error),
                Err(error) => {
                    tracing::debug!(added, buffers, %error, "a pool grew by less than was asked for");
                    return Ok(added);
                }
            }
        }
        Ok(buffers)
    }

    /// A free buffer: of this colour if there is one, else the one of all that was used longest ago. `None` if none is free.
    ///
    /// # Errors
    /// [`Error::Colour`] (EINVAL) for a colour that the pool does not have.
    pub fn get(&self, colour: Colour) -> Result<Option<Buffer>, Error> {
        self.check(colour)?;
        let (resident, left) = {
            let mut inner = self.shared.inner.lock();
            (inner.free.take(colour), inner.free.len())
        };
        Ok(resident.map(|resident| self.hand_out(resident, colour, left)))
    }

    /// As [`BufferPool::get`], but waits until a buffer is free. `None` when the timeout has passed; a timeout of 0 looks
    /// once, `None` as timeout waits without end.
    ///
    /// # Errors
    /// As there.
    pub fn get_wait(&self, colour: Colour, timeout: Option<Duration>) -> Result<Option<Buffer>, Error> {
        self.check(colour)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut inner = self.shared.inner.lock();
        loop {
            if let Some(resident) = inner.free.take(colour) {
                let left = inner.free.len();
                drop(inner);
                return Ok(Some(self.hand_out(resident, colour, left)));
            }
            match deadline {
                None => self.shared.came.wait(&mut inner),
                Some(deadline) if Instant::now() >= deadline => return Ok(None),
                Some(deadline) => drop(self.shared.came.wait_until(&mut inner, deadline)),
            }
        }
    }

    /// Gives a buffer back under another colour than the one it was got for. To give it back under the same, drop it.
    ///
    /// # Errors
    /// EINVAL, with the buffer, for one that does not belong to this pool or a colour that the pool does not have.
    #[allow(clippy::result_large_err)]
    pub fn put(&self, mut buffer: Buffer, colour: Colour) -> Result<(), Refused> {
        if let Err(error) = self.check(colour) {
            return Err(Refused { buffer, error });
        }
        if !buffer.member().is_some_and(|member| member.is_of(&self.shared)) {
            return Err(Refused { buffer, error: Error::OtherPool });
        }
        if let Some(member) = buffer.part() {
            buffer.set_tag(0);
            member.give_back(buffer, colour).carry_out();
        }
        Ok(())
    }

    /// Frees the buffer that was used longest ago, unless no more are free than the threshold: then it does nothing and
    /// gives false.
    pub fn prune(&self) -> bool {
        if !self.shared.domain.inner().in_owner_process() {
            return false;
        }
        let mut inner = self.shared.inner.lock();
        if inner.free.len() <= self.shared.options.threshold {
            return false;
        }
        let oldest = inner.free.take(Colour::Any);
        inner.total -= usize::from(oldest.is_some());
        drop(inner);
        oldest.is_some()
    }

    /// How many buffers there are.
    pub fn counts(&self) -> PoolCounts {
        if !self.shared.domain.inner().in_owner_process() {
            return PoolCounts { free: 0, total: 0 };
        }
        let inner = self.shared.inner.lock();
        PoolCounts { free: inner.free.len(), total: inner.total }
    }

    /// Bytes of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.options.shape.bytes()
    }

    /// The domain that its buffers belong to.
    pub fn domain(&self) -> &Domain {
        &self.shared.domain
    }

    pub(crate) fn check(&self, colour: Colour) -> Result<(), Error> {
        self.shared.domain.inner().check_here()?;
        match (colour, self.shared.options.shape.colours) {
            (Colour::Of(colour), colours) if colour >= colours => Err(Error::Colour { colour, colours }),
            _ => Ok(()),
        }
    }

    fn hand_out(&self, resident: Resident, colour: Colour, left: usize) -> Buffer {
        let buffer = resident.leave(colour);
        self.tell_if_short(left);
        buffer
    }

    /// Called without any lock.
    pub(crate) fn tell_if_short(&self, left: usize) {
        let Shared { options, shortages, .. } = &*self.shared;
        if left >= options.threshold || options.below_threshold.is_none() {
            return;
        }
        if shortages.fetch_add(1, Ordering::AcqRel) > 0 {
            // Whoever tells of another one sees this.
            return;
        }
        loop {
            let (seen, total) = (shortages.load(Ordering::Acquire), self.counts().total);
            self.tell(options.below_threshold.as_ref());
            if self.counts().total <= total {
                // Nothing has been done about it: telling again would be as vain.
                shortages.store(0, Ordering::Release);
                return;
            }
            if shortages.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
    }

    /// A buffer may be let go of while its thread panics: nothing may come through here.
    fn tell(&self, told: Option<&Told>) {
        let Some(told) = told else { return };
        if contain(|| told(self)).is_err() {
            tracing::error!("a callback of a buffer pool has panicked");
        }
    }
}

/// For the transfer machines that take their receive buffers from it.
impl BufferPool {
    pub(crate) fn join(&self, refill: Refill) -> CustomerId {
        self.shared.inner.lock().customers.join(refill)
    }

    pub(crate) fn leave(&self, customer: CustomerId) {
        self.shared.inner.lock().customers.leave(customer);
    }

    /// A buffer, and how many are left. If there is none, the machine is served when there is.
    pub(crate) fn take_for(&self, customer: CustomerId, colour: Colour) -> Option<(Buffer, usize)> {
        let mut inner = self.shared.inner.lock();
        match inner.free.take(colour) {
            Some(resident) => Some((resident.leave(colour), inner.free.len())),
            None => {
                inner.customers.starve(customer, false);
                None
            }
        }
    }

    /// The machine could not use what it took; it is served when another buffer comes in.
    pub(crate) fn refused_by(&self, customer: CustomerId) {
        self.shared.inner.lock().customers.starve(customer, true);
    }

    /// The machine has all it wants.
    pub(crate) fn sate(&self, customer: CustomerId) {
        self.shared.inner.lock().customers.sate(customer);
    }

    /// Gives back what a machine could not use, as the last to be used again. Called without any lock.
    pub(crate) fn put_refused(&self, mut buffer: Buffer) {
        if let Some(member) = buffer.part()
            && let Return::Home(pool, resident, colour) = member.give_back(buffer, Colour::Any)
        {
            pool.inner.lock().free.put(resident, colour);
            pool.came.notify_one();
            pool.serve();
        }
    }
}

impl Buffer {
    /// The pool it goes back to when it is dropped.
    pub fn pool(&self) -> Option<BufferPool> {
        let shared = self.member()?.pool()?;
        Some(BufferPool { shared })
    }

    /// Takes it out of its pool for good: it is freed when it is dropped. Does nothing to a buffer of no pool.
    #[must_use = "it is freed otherwise"]
    pub fn leave_pool(mut self) -> Buffer {
        if let Some(pool) = self.part().and_then(|member| member.pool())
            && pool.domain.inner().in_owner_process()
        {
            pool.inner.lock().total -= 1;
        }
        self
    }
}

impl Shared {
    /// Gives what is free to the transfer machines that want for it. Called without any lock; each of them ends up with what
    /// it wants, or with what there was.
    fn serve(&self) {
        let mut inner = self.inner.lock();
        if !inner.customers.begin_serving() {
            return;
        }
        while inner.free.len() > 0
            && let Some((id, refill)) = inner.customers.next()
        {
            let is_there = MutexGuard::unlocked(&mut inner, move || refill());
            if !is_there {
                inner.customers.leave(id);
            }
        }
        inner.customers.end_serving();
    }

    fn make(self: &Arc<Shared>) -> Result<Resident, Error> {
        let domain = self.domain.inner();
        domain.check_here()?;
        let buffer = self.domain.register(self.options.shape.memory(domain.core())?)?;
        Ok(Resident::new(buffer, self))
    }

    fn add(self: &Arc<Shared>, resident: Resident) {
        let mut inner = self.inner.lock();
        inner.total += 1;
        let total = inner.total;
        inner.free.reserve(total);
        drop(inner);
        self.put(resident, Colour::Any);
    }

    fn put(self: &Arc<Shared>, resident: Resident, colour: Colour) {
        let mut inner = self.inner.lock();
        inner.free.put(resident, colour);
        let not_empty = inner.free.len() == 1;
        let wanted = inner.customers.arrival();
        drop(inner);
        self.came.notify_one();
        if wanted {
            self.serve();
        }
        if not_empty && self.options.not_empty.is_some() {
            let pool = BufferPool { shared: self.clone() };
            pool.tell(self.options.not_empty.as_ref());
        }
    }
}

/// A buffer of a pool was let go of.
pub(crate) fn go_home(mut buffer: Buffer, member: Member) {
    buffer.set_tag(0);
    let colour = member.colour();
    member.give_back(buffer, colour).carry_out();
}

impl Return {
    fn carry_out(self) {
        if let Return::Home(pool, resident, colour) = self {
            pool.put(resident, colour);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.go().carry_out();
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolCounts { free, total } = self.counts();
        write!(f, "BufferPool({free} of {total} buffers of {} bytes free)", self.buffer_bytes())
    }
}
