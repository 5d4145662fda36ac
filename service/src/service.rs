//! A service: request buffers in every partition, and the course of each request.
//!
//! ```text
//! arrived ─▶ queue ─▶ Handler::request ─▶ Push / Pull ─▶ Handler::moved ─▶ Reply ─▶ ended
//!                            └──────────────────────────────────┴── Drop ──▶ ended
//! ```
//!
//! A request buffer takes [`BufferOptions::requests_per_buffer`] requests one behind the other.
//! When it is full and its requests have ended it is posted again. Its *contexts*, one for each
//! request, hold the course of the requests and the memory of the replies, so that a request
//! allocates nothing. The room of the buffers grows and shrinks with the load ([`BufferOptions`]).

use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use lnet_region::IoVec;
use nix::errno::Errno;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use crate::buffers::Supply;
use crate::statistics::{
    Durations, PartitionStatistics, Percentiles, ServiceCounters, ServiceStatistics, Tally, add, percentiles,
};
use crate::transport::{ArrivedMessage, Events, Place, Posting};
use crate::{
    BufferOptions, Class, Handler, Next, Pool, PoolHandle, Request, ServiceError, Source, Transport,
};

/// Bits of a token that number a request within its buffer.
const CONTEXT_BITS: u32 = 12;

/// Bits of a token that number a buffer of a partition.
const BUFFER_BITS: u32 = 16;

/// Interval at which a partition frees the buffers that it has not needed since the last time.
const SHRINK_NS: u64 = 10_000_000_000;

/// The kind of an item in the pool's queue, in the upper bits of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Step {
    Arrived = 0,
    Moved = 1,
    Returned = 2,
    /// A message that is no reply.
    Message = 3,
}

/// Maximum length of a message that is no reply, in bytes.
pub const MESSAGE_BYTES: usize = 64;

/// Maximum number of such messages of a partition in flight: they take 64 KiB at most, and a token has
/// room for more. A message beyond it is not sent, as if the network had lost it.
pub const MESSAGES_MAX: usize = 1024;

/// The memory of the messages of a partition that are no replies.
struct Messages<M> {
    memory: Vec<M>,
    /// Indices of memory that is not in flight.
    free: Vec<u32>,
}

fn token(step: Step, buffer: u32, context: u32) -> u32 {
    (step as u32) << (CONTEXT_BITS + BUFFER_BITS) | buffer << CONTEXT_BITS | context
}

fn parts(token: u32) -> (u32, u32, u32) {
    let context = token & ((1 << CONTEXT_BITS) - 1);
    let buffer = token >> CONTEXT_BITS & ((1 << BUFFER_BITS) - 1);
    (token >> (CONTEXT_BITS + BUFFER_BITS), buffer, context)
}

/// The state of a request in its buffer.
struct Context<T: Transport, S> {
    arrival: Option<ArrivedMessage<T::Peer>>,
    arrived_ns: u64,
    /// The posted buffers had room for few further requests when this one arrived.
    room_is_low: bool,
    state: S,
    reply: T::Memory,
    /// The bulk operation in progress.
    operation: Option<T::Operation>,
    /// The result of the bulk operation that ended.
    outcome: Result<usize, Errno>,
    /// The result of a pull that has its data, but has not ended.
    fetched: Option<Result<usize, Errno>>,
    /// Set while bulk is being moved: an event of the context belongs to the bulk, not to a reply.
    is_moving: bool,
    is_aborted: bool,
}

struct RequestBuffer<T: Transport, S> {
    memory: T::Memory,
    contexts: Box<[Mutex<Context<T, S>>]>,
    operation: Mutex<Option<T::Operation>>,
    /// Requests that have arrived.
    taken: AtomicU32,
    /// Requests that have not ended, those that have not arrived included, and one more until the
    /// network has released the memory.
    open: AtomicU32,
    /// It is freed when its requests have ended.
    is_spare: AtomicBool,
}

/// A request buffer, if there is one at this place.
type Slot<T, S> = RwLock<Option<RequestBuffer<T, S>>>;

