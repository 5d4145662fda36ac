//! The server's side on a [`Service`]: sessions, answers exactly once, estimates and early replies for a
//! program's handler, over any transport.
//!
//! Clients are divided among *shards* by their addresses, and each shard has a [`Server`] under a lock
//! that is held for a look-up or the copy of an answer; so partitions share no lock, unless their
//! clients share a shard. A request is decided upon when it arrives, before it waits for a worker: its
//! repetitions find it, and its early replies leave from the pool's timer, whatever the workers do.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use nix::errno::Errno;
use parking_lot::Mutex;

use super::server::{MessageDecision, RequestId, Server};
use super::terms::{ResponderCounters, ResponderOptions};
use super::wire::{ClientId, HEADER, Header};
use crate::offers::Offers;
use crate::{Class, Handler, Next, Pool, Request, Service, ServiceError, Transport};

/// Shards for each partition; with 4, two workers seldom wait for one lock.
const SHARDS_PER_PARTITION: usize = 4;

/// The shortest time that bulk may take, in nanoseconds, however soon the client's deadline is: the
/// client extends it while early replies come.
pub const BULK_MIN_NS: u64 = 1_000_000_000;

/// A handler that speaks the protocol of this module, and passes requests to a program's handler.
pub struct Rpc<T: Transport, H> {
    handler: H,
    shards: Box<[Mutex<Server<T::Peer>>]>,
    hasher: RandomState,
    /// By partition: the earliest time at which a request that arrived there needs the timer.
    due_ns: Box<[AtomicU64]>,
    /// The earliest time at which bulk in progress is cancelled, or an earlier time.
    bulk_ns: AtomicU64,
}

/// A request, lent to its handler.
pub struct RpcRequest<'a, T: Transport, S> {
    /// The sender, as the transport names it.
    pub from: &'a T::Peer,
    /// The id of the client, which distinguishes clients with one address.
    pub client: ClientId,
    /// The class, which decided the queue in which the request waited.
    pub class: Class,
    /// The partition in which it is served.
    pub partition: usize,
    /// Memory that the client offers.
    pub offers: Offers<'a>,
    /// Its bytes, after the header and the offers.
    pub bytes: &'a [u8],
    /// The time that its client still waits, early replies included; `None` if it has not said.
    pub time_left: Option<Duration>,
    /// Memory for the answer. It holds the bytes of an earlier one.
    pub answer: &'a mut [u8],
    /// Data that the handler keeps from one step of the request to the next.
    pub state: &'a mut S,
}

/// The decision of a handler about a request: its next step, or its end.
#[derive(Debug)]
pub enum Decision<O, M> {
    /// Answer with the first `length` bytes of the memory for the answer.
    Answer {
        /// The length in bytes.
        length: usize,
    },
    /// Send the first `length` bytes of this memory into memory that the client offers, then call
    /// [`RpcHandler::moved`].
    Push {
        /// The client's memory.
        offer: O,
        /// The bytes to send.
        memory: M,
        /// The number of bytes to send, from the start of the memory.
        length: usize,
    },
    /// Fetch memory that the client offers into this memory, then call [`RpcHandler::moved`].
    Pull {
        /// The client's memory.
        offer: O,
        /// The memory that receives the bytes.
        memory: M,
    },
    /// Answer that the request has failed with this errno.
    Refuse(Errno),
    /// End without an answer. The client's call ends at its deadline.
    Drop,
}

/// The work of a service that speaks the protocol. Called on worker threads, several at a time.
pub trait RpcHandler<T: Transport>: Send + Sync + 'static {
    /// Data that a request keeps between its steps. The values are used again for later requests.
    type State: Default + Send + 'static;

    /// Handles a request. An at-most-once request is passed once.
    fn request(&self, request: RpcRequest<'_, T, Self::State>) -> Decision<T::Offer, T::Memory>;

    /// Continues after bulk: the number of bytes that were moved, or the error. Bulk that has not
    /// ended when the client stops waiting ends with ECANCELED.
    fn moved(
        &self,
        request: RpcRequest<'_, T, Self::State>,
        outcome: Result<usize, Errno>,
    ) -> Decision<T::Offer, T::Memory> {
        let _ = (request, outcome);
        Decision::Refuse(Errno::EIO)
    }

    /// Called when a request has ended: with its answer, which has left or failed, or without one.
    /// The place to release what the state holds.
    fn ended(&self, state: &mut Self::State, answered: Result<(), Errno>) {
        let _ = (state, answered);
    }
}

/// The data of a request between its steps.
#[derive(Debug, Default)]
pub struct RpcState<S> {
    step: RpcStep,
    /// The time at which bulk in progress is cancelled.
    bulk_until_ns: Option<u64>,
    /// The program's data.
    state: S,
}

