//! A test node on an LNet node: its services, and the RPCs of its test clients.
//!
//! | part | pool |
//! | --- | --- |
//! | framework requests, one at a time; expiry of the session | `lst-control`: one handler |
//! | PING and BRW requests; the RPCs of units | `lst-data`: all partitions |
//!
//! Several test nodes of one process can share these pools ([`Workers`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use lnet_api::Errno;
use lnet_nid::{MatchBits, NidList};
use lnet_proto::lst::{
    BULK_MAX, DATA_PORTAL, Features, LnetCounters, LstService, MESSAGE_LEN, Name, REPLY_PORTAL,
    Request as LstRequest, RequestBody, SessionId,
};
use lnet_region::{IoVec, Region};
use nlx_service::caller::{Bulk, CallEnd, CallSpec, Caller, Line, Owner};
use nlx_service::portals::{Peer, PortalNames, Portals};
use nlx_service::{
    Handler, Next, Pool, PoolOptions, Request, Service, ServiceError, ServiceStatistics, Source,
};
use parking_lot::Mutex;

use super::{NodeHandles, TestNodeOptions, framework};
use crate::Ids;
use crate::node::{
    Client, Counters, DataService, Fetch, Framework, NodeReport, Outcome, ReplyMessage, RequestDropReason,
    RpcEnd, Served, SessionView, Transfer, Unit, Units,
};

/// The name of the pool for framework requests, and of their service.
const CONTROL_POOL: &str = "lst-control";

/// The name of the pool for data requests and test clients, and of the data service.
const DATA_POOL: &str = "lst-data";

/// Framework requests that one buffer takes: a console sends few at a time.
const FRAMEWORK_PER_BUFFER: u32 = 16;

/// Maximum number of request buffers of each framework service.
const FRAMEWORK_BUFFERS_MAX: u32 = 16;

/// The framework services, in the order of their endpoints.
const FRAMEWORK: [LstService; 6] = [
    LstService::Debug,
    LstService::MakeSession,
    LstService::RemoveSession,
    LstService::Batch,
    LstService::Test,
    LstService::Stat,
];

/// The data services, in the order of their endpoints.
const DATA: [LstService; 2] = [LstService::Brw, LstService::Ping];

/// The endpoint of BRW.
const BRW: usize = 0;

/// Reads the counters of the LNet node, for STAT replies.
pub type ReadCounters = Box<dyn Fn() -> LnetCounters + Send + Sync>;

/// A test node that runs on an LNet node.
pub struct TestNode {
    shared: Arc<Shared>,
    framework: Arc<Service<Portals, FrameworkHandler>>,
    data: Arc<Service<Portals, DataHandler>>,
    caller: Arc<Caller<Runs>>,
    /// Dropped last: the services use them.
    workers: Arc<Workers>,
}

/// The threads of test nodes, and their memory for bulk. Control and data have separate threads, so
/// that neither starves the other.
pub struct Workers {
    control: Pool,
    data: Pool,
    /// The CPU partitions.
    cpts: Arc<[usize]>,
    /// The bulk buffers of each of them.
    bulk: Arc<[Mutex<BulkBuffers>]>,
}

impl Workers {
    /// Starts workers for test nodes with these options, whose LNet nodes have the drive and the
    /// partitions of `network`. A test node that has ended keeps its tables in the pools until the
    /// workers end.
    ///
    /// # Errors
    /// The errors of [`TestNode::start`].
    pub fn start(network: &NodeHandles, options: &TestNodeOptions) -> Result<Arc<Workers>, ServiceError> {
        let cpts = options.partitions(&network.partitions)?;
        let data_options = options.workers(&network.partitions, cpts[0]);
        let data = Pool::start(DATA_POOL, network.on(cpts.clone()), cpts.len(), data_options)?;
        // One handler at a time: a node handles framework requests one after the other (lst 6).
        // The data pool drives the network for it.
        let serial = PoolOptions { threads_min: 1, threads_max: 1, drives: false, ..PoolOptions::default() };
        let control = Pool::start(CONTROL_POOL, network.on(Arc::new([cpts[0]])), 1, serial)?;
        let bulk = cpts.iter().map(|_| Mutex::default()).collect();
        Ok(Arc::new(Workers { control, data, cpts, bulk }))
    }
}

