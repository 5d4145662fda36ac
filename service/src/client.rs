//! Calls to services: a request, its answer, and bulk that the server moves in between.
//!
//! A [`Client`] is a source of a pool, as a service is: one thread waits for answers, bulk and
//! timers together. It drives the protocol of [`rpc`](crate::rpc) over any [`Transport`], so a
//! request is repeated until it is answered, and runs at most once if its caller wants that.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use nlx_core::{Errno, TmOptions};
//! use nlx_service::client::{Client, ClientOptions};
//! use nlx_service::machines::Machines;
//! use nlx_service::{Pool, PoolOptions};
//!
//! # let node = lnet_node::Node::start(&lnet_node::NodeConfig::new())?;
//! # let core = nlx_kcore::Kcore::new(node.lnet(), node.drive());
//! let machines = Machines::start(core, &"0@lo:12345:41:*".parse()?, &TmOptions::default())?;
//! let pool = Pool::start("client", machines.clone(), 1, PoolOptions::default())?;
//! let client = Client::start(&pool, machines, ClientOptions::default())?;
//! // There is no server. Over a network the call would end with the connection's error.
//! let call = client.call("0@lo:12345:41:1".parse()?, b"hello").deadline(std::time::Duration::from_millis(50));
//! assert_eq!(call.wait().unwrap_err().errno(), Errno::ETIMEDOUT);
//! # Ok(())
//! # }
//! ```
//!
//! # Three forms
//!
//! | form | the result |
//! | --- | --- |
//! | [`Call::start`] | goes to a callback on a worker of the pool |
//! | [`Call::wait`] | is returned; the calling thread blocks |
//! | `call.await` ([`Answering`]) | is the value of a future of any executor; dropping it cancels the call |
//!
//! Each call ends once: with the [`Answer`], or with a [`RequestError`]: the server's refusal, the
//! deadline, a server that cannot be reached, or one that has forgotten whether the request has
//! run.
//!
//! # Bulk
//!
//! A call may offer memory ([`Call::readable`], [`Call::writable`]): the server reads it or fills
//! it before it answers. A repetition of the request carries the same offers. When the call ends,
//! offers that the server has not used are cancelled, and the result comes after that: **no memory
//! of a call that has ended is in flight.** If the server has forgotten whether the request has
//! run, and the call is of [`Delivery::AtLeastOnce`], it is made again with fresh offers.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt::Display;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_region::IoVec;
use nix::errno::Errno;
use nlx_sync::{SlotKey, Slots};
use parking_lot::Mutex;

use crate::offers::{self, OFFERS_MAX};
use crate::rpc::{
    Action, CallId, Calls, ClientId, Delivery, EndedCall, HEADER, Header, NewCall, RequestCounters,
    RequestError, RequestOptions,
};
use crate::transport::{Access, ArrivedMessage, Events, Place, Posting};
use crate::{Class, Pool, PoolHandle, ServiceError, Source, Transport};

/// Maximum number of calls of a client that have not ended, to all servers together: a token names
/// a call in 16 bits.
pub const CALLS_MAX: usize = 1 << CALL_BITS;

/// Posted receive buffers: one fills while the answers in the others are read.
const RECEIVE_BUFFERS: u32 = 4;

/// Maximum number of answers that a receive buffer takes.
const ANSWERS_MAX: usize = 64;

/// The item for all news in the inbox. The item of call `n` is `n + 1`.
const INBOX: u32 = 0;

const CALL_BITS: u32 = 16;
const OFFER_BITS: u32 = 8;

/// The options of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// The partition of the pool that the client belongs to.
    pub partition: usize,
    /// The tag of its requests: over LNet portals the match bits of the service.
    pub tag: u64,
    /// The number of the client among those of its address; 0 over transfer machines.
    pub number: u32,
    /// The number by which servers distinguish this start of the client from earlier ones; by default
    /// a random one. Over LNet portals answers have it as match bits.
    pub incarnation: Option<u64>,
    /// Deadlines, repetitions, and the length of messages.
    pub request: RequestOptions,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The body of the answer; the server decides what it means.
    pub bytes: Vec<u8>,
    /// For each offer of the call, readable ones first, the number of bytes that the server has
    /// moved; `None` if it has not used the offer.
    pub moved: Vec<Option<usize>>,
}