/// What was decided about a message at its arrival, or the request that runs.
#[derive(Debug, Default, Clone, Copy)]
enum RpcStep {
    #[default]
    Drop,
    /// The memory for the reply has the answer.
    Reply {
        tag: u64,
        length: usize,
    },
    Run {
        shard: usize,
        id: RequestId,
        header: Header,
    },
    /// It has run, and its answer is leaving.
    Answered,
}

impl<T: Transport<Peer: Eq + Hash>, H: RpcHandler<T>> Rpc<T, H> {
    /// Creates the handler of a service on this pool. `options.sessions_max` is the number of clients
    /// in all.
    ///
    /// # Errors
    /// EIO if the system has no random number.
    pub fn new(pool: &Pool, options: &ResponderOptions, handler: H) -> Result<Rpc<T, H>, ServiceError> {
        let count = pool.partitions() * SHARDS_PER_PARTITION;
        let sessions_max = options.sessions_max.div_ceil(count);
        let shard = |_| {
            let seed = getrandom::u64().map_err(|_| ServiceError::system("a random number", Errno::EIO))?;
            Ok(Mutex::new(Server::new(seed, &ResponderOptions { sessions_max, ..*options })))
        };
        Ok(Rpc {
            handler,
            shards: (0..count).map(shard).collect::<Result<_, ServiceError>>()?,
            hasher: RandomState::default(),
            due_ns: (0..pool.partitions()).map(|_| AtomicU64::new(u64::MAX)).collect(),
            bulk_ns: AtomicU64::new(u64::MAX),
        })
    }

    /// Returns the program's handler.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Returns the counters of all clients together.
    pub fn counters(&self) -> ResponderCounters {
        self.shards.iter().map(|shard| shard.lock().counters()).sum()
    }

    /// Returns the number of clients whose answers are stored, and the bytes reserved for these.
    pub fn sessions(&self) -> (usize, usize) {
        let sizes = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.sessions(), shard.answer_bytes())
        });
        sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }

    /// Returns the estimate of the time from a request's arrival to its answer, in nanoseconds: the
    /// largest of the last minutes, at this time of the pool's clock.
    pub fn estimate_ns(&self, class: Class, now_ns: u64) -> u64 {
        let estimates = self.shards.iter().map(|shard| shard.lock().estimate_ns(class, now_ns));
        estimates.fold(0, u64::max)
    }

    /// Calls the program's handler, and carries out its decision.
    fn step(
        &self,
        request: Request<'_, T, RpcState<H::State>>,
        outcome: Option<Result<usize, Errno>>,
    ) -> Next<T::Offer, T::Memory> {
        let Request { from, partition, bytes, now_ns, reply, state: own, .. } = request;
        let (shard, id, header) = match own.step {
            RpcStep::Run { shard, id, header } => (shard, id, header),
            RpcStep::Reply { tag, length } => return Next::Reply { tag, length },
            RpcStep::Answered | RpcStep::Drop => return Next::Drop,
        };
        own.bulk_until_ns = None;
        let deadline_ns = self.shards[shard].lock().deadline_ns(id);
        let Some((head, answer)) = reply.split_first_chunk_mut::<HEADER>() else { return Next::Drop };
        // A request whose handler panics is dropped.
        let panicking = DropOnPanic { shard: &self.shards[shard], id };
        let body = bytes.get(HEADER..).unwrap_or_default();
        let parts = if header.has_offers { Offers::parse(body) } else { Some((Offers::NONE, body)) };
        let decision = match parts {
            None => Decision::Refuse(Errno::EBADMSG),
            Some((offers, bytes)) => {
                let request = RpcRequest {
                    from,
                    client: header.client,
                    class: header.class,
                    partition,
                    offers,
                    bytes,
                    time_left: deadline_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns))),
                    answer: &mut *answer,
                    state: &mut own.state,
                };
                match outcome {
                    None => self.handler.request(request),
                    Some(outcome) => self.handler.moved(request, outcome),
                }
            }
        };
        drop(panicking);
        let (status, length) = match decision {
            Decision::Answer { length } if length <= answer.len() => (0, length),
            Decision::Answer { .. } => (Errno::EMSGSIZE as u32, 0),
            Decision::Refuse(errno) => (errno as u32, 0),
            Decision::Push { offer, memory, length } => {
                own.bulk_until_ns = self.bulk_until_ns(partition, deadline_ns, now_ns);
                return Next::Push { offer, memory, length };
            }
            Decision::Pull { offer, memory } => {
                own.bulk_until_ns = self.bulk_until_ns(partition, deadline_ns, now_ns);
                return Next::Pull { offer, memory };
            }
            // `ended` follows.
            Decision::Drop => return Next::Drop,
        };
        let answered = self.shards[shard].lock().answered(id, status, &answer[..length], now_ns);
        let Some(header) = answered else { return Next::Drop };
        *head = header.emit();
        own.step = RpcStep::Answered;
        Next::Reply { tag: header.client.incarnation, length: HEADER + length }
    }

    /// Returns the time at which bulk that begins now is cancelled, and has the timer look then.
    fn bulk_until_ns(&self, partition: usize, deadline_ns: Option<u64>, now_ns: u64) -> Option<u64> {
        let until_ns = deadline_ns?.max(now_ns + BULK_MIN_NS);
        self.bulk_ns.fetch_min(until_ns, Ordering::Relaxed);
        self.due_ns[partition].fetch_min(until_ns, Ordering::Relaxed);
        Some(until_ns)
    }

    /// Cancels the bulk whose time has passed. Returns the time of the next.
    fn cancel_bulk(&self, service: &Service<T, Rpc<T, H>>, now_ns: u64) -> u64 {
        if self.bulk_ns.load(Ordering::Relaxed) <= now_ns {
            self.bulk_ns.store(u64::MAX, Ordering::Relaxed);
            service.abort(|state| {
                let is_over = state.bulk_until_ns.is_some_and(|until_ns| until_ns <= now_ns);
                if let Some(until_ns) = state.bulk_until_ns.filter(|_| !is_over) {
                    self.bulk_ns.fetch_min(until_ns, Ordering::Relaxed);
                }
                is_over
            });
        }
        self.bulk_ns.load(Ordering::Relaxed)
    }
}