struct Shared {
    framework: Mutex<Framework>,
    data: DataService,
    ids: Arc<Ids>,
    options: TestNodeOptions,
    counters: ReadCounters,
    /// The last value of [`DataService::aborts`].
    aborts: AtomicU64,
    is_over: AtomicBool,
}

impl TestNode {
    /// Starts a test node without a session.
    ///
    /// # Errors
    /// [`ServiceError`] for options outside their range, and without descriptors, threads or memory.
    pub fn start(
        network: &NodeHandles,
        options: TestNodeOptions,
        ids: Arc<Ids>,
        counters: ReadCounters,
    ) -> Result<TestNode, ServiceError> {
        let workers = Workers::start(network, &options)?;
        TestNode::on(&workers, network, options, ids, counters)
    }

    /// Starts a test node like [`TestNode::start`], on threads that it shares with others.
    ///
    /// # Errors
    /// The errors of [`TestNode::start`].
    pub fn on(
        workers: &Arc<Workers>,
        network: &NodeHandles,
        options: TestNodeOptions,
        ids: Arc<Ids>,
        counters: ReadCounters,
    ) -> Result<TestNode, ServiceError> {
        let framework_state = Framework::new(options.config);
        let framework_per_buffer = FRAMEWORK_PER_BUFFER.min(options.requests_per_buffer);
        let lazy = options.requests_wait;
        let shared = Arc::new(Shared {
            data: framework_state.data_service(),
            framework: Mutex::new(framework_state),
            ids,
            options,
            counters,
            aborts: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let first: Arc<[usize]> = Arc::new([workers.cpts[0]]);
        let runs = Runs { shared: shared.clone(), next: AtomicUsize::new(0) };
        let caller = Caller::start(&workers.data, network.lnet.clone(), (MESSAGE_LEN, MESSAGE_LEN), runs)?;
        let data = start_data(network, workers, &shared)?;
        let names = framework(&FRAMEWORK, lazy);
        let services = Portals::new(network.lnet.clone(), network.partitions.clone(), names).on(first);
        let handler = FrameworkHandler { shared: shared.clone(), caller: caller.clone(), data: data.clone() };
        let buffers = super::buffers(framework_per_buffer, 2, FRAMEWORK_BUFFERS_MAX);
        let service = Service::start(&workers.control, services, buffers, handler)?;
        let watched = (shared.clone(), caller.clone(), data.clone());
        workers.control.add(1, |pool| {
            pool.wake_at(0, pool.now_ns());
            let (shared, caller, data) = watched;
            Ok(Arc::new(Expiry { shared, caller, data }))
        })?;
        Ok(TestNode { shared, framework: service, data, caller, workers: workers.clone() })
    }

    /// Returns the session that the node holds.
    #[must_use]
    pub fn session(&self) -> Option<SessionView> {
        self.shared.framework.lock().session()
    }

    /// Returns the session's test clients.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.shared.framework.lock().clients().collect()
    }

    /// Puts the node into a session of another console, which has this id and never ends it. Other
    /// consoles find the node busy, unless they use force.
    pub fn occupy(&self, sid: SessionId, name: Name) {
        let body = RequestBody::MakeSession { sid, force: 0, name };
        let request = LstRequest::new(Features::BULK_LENGTH, 0, body).emit();
        let now_ns = self.caller.now_ns();
        let mut framework = self.shared.framework.lock();
        // The answer is the other console's.
        let _ = framework.handle(LstService::MakeSession, &request, LnetCounters::default, now_ns);
    }

    /// Returns the consoles that it obeys; `None` for all.
    #[must_use]
    pub fn consoles(&self) -> Option<&NidList> {
        self.shared.options.consoles.as_ref()
    }

    /// Returns the state of the node.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        self.shared.framework.lock().report(self.caller.now_ns())
    }