/// The result of a call: the answer, or the reason why there is none.
pub type Outcome = Result<Answer, RequestError>;

/// Names a call of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey(SlotKey);

type Completion = Box<dyn FnOnce(Outcome) + Send>;

/// Makes calls, whose ends run on a pool of workers.
pub struct Client<T: Transport> {
    transport: T,
    pool: PoolHandle,
    options: ClientOptions,
    receive: Box<[T::Memory]>,
    state: Mutex<ClientState<T>>,
    inbox: Mutex<Inbox<T::Peer>>,
}

/// A call that has not begun. See [`Client::call`].
#[must_use = "it begins with `start`, `wait` or `await`"]
pub struct Call<'a, T: Transport> {
    client: &'a Arc<Client<T>>,
    to: T::Peer,
    request: &'a [u8],
    offers: Vec<(T::Memory, Access)>,
    class: Class,
    delivery: Delivery,
    deadline: Duration,
}

struct ClientState<T: Transport> {
    protocol: Calls<T::Peer, u32>,
    calls: Slots<CallState<T>>,
    by_id: HashMap<CallId, u32, RandomState>,
    /// Requests for sessions that are being sent: their tags, and their memory.
    opens: Slots<(u64, T::Memory)>,
    /// Memory of calls that have ended, for further requests.
    free: Vec<T::Memory>,
    /// Receive buffers that are posted.
    posted: u32,
    /// Why there can be no further calls.
    broken: Option<Errno>,
}

struct CallState<T: Transport> {
    to: T::Peer,
    memory: T::Memory,
    /// Bytes of the message after the header.
    length: usize,
    offers: Vec<OfferState<T>>,
    class: Class,
    delivery: Delivery,
    deadline_ns: u64,
    /// The id of the present request; a request that is begun anew gets another id.
    id: Option<CallId>,
    /// Operations in flight: the request, and offers.
    open: u32,
    /// Set while the offers are being made: the call cannot end before.
    is_staging: bool,
    result: Option<Result<Vec<u8>, RequestError>>,
    completion: Option<Completion>,
}

struct OfferState<T: Transport> {
    memory: T::Memory,
    access: Access,
    /// In flight.
    operation: Option<T::Operation>,
    moved: Option<usize>,
}

/// What the network has reported, in order.
struct Inbox<P> {
    news: VecDeque<News<P>>,
    /// An item is in the queue of the pool, or a worker reads the news.
    is_read: bool,
}

enum News<P> {
    Arrived(u32, ArrivedMessage<P>),
    Released(u32),
    Ended(u32, Result<usize, Errno>),
}

/// The kind of an operation, in the upper bits of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Receive = 0,
    Request = 1,
    Open = 2,
    Offer = 3,
}

fn token(kind: Kind, index: u32, offer: usize) -> u32 {
    (kind as u32) << (CALL_BITS + OFFER_BITS) | index << OFFER_BITS | offer as u32
}

fn parts(token: u32) -> (u32, u32, usize) {
    let index = token >> OFFER_BITS & ((1 << CALL_BITS) - 1);
    (token >> (CALL_BITS + OFFER_BITS), index, token as usize & ((1 << OFFER_BITS) - 1))
}

impl<T: Transport> Client<T> {
    /// Starts a client: posts its receive buffers.
    ///
    /// # Errors
    /// ENOMEM without memory or room in the pool or the network; EINVAL for messages without room
    /// for a header.
    pub fn start(pool: &Pool, transport: T, options: ClientOptions) -> Result<Arc<Client<T>>, ServiceError> {
        let message_max = options.request.message_max;
        if !(HEADER + 1..=1 << 20).contains(&message_max) {
            let rule = "longer than a header, at most 1048576 bytes";
            return Err(ServiceError::Option { name: "message_max", value: message_max as u64, rule });
        }
        let random =
            || getrandom::u64().map_err(|_| ServiceError::system("get a random number", Errno::ENOSYS));
        let incarnation = options.incarnation.map_or_else(random, Ok)?.max(1);
        let id = ClientId { number: options.number, incarnation };
        let client = pool.add(1024, |pool| {
            let allocate = |_| {
                let memory =
                    transport.allocate(options.partition, message_max * answers(message_max) as usize);
                memory.map_err(|errno| ServiceError::system("memory for answers", errno))
            };
            let receive = (0..RECEIVE_BUFFERS).map(allocate).collect::<Result<_, _>>()?;
            let state = ClientState {
                protocol: Calls::new(id, options.request),
                calls: Slots::new(CALLS_MAX),
                by_id: HashMap::default(),
                opens: Slots::new(CALLS_MAX),
                free: Vec::new(),
                posted: 0,
                broken: None,
            };
            let inbox = Inbox { news: VecDeque::new(), is_read: false };
            let (state, inbox) = (Mutex::new(state), Mutex::new(inbox));
            Ok(Arc::new(Client { transport, pool, options, receive, state, inbox }))
        })?;
        let events = Arc::new(Upcalls(Arc::downgrade(&client)));
        let opened = client.transport.open(events);
        let posted = opened.and_then(|()| (0..RECEIVE_BUFFERS).try_for_each(|buffer| client.post(buffer)));
        posted.map_err(|errno| ServiceError::system("open a client", errno))?;
        Ok(client)
    }

