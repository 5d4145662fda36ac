//! Scripted nodes in virtual time, around one console.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lnet_nid::ProcessId;
use lnet_proto::lst::{
    BatchOp, Check, Features, LnetCounters, LstService, MESSAGE_LEN, Name, Reply, ReplyBody, Request,
    RequestBody, SessionId, Statistics,
};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::console::{
    AddTest, Console, ConsoleError, ConsoleOperation, ConsoleRpc, Distribution, Event, NewSession, NodeState,
    Report, TestKind, Warning,
};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// What a node does with a request.
pub(crate) enum Reaction {
    /// It behaves as lst 6 says.
    Normal,
    /// It never answers.
    Silent,
    /// The RPC fails.
    Fails(Errno),
    /// It answers with this status, and is not changed.
    Status(u32),
    /// It answers with these bytes.
    Raw(Vec<u8>),
}

type Script = Box<dyn FnMut(&Request) -> Reaction>;

/// A test node: the state that lst 6 speaks of.
pub(crate) struct Node {
    pub(crate) session: Option<(SessionId, Name)>,
    pub(crate) features: Features,
    /// Bits that it has; others it takes out of a MKSN.
    pub(crate) knows: Features,
    pub(crate) discards: bool,
    pub(crate) batches: HashMap<u64, Vec<bool>>,
    pub(crate) running: HashMap<u64, bool>,
    /// QUERYs that still find a stopped batch running.
    pub(crate) drain: u32,
    pub(crate) delay_ns: u64,
    pub(crate) statistics: Statistics,
    /// What a STAT adds to the counters.
    pub(crate) traffic: LnetCounters,
    pub(crate) made_ns: u64,
    pub(crate) script: Script,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node {
            session: None,
            features: Features::BULK_LENGTH,
            knows: Features::BULK_LENGTH,
            discards: true,
            batches: HashMap::new(),
            running: HashMap::new(),
            drain: 0,
            delay_ns: 1_000_000,
            statistics: Statistics::default(),
            traffic: LnetCounters::default(),
            made_ns: 0,
            script: Box::new(|_| Reaction::Normal),
        }
    }

    fn held(&self) -> SessionId {
        self.session.map_or(SessionId::NONE, |(sid, _)| sid)
    }

    fn reply(&self, status: u32, body: ReplyBody) -> Reply {
        Reply { features: self.features, status, sid: self.held(), body }
    }

    /// The reply to a request, by lst 6.
    fn handle(&mut self, request: &Request, now_ns: u64) -> Reply {
        match request.body {
            RequestBody::MakeSession { sid, force, name } => {
                self.make(sid, force, name, request.features, now_ns)
            }
            RequestBody::RemoveSession { sid } => {
                let status = if self.session.is_none() { 3 } else { 16 * u32::from(self.held() != sid) };
                if status == 0 {
                    self.session = None;
                }
                self.reply(status, ReplyBody::RemoveSession)
            }
            RequestBody::Debug { .. } => {
                let name = self.session.map_or(Name::EMPTY, |(_, name)| name);
                let status = if self.session.is_some() { 0 } else { 3 };
                self.reply(status, ReplyBody::Debug { timeout_s: 100, batches: 0, name })
            }
            RequestBody::Stat { sid, .. } => {
                self.count(now_ns);
                let status = if self.held() == sid { 0 } else { 3 };
                self.reply(status, ReplyBody::Stat(self.statistics))
            }
            RequestBody::Test(test) => {
                let status = if self.held() != test.sid {
                    2
                } else if self.running.get(&test.batch) == Some(&true) {
                    16
                } else if test.is_client
                    && test.service == 11
                    && test.brw(self.features).check == Check::DISCARD
                    && !self.discards
                {
                    22
                } else {
                    self.batches.entry(test.batch).or_default().push(test.is_client);
                    0
                };
                self.reply(status, ReplyBody::Test)
            }
            RequestBody::Batch { sid, batch, op, test, .. } => {
                let (status, active) = self.batch(sid, batch, op, test);
                self.reply(status, ReplyBody::Batch { active, time: 0 })
            }
            ref other => panic!("a console does not send {other:?}"),
        }
    }

    fn make(&mut self, sid: SessionId, force: u32, name: Name, features: Features, now_ns: u64) -> Reply {
        let timeout_s = 100;
        match self.session {
            Some((held, name)) if held != sid && force == 0 => {
                return self.reply(16, ReplyBody::MakeSession { timeout_s, name });
            }
            Some((held, _)) if held == sid => {}
            _ => {
                self.session = Some((sid, name));
                self.features = Features(features.0 & self.knows.0);
                self.made_ns = now_ns;
                self.batches.clear();
                self.running.clear();
            }
        }
        self.reply(0, ReplyBody::MakeSession { timeout_s, name: Name::EMPTY })
    }

    fn batch(&mut self, sid: SessionId, batch: u64, op: BatchOp, test: u32) -> (u32, u32) {
        if self.held() != sid {
            return (3, 0);
        }
        let Some(instances) = self.batches.get(&batch) else { return (2, 0) };
        let running = self.running.entry(batch).or_insert(false);
        match op {
            BatchOp::RUN => *running = true,
            BatchOp::STOP => *running = self.drain > 0,
            _ => {
                let clients = instances.iter().filter(|is_client| **is_client).count() as u32;
                let active = match test {
                    0 => clients,
                    test if test as usize > instances.len() => return (2, 0),
                    test => u32::from(instances[test as usize - 1]),
                };
                let active = if *running { active } else { 0 };
                if self.drain > 0 && *running {
                    self.drain -= 1;
                    *running = self.drain > 0;
                }
                return (0, active);
            }
        }
        (0, 0)
    }

    fn count(&mut self, now_ns: u64) {
        let (counters, traffic) = (&mut self.statistics.lnet, &self.traffic);
        counters.sent = counters.sent.wrapping_add(traffic.sent);
        counters.received = counters.received.wrapping_add(traffic.received);
        counters.bytes_sent = counters.bytes_sent.wrapping_add(traffic.bytes_sent);
        counters.bytes_received = counters.bytes_received.wrapping_add(traffic.bytes_received);
        self.statistics.session_ms = ((now_ns - self.made_ns) / 1_000_000) as u32;
    }
}

