//! A host of lst: its LNet node, its posted request buffers, its RPCs in flight and its bulk.
//!
//! It does what `nlx_lst::net` does with the service layer, on one thread and in virtual time
//! (lst 2).

use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventHandler, EventKind, Get, LNet, LNetError, Lnd, Md, MdHandle,
    MdOptions, MeSpec, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_proto::lst::{DATA_PORTAL, FRAMEWORK_PORTAL, LnetCounters, LstService, MESSAGE_LEN, REPLY_PORTAL};
use lnet_region::{IoVec, Region};
use nlx_lst::Ids;
use nlx_lst::console::{Console, ConsoleRpc};
use nlx_lst::node::{
    Config, Count, DataService, Fetch, Framework, Outcome, ReplyMessage, RpcEnd, Served, TestInstance,
    Transfer, Unit,
};
use parking_lot::Mutex;

use super::{LstDefect, LstSeen};

/// Services of a test node.
const SERVICES: [LstService; 8] = [
    LstService::Debug,
    LstService::MakeSession,
    LstService::RemoveSession,
    LstService::Batch,
    LstService::Test,
    LstService::Stat,
    LstService::Brw,
    LstService::Ping,
];

/// Request buffers of each service. There are few, so that requests also wait on the lazy portals.
const BUFFERS: usize = 3;

/// Seconds after which an ACK or REPLY of LNet is given up.
const TRANSACTION_TIMEOUT_NS: u64 = 20_000_000_000;

/// A failure of the world: what broke.
pub(super) type Check<T = ()> = Result<T, String>;

/// Collects the events of a host's LNet.
#[derive(Default)]
struct Events(Mutex<Vec<Event>>);

impl EventHandler for Events {
    fn event(&self, event: &Event) {
        self.0.lock().push(*event);
    }

    fn wake(&self) {}
}

/// The part that a descriptor has in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Reply,
    Bulk,
    Request,
}

/// The use of a descriptor. The number of the use is its user pointer.
enum Use {
    /// Takes a request to this service.
    Request(LstService, IoVec),
    /// Belongs to an RPC that this host has sent.
    Call(u64, Part),
    /// Moves the bulk of a request.
    Bulk(u64),
    /// Is a reply on its way.
    Answer,
}

/// The source of an RPC.
enum Caller {
    Console(u64),
    Unit(Box<Run>),
}

/// A unit, and the memory of its bulk.
struct Run {
    unit: Unit,
    bulk: Vec<u8>,
    deadline_ns: u64,
    /// Set if a STOP or the end of the session may excuse the failure of its RPC.
    is_excused: bool,
}

/// An RPC in flight.
struct Call {
    caller: Caller,
    reply_memory: IoVec,
    bulk_memory: Option<IoVec>,
    reply_md: Option<MdHandle>,
    bulk_md: Option<MdHandle>,
    /// Descriptors that have not ended.
    open: u32,
    bulk_is_open: bool,
    reply: Option<usize>,
    moved: bool,
    failure: Option<Errno>,
}

/// The bulk of a request that is being served.
struct Moving {
    from: ProcessId,
    kind: Bulk,
    memory: IoVec,
    md: Option<MdHandle>,
    outcome: Result<usize, Errno>,
}

enum Bulk {
    List(Fetch),
    Data(Transfer),
}

/// What a host has counted by itself about its test node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    sent: u64,
    received: u64,
    expired: u64,
}

/// The RPCs of the units of one test, as the host has seen them end.
struct TestTally {
    instance: Arc<TestInstance>,
    begun: u64,
    ended: u64,
    right: u64,
    excused: u64,
}

/// A test node.
pub(super) struct TestNode {
    pub(super) framework: Framework,
    data: DataService,
    tally: Tally,
    tests: Vec<TestTally>,
}

