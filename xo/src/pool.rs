//! Pools of registered buffers that are reused.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::panics::contain;
use crate::{Buffer, Domain, Error, Refused};

mod free_list;
mod owner;
mod shape;
mod waiters;

pub use free_list::Colour;
pub(crate) use owner::{BufferHold, PoolMember};
pub(crate) use shape::within;

use free_list::FreeList;
use owner::{FreeBuffer, Return};
use shape::Shape;
use waiters::PoolWaiters;
pub(crate) use waiters::{PoolWaiterId, Refill};

/// The default threshold of free buffers below which a pool is short of buffers (motr-transport
/// 2.10).
const THRESHOLD: usize = 2;

/// A callback of a pool, called by the thread that caused the event, without any lock.
type PoolCallback = Arc<dyn Fn(&BufferPool) + Send + Sync>;

/// The layout of a pool's buffers, and the pool's callbacks.
#[derive(Clone)]
#[must_use = "it is made into a pool by `Domain::pool`"]
pub struct BufferPoolOptions {
    shape: Shape,
    threshold: usize,
    below_threshold: Option<PoolCallback>,
    not_empty: Option<PoolCallback>,
}

impl BufferPoolOptions {
    /// Buffers of `bytes` bytes in one segment, without colours, and with a threshold of 2.
    pub fn new(bytes: usize) -> BufferPoolOptions {
        BufferPoolOptions {
            shape: Shape { segments: 1, segment_bytes: bytes, alignment: 1, colours: 0 },
            threshold: THRESHOLD,
            below_threshold: None,
            not_empty: None,
        }
    }

    /// Sets the number of segments of a buffer, each of the bytes given to `new`. Read and write a
    /// buffer of several segments through [`crate::Buffer::memory`].
    pub fn segments(self, segments: usize) -> BufferPoolOptions {
        BufferPoolOptions { shape: Shape { segments, ..self.shape }, ..self }
    }

    /// Aligns segments to this number of bytes, a power of two up to 4096. The first segment always
    /// begins on a page boundary.
    pub fn alignment(self, alignment: usize) -> BufferPoolOptions {
        BufferPoolOptions { shape: Shape { alignment, ..self.shape }, ..self }
    }

    /// Sets the number of colours ([`crate::Colour`]), at most 65536.
    pub fn colours(self, colours: u32) -> BufferPoolOptions {
        BufferPoolOptions { shape: Shape { colours, ..self.shape }, ..self }
    }

    /// Sets the threshold: with fewer free buffers the pool is short of buffers, and
    /// [`BufferPool::prune`] keeps this number.
    pub fn threshold(self, threshold: usize) -> BufferPoolOptions {
        BufferPoolOptions { threshold, ..self }
    }

    /// Sets a callback for each time that a buffer is taken and fewer than the threshold stay free;
    /// it may call [`BufferPool::provision`]. It runs on the thread that took the buffer, without
    /// any lock of the pool. Calls do not overlap; if a call has made the pool grow, and the pool
    /// has become short again during the call, it is called once more.
    pub fn below_threshold(
        self,
        callback: impl Fn(&BufferPool) + Send + Sync + 'static,
    ) -> BufferPoolOptions {
        BufferPoolOptions { below_threshold: Some(Arc::new(callback)), ..self }
    }

    /// Sets a callback for each time that a buffer is returned to a pool without free buffers. It
    /// runs on the thread that dropped the buffer, without any lock of the pool. Transfer machines
    /// that wait for buffers are served first, and another thread may have taken the buffer by
    /// then.
    pub fn not_empty(self, callback: impl Fn(&BufferPool) + Send + Sync + 'static) -> BufferPoolOptions {
        BufferPoolOptions { not_empty: Some(Arc::new(callback)), ..self }
    }
}

impl fmt::Debug for BufferPoolOptions {
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

/// The number of buffers of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// Free buffers.
    pub free: usize,
    /// All buffers of the pool, free or in use.
    pub total: usize,
}