    /// Returns what is counted and measured of its services.
    #[must_use]
    pub fn services(&self) -> [ServiceStatistics; 2] {
        [
            self.framework.statistics(CONTROL_POOL, &self.workers.control),
            self.data.statistics(DATA_POOL, &self.workers.data),
        ]
    }

    /// Returns the node's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.shared.data.counters()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.framework.lock().shut_down();
        abort(&self.shared, &self.caller, &self.data);
        self.framework.end();
        self.data.end();
    }
}

fn start_data(
    network: &NodeHandles,
    workers: &Workers,
    shared: &Arc<Shared>,
) -> Result<Arc<Service<Portals, DataHandler>>, ServiceError> {
    let names = PortalNames {
        requests: DATA_PORTAL,
        bits: DATA.iter().map(|service| service.match_bits()).collect(),
        replies: REPLY_PORTAL,
        lazy: shared.options.requests_wait,
    };
    let cpts = workers.cpts.clone();
    let lanes = (0..cpts.len()).map(|lane| shared.data.on_lane(lane)).collect();
    let portals = Portals::new(network.lnet.clone(), network.partitions.clone(), names).on(cpts);
    let handler = DataHandler { shared: shared.clone(), lanes, bulk: workers.bulk.clone() };
    Service::start(&workers.data, portals, shared.options.data_buffers(), handler)
}

/// Aborts the RPCs and transfers that the framework has stopped by force, and those of ended
/// sessions.
fn abort(shared: &Shared, caller: &Caller<Runs>, data: &Service<Portals, DataHandler>) {
    let aborts = shared.data.aborts();
    if shared.aborts.swap(aborts, Ordering::AcqRel) == aborts {
        return;
    }
    caller.for_each_line(|line| caller.owner().abort(caller, line));
    data.abort(|serving| serving.transfer.as_ref().is_some_and(|transfer| shared.data.is_aborted(transfer)));
}

/// Copies an answer to the reply memory.
fn reply(memory: &mut [u8], answer: &ReplyMessage) -> Next<MatchBits> {
    memory[..MESSAGE_LEN].copy_from_slice(&answer.bytes);
    Next::Reply { tag: answer.reply_id, length: MESSAGE_LEN }
}

fn ignore(reason: &RequestDropReason, from: &Peer) -> Next<MatchBits> {
    tracing::debug!(%reason, from = %from.id, "a request of lst gets no reply");
    Next::Drop
}

/// Returns the bytes of a request; none of one that was cut off, which is malformed.
fn payload<'a, S>(request: &Request<'a, Portals, S>) -> &'a [u8] {
    if request.sent_length == request.bytes.len() { request.bytes } else { &[] }
}

/// Ends the session when it has expired.
struct Expiry {
    shared: Arc<Shared>,
    caller: Arc<Caller<Runs>>,
    data: Arc<Service<Portals, DataHandler>>,
}

/// Interval at which the session is checked for its expiry.
const EXPIRY_NS: u64 = 1_000_000_000;

impl Source for Expiry {
    fn run(&self, _: usize, _: u32, _: u64) {}

    fn tick(&self, _: usize, now_ns: u64) -> Option<u64> {
        let expired = self.shared.framework.lock().expire(now_ns);
        if let Some(expired) = expired {
            let (stamp, name) =
                (expired.sid.stamp, String::from_utf8_lossy(expired.name.as_bytes()).into_owned());
            tracing::warn!(stamp, name, "a session of lst has expired");
            abort(&self.shared, &self.caller, &self.data);
        }
        Some(now_ns + EXPIRY_NS)
    }
}