/// A host with a console, or with a test node.
pub(super) struct Host {
    pub(super) id: ProcessId,
    pub(super) engine: Arc<Engine>,
    events: Arc<Events>,
    eq: EqHandle,
    ids: Arc<Ids>,
    pub(super) console: Option<Console>,
    pub(super) node: Option<TestNode>,
    uses: BTreeMap<u64, Use>,
    /// The posted request buffers, by their use.
    posted: BTreeMap<u64, MdHandle>,
    calls: BTreeMap<u64, Call>,
    moving: BTreeMap<u64, Moving>,
    next: u64,
    defect: Option<LstDefect>,
}

fn in_words(error: &LNetError) -> String {
    error.to_string()
}

fn memory_of(bytes: Vec<u8>) -> Check<IoVec> {
    Region::from_vec(bytes).map(IoVec::whole).map_err(|error| error.to_string())
}

fn bytes_of(memory: &IoVec, length: usize) -> Vec<u8> {
    memory.read(0..length).map(|bytes| bytes.to_vec()).unwrap_or_default()
}

impl Host {
    /// Starts a host's LNet. `run` differs from that of the host's earlier lives.
    pub(super) fn start(nid: Nid, lnd: &Arc<dyn Lnd>, run: u64, defect: Option<LstDefect>) -> Check<Host> {
        let id = ProcessId { nid, pid: Pid::LNET };
        let config = EngineConfig {
            transaction_timeout_ns: TRANSACTION_TIMEOUT_NS,
            ..EngineConfig::new(Pid::LNET, run)
        };
        let engine = Engine::new(config);
        engine.add_ni(id, lnd.clone()).map_err(|error| in_words(&error))?;
        engine.set_lazy(FRAMEWORK_PORTAL, true);
        engine.set_lazy(DATA_PORTAL, true);
        let events = Arc::new(Events::default());
        let eq = engine.eq_alloc(events.clone()).map_err(|error| in_words(&error))?;
        Ok(Host {
            id,
            engine,
            events,
            eq,
            ids: Arc::new(Ids::new(run)),
            console: None,
            node: None,
            uses: BTreeMap::new(),
            posted: BTreeMap::new(),
            calls: BTreeMap::new(),
            moving: BTreeMap::new(),
            next: 0,
            defect,
        })
    }

    /// Makes it a console's host.
    pub(super) fn with_console(mut self) -> Check<Host> {
        let console = Console::new(self.id.nid, self.ids.clone());
        self.console = Some(console.map_err(|error| error.to_string())?);
        Ok(self)
    }

    /// Makes it a test node, and posts its request buffers.
    pub(super) fn with_node(mut self, config: Config) -> Check<Host> {
        let framework = Framework::new(config);
        let data = framework.data_service();
        self.node = Some(TestNode { framework, data, tally: Tally::default(), tests: Vec::new() });
        for service in SERVICES {
            (0..BUFFERS).try_for_each(|_| self.post_request(service))?;
        }
        Ok(self)
    }