    /// Returns a call to a service, with its options by default.
    pub fn call<'a>(self: &'a Arc<Self>, to: T::Peer, request: &'a [u8]) -> Call<'a, T> {
        let RequestOptions { delivery, deadline, .. } = self.options.request;
        Call { client: self, to, request, offers: Vec::new(), class: Class::Normal, delivery, deadline }
    }

    /// Ends a call early, with ECANCELED. Does nothing if it has ended.
    pub fn cancel(&self, call: CallKey) {
        {
            let mut state = self.state.lock();
            let Some(CallState { id, .. }) = state.calls.get(call.0) else { return };
            match *id {
                Some(id) => {
                    let ended = state.protocol.give_up(id, self.pool.now_ns());
                    if let Some(ended) = ended {
                        state.ended(ended, &[]);
                    }
                }
                None => state.fail(call.0.index, RequestError::GivenUp),
            }
        }
        self.settle(call.0.index);
    }

    /// Returns the counters of the protocol.
    pub fn counters(&self) -> RequestCounters {
        self.state.lock().protocol.counters()
    }

    /// Returns the number of calls that have not ended.
    pub fn in_flight(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Returns the transport, for the allocation of memory to offer.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    fn place(&self, kind: Kind, index: u32, offer: usize) -> Place {
        Place { partition: self.options.partition, token: token(kind, index, offer) }
    }

    fn post(&self, buffer: u32) -> Result<(), Errno> {
        // Counted first: the event may come inside the call.
        self.state.lock().posted += 1;
        let request_max = self.options.request.message_max;
        let at = self.place(Kind::Receive, buffer, 0);
        let memory = &self.receive[buffer as usize];
        let requests = answers(request_max);
        let posted = self.transport.post(Posting { at, endpoint: 0, memory, requests, request_max });
        if posted.is_err() {
            self.state.lock().posted -= 1;
        }
        posted.map(drop)
    }

    /// Returns memory for a message: that of a call that has ended, or new one.
    fn message(&self) -> Result<T::Memory, Errno> {
        let free = self.state.lock().free.pop();
        let bytes = self.options.request.message_max;
        free.map_or_else(|| self.transport.allocate(self.options.partition, bytes), Ok)
    }

    /// Enters a call, and begins it.
    fn begin(&self, call: Call<'_, T>, completion: Completion) -> Result<CallKey, RequestError> {
        let Call { to, request, offers, class, delivery, deadline, .. } = call;
        let table = if offers.is_empty() { 0 } else { offers::table_bytes(offers.len()) };
        let (bytes, limit) = (HEADER + table + request.len(), self.options.request.message_max);
        if bytes > limit || offers.len() > OFFERS_MAX {
            return Err(RequestError::TooLong { bytes, limit });
        }
        if let Some(errno) = self.state.lock().broken {
            return Err(system("call a service")(errno));
        }
        let memory = self.message().map_err(system("memory for a call"))?;
        let written = iovec(&memory).write(HEADER + table..bytes).map(|mut body| body.copy_from(0, request));
        written.map_err(|error| system("write a request")(error.errno()))?;
        let offer = |(memory, access)| OfferState { memory, access, operation: None, moved: None };
        let deadline_ns =
            self.pool.now_ns().saturating_add(deadline.as_nanos().try_into().unwrap_or(u64::MAX));
        let key = {
            let call = CallState {
                to,
                memory,
                length: table + request.len(),
                offers: offers.into_iter().map(offer).collect(),
                class,
                delivery,
                deadline_ns,
                id: None,
                open: 0,
                is_staging: true,
                result: None,
                completion: Some(completion),
            };
            self.state.lock().calls.insert(call).ok_or(RequestError::Busy { limit: CALLS_MAX })?
        };
        self.stage(key.index);
        Ok(CallKey(key))
    }

    /// Makes the offers of a call, and passes its request to the protocol.
    fn stage(&self, index: u32) {
        if let Err(error) = self.make_offers(index) {
            self.state.lock().fail(index, error);
        }
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(call) = state.calls.at_mut(index) else { return };
            call.is_staging = false;
            let refused = match state.broken {
                Some(errno) => Err(system("call a service")(errno)),
                None => state.protocol.check_room(&call.to),
            };
            if let Err(error) = refused {
                call.result.get_or_insert(Err(error));
            }
            if call.result.is_none() {
                let has_offers = !call.offers.is_empty();
                // An offer can be used once, so a request with offers must not run twice.
                let delivery = if has_offers { Delivery::AtMostOnce } else { call.delivery };
                let (length, class, deadline_ns) = (call.length as u32, call.class, call.deadline_ns);
                let new = NewCall { buffer: index, length, delivery, class, has_offers, deadline_ns };
                let id = state.protocol.begin(&call.to, new, self.pool.now_ns());
                call.id = Some(id);
                state.by_id.insert(id, index);
            }
        }
        self.settle(index);
        self.act();
    }

