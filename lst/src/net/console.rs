//! A console on an LNet node: sends the RPCs of a [`Console`], and advances it in time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lnet_api::Errno;
use lnet_nid::{MatchBits, Nid};
use lnet_proto::lst::{LstService, MESSAGE_LEN, REPLY_PORTAL};
use lnet_region::{IoVec, Region};
use nlx_service::caller::{Bulk, CallEnd, CallSpec, Caller, Line, Owner};
use nlx_service::portals::Portals;
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service, ServiceError};
use parking_lot::{Condvar, Mutex};

use super::{NodeHandles, framework};
use crate::Ids;
use crate::console::{Console, ConsoleError, ConsoleOperation, ConsoleRpc, Event, Report};

/// Longest sleep of a thread that waits for an operation. After it the thread checks whether the
/// program is to end.
const LOOK: Duration = Duration::from_millis(200);

/// JOINs that one request buffer takes.
const JOINS_PER_BUFFER: u32 = 16;

/// A console that runs on an LNet node.
pub struct ConsoleRunner {
    shared: Arc<Shared>,
    caller: Arc<Caller<Calls>>,
    _join: Arc<Service<Portals, Joins>>,
    /// Dropped last: the others use it.
    _pool: Pool,
}

struct Shared {
    console: Mutex<Console>,
    changed: Condvar,
}

/// The RPCs in flight. A line stores the reply id of its RPC.
struct Calls {
    shared: Arc<Shared>,
    /// By reply id.
    in_flight: Mutex<HashMap<u64, Arc<Line<Option<u64>>>>>,
}

impl ConsoleRunner {
    /// Starts a console whose sessions have this NID of the node in their ids.
    ///
    /// # Errors
    /// [`ServiceError`] without descriptors, threads or memory; EINVAL for a NID that session ids
    /// have no room for.
    pub fn start(network: &NodeHandles, own: Nid, ids: Arc<Ids>) -> Result<ConsoleRunner, ServiceError> {
        let console = Console::new(own, ids)
            .map_err(|error| ServiceError::System { what: error.to_string(), errno: Errno::EINVAL })?;
        let shared = Arc::new(Shared { console: Mutex::new(console), changed: Condvar::new() });
        let options = PoolOptions { threads_max: 2, ..PoolOptions::default() };
        let pool = Pool::start("lst-console", network.drive.clone(), 1, options)?;
        let calls = Calls { shared: shared.clone(), in_flight: Mutex::default() };
        let caller = Caller::start(&pool, network.lnet.clone(), (MESSAGE_LEN, MESSAGE_LEN), calls)?;
        let join = Portals::new(
            network.lnet.clone(),
            network.partitions.clone(),
            framework(&[LstService::Join], true),
        );
        let BufferOptions { buffers_min, buffers_max, .. } = BufferOptions::default();
        let buffers = super::buffers(JOINS_PER_BUFFER, buffers_min, buffers_max);
        let clock = caller.clone();
        let joins = Joins { shared: shared.clone(), now_ns: Box::new(move || clock.now_ns()) };
        let join = Service::start(&pool, join, buffers, joins)?;
        Ok(ConsoleRunner { shared, caller, _join: join, _pool: pool })
    }

    /// Runs an operation to its end, and returns its result. Interim results and warnings go to
    /// `report`. Once `is_over` returns true, the operation is cancelled.
    ///
    /// # Errors
    /// The reason why the console refused the operation, or could not complete it.
    pub fn run(
        &self,
        operation: ConsoleOperation,
        is_over: &dyn Fn() -> bool,
        mut report: impl FnMut(&Event),
    ) -> Result<Report, ConsoleError> {
        let mut console = self.shared.console.lock();
        console.begin(operation, self.caller.now_ns())?;
        let mut is_cancelled = false;
        loop {
            self.caller.owner().send(&self.caller, &mut console);
            while let Some(event) = console.next_event() {
                match event {
                    Event::Done(outcome) => return outcome,
                    other => report(&other),
                }
            }
            let now_ns = self.caller.now_ns();
            if !is_cancelled && is_over() {
                console.cancel(now_ns);
                is_cancelled = true;
                continue;
            }
            if console.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
                console.advance(now_ns);
                continue;
            }
            let due = console.next_ns().map(|next_ns| Duration::from_nanos(next_ns - now_ns));
            self.shared.changed.wait_for(&mut console, due.unwrap_or(LOOK).min(LOOK));
        }
    }

    /// Waits for this time, or until `is_over` returns true, and keeps the session alive: nodes end a
    /// session without RPCs.
    pub fn idle(&self, time: Duration, is_over: &dyn Fn() -> bool, mut report: impl FnMut(&Event)) {
        let until_ns = self.caller.now_ns().saturating_add(time.as_nanos() as u64);
        let mut console = self.shared.console.lock();
        loop {
            self.caller.owner().send(&self.caller, &mut console);
            while let Some(event) = console.next_event() {
                report(&event);
            }
            let now_ns = self.caller.now_ns();
            if now_ns >= until_ns || is_over() {
                return;
            }
            if console.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
                console.advance(now_ns);
                continue;
            }
            let due_ns = console.next_ns().unwrap_or(u64::MAX).min(until_ns);
            let due = Duration::from_nanos(due_ns - now_ns);
            self.shared.changed.wait_for(&mut console, due.min(LOOK));
        }
    }

    /// Wakes the thread in [`ConsoleRunner::run`] or [`ConsoleRunner::idle`], which calls its `is_over`.
    pub fn wake(&self) {
        // Under the lock: the thread sleeps, or has not called it yet.
        let _console = self.shared.console.lock();
        self.shared.changed.notify_all();
    }

    /// Calls `look` with the console, and returns its result: to read the session, groups and batches.
    pub fn look<R>(&self, look: impl FnOnce(&Console) -> R) -> R {
        look(&self.shared.console.lock())
    }
}