/// A pool of registered buffers that are reused (motr-transport 2.10). Clones share the pool.
///
/// Dropping a buffer of a pool returns it to the pool, under the colour for which it was taken; so
/// a transfer machine that stops or fails loses none. If a [`crate::Message`] lends bytes of it
/// out, it becomes free when the message is dropped too. Buffers that are in use when the last
/// clone of their pool is dropped are freed by their drop.
///
/// ```
/// use nlx::{Colour, Domain, NodeConfig, PoolCounts, BufferPoolOptions};
///
/// let domain = Domain::in_process(&NodeConfig::new())?;
/// let pool = domain.pool(BufferPoolOptions::new(64 << 10).colours(2))?;
/// assert_eq!(pool.provision(8)?, 8);
/// let buffer = pool.get(Colour::Of(1))?.expect("eight are free");
/// assert_eq!(pool.counts(), PoolCounts { free: 7, total: 8 });
/// drop(buffer);
/// assert_eq!(pool.counts(), PoolCounts { free: 8, total: 8 });
/// # Ok::<(), nlx::Error>(())
/// ```
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<PoolShared>,
}

pub(crate) struct PoolShared {
    domain: Domain,
    options: BufferPoolOptions,
    state: Mutex<PoolState>,
    /// Notified when a buffer is returned, for threads in [`BufferPool::get_wait`].
    returned: Condvar,
    /// The number of shortages since a thread began to call [`BufferPoolOptions::below_threshold`]; 0
    /// while no thread does.
    shortages: AtomicUsize,
}

struct PoolState {
    free: FreeList<FreeBuffer>,
    total: usize,
    waiters: PoolWaiters,
}

static_assertions::assert_impl_all!(BufferPool: Send, Sync);

impl Domain {
    /// Makes a pool of buffers of this domain, which is empty at first ([`BufferPool::provision`]).
    ///
    /// # Errors
    /// [`Error::PoolOption`] (EINVAL) for an option out of bounds.
    pub fn pool(&self, options: BufferPoolOptions) -> Result<BufferPool, Error> {
        options.shape.check()?;
        let free = FreeList::new(options.shape.colours);
        let state = PoolState { free, total: 0, waiters: PoolWaiters::default() };
        let (domain, shortages) = (self.clone(), AtomicUsize::new(0));
        let shared =
            PoolShared { domain, options, state: Mutex::new(state), returned: Condvar::new(), shortages };
        Ok(BufferPool { shared: Arc::new(shared) })
    }
}

impl BufferPool {
    /// Allocates buffers and adds them to the pool. Returns their number, which is lower than
    /// `buffers` if memory or a limit ran out.
    ///
    /// # Errors
    /// If the first buffer fails, the error of [`Domain::register`].
    pub fn provision(&self, buffers: usize) -> Result<usize, Error> {
        for added in 0..buffers {
            match self.shared.make() {
                Ok(free_buffer) => self.shared.add(free_buffer),
                Err(error) if added == 0 => return Err(error),
                Err(error) => {
                    tracing::debug!(added, buffers, %error, "a pool could not allocate all buffers that were requested");
                    return Ok(added);
                }
            }
        }
        Ok(buffers)
    }

    /// Takes a free buffer: the last used one of this colour, or else the least recently used of
    /// all. Returns `None` if none is free.
    ///
    /// # Errors
    /// [`Error::Colour`] (EINVAL) for a colour that the pool does not have.
    pub fn get(&self, colour: Colour) -> Result<Option<Buffer>, Error> {
        self.check(colour)?;
        let (free_buffer, left) = {
            let mut state = self.shared.state.lock();
            (state.free.take(colour), state.free.len())
        };
        Ok(free_buffer.map(|free_buffer| self.hand_out(free_buffer, colour, left)))
    }

    /// Like [`BufferPool::get`], but blocks until a buffer is free. Returns `None` when the timeout
    /// has passed. A timeout of 0 tries once; `None` as timeout waits without limit.
    ///
    /// # Errors
    /// The errors of [`BufferPool::get`].
    pub fn get_wait(&self, colour: Colour, timeout: Option<Duration>) -> Result<Option<Buffer>, Error> {
        self.check(colour)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.shared.state.lock();
        loop {
            if let Some(free_buffer) = state.free.take(colour) {
                let left = state.free.len();
                drop(state);
                return Ok(Some(self.hand_out(free_buffer, colour, left)));
            }
            match deadline {
                None => self.shared.returned.wait(&mut state),
                Some(deadline) if Instant::now() >= deadline => return Ok(None),
                Some(deadline) => drop(self.shared.returned.wait_until(&mut state, deadline)),
            }
        }
    }