struct Partition<T: Transport, S> {
    buffers: Box<[Slot<T, S>]>,
    /// By endpoint.
    supplies: Box<[Mutex<Supply>]>,
    tally: Tally,
    waits: Durations,
    served: Durations,
    /// The time from which buffers that are not needed are freed again.
    shrink_ns: AtomicU64,
    messages: Mutex<Messages<T::Memory>>,
}

/// A service on a pool of workers.
pub struct Service<T: Transport, H: Handler<T>> {
    transport: T,
    handler: H,
    options: BufferOptions,
    pool: PoolHandle,
    partitions: Box<[Partition<T, H::State>]>,
    is_ending: AtomicBool,
    /// For the events, which the transport holds.
    own: OnceLock<Weak<Service<T, H>>>,
}

impl<T: Transport, H: Handler<T>> Service<T, H> {
    /// Starts a service: posts its first request buffers, and handles requests from now on.
    ///
    /// # Errors
    /// EINVAL for options outside their range, ENOMEM without memory or room in the network.
    pub fn start(
        pool: &Pool,
        transport: T,
        options: BufferOptions,
        handler: H,
    ) -> Result<Arc<Service<T, H>>, ServiceError> {
        options.check()?;
        let endpoints = transport.endpoints();
        let buffers = endpoints * options.buffers_max as usize;
        if endpoints == 0 || buffers > 1 << BUFFER_BITS {
            let rule = "all endpoints together have 1 to 65536 buffers";
            return Err(ServiceError::Option { name: "buffers_max", value: buffers as u64, rule });
        }
        // Each request has one item at a time, and each buffer one.
        let room = buffers.saturating_mul(2).min(4096) * 2;
        let service = pool.add(room, |pool| {
            let partition = |_| Partition::new(endpoints, buffers);
            let partitions = (0..pool.partitions()).map(partition).collect();
            Ok(Arc::new(Service {
                transport,
                handler,
                options,
                pool,
                partitions,
                is_ending: AtomicBool::new(false),
                own: OnceLock::new(),
            }))
        })?;
        let _ = service.own.set(Arc::downgrade(&service));
        let events = Arc::new(Upcalls { service: Arc::downgrade(&service) });
        service.transport.open(events).map_err(|errno| ServiceError::system("open a service", errno))?;
        for partition in 0..service.partitions.len() {
            for endpoint in 0..endpoints {
                for _ in 0..options.buffers_min {
                    service.add_buffer(partition, endpoint)?;
                }
            }
            service.pool.wake_at(partition, service.pool.now_ns() + SHRINK_NS);
        }
        Ok(service)
    }

    /// Returns the program's handler, which the service owns.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Returns the counters of each partition.
    pub fn counters(&self) -> Vec<ServiceCounters> {
        self.partitions.iter().map(Partition::counters).collect()
    }

    /// Returns everything that is counted and measured, by partition, under a name for reports. `pool`
    /// is the pool on which the service was started.
    pub fn statistics(&self, name: &'static str, pool: &Pool) -> ServiceStatistics {
        let partitions = self.partitions.iter().zip(pool.counters()).enumerate();
        let partitions = partitions.map(|(index, (partition, pool_counters))| PartitionStatistics {
            cpt: pool.cpt(index),
            pool: pool_counters,
            counters: partition.counters(),
            waits: percentiles(std::iter::once(&partition.waits)),
            service_times: percentiles(std::iter::once(&partition.served)),
        });
        ServiceStatistics { name, partitions: partitions.collect() }
    }

    /// Returns the percentiles of the time from arrival to the handler.
    pub fn waits(&self) -> Percentiles {
        percentiles(self.partitions.iter().map(|partition| &partition.waits))
    }

    /// Returns the percentiles of the time from arrival to the end of the reply.
    pub fn service_times(&self) -> Percentiles {
        percentiles(self.partitions.iter().map(|partition| &partition.served))
    }

    /// Cancels the bulk of every request whose state `which` selects. The bulk ends with ECANCELED, and
    /// the handler decides what follows.
    pub fn abort(&self, which: impl Fn(&H::State) -> bool) {
        for partition in &self.partitions {
            for slot in &partition.buffers {
                let slot = slot.read_recursive();
                for context in slot.iter().flat_map(|buffer| &buffer.contexts) {
                    let operation = {
                        let mut context = context.lock();
                        if !context.is_moving || !which(&context.state) {
                            continue;
                        }
                        context.is_aborted = true;
                        context.operation.take()
                    };
                    operation.into_iter().for_each(|operation| self.transport.cancel(operation));
                }
            }
        }
    }