    fn make_offers(&self, index: u32) -> Result<(), RequestError> {
        for number in 0.. {
            let (message, memory, access) = {
                let mut state = self.state.lock();
                let Some(call) = state.calls.at_mut(index) else { return Ok(()) };
                let Some(offer) = call.offers.get_mut(number) else { break };
                offer.moved = None;
                let found = (call.memory.clone(), offer.memory.clone(), offer.access);
                // Counted first: the event may come before the call returns.
                call.open += 1;
                found
            };
            let made = self.transport.offer(self.place(Kind::Offer, index, number), memory.clone(), access);
            let mut state = self.state.lock();
            let Some(call) = state.calls.at_mut(index) else { return Ok(()) };
            let (operation, offer) = made.map_err(|errno| {
                call.open -= 1;
                system("offer memory")(errno)
            })?;
            // It may have ended already.
            call.offers[number].operation = Some(operation);
            let counts = offers::counts(call.offers.iter().map(|offer| offer.access));
            drop(state);
            let entry = offers::entry::<T>(&offer, access, iovec(&memory));
            let table = HEADER..HEADER + offers::table_bytes(number + 1);
            let mut table =
                iovec(&message).write(table).map_err(|error| system("write offers")(error.errno()))?;
            table.copy_from(0, &counts);
            table.copy_from(offers::table_bytes(number), &entry);
        }
        Ok(())
    }

    /// Carries out the actions of the protocol that are due, and sets the timer for the next one.
    fn act(&self) {
        loop {
            let now_ns = self.pool.now_ns();
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(action) = state.protocol.act(now_ns) else {
                let next_ns = state.protocol.next_ns();
                drop(guard);
                next_ns.into_iter().for_each(|at_ns| self.pool.wake_at(self.options.partition, at_ns));
                return;
            };
            match action {
                Action::Request { buffer: index, header, to, .. } => {
                    let Some(call) = state.calls.at_mut(index) else { continue };
                    call.open += 1;
                    let memory = call.memory.clone();
                    drop(guard);
                    let length = HEADER + header.length as usize;
                    self.send(token(Kind::Request, index, 0), memory, &header, length, &to);
                }
                Action::Open { tag, header, to } => {
                    drop(guard);
                    match self.message() {
                        Ok(memory) => {
                            let entered = self.state.lock().opens.insert((tag, memory.clone()));
                            // If the table is full, the message is sent later.
                            let Some(key) = entered else { continue };
                            self.send(token(Kind::Open, key.index, 0), memory, &header, HEADER, &to);
                        }
                        Err(errno) => self.was_sent(tag, Err(errno)),
                    }
                }
                Action::Ended(ended) => {
                    let index = state.ended(ended, &[]);
                    drop(guard);
                    index.into_iter().for_each(|index| self.settle(index));
                }
            }
        }
    }

