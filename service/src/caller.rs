//! Calls over LNet portals: a request, its reply, and bulk that the server moves.
//!
//! A [`Line`] is the memory and the state of one call at a time. A program takes one with
//! [`Caller::line`], writes the request into [`Line::request`], and calls [`Caller::begin`]. The
//! call ends with one [`Owner::ended`], also if it could not be sent. There the program reads
//! [`Line::reply`], and begins the next call on the line, or gives it back. Lines are kept, so a
//! call allocates nothing after the first.
//!
//! The steps are those of LNet's self-test (lst 2): post the reply buffer, post the bulk buffer,
//! send the request. The events may come in any order. A call ends when all its descriptors have
//! ended, so afterwards none of its memory is in flight. Its end is an urgent item of the pool: the
//! thread that drives the network also continues after the call, without a hand-off.
//!
//! | a call ends with | when |
//! | --- | --- |
//! | the length of the reply | all of it is done, or [`Owner::waits_for_bulk`] gave the bulk up |
//! | ETIMEDOUT | [`CallSpec::deadline_ns`] has passed |
//! | the errno of [`Caller::abort`] | the program ended it |
//! | the errno of the network | the request or the bulk failed |
//!
//! A call is sent once: there is no resending at this level.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventHandler, EventKind, LNet, Md, MdHandle, MdOptions, MeSpec, Put,
    Threshold, Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_region::{IoVec, Region};
use parking_lot::{Mutex, RwLock};

use crate::{Class, Pool, PoolHandle, ServiceError, Source};

/// Maximum number of lines of one partition, and with it of calls in progress there.
pub const LINES_MAX: usize = 1 << 20;

/// Interval at which a partition with calls searches for passed deadlines: a call costs no timer.
const LOOK_NS: u64 = 1_000_000_000;

/// What a call sends, and where its reply and bulk go.
#[derive(Debug, Clone)]
pub struct CallSpec {
    /// The process that the request is sent to, and the only one whose reply counts.
    pub to: ProcessId,
    /// The local NID to send from; `None` lets LNet choose.
    pub from: Option<Nid>,
    /// The portal of the request.
    pub portal: Portal,
    /// The match bits of the request: the service's id.
    pub bits: MatchBits,
    /// The portal of reply and bulk, at this node.
    pub reply_portal: Portal,
    /// The match bits of the reply, which the request carries.
    pub reply_bits: MatchBits,
    /// Memory for bulk, if the server moves any.
    pub bulk: Option<Bulk>,
    /// The call fails with ETIMEDOUT at this time of the pool's clock, or up to a second later;
    /// `None` for no deadline.
    pub deadline_ns: Option<u64>,
}

/// Memory that a call offers to its server.
#[derive(Debug, Clone)]
pub struct Bulk {
    /// Its match bits, which the request carries.
    pub bits: MatchBits,
    /// The memory that the server reads or fills.
    pub memory: IoVec,
    /// Set if the server fetches the memory; otherwise the server sends into it.
    pub is_source: bool,
}

/// The result of a call: its reply and its bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallEnd {
    /// The length of the reply, or why there is none.
    pub reply: Result<usize, Errno>,
    /// The number of bytes that the server moved; `None` if it moved none.
    pub moved: Option<usize>,
}

/// The program's side of a [`Caller`]. Its methods run on worker threads of the pool, several at a
/// time for different lines.
pub trait Owner: Sized + Send + Sync + 'static {
    /// Data that the owner stores with each line.
    type State: Default + Send + 'static;

    /// Continues after a call. The line is free, and may be used again inside.
    fn ended(&self, caller: &Caller<Self>, line: &Arc<Line<Self::State>>, ended: CallEnd);

    /// Returns whether a call that has its reply, but not its bulk, waits for the bulk. If not, the
    /// bulk buffer is unlinked. A server that refuses a request moves none.
    fn waits_for_bulk(&self, reply: &[u8]) -> bool {
        let _ = reply;
        true
    }
}

/// The memory and the state of one call at a time, in one partition.
pub struct Line<S> {
    owned: Mutex<S>,
    partition: usize,
    number: u32,
    request: IoVec,
    reply: IoVec,
    state: Mutex<LineState>,
    deadline_ns: AtomicU64,
}

/// The descriptors of a call that were posted.
#[derive(Default)]
struct Posted {
    reply: Option<MdHandle>,
    bulk: Option<MdHandle>,
}