    /// Sends a message that is no reply, of at most [`MESSAGE_BYTES`]; its loss is not reported. `tag` is
    /// the number by which the peer recognises it. Returns false if too many are in flight.
    pub fn send(&self, partition: usize, to: &T::Peer, tag: u64, bytes: &[u8]) -> bool {
        let messages = &self.partitions[partition].messages;
        let taken = messages.lock().take(|| self.transport.allocate(partition, MESSAGE_BYTES));
        let Some((index, memory)) = taken else { return false };
        let written = memory.borrow().write(0..bytes.len()).map(|mut to| to.copy_from(0, bytes));
        let at = Place { partition, token: token(Step::Message, 0, index) };
        let sent = written.is_ok() && self.transport.send(at, to, tag, memory, bytes.len()).is_ok();
        if !sent {
            messages.lock().free.push(index);
        }
        sent
    }

    /// Ends the service: takes its buffers back and cancels bulk in progress. Requests that have no
    /// reply yet get none.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.abort(|_| true);
        for partition in &self.partitions {
            for slot in &partition.buffers {
                let slot = slot.read_recursive();
                slot.iter().for_each(|buffer| self.take_back(buffer));
            }
        }
        self.transport.close();
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Returns a request buffer, which is not freed before the guard is dropped. The guard does not
    /// wait for a thread that waits to free a buffer, because a thread may have several guards: an
    /// event may come inside a call of the transport.
    fn buffer(
        &self,
        partition: usize,
        number: u32,
    ) -> Option<MappedRwLockReadGuard<'_, RequestBuffer<T, H::State>>> {
        let slot = self.partitions[partition].buffers.get(number as usize)?.read_recursive();
        RwLockReadGuard::try_map(slot, Option::as_ref).ok()
    }

    /// Returns the endpoint of a buffer: each has a range of numbers.
    fn endpoint_of(&self, number: u32) -> usize {
        number as usize / self.options.buffers_max as usize
    }

    /// Allocates a request buffer for an endpoint, and posts it.
    fn add_buffer(&self, partition: usize, endpoint: usize) -> Result<(), ServiceError> {
        let whole = &self.partitions[partition];
        let first = endpoint * self.options.buffers_max as usize;
        let mut made = Some(RequestBuffer::new(&self.transport, partition, &self.options)?);
        for number in first..first + self.options.buffers_max as usize {
            // A buffer that is in use is locked, and is no free place.
            let Some(mut slot) = whole.buffers[number].try_write().filter(|slot| slot.is_none()) else {
                continue;
            };
            *slot = made.take();
            drop(slot);
            whole.supplies[endpoint].lock().buffers += 1;
            let posted = self.post(partition, number as u32);
            return posted.map_err(|errno| ServiceError::system("post a request buffer", errno));
        }
        Ok(())
    }

    /// Posts a buffer, or frees it if the network has no room.
    fn post(&self, partition: usize, number: u32) -> Result<(), Errno> {
        let Some(buffer) = self.buffer(partition, number) else { return Ok(()) };
        let endpoint = self.endpoint_of(number);
        let requests = self.options.requests_per_buffer;
        buffer.taken.store(0, Ordering::Relaxed);
        buffer.open.store(requests + 1, Ordering::Release);
        let whole = &self.partitions[partition];
        whole.supplies[endpoint].lock().room += u64::from(requests);
        let at = Place { partition, token: token(Step::Returned, number, 0) };
        let memory = &buffer.memory;
        let posting = Posting { at, endpoint, memory, requests, request_max: self.options.request_max };
        let posted = self.transport.post(posting).map(|operation| *buffer.operation.lock() = Some(operation));
        drop(buffer);
        posted.inspect_err(|_| {
            whole.supplies[endpoint].lock().take(u64::from(requests));
            self.free(partition, number);
            add(&whole.tally.not_posted, 1);
        })
    }

    fn free(&self, partition: usize, number: u32) {
        let whole = &self.partitions[partition];
        // Dropped without the lock.
        let freed = whole.buffers[number as usize].write().take();
        drop(freed);
        whole.supplies[self.endpoint_of(number)].lock().buffers -= 1;
    }

    /// Posts a buffer again whose requests have all ended, or frees it.
    fn returned(&self, partition: usize, number: u32) {
        let is_spare = |buffer: &RequestBuffer<T, H::State>| buffer.is_spare.load(Ordering::Relaxed);
        let Some(is_spare) = self.buffer(partition, number).map(|buffer| is_spare(&buffer)) else { return };
        if is_spare || self.is_ending() {
            self.free(partition, number);
            add(&self.partitions[partition].tally.shrunk, 1);
        } else if let Err(errno) = self.post(partition, number) {
            tracing::warn!(partition, %errno, "a request buffer of a service is not posted again");
        }
    }

    /// Adds a buffer to the posted ones, which are nearly full.
    fn grow(&self, partition: usize, endpoint: usize) {
        let whole = &self.partitions[partition];
        // Another request may have done so.
        if !whole.supplies[endpoint].lock().needs_more(&self.options) || self.is_ending() {
            return;
        }
        match self.add_buffer(partition, endpoint) {
            Ok(()) => add(&whole.tally.grown, 1),
            Err(error) => {
                tracing::warn!(%error, partition, "a service has fewer request buffers than it needs")
            }
        }
    }

    /// Takes a buffer back from the network. Those of its requests that have arrived are served.
    fn take_back(&self, buffer: &RequestBuffer<T, H::State>) {
        let operation = buffer.operation.lock().take();
        operation.into_iter().for_each(|operation| self.transport.cancel(operation));
    }

    /// Runs a step of the handler, and carries out its decision.
    fn step(&self, partition: usize, step: Step, (number, index): (u32, u32), now_ns: u64) {
        let at = Place { partition, token: token(Step::Moved, number, index) };
        let Some(buffer) = self.buffer(partition, number) else { return };
        let Some(slot) = buffer.contexts.get(index as usize) else { return };
        let endpoint = self.endpoint_of(number);
        let (arrival, arrived_ns, mut state, reply, outcome, room_is_low) = {
            let mut context = slot.lock();
            let Some(arrival) = context.arrival.clone() else { return };
            context.is_moving = false;
            context.operation = None;
            let state = std::mem::take(&mut context.state);
            let room_is_low = step == Step::Arrived && context.room_is_low;
            (arrival, context.arrived_ns, state, context.reply.clone(), context.outcome, room_is_low)
        };
        if step == Step::Arrived {
            self.partitions[partition].waits.record(now_ns.saturating_sub(arrived_ns));
        }
        let next = {
            let (requests, reply): (&IoVec, &IoVec) = (buffer.memory.borrow(), reply.borrow());
            let read = requests.read(arrival.offset..arrival.offset + arrival.length);
            let write = reply.write(0..reply.len());
            let (Ok(read), Ok(mut write)) = (read, write) else {
                // Cannot be: neither is in flight, and no other context has these ranges.
                return self.finish(at, &buffer, slot, state, Err(Errno::EBUSY));
            };
            let request = Request {
                from: &arrival.from,
                endpoint,
                partition,
                bytes: read.as_slice().unwrap_or_default(),
                sent_length: arrival.sent_length,
                arrived_ns,
                now_ns,
                reply: write.as_mut_slice().unwrap_or_default(),
                state: &mut state,
            };
            catch_unwind(AssertUnwindSafe(|| match step {
                Step::Moved => self.handler.moved(request, outcome),
                _ => self.handler.request(request),
            }))
        };
        let next = match next {
            Ok(next) => next,
            Err(panic) => {
                // The request is given up, and its buffer is posted again.
                self.finish(at, &buffer, slot, H::State::default(), Err(Errno::ECANCELED));
                // The pool counts it.
                resume_unwind(panic);
            }
        };
        self.go_on(at, &buffer, slot, (&arrival.from, state, reply), next);
        drop(buffer);
        if room_is_low {
            self.grow(partition, endpoint);
        }
    }

    fn go_on(
        &self,
        at: Place,
        buffer: &RequestBuffer<T, H::State>,
        slot: &Mutex<Context<T, H::State>>,
        (from, state, reply): (&T::Peer, H::State, T::Memory),
        next: Next<T::Offer, T::Memory>,
    ) {
        let is_bulk = matches!(next, Next::Push { .. } | Next::Pull { .. });
        if self.is_ending() || matches!(next, Next::Drop) {
            return self.finish(at, buffer, slot, state, Err(Errno::ECANCELED));
        }
        {
            let mut context = slot.lock();
            context.state = state;
            context.is_moving = is_bulk;
            context.fetched = None;
            context.is_aborted = false;
        }
        // From here on the event may come, also inside the call.
        let begun = match next {
            Next::Reply { tag, length } => self.transport.send(at, from, tag, reply, length).map(|()| None),
            Next::Push { offer, memory, length } => self.transport.push(at, from, offer, memory, length),
            Next::Pull { offer, memory } => self.transport.pull(at, from, offer, memory),
            Next::Drop => Ok(None),
        };
        match begun {
            Ok(None) => {}
            Ok(Some(operation)) => {
                let mut context = slot.lock();
                if context.is_moving && !context.is_aborted {
                    context.operation = Some(operation);
                } else if context.is_moving {
                    drop(context);
                    self.transport.cancel(operation);
                }
            }
            Err(errno) => self.ended(at, Err(errno)),
        }
    }

    /// Ends a request.
    fn finish(
        &self,
        at: Place,
        buffer: &RequestBuffer<T, H::State>,
        slot: &Mutex<Context<T, H::State>>,
        mut state: H::State,
        replied: Result<(), Errno>,
    ) {
        self.handler.ended(&mut state, replied);
        let arrived_ns = {
            let mut context = slot.lock();
            context.state = state;
            context.arrival = None;
            context.is_moving = false;
            context.arrived_ns
        };
        let partition = &self.partitions[at.partition];
        match replied {
            Ok(()) => {
                add(&partition.tally.replies, 1);
                partition.served.record(self.pool.now_ns().saturating_sub(arrived_ns));
            }
            Err(Errno::ECANCELED) => add(&partition.tally.dropped, 1),
            Err(_) => add(&partition.tally.failed, 1),
        }
        self.release(at, buffer, 1);
    }

    /// Releases uses of a buffer; the last one returns it.
    fn release(&self, at: Place, buffer: &RequestBuffer<T, H::State>, uses: u32) {
        if buffer.open.fetch_sub(uses, Ordering::AcqRel) == uses {
            let (_, number, _) = parts(at.token);
            self.pool.push(at.partition, token(Step::Returned, number, 0), Class::Urgent);
        }
    }

    /// Stores the result of a pull until it has ended.
    fn fetched(&self, at: Place, outcome: Result<usize, Errno>) {
        let (_, number, index) = parts(at.token);
        let Some(buffer) = self.buffer(at.partition, number) else { return };
        let Some(slot) = buffer.contexts.get(index as usize) else { return };
        slot.lock().fetched = Some(outcome);
    }

    /// Handles the end of bulk or of a reply; may run inside an event.
    fn ended(&self, at: Place, outcome: Result<usize, Errno>) {
        let (step, number, index) = parts(at.token);
        if step == Step::Message as u32 {
            return self.partitions[at.partition].messages.lock().free.push(index);
        }
        let Some(buffer) = self.buffer(at.partition, number) else { return };
        let Some(slot) = buffer.contexts.get(index as usize) else { return };
        let tally = &self.partitions[at.partition].tally;
        let mut context = slot.lock();
        if context.is_moving {
            let outcome = outcome.and_then(|bytes| context.fetched.take().unwrap_or(Ok(bytes)));
            context.outcome = outcome;
            drop(context);
            match outcome {
                Ok(bytes) => {
                    add(&tally.bulk, 1);
                    add(&tally.bulk_bytes, bytes as u64);
                }
                Err(_) => add(&tally.bulk_failed, 1),
            }
            return self.pool.push(at.partition, token(Step::Moved, number, index), Class::Urgent);
        }
        let state = std::mem::take(&mut context.state);
        drop(context);
        // A cancelled reply has failed, and was not dropped by its handler.
        let replied =
            outcome.map(drop).map_err(|errno| if errno == Errno::ECANCELED { Errno::EINTR } else { errno });
        self.finish(at, &buffer, slot, state, replied);
    }

    fn arrived(&self, at: Place, arrival: ArrivedMessage<T::Peer>) {
        let (_, number, _) = parts(at.token);
        let Some(buffer) = self.buffer(at.partition, number) else { return };
        let index = buffer.taken.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = buffer.contexts.get(index as usize) else { return };
        let partition = &self.partitions[at.partition];
        let endpoint = self.endpoint_of(number);
        let room_is_low = {
            let mut supply = partition.supplies[endpoint].lock();
            supply.take(1);
            supply.needs_more(&self.options)
        };
        partition.tally.began();
        if arrival.crossed {
            add(&partition.tally.crossed, 1);
        }
        let mut class = if arrival.urgent { Class::Urgent } else { Class::Normal };
        {
            let mut context = slot.lock();
            context.arrived_ns = self.pool.now_ns();
            context.room_is_low = room_is_low;
            if H::HANDLES_ARRIVALS {
                class = self.admit(at.partition, endpoint, &buffer.memory, &arrival, &mut context);
            }
            context.arrival = Some(arrival);
        }
        self.pool.push(at.partition, token(Step::Arrived, number, index), class);
    }

    /// Shows a request to the handler before it waits; returns its class.
    fn admit(
        &self,
        partition: usize,
        endpoint: usize,
        memory: &T::Memory,
        arrival: &ArrivedMessage<T::Peer>,
        context: &mut Context<T, H::State>,
    ) -> Class {
        let Context { arrived_ns, reply, state, .. } = context;
        let (requests, reply): (&IoVec, &IoVec) = (memory.borrow(), (*reply).borrow());
        let read = requests.read(arrival.offset..arrival.offset + arrival.length);
        // Cannot fail: neither is in flight, and no other context has these ranges.
        let (Ok(read), Ok(mut write)) = (read, reply.write(0..reply.len())) else { return Class::Normal };
        self.handler.arrived(Request {
            from: &arrival.from,
            endpoint,
            partition,
            bytes: read.as_slice().unwrap_or_default(),
            sent_length: arrival.sent_length,
            arrived_ns: *arrived_ns,
            now_ns: *arrived_ns,
            reply: write.as_mut_slice().unwrap_or_default(),
            state,
        })
    }

    /// Sets the timer of a partition for what its requests have made due.
    fn set_timer(&self, partition: usize) {
        let due_ns = self.handler.take_due_ns(partition);
        if due_ns != u64::MAX {
            self.pool.wake_at(partition, due_ns);
        }
    }

    fn released(&self, at: Place) {
        let (_, number, _) = parts(at.token);
        let Some(buffer) = self.buffer(at.partition, number) else { return };
        let endpoint = self.endpoint_of(number);
        let taken = buffer.taken.load(Ordering::Relaxed).min(self.options.requests_per_buffer);
        let unused = self.options.requests_per_buffer - taken;
        self.partitions[at.partition].supplies[endpoint].lock().take(u64::from(unused));
        self.release(at, &buffer, unused + 1);
    }

    /// Takes those buffers of a partition back that were not needed since the last call.
    fn shrink(&self, partition: &Partition<T, H::State>) {
        for (endpoint, supply) in partition.supplies.iter().enumerate() {
            let unneeded = supply.lock().unneeded(&self.options);
            let first = endpoint * self.options.buffers_max as usize;
            let places = &partition.buffers[first..first + self.options.buffers_max as usize];
            let slots = places.iter().rev().map(|slot| slot.read_recursive());
            for slot in slots.filter(|slot| slot.is_some()).take(unneeded as usize) {
                slot.iter().for_each(|buffer| {
                    buffer.is_spare.store(true, Ordering::Relaxed);
                    self.take_back(buffer);
                });
            }
        }
    }
}