    /// Handles the events that have come, and sends what follows from them. Returns whether there
    /// were any.
    pub(super) fn handle_events(&mut self, now_ns: u64, seen: &mut LstSeen) -> Check<bool> {
        let events = std::mem::take(&mut *self.events.0.lock());
        let found = self.send_rpcs()? || !events.is_empty();
        for event in events {
            self.handle(&event, now_ns, seen)?;
            self.send_rpcs()?;
        }
        Ok(found)
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now_ns: u64, seen: &mut LstSeen) -> Check {
        self.engine.advance(now_ns);
        if let Some(console) =
            self.console.as_mut().filter(|console| console.next_ns().is_some_and(|next_ns| next_ns <= now_ns))
        {
            console.advance(now_ns);
        }
        if let Some(node) = &mut self.node
            && node.framework.expire(now_ns).is_some()
        {
            seen.expired_sessions += 1;
            self.excuse();
            self.abort();
        }
        let is_due = |call: &Call| matches!(&call.caller, Caller::Unit(run) if run.deadline_ns <= now_ns);
        let due: Vec<u64> = self.calls.iter().filter(|(_, call)| is_due(call)).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|call| self.give_up(call, Errno::ETIMEDOUT));
        Ok(())
    }

    fn add_use(&mut self, kind: Use) -> u64 {
        self.next += 1;
        self.uses.insert(self.next, kind);
        self.next
    }

    fn md(&self, memory: &IoVec, operations: u32, options: MdOptions, number: u64) -> Md {
        let threshold = Threshold::Limited(operations);
        Md { memory: memory.clone(), threshold, max_size: 0, options, user_ptr: number, eq: Some(self.eq) }
    }

    fn attach(&self, me: &MeSpec, md: Md) -> Check<MdHandle> {
        let me = self.engine.me_attach(me).map_err(|error| in_words(&error))?;
        self.engine.md_attach(me, md, Unlink::Auto).map_err(|error| in_words(&error))
    }

    fn post_request(&mut self, service: LstService) -> Check {
        let memory = memory_of(vec![0; MESSAGE_LEN])?;
        let number = self.add_use(Use::Request(service, memory.clone()));
        let me = MeSpec::new(service.portal(), service.match_bits());
        let md = self.md(&memory, 1, MdOptions::OP_PUT | MdOptions::TRUNCATE, number);
        let md = self.attach(&me, md)?;
        self.posted.insert(number, md);
        Ok(())
    }

    fn put(
        &mut self,
        to: ProcessId,
        bits: u64,
        memory: &IoVec,
        number: u64,
    ) -> Result<Option<MdHandle>, Errno> {
        let put = Put {
            source: Some(self.id.nid),
            md: self.md(memory, 1, MdOptions::empty(), number),
            ack: AckRequest::NoAck,
            target: to,
            portal: REPLY_PORTAL,
            match_bits: MatchBits(bits),
            offset: 0,
            hdr_data: 0,
        };
        self.engine.bind_put(put).map_err(|error| error.errno())
    }

    fn send_reply(&mut self, to: ProcessId, answer: &ReplyMessage) -> Check {
        let number = self.add_use(Use::Answer);
        let memory = memory_of(answer.bytes.to_vec())?;
        if let Err(errno) = self.put(to, answer.reply_id, &memory, number) {
            self.uses.remove(&number);
            self.reply_failed(errno);
        }
        Ok(())
    }

    fn reply_failed(&mut self, errno: Errno) {
        if let Some(node) = &self.node {
            node.data.reply_failed(errno);
        }
    }

    fn handle(&mut self, event: &Event, now_ns: u64, seen: &mut LstSeen) -> Check {
        let Some(of) = self.uses.get(&event.user_ptr) else {
            return Err(format!("an event of a descriptor that has ended: {event:?}"));
        };
        let moved =
            matches!(event.kind, EventKind::Put | EventKind::Get | EventKind::Reply) && event.status.is_ok();
        match of {
            Use::Request(service, memory) => {
                let (service, memory) = (*service, memory.clone());
                self.release(event);
                // A fresh buffer is posted before the reply is sent, and also if the request is lost.
                let is_lost = self.defect == Some(LstDefect::LosesBuffers) && service == LstService::Stat;
                if event.kind == EventKind::Put && event.unlinked && !is_lost {
                    self.post_request(service)?;
                }
                if moved {
                    let length = if event.rlength == event.mlength { event.mlength as usize } else { 0 };
                    let bytes = bytes_of(&memory, length);
                    self.serve(service, event.source, &bytes, now_ns, seen)?;
                }
            }
            &Use::Call(call, part) => {
                self.release(event);
                let Some(open) = self.calls.get_mut(&call) else {
                    return Err(format!("an event of a call that has ended: {event:?}"));
                };
                match part {
                    Part::Reply if moved => open.reply = Some(event.mlength as usize),
                    Part::Bulk if moved => open.moved = true,
                    _ => {}
                }
                if let Err(errno) = event.status {
                    open.failure.get_or_insert(errno);
                }
                if event.unlinked {
                    open.open -= 1;
                    open.bulk_is_open &= part != Part::Bulk;
                }
                self.step_call(call, now_ns, seen)?;
            }
            &Use::Bulk(moving) => {
                self.release(event);
                let Some(open) = self.moving.get_mut(&moving) else {
                    return Err(format!("an event of bulk that has ended: {event:?}"));
                };
                if event.kind == EventKind::Reply && event.status.is_ok() {
                    open.outcome = Ok(event.mlength as usize);
                } else if let Err(errno) = event.status {
                    open.outcome = Err(errno);
                }
                if event.unlinked {
                    self.moved(moving, now_ns, seen)?;
                }
            }
            Use::Answer => {
                self.release(event);
                if let Err(errno) = event.status {
                    self.reply_failed(errno);
                }
            }
        }
        Ok(())
    }

    /// Forgets a descriptor that has ended.
    fn release(&mut self, event: &Event) {
        if event.unlinked {
            self.uses.remove(&event.user_ptr);
            self.posted.remove(&event.user_ptr);
        }
    }

    /// Serves a request.
    fn serve(
        &mut self,
        service: LstService,
        from: ProcessId,
        bytes: &[u8],
        now_ns: u64,
        seen: &mut LstSeen,
    ) -> Check {
        let counters = self.lnet_counters();
        let Some(node) = &mut self.node else { return Err("a console got a request".to_string()) };
        node.tally.received += 1;
        if service.is_data() {
            let served =
                if service == LstService::Ping { node.data.ping(bytes) } else { node.data.brw(bytes) };
            return self.act_on_data(served, from, seen);
        }
        let had = node.framework.session().map(|session| session.sid);
        let outcome = node.framework.handle(service, bytes, || counters, now_ns);
        let has = node.framework.session().map(|session| session.sid);
        seen.sessions += u64::from(has.is_some() && has != had);
        seen.forced += u64::from(has.is_some() && had.is_some() && has != had);
        if service == LstService::Batch || has != had {
            self.excuse();
        }
        self.act(outcome, from, now_ns, seen)
    }

    fn lnet_counters(&self) -> LnetCounters {
        let counters = self.engine.counters();
        LnetCounters {
            sent: counters.send_count as u32,
            received: counters.recv_count as u32,
            dropped: counters.drop_count as u32,
            ..LnetCounters::default()
        }
    }

    fn act(&mut self, outcome: Outcome, from: ProcessId, now_ns: u64, seen: &mut LstSeen) -> Check {
        match outcome {
            Outcome::Reply(answer) => self.send_reply(from, &answer)?,
            Outcome::Run(answer, units) => {
                for unit in units {
                    let bulk = vec![0; unit.instance().work().bulk_length()];
                    self.note_test(unit.instance());
                    self.begin_unit(Run { unit, bulk, deadline_ns: 0, is_excused: false }, now_ns)?;
                }
                self.send_reply(from, &answer)?;
            }
            Outcome::Fetch(fetch) => {
                let (bits, length) = (fetch.bulk_id, fetch.length);
                self.pull(from, bits, length, Bulk::List(fetch), now_ns, seen)?;
            }
            Outcome::Drop(_) => seen.dropped += 1,
        }
        self.abort();
        Ok(())
    }

    fn act_on_data(&mut self, served: Served, from: ProcessId, seen: &mut LstSeen) -> Check {
        match served {
            Served::Reply(answer) => self.send_reply(from, &answer),
            Served::Push(transfer) => {
                let mut data = vec![0; transfer.length];
                transfer.prepare(&mut data);
                let memory = memory_of(data)?;
                let bits = transfer.bulk_id;
                let moving = self.add_moving(from, Bulk::Data(transfer), memory.clone());
                let number = self.add_use(Use::Bulk(moving));
                let begun = self.put(from, bits, &memory, number);
                self.begun(moving, number, begun, 0, seen)
            }
            Served::Pull(transfer) => {
                let (bits, length) = (transfer.bulk_id, transfer.length);
                self.pull(from, bits, length, Bulk::Data(transfer), 0, seen)
            }
            Served::Drop(_) => {
                seen.dropped += 1;
                Ok(())
            }
        }
    }

    fn add_moving(&mut self, from: ProcessId, kind: Bulk, memory: IoVec) -> u64 {
        self.next += 1;
        self.moving.insert(self.next, Moving { from, kind, memory, md: None, outcome: Ok(0) });
        self.next
    }

    fn pull(
        &mut self,
        from: ProcessId,
        bits: u64,
        length: usize,
        kind: Bulk,
        now_ns: u64,
        seen: &mut LstSeen,
    ) -> Check {
        let memory = memory_of(vec![0; length.max(1)])?;
        let moving = self.add_moving(from, kind, memory.clone());
        let number = self.add_use(Use::Bulk(moving));
        let get = Get {
            source: Some(self.id.nid),
            // The GET and its REPLY.
            md: self.md(&memory, 2, MdOptions::empty(), number),
            target: from,
            portal: REPLY_PORTAL,
            match_bits: MatchBits(bits),
            offset: 0,
        };
        let begun = self.engine.bind_get(get).map_err(|error| error.errno());
        self.begun(moving, number, begun, now_ns, seen)
    }

    /// Notes the descriptor of bulk, or ends bulk that could not begin.
    fn begun(
        &mut self,
        moving: u64,
        number: u64,
        begun: Result<Option<MdHandle>, Errno>,
        now_ns: u64,
        seen: &mut LstSeen,
    ) -> Check {
        match (begun, self.moving.get_mut(&moving)) {
            (Ok(md), Some(open)) => {
                open.md = md;
                Ok(())
            }
            (Err(errno), Some(open)) => {
                open.outcome = Err(errno);
                self.uses.remove(&number);
                self.moved(moving, now_ns, seen)
            }
            (_, None) => Ok(()),
        }
    }

    /// Continues a request whose bulk has ended.
    fn moved(&mut self, moving: u64, now_ns: u64, seen: &mut LstSeen) -> Check {
        let (Some(Moving { from, kind, memory, outcome, .. }), Some(node)) =
            (self.moving.remove(&moving), &mut self.node)
        else {
            return Ok(());
        };
        let bytes = outcome.map(|length| bytes_of(&memory, length));
        let bytes = bytes.as_deref().map_err(|errno| *errno);
        match kind {
            Bulk::List(fetch) => {
                let outcome = node.framework.fetched(&fetch, bytes, now_ns);
                self.act(outcome, from, now_ns, seen)
            }
            Bulk::Data(transfer) => {
                seen.bulk += u64::from(bytes.is_ok());
                let served = node.data.finish(&transfer, bytes);
                self.act_on_data(served, from, seen)
            }
        }
    }

    /// The failures of RPCs in flight may now be those of a stop.
    fn excuse(&mut self) {
        for call in self.calls.values_mut() {
            if let Caller::Unit(run) = &mut call.caller {
                run.is_excused = true;
            }
        }
    }

    /// Aborts the RPCs and transfers of an ended session, or of a STOP with force.
    fn abort(&mut self) {
        let Some(node) = &self.node else { return };
        let is_aborted = |call: &Call| matches!(&call.caller, Caller::Unit(run) if run.unit.is_aborted());
        let calls: Vec<u64> =
            self.calls.iter().filter(|(_, call)| is_aborted(call)).map(|(id, _)| *id).collect();
        let data = node.data.clone();
        let is_over = |moving: &Moving| matches!(&moving.kind, Bulk::Data(of) if data.is_aborted(of));
        let bulk: Vec<MdHandle> =
            self.moving.values().filter(|moving| is_over(moving)).filter_map(|moving| moving.md).collect();
        calls.into_iter().for_each(|call| self.give_up(call, Errno::ECANCELED));
        // ENOENT: it has ended.
        bulk.into_iter().for_each(|md| drop(self.engine.md_unlink(md)));
    }

    /// Sends the RPCs that the console hands out, and gives up those that it withdraws.
    fn send_rpcs(&mut self) -> Check<bool> {
        let mut found = false;
        while let Some(rpc) = self.console.as_mut().and_then(Console::next_rpc) {
            found = true;
            let ConsoleRpc { to, service, reply_id, request, destinations } = rpc;
            let bulk = match destinations {
                Some(list) => Some((list.bulk_id, memory_of(list.bytes)?, false)),
                None => None,
            };
            self.call(Caller::Console(reply_id), (to, service, reply_id), &request, bulk)?;
        }
        while let Some(reply_id) = self.console.as_mut().and_then(Console::next_abort) {
            found = true;
            let is_its = |call: &Call| matches!(call.caller, Caller::Console(id) if id == reply_id);
            let call = self.calls.iter().find(|(_, call)| is_its(call)).map(|(id, _)| *id);
            call.into_iter().for_each(|call| self.give_up(call, Errno::ECANCELED));
        }
        Ok(found)
    }

    fn note_test(&mut self, instance: &Arc<TestInstance>) {
        let Some(node) = &mut self.node else { return };
        if !node.tests.iter().any(|test| Arc::ptr_eq(&test.instance, instance)) {
            let instance = instance.clone();
            node.tests.push(TestTally { instance, begun: 0, ended: 0, right: 0, excused: 0 });
        }
    }

    fn test_of(&mut self, instance: &Arc<TestInstance>) -> Option<&mut TestTally> {
        let node = self.node.as_mut()?;
        node.tests.iter_mut().find(|test| Arc::ptr_eq(&test.instance, instance))
    }

    /// Begins the next RPC of a unit, or ends the unit.
    fn begin_unit(&mut self, mut run: Run, now_ns: u64) -> Check {
        let Some(rpc) = run.unit.begin(&self.ids, &mut run.bulk, now_ns) else { return Ok(()) };
        run.deadline_ns = rpc.deadline_ns;
        run.is_excused = false;
        let instance = run.unit.instance().clone();
        self.test_of(&instance).into_iter().for_each(|test| test.begun += 1);
        self.node.iter_mut().for_each(|node| node.tally.sent += 1);
        let bulk = match rpc.bulk {
            Some(bulk) => Some((bulk.id, memory_of(run.bulk.clone())?, bulk.is_sink)),
            None => None,
        };
        let to = (rpc.to, rpc.service, rpc.reply_id);
        self.call(Caller::Unit(Box::new(run)), to, &rpc.request, bulk)
    }

    /// Sends an RPC: posts the reply buffer, then the bulk buffer, then sends the request (lst 2).
    fn call(
        &mut self,
        caller: Caller,
        (to, service, reply_id): (ProcessId, LstService, u64),
        request: &[u8],
        bulk: Option<(u64, IoVec, bool)>,
    ) -> Check {
        self.next += 1;
        let call = self.next;
        let reply_memory = memory_of(vec![0; MESSAGE_LEN])?;
        let at = |bits| MeSpec { match_id: to, ..MeSpec::new(REPLY_PORTAL, MatchBits(bits)) };
        let number = self.add_use(Use::Call(call, Part::Reply));
        let reply_md = self.attach(&at(reply_id), self.md(&reply_memory, 1, MdOptions::OP_PUT, number))?;
        let mut open = Call {
            caller,
            reply_memory,
            bulk_memory: None,
            reply_md: Some(reply_md),
            bulk_md: None,
            open: 2,
            bulk_is_open: false,
            reply: None,
            moved: false,
            failure: None,
        };
        if let Some((bits, memory, is_sink)) = bulk {
            let options = if is_sink { MdOptions::OP_PUT } else { MdOptions::OP_GET | MdOptions::TRUNCATE };
            let number = self.add_use(Use::Call(call, Part::Bulk));
            open.bulk_md = Some(self.attach(&at(bits), self.md(&memory, 1, options, number))?);
            (open.bulk_memory, open.bulk_is_open) = (Some(memory), true);
            open.open += 1;
        }
        self.calls.insert(call, open);
        let number = self.add_use(Use::Call(call, Part::Request));
        let put = Put {
            source: None,
            md: self.md(&memory_of(request.to_vec())?, 1, MdOptions::empty(), number),
            ack: AckRequest::NoAck,
            target: to,
            portal: service.portal(),
            match_bits: service.match_bits(),
            offset: 0,
            hdr_data: 0,
        };
        if let Err(error) = self.engine.bind_put(put) {
            self.uses.remove(&number);
            if let Some(open) = self.calls.get_mut(&call) {
                open.open -= 1;
                open.failure.get_or_insert(error.errno());
            }
            self.unlink(call);
        }
        Ok(())
    }

    /// Ends an RPC early.
    fn give_up(&mut self, call: u64, errno: Errno) {
        if let Some(open) = self.calls.get_mut(&call) {
            open.failure.get_or_insert(errno);
        }
        self.unlink(call);
    }

    fn unlink(&mut self, call: u64) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        // ENOENT: it has ended.
        for md in [open.reply_md.take(), open.bulk_md.take()].into_iter().flatten() {
            let _ = self.engine.md_unlink(md);
        }
    }

    /// Ends a call whose descriptors have all ended, or unlinks those that it must not wait for.
    fn step_call(&mut self, call: u64, now_ns: u64, seen: &mut LstSeen) -> Check {
        let Some(open) = self.calls.get_mut(&call) else { return Ok(()) };
        if open.open > 0 {
            if open.failure.is_some() {
                self.unlink(call);
            } else if let Some(length) = open.reply.filter(|_| open.bulk_is_open) {
                // A server that refuses moves no bulk; the status follows the head.
                let is_refusal = bytes_of(&open.reply_memory, length).get(24..28) != Some(&[0; 4]);
                if is_refusal || matches!(open.caller, Caller::Console(_)) {
                    let md = open.bulk_md.take();
                    md.into_iter().for_each(|md| drop(self.engine.md_unlink(md)));
                }
            }
            return Ok(());
        }
        let Some(open) = self.calls.remove(&call) else { return Ok(()) };
        let failure = open.failure.unwrap_or(Errno::EIO);
        let reply = open.reply.map(|length| bytes_of(&open.reply_memory, length)).ok_or(failure);
        match open.caller {
            Caller::Console(reply_id) => {
                let outcome = reply.as_deref().map_err(|errno| *errno);
                self.console.iter_mut().for_each(|console| console.answered(reply_id, outcome, now_ns));
                Ok(())
            }
            Caller::Unit(mut run) => {
                let has_bulk = open.bulk_memory.is_some();
                if let Some(memory) = open.bulk_memory.filter(|_| open.moved) {
                    run.bulk = bytes_of(&memory, memory.len());
                }
                let data: &[u8] = if open.moved { &run.bulk } else { &[] };
                let end = match &reply {
                    Ok(reply) => RpcEnd::Reply(reply),
                    Err(Errno::ECANCELED) => RpcEnd::Aborted,
                    Err(_) if now_ns >= run.deadline_ns => RpcEnd::Expired,
                    Err(errno) => RpcEnd::Failed(*errno),
                };
                let instance = run.unit.instance().clone();
                run.unit.ended(end, data, now_ns);
                if end == RpcEnd::Expired {
                    self.node.iter_mut().for_each(|node| node.tally.expired += 1);
                }
                // A reply without the data that were asked for is an error.
                let is_right = matches!(end, RpcEnd::Reply(_)) && (!has_bulk || open.moved);
                match end {
                    RpcEnd::Reply(_) => seen.answered += 1,
                    RpcEnd::Aborted => seen.aborted += 1,
                    RpcEnd::Expired => seen.expired += 1,
                    RpcEnd::Failed(_) => seen.failed += 1,
                }
                if let Some(test) = self.test_of(&instance) {
                    test.ended += 1;
                    test.right += u64::from(is_right);
                    test.excused += u64::from(!is_right && run.is_excused);
                }
                self.begin_unit(*run, now_ns)
            }
        }
    }

    /// Checks the node's counters against what the host has seen.
    ///
    /// # Errors
    /// The numbers that do not add up.
    pub(super) fn check_counters(&self) -> Check {
        let Some(TestNode { data, tally, tests, .. }) = &self.node else { return Ok(()) };
        let total = |count| data.counters().total(count);
        let found = Tally {
            sent: total(Count::Sent),
            received: total(Count::Received),
            expired: total(Count::Expired),
        };
        if found != *tally {
            return Err(format!("{}: it has counted {found:?}, of {tally:?}", self.id));
        }
        for TestTally { instance, begun, ended, right, excused } in tests {
            let in_flight = begun - ended;
            if in_flight > u64::from(instance.running()) {
                let running = instance.running();
                return Err(format!("{}: {in_flight} RPCs of {running} units in flight", self.id));
            }
            let (done, errors) = (instance.results().latency().len(), instance.results().errors());
            // What was sent was answered, has failed, or was given up by a stop.
            if done != *right || done + errors > *ended || ended - done - errors > *excused {
                return Err(format!(
                    "{}: of {ended} RPCs {done} were done ({right} answered), {errors} failed, {excused} \
                     may have been stopped",
                    self.id
                ));
            }
        }
        Ok(())
    }

    /// Checks that nothing is left of any session, and frees everything.
    ///
    /// # Errors
    /// What is left.
    pub(super) fn check_idle(&mut self) -> Check {
        self.check_counters()?;
        let (calls, moving) = (self.calls.len(), self.moving.len());
        if calls + moving > 0 {
            return Err(format!("{}: {calls} calls and the bulk of {moving} requests are left", self.id));
        }
        if let Some(node) = &mut self.node {
            if let Some(session) = node.framework.session() {
                return Err(format!("{}: it is still in a session: {session:?}", self.id));
            }
            if let Some(test) = node.tests.iter().find(|test| test.instance.running() > 0) {
                return Err(format!("{}: {} units still run", self.id, test.instance.running()));
            }
            // They hold the memory of the tests.
            node.tests.clear();
            for service in SERVICES {
                let is_its = |of: &&Use| matches!(of, Use::Request(posted, _) if *posted == service);
                let posted = self.uses.values().filter(is_its).count();
                if posted != BUFFERS {
                    return Err(format!(
                        "{}: {posted} of {BUFFERS} buffers of {service} are posted",
                        self.id
                    ));
                }
            }
        }
        let expected = if self.node.is_some() { BUFFERS * SERVICES.len() } else { 0 };
        if self.uses.len() != expected {
            return Err(format!("{}: {} descriptors, not {expected}", self.id, self.uses.len()));
        }
        self.engine.audit().map_err(|error| format!("{}: {error}", self.id))
    }

    /// Takes the request buffers back. Afterwards LNet has no descriptor of this host.
    ///
    /// # Errors
    /// A message or a descriptor is left.
    pub(super) fn end(&mut self, now_ns: u64, seen: &mut LstSeen) -> Check {
        for md in std::mem::take(&mut self.posted).into_values() {
            // ENOENT: it has ended.
            let _ = self.engine.md_unlink(md);
        }
        self.handle_events(now_ns, seen)?;
        let freed = self.engine.eq_free(self.eq);
        freed.map_err(|error| format!("{}: a descriptor is left: {error}", self.id))?;
        match self.engine.counters().msgs_alloc {
            0 => Ok(()),
            left => Err(format!("{}: {left} messages never end", self.id)),
        }
    }
}
