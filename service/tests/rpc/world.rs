//! A simulated world: one server, its clients, and the network between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use lnet_fake::Rng;
use nlx_service::Class;
use nlx_service::rpc::{
    Action, CallId, Calls, ClientId, Delivery, EndedCall, HEADER, Header, Kind, MessageDecision, NewCall,
    RequestCounters, RequestError, RequestId, RequestOptions, ResponderOptions, Server,
};

pub(crate) const MS_NS: u64 = 1_000_000;

/// The address of the server; clients have the addresses from 1.
const SERVER: u32 = 0;

/// More events than any run has: a run that reaches it does not end.
const EVENTS_MAX: u64 = 10_000_000;

/// What happens in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) clients: u32,
    /// Calls of all clients together.
    pub(crate) calls: u32,
    pub(crate) lost_per_mille: u32,
    pub(crate) doubled_per_mille: u32,
    pub(crate) delay_max_ms: u64,
    /// The time that an ordinary request takes.
    pub(crate) served_max_ms: u64,
    /// Requests that take `slow_ms`.
    pub(crate) slow_per_mille: u32,
    pub(crate) slow_ms: u64,
    pub(crate) client_restarts: u32,
    pub(crate) server_restarts: u32,
    /// Every second early reply of a request is lost, also the first.
    pub(crate) drops_early: bool,
    pub(crate) sessions_max: usize,
}

enum Event {
    Message {
        from: u32,
        to: u32,
        bytes: Vec<u8>,
    },
    /// Something is due at this node.
    Timer(u32),
    /// The server's handler has finished, if the server has not been restarted.
    Served {
        life: u32,
        id: RequestId,
        number: u64,
        to: u32,
    },
    /// A client begins a call.
    Call,
    RestartClient,
    RestartServer,
}

/// A call, and what has become of it.
#[derive(Debug)]
pub(crate) struct CallRecord {
    pub(crate) delivery: Delivery,
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) ends: u32,
    pub(crate) result: Option<Result<(), RequestError>>,
    /// The number of times that its request has run.
    pub(crate) ran: u32,
    /// Its client was restarted before its end.
    pub(crate) is_abandoned: bool,
}

struct Client {
    calls: Calls<u32, u64>,
    /// By id: the number of the call, which is also its request.
    open: HashMap<CallId, u64>,
}