    /// Sends a message that begins with this header.
    fn send(&self, token: u32, memory: T::Memory, header: &Header, length: usize, to: &T::Peer) {
        let written = iovec(&memory).write(0..HEADER).map(|mut bytes| bytes.copy_from(0, &header.emit()));
        let place = Place { partition: self.options.partition, token };
        let sent = written.map_err(|error| error.errno());
        let sent = sent.and_then(|_| self.transport.send(place, to, self.options.tag, memory, length));
        if let Err(errno) = sent {
            tracing::debug!(%errno, server = %to, "a request was not sent");
            self.has_ended(token, Err(errno));
        }
    }

    /// Reads the inbox until it is empty. One worker at a time does.
    fn read_inbox(&self) {
        loop {
            let news = {
                let mut inbox = self.inbox.lock();
                let news = inbox.news.pop_front();
                inbox.is_read = news.is_some();
                news
            };
            match news {
                None => return self.act(),
                Some(News::Arrived(buffer, arrival)) => self.has_arrived(buffer, &arrival),
                Some(News::Released(buffer)) => self.was_released(buffer),
                Some(News::Ended(token, outcome)) => self.has_ended(token, outcome),
            }
        }
    }

    fn has_arrived(&self, buffer: u32, arrival: &ArrivedMessage<T::Peer>) {
        let range = arrival.offset..arrival.offset + arrival.length;
        let Ok(message) = iovec(&self.receive[buffer as usize]).read(range) else { return };
        let message = message.as_slice().unwrap_or_default();
        let index = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(ended) = state.protocol.receive(message, &arrival.from, self.pool.now_ns()) else {
                return;
            };
            state.ended(ended, message.get(HEADER..).unwrap_or_default())
        };
        index.into_iter().for_each(|index| self.settle(index));
    }

    /// Posts a receive buffer again. A client without any, because its network has ended, ends all
    /// its calls.
    fn was_released(&self, buffer: u32) {
        self.state.lock().posted -= 1;
        if let Err(errno) = self.post(buffer) {
            tracing::warn!(%errno, "a receive buffer of a client is not posted again");
            if self.state.lock().posted == 0 {
                self.break_down(errno);
            }
        }
    }

    /// Handles the end of an operation.
    fn has_ended(&self, token: u32, outcome: Result<usize, Errno>) {
        let (kind, index, number) = parts(token);
        let sent = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if kind == Kind::Open as u32 {
                let Some((tag, memory)) = state.opens.take(index) else { return };
                state.free.push(memory);
                Some(tag)
            } else {
                let Some(call) = state.calls.at_mut(index) else { return };
                call.open -= 1;
                if kind == Kind::Offer as u32 {
                    let Some(offer) = call.offers.get_mut(number) else { return };
                    (offer.operation, offer.moved) = (None, outcome.ok());
                    None
                } else {
                    // If its call has ended, there is nothing to return it to.
                    call.id.inspect(|&id| _ = state.protocol.returned(id, index)).map(CallId::tag)
                }
            }
        };
        sent.into_iter().for_each(|tag| self.was_sent(tag, outcome));
        self.settle(index);
    }

    /// Passes the result of a send to the protocol, and settles the calls that end by it.
    fn was_sent(&self, tag: u64, outcome: Result<usize, Errno>) {
        let failure = outcome.err().map(|errno| (errno, errno.desc()));
        loop {
            let error = failure.as_ref().map(|(errno, text)| (*errno, text as &dyn Display));
            let index = {
                let mut guard = self.state.lock();
                let state = &mut *guard;
                let Some(ended) = state.protocol.sent(tag, error, self.pool.now_ns()) else { return };
                state.ended(ended, &[])
            };
            index.into_iter().for_each(|index| self.settle(index));
        }
    }

    /// Takes the next step of a call that has its result: cancels its offers, makes it again, or
    /// ends it.
    fn settle(&self, index: u32) {
        let mut guard = self.state.lock();
        let Some(call) = guard.calls.at_mut(index) else { return };
        if call.is_staging || call.result.is_none() {
            return;
        }
        if call.open > 0 {
            let operations: Vec<_> =
                call.offers.iter_mut().filter_map(|offer| offer.operation.take()).collect();
            drop(guard);
            return operations.into_iter().for_each(|operation| self.transport.cancel(operation));
        }
        let is_forgotten = matches!(call.result, Some(Err(RequestError::Forgotten { .. })));
        let may_run_again = call.delivery == Delivery::AtLeastOnce && self.pool.now_ns() < call.deadline_ns;
        if is_forgotten && may_run_again {
            (call.result, call.id, call.is_staging) = (None, None, true);
            drop(guard);
            return self.stage(index);
        }
        // Its item is pushed once.
        call.is_staging = true;
        drop(guard);
        self.pool.push(self.options.partition, index + 1, Class::Urgent);
        self.pool.wake(self.options.partition);
    }

    /// Reports the result of a call, and forgets it.
    fn complete(&self, index: u32) {
        let (completion, result, moved) = {
            let mut state = self.state.lock();
            let Some(call) = state.calls.take(index) else { return };
            state.free.push(call.memory);
            (call.completion, call.result, call.offers.iter().map(|offer| offer.moved).collect())
        };
        let (Some(completion), Some(result)) = (completion, result) else { return };
        completion(result.map(|bytes| Answer { bytes, moved }));
    }

    /// Ends all calls with this errno, and refuses further ones.
    fn break_down(&self, errno: Errno) {
        let all: Vec<u32> = {
            let mut state = self.state.lock();
            state.broken.get_or_insert(errno);
            let all: Vec<u32> = state.calls.indices().collect();
            all.iter().for_each(|&index| state.fail(index, system("call a service")(errno)));
            all
        };
        all.into_iter().for_each(|index| self.settle(index));
    }

    fn report(&self, news: News<T::Peer>) {
        let is_read = {
            let mut inbox = self.inbox.lock();
            inbox.news.push_back(news);
            std::mem::replace(&mut inbox.is_read, true)
        };
        if !is_read {
            self.pool.push(self.options.partition, INBOX, Class::Urgent);
        }
    }
}