impl<T: Transport<Peer: Eq + Hash>, H: RpcHandler<T>> Handler<T> for Rpc<T, H> {
    type State = RpcState<H::State>;

    const HANDLES_ARRIVALS: bool = true;

    fn arrived(&self, request: Request<'_, T, Self::State>) -> Class {
        let Request { from, partition, bytes, now_ns, reply, state, .. } = request;
        let shard = self.hasher.hash_one(from) as usize % self.shards.len();
        let mut server = self.shards[shard].lock();
        state.step = match server.receive(bytes, from, now_ns) {
            MessageDecision::Run(id, header) => RpcStep::Run { shard, id, header },
            MessageDecision::Answer(header, body) if HEADER + body.len() <= reply.len() => {
                reply[..HEADER].copy_from_slice(&header.emit());
                reply[HEADER..HEADER + body.len()].copy_from_slice(body);
                RpcStep::Reply { tag: header.client.incarnation, length: HEADER + body.len() }
            }
            MessageDecision::Answer(..) | MessageDecision::Drop => RpcStep::Drop,
        };
        let due_ns = server.next_ns().unwrap_or(u64::MAX);
        drop(server);
        self.due_ns[partition].fetch_min(due_ns, Ordering::Relaxed);
        match state.step {
            RpcStep::Run { header, .. } => header.class,
            // It takes no handler's time, and its client waits.
            RpcStep::Reply { .. } | RpcStep::Answered | RpcStep::Drop => Class::Urgent,
        }
    }

    fn request(&self, request: Request<'_, T, Self::State>) -> Next<T::Offer, T::Memory> {
        self.step(request, None)
    }

    fn moved(
        &self,
        request: Request<'_, T, Self::State>,
        outcome: Result<usize, Errno>,
    ) -> Next<T::Offer, T::Memory> {
        self.step(request, Some(outcome))
    }

    fn ended(&self, state: &mut Self::State, replied: Result<(), Errno>) {
        state.bulk_until_ns = None;
        match std::mem::take(&mut state.step) {
            RpcStep::Run { shard, id, .. } => self.shards[shard].lock().dropped(id),
            RpcStep::Answered => {}
            // The program has not seen it.
            RpcStep::Reply { .. } | RpcStep::Drop => return,
        }
        self.handler.ended(&mut state.state, replied);
    }

    fn tick(&self, service: &Service<T, Rpc<T, H>>, partition: usize, now_ns: u64) -> u64 {
        let mut next_ns = self.cancel_bulk(service, now_ns);
        for shard in &self.shards {
            // The lock is not held while a message is sent: its end may come inside the call.
            while let Some((header, to)) = { shard.lock().early(now_ns) } {
                service.send(partition, &to, header.client.incarnation, &header.emit());
            }
            next_ns = next_ns.min(shard.lock().next_ns().unwrap_or(u64::MAX));
        }
        next_ns
    }

    fn take_due_ns(&self, partition: usize) -> u64 {
        let due_ns = &self.due_ns[partition];
        if due_ns.load(Ordering::Relaxed) == u64::MAX {
            u64::MAX
        } else {
            due_ns.swap(u64::MAX, Ordering::Relaxed)
        }
    }
}

/// Drops a request if its handler panics.
struct DropOnPanic<'a, P: Clone + Eq + Hash> {
    shard: &'a Mutex<Server<P>>,
    id: RequestId,
}

impl<P: Clone + Eq + Hash> Drop for DropOnPanic<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shard.lock().dropped(self.id);
        }
    }
}