pub(crate) struct World {
    plan: Plan,
    options: RequestOptions,
    random: Rng,
    pub(crate) now_ns: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    added: u64,
    /// By node: the time of its next timer.
    timers_ns: HashMap<u32, u64>,
    clients: Vec<Client>,
    pub(crate) server: Server<u32>,
    life: u32,
    pub(crate) calls: Vec<CallRecord>,
    /// Early replies that have arrived.
    pub(crate) early: u64,
    /// By request: early replies that were sent.
    early_sent: HashMap<RequestName, u64>,
    /// By request: the time that an early reply has asked for last.
    quiet_until_ns: HashMap<RequestName, u64>,
    /// A digest of all messages, in the order of their arrivals.
    pub(crate) trace: u64,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, options: RequestOptions) -> World {
        let mut random = Rng::new(seed);
        let server = server(&mut random, &plan);
        let clients = (0..plan.clients).map(|_| Client::new(&mut random, options)).collect();
        let mut world = World {
            plan,
            options,
            random,
            now_ns: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            added: 0,
            timers_ns: HashMap::new(),
            clients,
            server,
            life: 0,
            calls: Vec::new(),
            early: 0,
            early_sent: HashMap::new(),
            quiet_until_ns: HashMap::new(),
            trace: 0,
        };
        // All within a minute, so that they meet.
        let mut at_random = |count, event: fn() -> Event| {
            for _ in 0..count {
                let at_ns = world.random.below(60_000) * MS_NS;
                world.at(at_ns, event());
            }
        };
        at_random(plan.calls, || Event::Call);
        at_random(plan.client_restarts, || Event::RestartClient);
        at_random(plan.server_restarts, || Event::RestartServer);
        world
    }

    /// Runs until nothing is left to happen.
    pub(crate) fn run(&mut self) {
        self.run_until(u64::MAX);
    }

    /// Runs what happens before this time.
    pub(crate) fn run_until(&mut self, end_ns: u64) {
        while let Some(&Reverse((at_ns, key))) =
            self.queue.peek().filter(|Reverse((at_ns, _))| *at_ns < end_ns)
        {
            self.queue.pop();
            assert!(key < EVENTS_MAX, "the run does not end");
            self.now_ns = at_ns;
            let event = self.events.remove(&key).unwrap();
            self.handle(event);
        }
    }

    /// Returns the estimates of the network's round trip and of the service time of a client.
    pub(crate) fn estimates_ns(&mut self, client: u32) -> (u64, u64) {
        self.clients[client as usize - 1].calls.estimates_ns(&SERVER, Class::Normal, self.now_ns)
    }

    pub(crate) fn counters(&self, client: u32) -> RequestCounters {
        self.clients[client as usize - 1].calls.counters()
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.queue.push(Reverse((at_ns, self.added)));
        self.events.insert(self.added, event);
        self.added += 1;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { from, to, bytes } => {
                let digest = bytes.iter().fold(self.now_ns, |digest, &byte| {
                    (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
                });
                self.trace = self.trace.rotate_left(5) ^ digest;
                if to == SERVER {
                    self.serve(from, &bytes)
                } else {
                    self.deliver(from, to, &bytes)
                }
                self.act(to);
            }
            Event::Timer(node) => {
                // A later one that was replaced by an earlier one does nothing.
                if self.timers_ns.get(&node) == Some(&self.now_ns) {
                    self.timers_ns.remove(&node);
                    self.act(node);
                }
            }
            Event::Served { life, id, number, to } if life == self.life => {
                self.answer(id, number, to);
                self.act(SERVER);
            }
            Event::Served { .. } => {}
            Event::Call => self.call(),
            Event::RestartClient => {
                let index = self.random.below(self.plan.clients.into()) as usize;
                let fresh = Client::new(&mut self.random, self.options);
                let gone = std::mem::replace(&mut self.clients[index], fresh);
                gone.open.values().for_each(|&number| self.calls[number as usize].is_abandoned = true);
            }
            Event::RestartServer => {
                self.life += 1;
                self.server = server(&mut self.random, &self.plan);
            }
        }
    }

    fn call(&mut self) {
        let node = self.random.below(self.plan.clients.into()) as u32 + 1;
        let often = self.random.chance(10 * 300);
        let client = &mut self.clients[node as usize - 1];
        if client.calls.check_room(&SERVER).is_err() {
            // Later, when another has ended.
            let later_ns = self.now_ns + self.random.below(1000) * MS_NS;
            return self.at(later_ns, Event::Call);
        }
        let number = self.calls.len() as u64;
        let delivery = if often { Delivery::AtLeastOnce } else { Delivery::AtMostOnce };
        let new = NewCall {
            buffer: number,
            length: 8,
            delivery,
            class: Class::Normal,
            has_offers: false,
            deadline_ns: client.calls.deadline_ns(self.now_ns),
        };
        let id = client.calls.begin(&SERVER, new, self.now_ns);
        client.open.insert(id, number);
        self.calls.push(CallRecord {
            delivery,
            begun_ns: self.now_ns,
            ended_ns: 0,
            ends: 0,
            result: None,
            ran: 0,
            is_abandoned: false,
        });
        self.act(node);
    }

    /// Lets a node do what is due, and come back for what is due next.
    fn act(&mut self, node: u32) {
        let next_ns = if node == SERVER {
            while let Some((header, to)) = self.server.early(self.now_ns) {
                self.send(SERVER, to, &header, &[]);
            }
            self.server.next_ns()
        } else {
            while let Some(action) = self.clients[node as usize - 1].calls.act(self.now_ns) {
                self.carry_out(node, action);
            }
            self.clients[node as usize - 1].calls.next_ns()
        };
        if let Some(next_ns) =
            next_ns.filter(|next_ns| self.timers_ns.get(&node).is_none_or(|at_ns| next_ns < at_ns))
        {
            self.timers_ns.insert(node, next_ns);
            self.at(next_ns, Event::Timer(node));
        }
    }

    fn carry_out(&mut self, node: u32, action: Action<u32, u64>) {
        match action {
            Action::Request { id, buffer, header, to, .. } => {
                let quiet_until_ns = self.quiet_until_ns.get(&name(node, &header)).copied();
                assert!(self.now_ns >= quiet_until_ns.unwrap_or(0), "repeated although it is being served");
                self.send(node, to, &header, &buffer.to_le_bytes());
                let client = &mut self.clients[node as usize - 1];
                assert_eq!(client.calls.returned(id, buffer), None);
                assert!(client.calls.sent(id.tag(), None, self.now_ns).is_none());
            }
            Action::Open { tag, header, to } => {
                self.send(node, to, &header, &[]);
                assert!(self.clients[node as usize - 1].calls.sent(tag, None, self.now_ns).is_none());
            }
            Action::Ended(ended) => self.end(node, ended),
        }
    }

    fn end(&mut self, node: u32, ended: EndedCall<u64>) {
        let number = self.clients[node as usize - 1].open.remove(&ended.id).unwrap();
        assert_eq!(ended.buffer, Some(number));
        let call = &mut self.calls[number as usize];
        call.ends += 1;
        call.ended_ns = self.now_ns;
        call.result = Some(ended.result);
    }

    /// Sends a message to an uncertain fate.
    fn send(&mut self, from: u32, to: u32, header: &Header, body: &[u8]) {
        let is_early = header.kind == Kind::Early;
        let is_dropped = is_early && self.plan.drops_early && {
            let sent = self.early_sent.entry(name(to, header)).or_default();
            *sent += 1;
            *sent % 2 == 1
        };
        if is_dropped || self.random.chance(10 * self.plan.lost_per_mille) {
            return;
        }
        self.early += u64::from(is_early);
        let copies = 1 + u32::from(self.random.chance(10 * self.plan.doubled_per_mille));
        for _ in 0..copies {
            let at_ns = self.now_ns + self.random.below(self.plan.delay_max_ms * MS_NS);
            let bytes = [&header.emit()[..], body].concat();
            self.at(at_ns, Event::Message { from, to, bytes });
        }
    }

    fn serve(&mut self, from: u32, bytes: &[u8]) {
        let answer = match self.server.receive(bytes, &from, self.now_ns) {
            MessageDecision::Run(id, _) => {
                let number = u64::from_le_bytes(bytes[HEADER..].try_into().unwrap());
                self.calls[number as usize].ran += 1;
                let slow = self.random.chance(10 * self.plan.slow_per_mille);
                let served_ms =
                    if slow { self.plan.slow_ms } else { self.random.below(self.plan.served_max_ms) };
                let served = Event::Served { life: self.life, id, number, to: from };
                return self.at(self.now_ns + served_ms * MS_NS, served);
            }
            MessageDecision::Answer(header, body) => (header, body.to_vec()),
            MessageDecision::Drop => return,
        };
        self.send(SERVER, from, &answer.0, &answer.1);
    }

    /// Answers a request with its number, each bit inverted.
    fn answer(&mut self, id: RequestId, number: u64, to: u32) {
        let body = (!number).to_le_bytes();
        let header = self.server.answered(id, 0, &body, self.now_ns).unwrap();
        self.send(SERVER, to, &header, &body);
    }

    fn deliver(&mut self, from: u32, node: u32, bytes: &[u8]) {
        let client = &mut self.clients[node as usize - 1];
        if let Some(header) = Header::parse(bytes).filter(|header| header.kind == Kind::Early) {
            let until_ns = self.now_ns + u64::from(header.time_ms) * MS_NS;
            self.quiet_until_ns.insert(name(node, &header), until_ns);
        }
        let Some(ended) = client.calls.receive(bytes, &from, self.now_ns) else { return };
        if ended.result.is_ok() {
            let number = client.open[&ended.id];
            assert_eq!(bytes[HEADER..], (!number).to_le_bytes(), "an answer to another request");
        }
        self.end(node, ended);
    }
}

/// A request of a client's life: its client, incarnation, slot and number.
type RequestName = (u32, u64, u16, u64);

fn name(node: u32, header: &Header) -> RequestName {
    (node, header.client.incarnation, header.slot, header.sequence)
}

impl Client {
    fn new(random: &mut Rng, options: RequestOptions) -> Client {
        let client = ClientId { number: 0, incarnation: random.next_u64().max(1) };
        Client { calls: Calls::new(client, options), open: HashMap::new() }
    }
}

fn server(random: &mut Rng, plan: &Plan) -> Server<u32> {
    let options = ResponderOptions {
        sessions_max: plan.sessions_max,
        session_idle: Duration::from_secs(20),
        ..ResponderOptions::default()
    };
    Server::new(random.next_u64(), &options)
}