/// A console, its nodes, and the time.
pub(crate) struct World {
    pub(crate) console: Console,
    pub(crate) nodes: BTreeMap<ProcessId, Node>,
    pub(crate) now_ns: u64,
    /// Every RPC that was sent.
    pub(crate) sent: Vec<ConsoleRpc>,
    pub(crate) aborted: Vec<u64>,
    /// Interim results and warnings that no test has taken.
    pub(crate) progress: Vec<Report>,
    pub(crate) warnings: Vec<Warning>,
    replies: BTreeMap<(u64, u64), Result<Vec<u8>, Errno>>,
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn node(number: u32) -> ProcessId {
    format!("12345-10.{}.{}.{}@tcp", number >> 16, number >> 8 & 255, number & 255).parse().unwrap()
}

pub(crate) fn new_session(text: &str) -> NewSession {
    NewSession {
        name: name(text),
        stamp: 1000,
        timeout_s: 300,
        force: false,
        features: Features::BULK_LENGTH,
    }
}

pub(crate) fn ping_test(from: &str, to: &str) -> AddTest {
    AddTest {
        batch: name("batch"),
        from: name(from),
        to: name(to),
        kind: TestKind::Ping,
        repeats: None,
        concurrency: 1,
        distribution: Distribution { clients: 1, servers: 1 },
    }
}

impl World {
    /// A console without a session, and nodes with these numbers.
    pub(crate) fn empty(numbers: impl IntoIterator<Item = u32>) -> World {
        World {
            console: Console::new("10.0.0.9@tcp".parse().unwrap(), Arc::new(Ids::new(1))).unwrap(),
            nodes: numbers.into_iter().map(|number| (node(number), Node::new())).collect(),
            now_ns: 0,
            sent: Vec::new(),
            aborted: Vec::new(),
            progress: Vec::new(),
            warnings: Vec::new(),
            replies: BTreeMap::new(),
        }
    }

    /// The same with a session.
    pub(crate) fn new(numbers: impl IntoIterator<Item = u32>) -> World {
        let mut world = World::empty(numbers);
        world.run(ConsoleOperation::NewSession(new_session("main"))).unwrap();
        world
    }

    /// The same with a group for each pair of a name and numbers.
    pub(crate) fn with_groups(groups: &[(&str, &[u32])]) -> World {
        let mut world = World::new(groups.iter().flat_map(|(_, numbers)| numbers.iter().copied()));
        for (group, numbers) in groups {
            world.add_group(group, numbers);
        }
        world
    }

    pub(crate) fn add_group(&mut self, group: &str, numbers: &[u32]) -> Report {
        let nodes = numbers.iter().copied().map(node).collect();
        self.run(ConsoleOperation::AddGroup { name: name(group), nodes }).unwrap()
    }