struct FrameworkHandler {
    shared: Arc<Shared>,
    caller: Arc<Caller<Runs>>,
    data: Arc<Service<Portals, DataHandler>>,
}

/// A TEST request whose list of destinations is being fetched.
#[derive(Default)]
struct Fetching(Option<(Fetch, IoVec)>);

impl FrameworkHandler {
    fn outcome(&self, outcome: Outcome, request: Request<'_, Portals, Fetching>) -> Next<MatchBits> {
        let next = match outcome {
            Outcome::Reply(answer) => reply(request.reply, &answer),
            Outcome::Run(answer, units) => {
                self.caller.owner().start(&self.caller, units);
                reply(request.reply, &answer)
            }
            Outcome::Fetch(fetch) => match Region::heap(fetch.length.max(1)).map(IoVec::whole) {
                Ok(memory) => {
                    request.state.0 = Some((fetch, memory.clone()));
                    Next::Pull { offer: MatchBits(fetch.bulk_id), memory }
                }
                Err(error) => {
                    let now_ns = self.caller.now_ns();
                    let outcome = self.shared.framework.lock().fetched(&fetch, Err(error.errno()), now_ns);
                    drop(outcome);
                    Next::Drop
                }
            },
            Outcome::Drop(reason) => ignore(&reason, request.from),
        };
        abort(&self.shared, &self.caller, &self.data);
        next
    }
}

impl Handler<Portals> for FrameworkHandler {
    type State = Fetching;

    fn request(&self, request: Request<'_, Portals, Fetching>) -> Next<MatchBits> {
        let service = FRAMEWORK[request.endpoint];
        let now_ns = self.caller.now_ns();
        let mut framework = self.shared.framework.lock();
        let outcome = match self.shared.options.obeys(request.from.id.nid) {
            true => framework.handle(service, payload(&request), &*self.shared.counters, now_ns),
            false => framework.refuse(service, payload(&request)),
        };
        drop(framework);
        self.outcome(outcome, request)
    }

    fn moved(
        &self,
        request: Request<'_, Portals, Fetching>,
        outcome: Result<usize, Errno>,
    ) -> Next<MatchBits> {
        let Some((fetch, memory)) = request.state.0.take() else { return Next::Drop };
        let list = outcome.and_then(|length| memory.read(0..length).map_err(|error| error.errno()));
        let list = list.as_ref().map(|list| list.as_slice().unwrap_or_default()).map_err(|errno| *errno);
        let outcome = self.shared.framework.lock().fetched(&fetch, list, self.caller.now_ns());
        self.outcome(outcome, request)
    }
}

struct DataHandler {
    shared: Arc<Shared>,
    /// The data services, for the threads of each partition.
    lanes: Box<[DataService]>,
    /// The bulk buffers of each partition, which are those of the workers.
    bulk: Arc<[Mutex<BulkBuffers>]>,
}

/// A BRW request whose data are being moved.
#[derive(Default)]
struct Serving {
    transfer: Option<Transfer>,
    memory: Option<IoVec>,
    partition: usize,
}

/// Maximum number of bulk buffers of 1 MiB that a partition keeps for later requests.
const SPARE_MAX: usize = 64;

/// The bulk buffers of a partition.
#[derive(Default)]
struct BulkBuffers {
    /// Those that no request uses: at most [`SPARE_MAX`].
    free: Vec<IoVec>,
    /// The number of all.
    count: usize,
}

impl DataHandler {
    fn buffer(&self, partition: usize) -> Result<IoVec, Errno> {
        let mut bulk = self.bulk[partition].lock();
        if let Some(buffer) = bulk.free.pop() {
            return Ok(buffer);
        }
        if bulk.count >= self.shared.options.bulk_max {
            return Err(Errno::ENOMEM);
        }
        let buffer = Region::pages(BULK_MAX as usize).map_err(|error| error.errno())?;
        bulk.count += 1;
        Ok(IoVec::whole(buffer))
    }