impl<T: Transport> ClientState<T> {
    /// Stores the result of a call that the protocol has ended. Returns the index of the call.
    fn ended(&mut self, ended: EndedCall<u32>, body: &[u8]) -> Option<u32> {
        let index = self.by_id.remove(&ended.id)?;
        let call = self.calls.at_mut(index)?;
        call.result.get_or_insert_with(|| ended.result.map(|()| body.to_vec()));
        Some(index)
    }

    /// Ends a call that has no result yet with this error.
    fn fail(&mut self, index: u32, error: RequestError) {
        let Some(call) = self.calls.at_mut(index).filter(|call| call.result.is_none()) else { return };
        call.result = Some(Err(error));
        if let Some(id) = call.id {
            self.by_id.remove(&id);
            self.protocol.give_up(id, 0);
        }
    }
}

impl<'a, T: Transport> Call<'a, T> {
    /// Lets the server read the first `length` bytes of this memory. Readable memory comes before
    /// writable memory in the request, each in the order of these calls.
    pub fn readable(mut self, memory: &T::Memory, length: usize) -> Self {
        let at = self.offers.iter().position(|(_, access)| *access == Access::Write);
        self.offers.insert(at.unwrap_or(self.offers.len()), (memory.clone(), Access::Read { length }));
        self
    }

    /// Lets the server fill this memory.
    pub fn writable(mut self, memory: &T::Memory) -> Self {
        self.offers.push((memory.clone(), Access::Write));
        self
    }

    /// Marks the request as urgent: it goes before ordinary ones at the server.
    pub fn urgent(self) -> Self {
        Call { class: Class::Urgent, ..self }
    }

    /// Sets how often the request may run.
    pub fn delivery(self, delivery: Delivery) -> Self {
        Call { delivery, ..self }
    }

    /// Ends the call without an answer after this time.
    pub fn deadline(self, deadline: Duration) -> Self {
        Call { deadline, ..self }
    }

    /// Begins the call. `ended` gets its result, on a worker of the pool; it may block, and make
    /// further calls.
    ///
    /// # Errors
    /// EMSGSIZE for a request that does not fit into a message, EAGAIN beyond [`CALLS_MAX`], ENOMEM, or
    /// the errno with which the network has ended. Then `ended` is not called.
    pub fn start(self, ended: impl FnOnce(Outcome) + Send + 'static) -> Result<CallKey, RequestError> {
        self.client.begin(self, Box::new(ended))
    }