#[derive(Default)]
struct LineState {
    /// Descriptors whose last event has not come.
    open: u32,
    reply_md: Option<MdHandle>,
    bulk_md: Option<MdHandle>,
    /// The bulk descriptor has not ended.
    bulk_open: bool,
    reply: Option<usize>,
    moved: Option<usize>,
    failure: Option<Errno>,
    /// The caller is still making the descriptors.
    is_beginning: bool,
    /// An item is in the queue.
    is_queued: bool,
    /// The descriptors that are left have been unlinked.
    is_unlinked: bool,
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Descriptors of a line, in the lowest bits of a user pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reply = 0,
    Bulk = 1,
    Request = 2,
}

impl<S> Line<S> {
    /// Returns the data that the owner stores with the line.
    pub fn owned(&self) -> &Mutex<S> {
        &self.owned
    }

    /// Returns the partition on whose threads its calls end.
    #[must_use]
    pub fn partition(&self) -> usize {
        self.partition
    }

    /// Returns its number among the lines of its partition.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the memory of the request. It cannot be written while it is being sent.
    #[must_use]
    pub fn request(&self) -> &IoVec {
        &self.request
    }

    /// Returns the memory of the reply.
    #[must_use]
    pub fn reply(&self) -> &IoVec {
        &self.reply
    }

    fn user_ptr(&self, kind: Kind) -> u64 {
        u64::from(self.number) << 2 | kind as u64
    }
}

/// The lines of a partition.
struct Lines<S> {
    all: RwLock<Vec<Arc<Line<S>>>>,
    /// Those that were given back.
    free: Mutex<Vec<Arc<Line<S>>>>,
}

/// Makes calls over LNet, whose ends run on a pool of workers.
pub struct Caller<O: Owner> {
    lnet: Arc<dyn LNet>,
    pool: PoolHandle,
    owner: O,
    partitions: Box<[Lines<O::State>]>,
    queues: OnceLock<Vec<EqHandle>>,
    request_max: usize,
    reply_max: usize,
}

impl<O: Owner> Caller<O> {
    /// Starts a caller whose requests and replies have at most these lengths in bytes.
    ///
    /// # Errors
    /// ENOMEM without room for event queues or in the pool.
    pub fn start(
        pool: &Pool,
        lnet: Arc<dyn LNet>,
        (request_max, reply_max): (usize, usize),
        owner: O,
    ) -> Result<Arc<Caller<O>>, ServiceError> {
        let caller = pool.add(1024, |pool| {
            let partitions = (0..pool.partitions())
                .map(|_| Lines { all: RwLock::default(), free: Mutex::default() })
                .collect();
            let queues = OnceLock::new();
            Ok(Arc::new(Caller { lnet, pool, owner, partitions, queues, request_max, reply_max }))
        })?;
        let queue = |partition| {
            let handler = Queue { caller: Arc::downgrade(&caller), partition };
            let queue = caller.lnet.eq_alloc(Arc::new(handler));
            queue.map_err(|error| ServiceError::system("make an event queue for calls", error.errno()))
        };
        let queues = (0..caller.partitions.len()).map(queue).collect::<Result<_, _>>()?;
        let _ = caller.queues.set(queues);
        Ok(caller)
    }