    /// Returns a buffer under another colour than the one for which it was taken. To return it
    /// under the same colour, drop it.
    ///
    /// # Errors
    /// EINVAL, with the buffer, if it does not belong to this pool, or if the pool does not have
    /// the colour.
    #[allow(clippy::result_large_err)]
    pub fn put(&self, mut buffer: Buffer, colour: Colour) -> Result<(), Refused> {
        if let Err(error) = self.check(colour) {
            return Err(Refused { buffer, error });
        }
        if !buffer.member().is_some_and(|member| member.is_of(&self.shared)) {
            return Err(Refused { buffer, error: Error::OtherPool });
        }
        if let Some(member) = buffer.take_member() {
            buffer.set_tag(0);
            member.give_back(buffer, colour).carry_out();
        }
        Ok(())
    }

    /// Frees the least recently used free buffer, if more than the threshold are free. Returns
    /// whether it did.
    pub fn prune(&self) -> bool {
        if !self.shared.domain.inner().in_owner_process() {
            return false;
        }
        let mut state = self.shared.state.lock();
        if state.free.len() <= self.shared.options.threshold {
            return false;
        }
        let oldest = state.free.take(Colour::Any);
        state.total -= usize::from(oldest.is_some());
        drop(state);
        oldest.is_some()
    }

    /// Returns the numbers of buffers.
    pub fn counts(&self) -> PoolCounts {
        if !self.shared.domain.inner().in_owner_process() {
            return PoolCounts { free: 0, total: 0 };
        }
        let state = self.shared.state.lock();
        PoolCounts { free: state.free.len(), total: state.total }
    }

    /// Returns the length of each buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.options.shape.bytes()
    }

    /// Returns the domain with which the buffers are registered.
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

    fn hand_out(&self, free_buffer: FreeBuffer, colour: Colour, left: usize) -> Buffer {
        let buffer = free_buffer.leave(colour);
        self.report_shortage(left);
        buffer
    }

    /// Calls `below_threshold` if `left`, the number of free buffers, is below the threshold.
    /// Called without any lock.
    pub(crate) fn report_shortage(&self, left: usize) {
        let PoolShared { options, shortages, .. } = &*self.shared;
        if left >= options.threshold || options.below_threshold.is_none() {
            return;
        }
        if shortages.fetch_add(1, Ordering::AcqRel) > 0 {
            // The thread that runs the callback sees this count.
            return;
        }
        loop {
            let (seen, total) = (shortages.load(Ordering::Acquire), self.counts().total);
            self.call_back(options.below_threshold.as_ref());
            if self.counts().total <= total {
                // The callback has not made the pool grow, and would not do so if called again.
                shortages.store(0, Ordering::Release);
                return;
            }
            if shortages.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
    }

    /// Calls a callback. A buffer may be dropped while its thread panics, so a panic of the
    /// callback is caught.
    fn call_back(&self, callback: Option<&PoolCallback>) {
        let Some(callback) = callback else { return };
        if contain(|| callback(self)).is_err() {
            tracing::error!("a callback of a buffer pool has panicked");
        }
    }
}

/// Provisioning of transfer machines.
impl BufferPool {
    pub(crate) fn join(&self, refill: Refill) -> PoolWaiterId {
        self.shared.state.lock().waiters.join(refill)
    }

    pub(crate) fn leave(&self, waiter: PoolWaiterId) {
        self.shared.state.lock().waiters.leave(waiter);
    }

    /// Takes a buffer, and returns it with the number that stays free. If there is none, the
    /// machine is served when one is returned.
    pub(crate) fn take_for(&self, waiter: PoolWaiterId, colour: Colour) -> Option<(Buffer, usize)> {
        let mut state = self.shared.state.lock();
        match state.free.take(colour) {
            Some(free_buffer) => Some((free_buffer.leave(colour), state.free.len())),
            None => {
                state.waiters.want_refill(waiter, false);
                None
            }
        }
    }