    fn served(&self, served: Served, request: Request<'_, Portals, Serving>) -> Next<MatchBits> {
        let (transfer, is_push) = match served {
            Served::Reply(answer) => return reply(request.reply, &answer),
            Served::Drop(reason) => return ignore(&reason, request.from),
            Served::Push(transfer) => (transfer, true),
            Served::Pull(transfer) => (transfer, false),
        };
        let whole = match self.buffer(request.partition) {
            Ok(whole) => whole,
            Err(errno) => {
                let dropped = self.lanes[request.partition].finish(&transfer, Err(errno));
                drop(dropped);
                return Next::Drop;
            }
        };
        let length = transfer.length;
        let Ok(memory) = whole.trimmed(length) else { return Next::Drop };
        if let Ok(mut bytes) = memory.write(0..length) {
            transfer.prepare(bytes.as_mut_slice().unwrap_or_default());
        }
        let offer = MatchBits(transfer.bulk_id);
        *request.state =
            Serving { transfer: Some(transfer), memory: Some(whole), partition: request.partition };
        if is_push { Next::Push { offer, memory, length } } else { Next::Pull { offer, memory } }
    }
}

impl Handler<Portals> for DataHandler {
    type State = Serving;

    fn request(&self, request: Request<'_, Portals, Serving>) -> Next<MatchBits> {
        let data = &self.lanes[request.partition];
        let bytes = payload(&request);
        let served = if request.endpoint == BRW { data.brw(bytes) } else { data.ping(bytes) };
        self.served(served, request)
    }

    fn moved(
        &self,
        request: Request<'_, Portals, Serving>,
        outcome: Result<usize, Errno>,
    ) -> Next<MatchBits> {
        let Some(transfer) = request.state.transfer.take() else { return Next::Drop };
        let data = &self.lanes[request.partition];
        let memory = request.state.memory.clone();
        let moved = outcome.and_then(|length| {
            let memory = memory.as_ref().ok_or(Errno::EIO)?;
            memory.read(0..length.min(transfer.length)).map_err(|error| error.errno())
        });
        let moved = moved.as_ref().map(|bytes| bytes.as_slice().unwrap_or_default()).map_err(|errno| *errno);
        let served = data.finish(&transfer, moved);
        self.served(served, request)
    }

    fn ended(&self, state: &mut Serving, replied: Result<(), Errno>) {
        state.transfer = None;
        if let Some(memory) = state.memory.take() {
            let mut bulk = self.bulk[state.partition].lock();
            if bulk.free.len() < SPARE_MAX {
                bulk.free.push(memory);
            } else {
                bulk.count -= 1;
            }
        }
        // ECANCELED: it was dropped, and counted then.
        if let Err(errno) = replied.map_err(|errno| Some(errno).filter(|errno| *errno != Errno::ECANCELED)) {
            errno.into_iter().for_each(|errno| self.shared.data.reply_failed(errno));
        }
    }
}

/// The units of test clients that run. A line stores its unit.
struct Runs {
    shared: Arc<Shared>,
    /// The partition of the next unit.
    next: AtomicUsize,
}

/// A unit, with the memory of its bulk.
struct Run {
    unit: Unit,
    buffer: Option<IoVec>,
    deadline_ns: u64,
}

impl Runs {
    /// Starts units, spread over the partitions.
    fn start(&self, caller: &Caller<Runs>, units: Units) {
        for unit in units {
            if let Err(error) = self.start_unit(caller, unit) {
                tracing::warn!(%error, "a unit of a test is not started");
            }
        }
    }