    pub(crate) fn node(&mut self, number: u32) -> &mut Node {
        self.nodes.get_mut(&node(number)).unwrap()
    }

    /// From now on, this node reacts so.
    pub(crate) fn script(&mut self, number: u32, script: impl FnMut(&Request) -> Reaction + 'static) {
        self.node(number).script = Box::new(script);
    }

    pub(crate) fn state(&self, number: u32) -> NodeState {
        let groups = self.console.groups();
        let mut nodes = groups.iter().flat_map(|group| &group.nodes);
        nodes.find(|found| found.node == node(number)).unwrap().state
    }

    pub(crate) fn begin(&mut self, operation: ConsoleOperation) -> Result<(), ConsoleError> {
        self.console.begin(operation, self.now_ns)
    }

    /// Begins an operation and lets time pass until it ends.
    pub(crate) fn run(&mut self, operation: ConsoleOperation) -> Result<Report, ConsoleError> {
        self.begin(operation)?;
        self.finish()
    }

    /// Lets time pass until the operation ends.
    pub(crate) fn finish(&mut self) -> Result<Report, ConsoleError> {
        loop {
            if let Some(result) = self.deliver() {
                return result;
            }
            assert!(self.step(u64::MAX), "an operation in progress has something to wait for");
        }
    }

    /// Lets time pass to `until_ns`.
    pub(crate) fn pass(&mut self, until_ns: u64) {
        loop {
            assert_eq!(self.deliver(), None, "an operation has ended");
            if !self.step(until_ns) {
                break;
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// The requests that were sent to a node, since the last call of `clear`.
    pub(crate) fn requests_to(&self, number: u32) -> Vec<Request> {
        self.sent.iter().filter(|rpc| rpc.to == node(number)).map(parsed).collect()
    }

    pub(crate) fn services(&self) -> Vec<LstService> {
        self.sent.iter().map(|rpc| rpc.service).collect()
    }

    /// Takes what the console hands out.
    fn deliver(&mut self) -> Option<Result<Report, ConsoleError>> {
        while let Some(id) = self.console.next_abort() {
            self.replies.retain(|(_, reply_id), _| *reply_id != id);
            self.aborted.push(id);
        }
        while let Some(rpc) = self.console.next_rpc() {
            self.send(&rpc);
            self.sent.push(rpc);
        }
        while let Some(event) = self.console.next_event() {
            match event {
                Event::Progress(report) => self.progress.push(report),
                Event::Warning(warning) => self.warnings.push(warning),
                Event::Done(result) => return Some(result),
            }
        }
        None
    }

    fn send(&mut self, rpc: &ConsoleRpc) {
        let request = parsed(rpc);
        let Some(node) = self.nodes.get_mut(&rpc.to) else { return };
        let outcome = match (node.script)(&request) {
            Reaction::Silent => return,
            Reaction::Fails(errno) => Err(errno),
            Reaction::Raw(bytes) => Ok(bytes),
            Reaction::Normal => Ok(node.handle(&request, self.now_ns).emit().to_vec()),
            Reaction::Status(status) => {
                let (session, running) = (node.session, node.running.clone());
                let batches = node.batches.clone();
                let reply = node.handle(&request, self.now_ns);
                (node.session, node.running, node.batches) = (session, running, batches);
                Ok(Reply { status, sid: node.held(), ..reply }.emit().to_vec())
            }
        };
        self.replies.insert((self.now_ns + node.delay_ns, rpc.reply_id), outcome);
    }

    /// Goes to the next instant at which something happens, if it is not after `until_ns`.
    fn step(&mut self, until_ns: u64) -> bool {
        let reply = self.replies.first_key_value().map(|((due_ns, _), _)| *due_ns);
        let Some(due_ns) = reply.into_iter().chain(self.console.next_ns()).min() else { return false };
        if due_ns > until_ns {
            return false;
        }
        self.now_ns = self.now_ns.max(due_ns);
        if reply == Some(due_ns) {
            let ((_, id), outcome) = self.replies.pop_first().unwrap();
            self.console.answered(id, outcome.as_deref().map_err(|errno| *errno), self.now_ns);
        } else {
            self.console.advance(self.now_ns);
        }
        true
    }
}

/// A request as the node reads it; its length and magic are checked with it.
pub(crate) fn parsed(rpc: &ConsoleRpc) -> Request {
    assert_eq!(rpc.request.len(), MESSAGE_LEN);
    let (request, _) = Request::parse(rpc.service, &rpc.request).unwrap();
    assert_eq!(request.reply_id, rpc.reply_id);
    request
}