    /// Records that the machine could not use a buffer that it took; it is served when another one
    /// is returned.
    pub(crate) fn refused_by(&self, waiter: PoolWaiterId) {
        self.shared.state.lock().waiters.want_refill(waiter, true);
    }

    /// Records that the machine lacks no buffer any more.
    pub(crate) fn refilled(&self, waiter: PoolWaiterId) {
        self.shared.state.lock().waiters.refilled(waiter);
    }

    /// Returns a buffer that a machine could not use; it will be reused last. Called without any
    /// lock.
    pub(crate) fn put_refused(&self, mut buffer: Buffer) {
        if let Some(member) = buffer.take_member()
            && let Return::Free(pool, free_buffer, colour) = member.give_back(buffer, Colour::Any)
        {
            pool.state.lock().free.put(free_buffer, colour);
            pool.returned.notify_one();
            pool.serve();
        }
    }
}

impl Buffer {
    /// Returns the pool to which its drop returns it, if it has one.
    pub fn pool(&self) -> Option<BufferPool> {
        let shared = self.member()?.pool()?;
        Some(BufferPool { shared })
    }

    /// Removes it from its pool, so that its drop frees it. Does nothing to a buffer without a
    /// pool.
    #[must_use = "it is freed otherwise"]
    pub fn leave_pool(mut self) -> Buffer {
        if let Some(pool) = self.take_member().and_then(|member| member.pool())
            && pool.domain.inner().in_owner_process()
        {
            pool.state.lock().total -= 1;
        }
        self
    }
}

impl PoolShared {
    /// Passes free buffers to the transfer machines that lack some, until none lacks any or no
    /// buffer is left. Called without any lock.
    fn serve(&self) {
        let mut state = self.state.lock();
        if !state.waiters.begin_serving() {
            return;
        }
        while state.free.len() > 0
            && let Some((id, refill)) = state.waiters.next()
        {
            let is_there = MutexGuard::unlocked(&mut state, move || refill());
            if !is_there {
                state.waiters.leave(id);
            }
        }
        state.waiters.end_serving();
    }

    fn make(self: &Arc<PoolShared>) -> Result<FreeBuffer, Error> {
        let domain = self.domain.inner();
        domain.check_here()?;
        let buffer = self.domain.register(self.options.shape.memory(domain.core())?)?;
        Ok(FreeBuffer::new(buffer, self))
    }

    fn add(self: &Arc<PoolShared>, free_buffer: FreeBuffer) {
        let mut state = self.state.lock();
        state.total += 1;
        let total = state.total;
        state.free.reserve(total);
        drop(state);
        self.put(free_buffer, Colour::Any);
    }

    fn put(self: &Arc<PoolShared>, free_buffer: FreeBuffer, colour: Colour) {
        let mut state = self.state.lock();
        state.free.put(free_buffer, colour);
        let not_empty = state.free.len() == 1;
        let wanted = state.waiters.arrival();
        drop(state);
        self.returned.notify_one();
        if wanted {
            self.serve();
        }
        if not_empty && self.options.not_empty.is_some() {
            let pool = BufferPool { shared: self.clone() };
            pool.call_back(self.options.not_empty.as_ref());
        }
    }
}

/// Returns a dropped buffer to its pool.
pub(crate) fn return_buffer(mut buffer: Buffer, member: PoolMember) {
    buffer.set_tag(0);
    let colour = member.colour();
    member.give_back(buffer, colour).carry_out();
}

impl Return {
    fn carry_out(self) {
        if let Return::Free(pool, free_buffer, colour) = self {
            pool.put(free_buffer, colour);
        }
    }
}

impl Drop for BufferHold {
    fn drop(&mut self) {
        self.release().carry_out();
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolCounts { free, total } = self.counts();
        write!(f, "BufferPool({free} of {total} buffers of {} bytes free)", self.buffer_bytes())
    }
}