impl<T: Transport, H: Handler<T>> Source for Service<T, H> {
    fn run(&self, partition: usize, item: u32, now_ns: u64) {
        let (step, number, index) = parts(item);
        match step {
            step if step == Step::Arrived as u32 => {
                self.step(partition, Step::Arrived, (number, index), now_ns)
            }
            step if step == Step::Moved as u32 => self.step(partition, Step::Moved, (number, index), now_ns),
            _ => self.returned(partition, number),
        }
        self.set_timer(partition);
    }

    fn tick(&self, partition: usize, now_ns: u64) -> Option<u64> {
        let whole = &self.partitions[partition];
        if whole.shrink_ns.load(Ordering::Relaxed) <= now_ns {
            self.shrink(whole);
            whole.shrink_ns.store(now_ns + SHRINK_NS, Ordering::Relaxed);
        }
        let due_ns = self.handler.tick(self, partition, now_ns);
        Some(due_ns.min(whole.shrink_ns.load(Ordering::Relaxed)))
    }
}

/// The events of a service. The transport holds it; it does not hold the service.
struct Upcalls<T: Transport, H: Handler<T>> {
    service: Weak<Service<T, H>>,
}

impl<T: Transport, H: Handler<T>> Events<T::Peer> for Upcalls<T, H> {
    fn arrived(&self, at: Place, arrival: ArrivedMessage<T::Peer>) {
        if let Some(service) = self.service.upgrade() {
            service.arrived(at, arrival);
        }
    }

