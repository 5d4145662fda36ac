//! Nodes and a console on a network in memory, in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_nid::ProcessId;
use lnet_proto::ByteOrder;
use lnet_proto::lst::{LnetCounters, LstService, Reply, Request, RequestBody, Test};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::node::{
    Config, DataService, Fetch, Framework, Outcome, ReplyMessage, RpcEnd, Served, Transfer, Unit, UnitRpc,
};

use crate::kit::{ON, SECOND, emit, list, process};

/// How long each message travels.
const TRAVEL_NS: u64 = 1_000_000;

/// How long a node waits for data that it GETs.
const BULK_TIMEOUT_NS: u64 = 30 * SECOND;

/// A message, by what it is at its receiver.
enum Kind {
    Request(LstService),
    /// A reply, or the data of a READ: a PUT to these match bits.
    Put(u64),
    /// A GET of these match bits.
    Get(u64),
    /// The answer to a GET.
    Got(u64),
}

struct Message {
    from: ProcessId,
    to: ProcessId,
    kind: Kind,
    payload: Vec<u8>,
}

/// A unit with its driver's state.
struct Driven {
    unit: Unit,
    buffer: Vec<u8>,
    rpc: UnitRpc,
}

/// A GET that has not been answered.
enum Getting {
    List(Fetch),
    Data(Transfer),
}

struct SimNode {
    process: ProcessId,
    framework: Framework,
    data: DataService,
    ids: Ids,
    units: Vec<Driven>,
    /// GETs by match bits, with their source and their deadline.
    gets: BTreeMap<(ProcessId, u64), (Getting, u64)>,
    /// Framework requests that wait for the list of one before them.
    waiting: VecDeque<(ProcessId, LstService, Vec<u8>)>,
}

/// The network with everything on it.
pub(crate) struct Simulated {
    pub(crate) now_ns: u64,
    nodes: Vec<SimNode>,
    /// Messages by their time of arrival, and in the order in which they were sent.
    in_flight: BTreeMap<(u64, u64), Message>,
    sent: u64,
    /// Processes that nothing reaches and nothing comes from.
    pub(crate) cut: BTreeSet<ProcessId>,
    /// Whether the first byte of bulk data is damaged on its way.
    pub(crate) damages_bulk: bool,
    console: ProcessId,
    order: ByteOrder,
    reply_id: u64,
    lists: BTreeMap<u64, Vec<u8>>,
    replies: BTreeMap<u64, Vec<u8>>,
}

impl Simulated {
    /// A console of this byte order, and nodes at these NIDs.
    pub(crate) fn new(order: ByteOrder, nids: &[&str]) -> Simulated {
        let node = |nid: &&str| {
            let framework = Framework::new(Config::default());
            let data = framework.data_service();
            SimNode {
                process: process(nid),
                framework,
                data,
                ids: Ids::new(9),
                units: Vec::new(),
                gets: BTreeMap::new(),
                waiting: VecDeque::new(),
            }
        };
        Simulated {
            now_ns: 0,
            nodes: nids.iter().map(node).collect(),
            in_flight: BTreeMap::new(),
            sent: 0,
            cut: BTreeSet::new(),
            damages_bulk: false,
            console: process("10.0.0.9@tcp"),
            order,
            reply_id: 1 << 32,
            lists: BTreeMap::new(),
            replies: BTreeMap::new(),
        }
    }

    pub(crate) fn framework(&self, node: &str) -> &Framework {
        &self.node(process(node)).unwrap().framework
    }

    pub(crate) fn data(&self, node: &str) -> &DataService {
        &self.node(process(node)).unwrap().data
    }

    /// Number of units that a node drives.
    pub(crate) fn units(&self, node: &str) -> usize {
        self.node(process(node)).unwrap().units.len()
    }

    fn node(&self, process: ProcessId) -> Option<&SimNode> {
        self.nodes.iter().find(|node| node.process == process)
    }

    /// Sends a request from the console; the reply that has come within so many seconds.
    pub(crate) fn ask(&mut self, node: &str, body: RequestBody, wait_s: u64) -> Option<Reply> {
        self.reply_id += 1;
        let (reply_id, console) = (self.reply_id, self.console);
        let request = Request::new(ON, reply_id, body);
        let payload = emit(&request, self.order);
        let kind = Kind::Request(request.service());
        self.send(Message { from: console, to: process(node), kind, payload });
        let deadline = self.now_ns + wait_s * SECOND;
        while !self.replies.contains_key(&reply_id) && self.step(deadline) {}
        let reply = self.replies.remove(&reply_id)?;
        Some(Reply::parse(request.service(), &reply).unwrap())
    }

    /// Adds a client; status of the reply, if there is one within 60 s.
    pub(crate) fn add_client(&mut self, node: &str, test: Test, to: &[&str]) -> Option<u32> {
        let to: Vec<_> = to.iter().map(|nid| process(nid)).collect();
        self.reply_id += 1;
        let bulk_id = self.reply_id;
        self.lists.insert(bulk_id, list(&to, self.order));
        let test = Test { is_client: true, bulk_id, destinations: to.len() as u32, ..test };
        self.ask(node, RequestBody::Test(test), 60).map(|reply| reply.status)
    }