    /// Begins the call, and blocks until it has ended. It may be called on a worker of the pool as
    /// well, whose other workers go on.
    ///
    /// # Errors
    /// The errors of [`Call::start`], and the error of the call.
    pub fn wait(self) -> Outcome {
        let mut answering = self.into_future();
        let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut answering).poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl<T: Transport> IntoFuture for Call<'_, T> {
    type Output = Outcome;
    type IntoFuture = Answering<T>;

    /// Begins the call at once.
    fn into_future(self) -> Answering<T> {
        let (client, shared) = (self.client.clone(), Arc::new(Mutex::new(AnswerState::default())));
        let filled = shared.clone();
        let begun = self.start(move |outcome| {
            let waker = {
                let mut state = filled.lock();
                state.outcome = Some(outcome);
                state.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        });
        let call = match begun {
            Ok(call) => Some((client, call)),
            Err(error) => {
                shared.lock().outcome = Some(Err(error));
                None
            }
        };
        Answering { shared, call }
    }
}

/// A call in progress as a future. Dropping it cancels the call; memory that the call offers is then
/// in flight until the cancel has taken effect.
#[must_use = "dropping it cancels the call"]
pub struct Answering<T: Transport> {
    shared: Arc<Mutex<AnswerState>>,
    /// `None` once it has ended.
    call: Option<(Arc<Client<T>>, CallKey)>,
}

#[derive(Default)]
struct AnswerState {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl<T: Transport> Future for Answering<T> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = {
            let mut state = self.shared.lock();
            if state.outcome.is_none() {
                state.waker = Some(context.waker().clone());
            }
            state.outcome.take()
        };
        outcome.map_or(Poll::Pending, |outcome| {
            self.call = None;
            Poll::Ready(outcome)
        })
    }
}

impl<T: Transport> Drop for Answering<T> {
    fn drop(&mut self) {
        self.call.take().into_iter().for_each(|(client, call)| client.cancel(call));
    }
}

/// Wakes a thread that blocks in [`Call::wait`].
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T: Transport> Source for Client<T> {
    fn run(&self, _: usize, item: u32, _: u64) {
        match item.checked_sub(1) {
            None => self.read_inbox(),
            Some(index) => self.complete(index),
        }
    }

    fn tick(&self, partition: usize, _: u64) -> Option<u64> {
        if partition == self.options.partition {
            self.act();
        }
        None
    }

    /// The calls end with ESHUTDOWN. Their memory stays in flight until the transport ends.
    fn ended(&self) {
        self.break_down(Errno::ESHUTDOWN);
        let all: Vec<u32> = self.state.lock().calls.indices().collect();
        all.into_iter().for_each(|index| self.complete(index));
    }
}

/// The events of a client. The transport holds it; it does not hold the client.
struct Upcalls<T: Transport>(Weak<Client<T>>);

impl<T: Transport> Upcalls<T> {
    fn report(&self, news: News<T::Peer>) {
        if let Some(client) = self.0.upgrade() {
            client.report(news);
        }
    }
}

impl<T: Transport> Events<T::Peer> for Upcalls<T> {
    fn arrived(&self, at: Place, arrival: ArrivedMessage<T::Peer>) {
        self.report(News::Arrived(parts(at.token).1, arrival));
    }

    fn released(&self, at: Place) {
        self.report(News::Released(parts(at.token).1));
    }

    fn fetched(&self, _: Place, _: Result<usize, Errno>) {}

    fn ended(&self, at: Place, outcome: Result<usize, Errno>) {
        self.report(News::Ended(at.token, outcome));
    }

    fn wake(&self, partition: usize) {
        self.0.upgrade().into_iter().for_each(|client| client.pool.wake(partition));
    }
}

/// Returns the number of answers that a receive buffer takes.
fn answers(message_max: usize) -> u32 {
    ((1 << 20) / message_max).clamp(1, ANSWERS_MAX) as u32
}

fn iovec<M: Borrow<IoVec>>(memory: &M) -> &IoVec {
    memory.borrow()
}

fn system(what: &'static str) -> impl Fn(Errno) -> RequestError {
    move |errno| RequestError::System { errno, text: format!("{what}: {}", errno.desc()) }
}