    fn released(&self, at: Place) {
        self.service.upgrade().into_iter().for_each(|service| service.released(at));
    }

    fn fetched(&self, at: Place, outcome: Result<usize, Errno>) {
        self.service.upgrade().into_iter().for_each(|service| service.fetched(at, outcome));
    }

    fn ended(&self, at: Place, outcome: Result<usize, Errno>) {
        self.service.upgrade().into_iter().for_each(|service| service.ended(at, outcome));
    }

    fn wake(&self, partition: usize) {
        let Some(service) = self.service.upgrade() else { return };
        service.set_timer(partition);
        service.pool.wake(partition);
    }
}

impl<T: Transport, S: Default> RequestBuffer<T, S> {
    fn new(
        transport: &T,
        partition: usize,
        options: &BufferOptions,
    ) -> Result<RequestBuffer<T, S>, ServiceError> {
        let requests = options.requests_per_buffer as usize;
        let allocate = |bytes| {
            let memory = transport.allocate(partition, bytes);
            memory.map_err(|errno| ServiceError::system("memory for requests", errno))
        };
        let memory = allocate(requests * options.request_max)?;
        let context = || {
            Ok(Mutex::new(Context {
                arrival: None,
                arrived_ns: 0,
                room_is_low: false,
                state: S::default(),
                reply: allocate(options.reply_max)?,
                operation: None,
                outcome: Ok(0),
                fetched: None,
                is_moving: false,
                is_aborted: false,
            }))
        };
        Ok(RequestBuffer {
            memory,
            contexts: (0..requests).map(|_| context()).collect::<Result<_, ServiceError>>()?,
            operation: Mutex::new(None),
            taken: AtomicU32::new(0),
            open: AtomicU32::new(0),
            is_spare: AtomicBool::new(false),
        })
    }
}