    fn start_unit(&self, caller: &Caller<Runs>, unit: Unit) -> Result<(), ServiceError> {
        let partition = self.next.fetch_add(1, Ordering::Relaxed) % caller.partitions();
        let length = unit.instance().work().bulk_length();
        let memory = (length > 0).then(|| Region::pages(length).map(IoVec::whole)).transpose();
        let buffer = memory.map_err(|error| ServiceError::System {
            what: "memory for the bulk of a test".to_string(),
            errno: error.errno(),
        })?;
        let line = caller.line(partition)?;
        self.go_on(caller, &line, Run { unit, buffer, deadline_ns: 0 });
        Ok(())
    }

    /// Begins the next RPC of a unit, or ends it.
    fn go_on(&self, caller: &Caller<Runs>, line: &Arc<Line<Option<Run>>>, mut run: Run) {
        if self.shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let rpc = {
            let mut whole = run.buffer.as_ref().and_then(|buffer| buffer.write(0..buffer.len()).ok());
            let bytes = whole.as_mut().and_then(|whole| whole.as_mut_slice()).unwrap_or_default();
            run.unit.begin(&self.shared.ids, bytes, caller.now_ns())
        };
        let Some(rpc) = rpc else {
            drop(run);
            return caller.give_back(line.clone());
        };
        if let Ok(mut request) = line.request().write(0..MESSAGE_LEN) {
            request.copy_from(0, &rpc.request);
        }
        let bulk = rpc.bulk.zip(run.buffer.clone()).map(|(bulk, memory)| Bulk {
            bits: MatchBits(bulk.id),
            memory,
            is_source: !bulk.is_sink,
        });
        let call = CallSpec {
            to: rpc.to,
            from: None,
            portal: DATA_PORTAL,
            bits: rpc.service.match_bits(),
            reply_portal: REPLY_PORTAL,
            reply_bits: MatchBits(rpc.reply_id),
            bulk,
            deadline_ns: Some(rpc.deadline_ns).filter(|&deadline_ns| deadline_ns != u64::MAX),
        };
        run.deadline_ns = rpc.deadline_ns;
        *line.owned().lock() = Some(run);
        // EBUSY cannot be: the line's last call has ended.
        let _ = caller.begin(line, MESSAGE_LEN, &call);
        // A stop that has looked at this line before the call had begun has missed it.
        self.abort(caller, line);
    }

    /// Aborts the RPC of a line if its unit is to be aborted.
    fn abort(&self, caller: &Caller<Runs>, line: &Arc<Line<Option<Run>>>) {
        let is_over = self.shared.is_over.load(Ordering::Acquire);
        let is_aborted = |run: &Run| is_over || run.unit.is_aborted();
        if line.owned().lock().as_ref().is_some_and(is_aborted) {
            caller.abort(line, Errno::ECANCELED);
        }
    }
}

impl Owner for Runs {
    type State = Option<Run>;

    fn ended(&self, caller: &Caller<Runs>, line: &Arc<Line<Option<Run>>>, ended: CallEnd) {
        let Some(mut run) = line.owned().lock().take() else { return };
        let now_ns = caller.now_ns();
        let reply =
            ended.reply.and_then(|length| line.reply().read(0..length).map_err(|error| error.errno()));
        let data = run.buffer.as_ref().zip(ended.moved);
        let data = data.and_then(|(buffer, length)| buffer.read(0..length).ok());
        let end = match &reply {
            Ok(reply) => RpcEnd::Reply(reply.as_slice().unwrap_or_default()),
            Err(Errno::ECANCELED) => RpcEnd::Aborted,
            Err(_) if now_ns >= run.deadline_ns => RpcEnd::Expired,
            Err(errno) => RpcEnd::Failed(*errno),
        };
        run.unit.ended(end, data.as_ref().and_then(|data| data.as_slice()).unwrap_or_default(), now_ns);
        drop((reply, data));
        self.go_on(caller, line, run);
    }

    /// A server that refuses a request moves no bulk: the status follows the reply's header.
    fn waits_for_bulk(&self, reply: &[u8]) -> bool {
        reply.get(24..28) == Some(&[0; 4])
    }
}