    /// Lets so many seconds pass.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let end = self.now_ns + seconds * SECOND;
        while self.step(end) {}
    }

    /// Does the next thing that happens before `end`; at `end`, returns `false`.
    fn step(&mut self, end: u64) -> bool {
        let arrival = self.in_flight.keys().next().map(|(due, _)| *due);
        let due = self.nodes.iter().filter_map(SimNode::next_ns).chain(arrival).min();
        let Some(due) = due.filter(|due| *due < end) else {
            self.now_ns = end;
            return false;
        };
        self.now_ns = self.now_ns.max(due);
        if arrival == Some(due) {
            let (_, message) = self.in_flight.pop_first().unwrap();
            self.deliver(message);
        } else {
            for index in 0..self.nodes.len() {
                let sent = self.nodes[index].expire(self.now_ns);
                self.send_all(sent);
            }
        }
        true
    }

    fn send_all(&mut self, messages: Vec<Message>) {
        messages.into_iter().for_each(|message| self.send(message));
    }

    fn send(&mut self, mut message: Message) {
        if self.cut.contains(&message.from) || self.cut.contains(&message.to) {
            return;
        }
        let is_bulk = matches!(message.kind, Kind::Put(_) | Kind::Got(_)) && message.payload.len() != 160;
        if self.damages_bulk && is_bulk && message.payload.len() > 12 {
            message.payload[0] ^= 1;
        }
        self.sent += 1;
        self.in_flight.insert((self.now_ns + TRAVEL_NS, self.sent), message);
    }

    fn deliver(&mut self, message: Message) {
        if self.cut.contains(&message.to) {
            return;
        }
        if message.to == self.console {
            match message.kind {
                Kind::Put(bits) => drop(self.replies.insert(bits, message.payload)),
                Kind::Get(bits) => {
                    if let Some(payload) = self.lists.remove(&bits) {
                        let kind = Kind::Got(bits);
                        self.send(Message { from: self.console, to: message.from, kind, payload });
                    }
                }
                _ => panic!("a console gets replies and GETs only"),
            }
            return;
        }
        let now_ns = self.now_ns;
        if let Some(node) = self.nodes.iter_mut().find(|node| node.process == message.to) {
            let sent = node.receive(message, now_ns);
            self.send_all(sent);
        }
    }
}

impl SimNode {
    fn next_ns(&self) -> Option<u64> {
        let rpcs = self.units.iter().map(|driven| driven.rpc.deadline_ns);
        let gets = self.gets.values().map(|(_, deadline)| *deadline);
        rpcs.chain(gets).chain(self.framework.next_ns()).min()
    }

    fn message(&self, to: ProcessId, kind: Kind, payload: Vec<u8>) -> Message {
        Message { from: self.process, to, kind, payload }
    }

    fn answer(&self, to: ProcessId, answer: &ReplyMessage) -> Message {
        self.message(to, Kind::Put(answer.reply_id), answer.bytes.to_vec())
    }

    fn receive(&mut self, message: Message, now_ns: u64) -> Vec<Message> {
        let Message { from, kind, payload, .. } = message;
        match kind {
            Kind::Request(service) if service.is_data() => self.serve(from, service, &payload, now_ns),
            Kind::Request(service) => {
                self.waiting.push_back((from, service, payload));
                self.handle_waiting(now_ns)
            }
            Kind::Put(bits) => self.put(from, bits, &payload, now_ns),
            Kind::Get(bits) => {
                let offered = |driven: &&Driven| {
                    driven.rpc.to == from
                        && driven.rpc.bulk.is_some_and(|bulk| bulk.id == bits && !bulk.is_sink)
                };
                let unit = self.units.iter().find(offered);
                unit.map(|driven| self.message(from, Kind::Got(bits), driven.buffer.clone()))
                    .into_iter()
                    .collect()
            }
            Kind::Got(bits) => self.got(from, bits, Ok(&payload), now_ns),
        }
    }

    /// Framework requests one after the other.
    fn handle_waiting(&mut self, now_ns: u64) -> Vec<Message> {
        let mut sent = Vec::new();
        while !self.gets.values().any(|(getting, _)| matches!(getting, Getting::List(_))) {
            let Some((from, service, payload)) = self.waiting.pop_front() else { break };
            let outcome = self.framework.handle(service, &payload, LnetCounters::default, now_ns);
            sent.extend(self.act(from, outcome, now_ns));
        }
        sent
    }