impl<T: Transport, S> Partition<T, S> {
    fn new(endpoints: usize, buffers: usize) -> Partition<T, S> {
        Partition {
            buffers: (0..buffers).map(|_| RwLock::new(None)).collect(),
            supplies: (0..endpoints).map(|_| Mutex::default()).collect(),
            tally: Tally::default(),
            waits: Durations::new(),
            served: Durations::new(),
            shrink_ns: AtomicU64::new(0),
            messages: Mutex::new(Messages { memory: Vec::new(), free: Vec::new() }),
        }
    }

    fn counters(&self) -> ServiceCounters {
        let supplies = self.supplies.iter().map(|supply| *supply.lock());
        let (buffers, room) = supplies.fold((0, 0), |(buffers, room), supply| {
            (buffers + u64::from(supply.buffers), room + supply.room)
        });
        self.tally.read(buffers, room)
    }
}

impl<M: Clone> Messages<M> {
    /// Takes memory that is not in flight, or allocates more; `None` beyond the limit.
    fn take(&mut self, allocate: impl FnOnce() -> Result<M, Errno>) -> Option<(u32, M)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.memory.len() < MESSAGES_MAX => {
                self.memory.push(allocate().ok()?);
                self.memory.len() as u32 - 1
            }
            None => return None,
        };
        Some((index, self.memory.get(index as usize)?.clone()))
    }
}

#[cfg(test)]
mod simulated;