impl Calls {
    /// Sends the RPCs that the console hands out, and aborts those that it withdraws.
    fn send(&self, caller: &Caller<Calls>, console: &mut Console) {
        while let Some(rpc) = console.next_rpc() {
            let reply_id = rpc.reply_id;
            if let Err(errno) = self.begin(caller, rpc) {
                console.answered(reply_id, Err(errno), caller.now_ns());
            }
        }
        while let Some(reply_id) = console.next_abort() {
            let line = self.in_flight.lock().get(&reply_id).cloned();
            line.into_iter().for_each(|line| caller.abort(&line, Errno::ECANCELED));
        }
    }

    fn begin(&self, caller: &Caller<Calls>, rpc: ConsoleRpc) -> Result<(), Errno> {
        let line = caller.line(0).map_err(|error| error.errno())?;
        let written =
            line.request().write(0..MESSAGE_LEN).map(|mut request| request.copy_from(0, &rpc.request));
        written.map_err(|error| error.errno())?;
        let bulk = rpc.destinations.map(|list| {
            let region = Region::from_vec(list.bytes).map_err(|error| error.errno())?;
            let bits = MatchBits(list.bulk_id);
            Ok::<_, Errno>(Bulk { bits, memory: IoVec::whole(region), is_source: true })
        });
        let call = CallSpec {
            to: rpc.to,
            from: None,
            portal: rpc.service.portal(),
            bits: rpc.service.match_bits(),
            reply_portal: REPLY_PORTAL,
            reply_bits: MatchBits(rpc.reply_id),
            bulk: bulk.transpose()?,
            // The console has the deadlines.
            deadline_ns: None,
        };
        *line.owned().lock() = Some(rpc.reply_id);
        self.in_flight.lock().insert(rpc.reply_id, line.clone());
        caller.begin(&line, MESSAGE_LEN, &call)
    }
}

impl Owner for Calls {
    type State = Option<u64>;

    fn ended(&self, caller: &Caller<Calls>, line: &Arc<Line<Option<u64>>>, ended: CallEnd) {
        let reply_id = line.owned().lock().take();
        reply_id.into_iter().for_each(|reply_id| drop(self.in_flight.lock().remove(&reply_id)));
        let reply =
            ended.reply.and_then(|length| line.reply().read(0..length).map_err(|error| error.errno()));
        let mut console = self.shared.console.lock();
        if let Some(reply_id) = reply_id {
            let outcome = reply.as_ref().map(|reply| reply.as_slice().unwrap_or_default());
            console.answered(reply_id, outcome.map_err(|errno| *errno), caller.now_ns());
        }
        drop(reply);
        caller.give_back(line.clone());
        self.send(caller, &mut console);
        drop(console);
        self.shared.changed.notify_all();
    }

    fn waits_for_bulk(&self, _: &[u8]) -> bool {
        // A node has fetched the list of destinations before it answers, or does not want it.
        false
    }
}

/// The handler of JOIN, by which nodes add themselves to the session.
struct Joins {
    shared: Arc<Shared>,
    now_ns: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Handler<Portals> for Joins {
    type State = ();

    fn request(&self, request: Request<'_, Portals, ()>) -> Next<MatchBits> {
        let joined = self.shared.console.lock().join(request.from.id, request.bytes, (self.now_ns)());
        match joined {
            Some((tag, reply)) => {
                request.reply[..MESSAGE_LEN].copy_from_slice(&reply);
                Next::Reply { tag, length: MESSAGE_LEN }
            }
            None => Next::Drop,
        }
    }
}