    fn act(&mut self, from: ProcessId, outcome: Outcome, now_ns: u64) -> Vec<Message> {
        let mut sent = self.abort(now_ns);
        match outcome {
            Outcome::Reply(answer) => sent.push(self.answer(from, &answer)),
            Outcome::Run(answer, units) => {
                sent.push(self.answer(from, &answer));
                for unit in units {
                    let buffer = vec![0; unit.instance().work().bulk_length()];
                    sent.extend(self.begin(unit, buffer, now_ns));
                }
            }
            Outcome::Fetch(fetch) => {
                sent.push(self.message(from, Kind::Get(fetch.bulk_id), Vec::new()));
                let deadline = now_ns + BULK_TIMEOUT_NS;
                self.gets.insert((from, fetch.bulk_id), (Getting::List(fetch), deadline));
            }
            Outcome::Drop(_) => {}
        }
        sent
    }

    fn begin(&mut self, mut unit: Unit, mut buffer: Vec<u8>, now_ns: u64) -> Option<Message> {
        let rpc = unit.begin(&self.ids, &mut buffer, now_ns)?;
        let message = self.message(rpc.to, Kind::Request(rpc.service), rpc.request.to_vec());
        self.units.push(Driven { unit, buffer, rpc });
        Some(message)
    }

    fn end(&mut self, index: usize, end: RpcEnd<'_>, now_ns: u64) -> Option<Message> {
        let Driven { mut unit, buffer, .. } = self.units.remove(index);
        unit.ended(end, &buffer, now_ns);
        self.begin(unit, buffer, now_ns)
    }

    fn serve(&mut self, from: ProcessId, service: LstService, payload: &[u8], now_ns: u64) -> Vec<Message> {
        let served =
            if service == LstService::Ping { self.data.ping(payload) } else { self.data.brw(payload) };
        match served {
            Served::Reply(answer) => vec![self.answer(from, &answer)],
            Served::Push(push) => {
                let mut data = vec![0; push.length];
                push.prepare(&mut data);
                let Served::Reply(answer) = self.data.finish(&push, Ok(&[])) else { return Vec::new() };
                vec![self.message(from, Kind::Put(push.bulk_id), data), self.answer(from, &answer)]
            }
            Served::Pull(pull) => {
                let get = self.message(from, Kind::Get(pull.bulk_id), Vec::new());
                let key = (from, pull.bulk_id);
                self.gets.insert(key, (Getting::Data(pull), now_ns + BULK_TIMEOUT_NS));
                vec![get]
            }
            Served::Drop(_) => Vec::new(),
        }
    }

    /// A reply or the data of a READ. A reply ends the RPC: the data are sent before it.
    fn put(&mut self, from: ProcessId, bits: u64, payload: &[u8], now_ns: u64) -> Vec<Message> {
        let offered = |driven: &Driven| driven.rpc.to == from && driven.rpc.reply_id == bits;
        if let Some(index) = self.units.iter().position(offered) {
            return self.end(index, RpcEnd::Reply(payload), now_ns).into_iter().collect();
        }
        let sink = |driven: &&mut Driven| {
            driven.rpc.to == from && driven.rpc.bulk.is_some_and(|bulk| bulk.id == bits && bulk.is_sink)
        };
        if let Some(driven) = self.units.iter_mut().find(sink) {
            driven.buffer.copy_from_slice(payload);
        }
        Vec::new()
    }

    fn got(&mut self, from: ProcessId, bits: u64, data: Result<&[u8], Errno>, now_ns: u64) -> Vec<Message> {
        match self.gets.remove(&(from, bits)) {
            Some((Getting::Data(pull), _)) => match self.data.finish(&pull, data) {
                Served::Reply(answer) => vec![self.answer(from, &answer)],
                _ => Vec::new(),
            },
            Some((Getting::List(fetch), _)) => {
                let outcome = self.framework.fetched(&fetch, data, now_ns);
                let mut sent = self.act(from, outcome, now_ns);
                sent.extend(self.handle_waiting(now_ns));
                sent
            }
            None => Vec::new(),
        }
    }

    /// Ends what the session's end, or a STOP with force, has aborted.
    fn abort(&mut self, now_ns: u64) -> Vec<Message> {
        let mut sent = Vec::new();
        for index in (0..self.units.len()).rev() {
            if self.units[index].unit.is_aborted() {
                sent.extend(self.end(index, RpcEnd::Aborted, now_ns));
            }
        }
        let data = self.data.clone();
        self.gets.retain(|_, (getting, _)| match getting {
            Getting::Data(pull) if data.is_aborted(pull) => {
                assert!(matches!(data.finish(pull, Err(Errno::ECANCELED)), Served::Drop(_)));
                false
            }
            _ => true,
        });
        sent
    }

    fn expire(&mut self, now_ns: u64) -> Vec<Message> {
        self.framework.expire(now_ns);
        let mut sent = self.abort(now_ns);
        for index in (0..self.units.len()).rev() {
            if self.units[index].rpc.deadline_ns <= now_ns {
                sent.extend(self.end(index, RpcEnd::Expired, now_ns));
            }
        }
        let due = self.gets.iter().filter(|(_, (_, deadline))| *deadline <= now_ns);
        let due: Vec<_> = due.map(|(key, _)| *key).collect();
        for (from, bits) in due {
            sent.extend(self.got(from, bits, Err(Errno::ETIMEDOUT), now_ns));
        }
        sent
    }
}