    /// Returns the program's side, whose methods the caller runs.
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// Returns the current time in nanoseconds of the pool's clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.pool.now_ns()
    }

    /// Returns the number of partitions: those of the pool.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Returns a line of a partition: one that was given back, or a new one.
    ///
    /// # Errors
    /// ENOMEM without memory, or beyond [`LINES_MAX`].
    pub fn line(&self, partition: usize) -> Result<Arc<Line<O::State>>, ServiceError> {
        let lines = &self.partitions[partition];
        if let Some(line) = lines.free.lock().pop() {
            return Ok(line);
        }
        let region = |bytes| {
            let region = Region::heap(bytes);
            region.map(IoVec::whole).map_err(|error| ServiceError::system("memory for a call", error.errno()))
        };
        let (request, reply) = (region(self.request_max)?, region(self.reply_max)?);
        let mut all = lines.all.write();
        if all.len() >= LINES_MAX {
            let what = format!("partition {partition} has {LINES_MAX} lines for calls already");
            return Err(ServiceError::system(what, Errno::ENOMEM));
        }
        let number = all.len() as u32;
        let (state, deadline_ns) = (Mutex::default(), AtomicU64::new(NEVER));
        let owned = Mutex::default();
        all.push(Arc::new(Line { owned, partition, number, request, reply, state, deadline_ns }));
        Ok(all[number as usize].clone())
    }

    /// Calls `look` with every line, those included that were given back.
    pub fn for_each_line(&self, mut look: impl FnMut(&Arc<Line<O::State>>)) {
        for lines in &self.partitions {
            let all = lines.all.read().clone();
            all.iter().for_each(&mut look);
        }
    }

    /// Gives a line back whose call has ended.
    pub fn give_back(&self, line: Arc<Line<O::State>>) {
        self.partitions[line.partition].free.lock().push(line);
    }

    /// Begins a call with the first `length` bytes of the line's request. Its end is one
    /// [`Owner::ended`], also if it cannot be sent.
    ///
    /// # Errors
    /// EBUSY if the line has a call in progress; then nothing happens.
    pub fn begin(&self, line: &Arc<Line<O::State>>, length: usize, call: &CallSpec) -> Result<(), Errno> {
        {
            let mut state = line.state.lock();
            if state.open > 0 || state.is_beginning || state.is_queued {
                return Err(Errno::EBUSY);
            }
            *state = LineState::beginning(call.bulk.is_some());
        }
        if let Some(deadline_ns) = call.deadline_ns {
            line.deadline_ns.store(deadline_ns, Ordering::Release);
            self.pool.wake_at(line.partition, deadline_ns.min(self.now_ns() + LOOK_NS));
        }
        let mut posted = Posted::default();
        let begun = self.post(line, call, &mut posted).and_then(|()| self.send(line, length, call));
        let mut state = line.state.lock();
        state.has_begun(posted, begun);
        let is_due = state.needs_a_step();
        state.is_queued |= is_due;
        drop(state);
        if is_due {
            self.pool.push(line.partition, line.number, Class::Urgent);
            self.pool.wake(line.partition);
        }
        Ok(())
    }

    /// Ends a call early with this errno: unlinks its descriptors. [`Owner::ended`] follows after their
    /// last events. Does nothing if the call has ended.
    pub fn abort(&self, line: &Arc<Line<O::State>>, errno: Errno) {
        let mut state = line.state.lock();
        if state.open == 0 {
            return;
        }
        state.failure.get_or_insert(errno);
        let is_due = !state.is_queued && !state.is_beginning;
        state.is_queued |= is_due;
        drop(state);
        if is_due {
            self.pool.push(line.partition, line.number, Class::Urgent);
            self.pool.wake(line.partition);
        }
    }

    fn md(&self, line: &Line<O::State>, kind: Kind, memory: IoVec, options: MdOptions) -> Result<Md, Errno> {
        let eq = self.queues.get().and_then(|queues| queues.get(line.partition)).copied();
        Ok(Md {
            memory,
            threshold: Threshold::Limited(1),
            max_size: 0,
            options,
            user_ptr: line.user_ptr(kind),
            eq: Some(eq.ok_or(Errno::ESHUTDOWN)?),
        })
    }

    /// Posts the reply buffer and the bulk buffer. Their events may come before the call returns.
    fn post(&self, line: &Line<O::State>, call: &CallSpec, posted: &mut Posted) -> Result<(), Errno> {
        let attach = |bits, md| {
            let me = MeSpec { match_id: call.to, ..MeSpec::new(call.reply_portal, bits) };
            let me = self.lnet.me_attach(&me);
            me.and_then(|me| self.lnet.md_attach(me, md, Unlink::Auto)).map_err(|error| error.errno())
        };
        // A reply that is too long arrives cut off, and is refused by its length.
        let options = MdOptions::OP_PUT | MdOptions::TRUNCATE;
        let md = self.md(line, Kind::Reply, line.reply.clone(), options)?;
        posted.reply = Some(attach(call.reply_bits, md)?);
        let Some(bulk) = &call.bulk else { return Ok(()) };
        let options = if bulk.is_source { MdOptions::OP_GET } else { MdOptions::OP_PUT };
        let md = self.md(line, Kind::Bulk, bulk.memory.clone(), options)?;
        posted.bulk = Some(attach(bulk.bits, md)?);
        Ok(())
    }

    fn send(&self, line: &Line<O::State>, length: usize, call: &CallSpec) -> Result<(), Errno> {
        let memory = line.request.trimmed(length).map_err(|error| error.errno())?;
        let put = Put {
            source: call.from,
            md: self.md(line, Kind::Request, memory, MdOptions::empty())?,
            ack: AckRequest::NoAck,
            target: call.to,
            portal: call.portal,
            match_bits: call.bits,
            offset: 0,
            hdr_data: 0,
        };
        self.lnet.bind_put(put).map(drop).map_err(|error| error.errno())
    }

    fn event(&self, partition: usize, event: &Event) {
        let kind = match event.user_ptr & 3 {
            0 => Kind::Reply,
            1 => Kind::Bulk,
            _ => Kind::Request,
        };
        // The guard does not wait for a thread that waits to add a line: events may come inside calls
        // of the network.
        let lines = self.partitions[partition].all.read_recursive();
        let Some(line) = lines.get((event.user_ptr >> 2) as usize) else { return };
        let mut state = line.state.lock();
        state.take(kind, event);
        if state.needs_a_step() && !state.is_queued && !state.is_beginning {
            state.is_queued = true;
            drop(state);
            self.pool.push(partition, line.number, Class::Urgent);
        }
    }

    /// Unlinks the open descriptors of a call that must not wait for them, or ends the call.
    fn step(&self, line: &Arc<Line<O::State>>) {
        let reply_of = |length: usize| line.reply.read(0..length).ok();
        let mut state = line.state.lock();
        state.is_queued = false;
        if state.open == 0 {
            line.deadline_ns.store(NEVER, Ordering::Release);
            let failure = state.failure.unwrap_or(Errno::EIO);
            let ended = CallEnd { reply: state.reply.ok_or(failure), moved: state.moved };
            drop(state);
            return self.owner.ended(self, line, ended);
        }
        let has_failed = state.failure.is_some();
        if !has_failed {
            let Some(length) = state.reply.filter(|_| state.bulk_open) else { return };
            drop(state);
            let reply = reply_of(length);
            if self
                .owner
                .waits_for_bulk(reply.as_ref().and_then(|reply| reply.as_slice()).unwrap_or_default())
            {
                return;
            }
            state = line.state.lock();
        }
        let descriptors = [state.reply_md.take().filter(|_| has_failed), state.bulk_md.take()];
        state.is_unlinked = true;
        drop(state);
        // ENOENT: it has ended.
        descriptors.into_iter().flatten().for_each(|md| drop(self.lnet.md_unlink(md)));
        self.pool.wake(line.partition);
    }
}

impl LineState {
    /// Returns the state of a call whose descriptors are being made. All count as open, because
    /// their events may come before the next one is made.
    fn beginning(has_bulk: bool) -> LineState {
        LineState {
            open: 2 + u32::from(has_bulk),
            bulk_open: has_bulk,
            is_beginning: true,
            ..LineState::default()
        }
    }

    /// Stores the descriptors that were posted. Without an error the request is being sent, too.
    fn has_begun(&mut self, posted: Posted, begun: Result<(), Errno>) {
        self.is_beginning = false;
        (self.reply_md, self.bulk_md) = (posted.reply, posted.bulk);
        let Err(errno) = begun else { return };
        self.failure.get_or_insert(errno);
        self.closed(Kind::Request);
        if posted.reply.is_none() {
            self.closed(Kind::Reply);
        }
        if self.bulk_open && posted.bulk.is_none() {
            self.closed(Kind::Bulk);
        }
    }

    fn closed(&mut self, kind: Kind) {
        self.open -= 1;
        self.bulk_open &= kind != Kind::Bulk;
    }

    fn take(&mut self, kind: Kind, event: &Event) {
        let moved = matches!(event.kind, EventKind::Put | EventKind::Get) && event.status.is_ok();
        match kind {
            Kind::Reply if moved => self.reply = Some(event.mlength as usize),
            Kind::Bulk if moved => self.moved = Some(event.mlength as usize),
            _ => {}
        }
        if let Err(errno) = event.status {
            self.failure.get_or_insert(errno);
        }
        if event.unlinked {
            self.closed(kind);
        }
    }

    /// Returns whether a worker has a step to do: the call has ended, has failed, or has its reply
    /// without its bulk.
    fn needs_a_step(&self) -> bool {
        let must_unlink =
            !self.is_unlinked && (self.failure.is_some() || self.reply.is_some() && self.bulk_open);
        self.open == 0 || must_unlink
    }
}

impl<O: Owner> Source for Caller<O> {
    fn run(&self, partition: usize, number: u32, _: u64) {
        let line = self.partitions[partition].all.read().get(number as usize).cloned();
        line.into_iter().for_each(|line| self.step(&line));
    }

    fn tick(&self, partition: usize, now_ns: u64) -> Option<u64> {
        let mut next_ns = None;
        let lines = self.partitions[partition].all.read();
        for line in &*lines {
            let deadline_ns = line.deadline_ns.load(Ordering::Acquire);
            if deadline_ns <= now_ns {
                line.deadline_ns.store(NEVER, Ordering::Release);
                self.abort(line, Errno::ETIMEDOUT);
            } else if deadline_ns != NEVER {
                next_ns = Some(now_ns + LOOK_NS);
            }
        }
        next_ns
    }
}

/// The handler of a partition's event queue.
struct Queue<O: Owner> {
    caller: Weak<Caller<O>>,
    partition: usize,
}

impl<O: Owner> EventHandler for Queue<O> {
    fn event(&self, event: &Event) {
        self.caller.upgrade().into_iter().for_each(|caller| caller.event(self.partition, event));
    }

    fn wake(&self) {
        self.caller.upgrade().into_iter().for_each(|caller| caller.pool.wake(self.partition));
    }
}
