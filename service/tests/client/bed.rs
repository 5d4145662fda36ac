//! A service whose course the test decides, and a client.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use lnet_node::Node;
use lnet_region::{IoVec, Region};
use nlx_core::{Address, Errno, TmOptions};
use nlx_service::client::{Client, ClientOptions};
use nlx_service::machines::Machines;
use nlx_service::offers::{OFFER_BYTES, Offers, WireOffer};
use nlx_service::portals::{Peer, PortalNames, Portals};
use nlx_service::rpc::{
    HEADER, Header, Kind, MessageDecision, RequestId, RequestOptions, ResponderOptions, Server,
};
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service, Transport};
use nlx_testkit::addresses::unused;
use parking_lot::Mutex;

use crate::cores::Cores;

pub(crate) const BULK: usize = 100_000;

/// The match bits of the service, over portals.
const SERVICE: u64 = 7;
/// The match bits of the client.
const CLIENT: u64 = 8;

/// Requests end with the letter of what they ask for:
///
/// | letter | the service |
/// | --- | --- |
/// | e | answers with the request |
/// | r | refuses it with EPERM |
/// | h | never answers |
/// | b | reads the first readable offer, and fills the first writable one with its bytes in reverse order |
/// | n | answers, and moves nothing |
pub(crate) struct Scripted<T: Transport> {
    /// The memory of requests with bulk.
    memory: Allocate<T>,
    protocol: Mutex<Server<T::Peer>>,
    /// The number of further requests that are lost on their way.
    pub(crate) losses: AtomicU64,
    /// The service forgets its sessions when a request is lost.
    pub(crate) forgets: AtomicBool,
    pub(crate) runs: AtomicU64,
    /// The readable offers of all requests that came, lost ones included.
    pub(crate) offers: Mutex<BTreeSet<([u8; OFFER_BYTES - 8], usize)>>,
}

/// The course of a request with bulk.
pub(crate) struct Moving<T: Transport> {
    id: RequestId,
    memory: T::Memory,
    has_read: bool,
}

type State<T> = Option<Moving<T>>;
type Step<T> = Next<<T as Transport>::Offer, <T as Transport>::Memory>;
type Allocate<T> = Box<dyn Fn(usize) -> <T as Transport>::Memory + Send + Sync>;

fn new_protocol<P: Clone + Eq + Hash>(seed: u64) -> Server<P> {
    Server::new(seed, &ResponderOptions::default())
}

impl<T: Transport> Scripted<T> {
    fn offers<'a>(&self, bytes: &'a [u8]) -> Offers<'a> {
        let has_offers = Header::parse(bytes).is_some_and(|header| header.has_offers);
        let parsed = Offers::parse(&bytes[HEADER..]).filter(|_| has_offers);
        parsed.map_or(Offers::NONE, |(offers, _)| offers)
    }

    /// Returns whether this request is lost.
    fn loses(&self) -> bool {
        let less = |losses: u64| losses.checked_sub(1);
        let is_lost = self.losses.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
        if is_lost && self.forgets.load(Ordering::Acquire) {
            *self.protocol.lock() = new_protocol(1_000_000);
        }
        is_lost
    }

    fn answer(&self, request: &mut Request<'_, T, State<T>>, id: RequestId, status: u32) -> Step<T> {
        let body = if status == 0 { &request.bytes[HEADER..] } else { &[] };
        let header = self.protocol.lock().answered(id, status, body, request.arrived_ns);
        header.map_or(Next::Drop, |header| reply::<T>(request.reply, &header, body))
    }
}

fn reply<T: Transport>(memory: &mut [u8], header: &Header, body: &[u8]) -> Step<T> {
    memory[..HEADER].copy_from_slice(&header.emit());
    memory[HEADER..][..body.len()].copy_from_slice(body);
    Next::Reply { tag: header.client.incarnation, length: HEADER + body.len() }
}

impl<T: Transport> Handler<T> for Scripted<T> {
    type State = State<T>;

    fn request(&self, mut request: Request<'_, T, State<T>>) -> Step<T> {
        let is_request = Header::parse(request.bytes).is_some_and(|header| header.kind != Kind::Open);
        let offers = self.offers(request.bytes);
        let readable = offers.readable::<T::Offer>(0);
        self.offers.lock().extend(readable.map(|found| found.offer.to_wire()));
        if is_request && self.loses() {
            return Next::Drop;
        }
        let id = match self.protocol.lock().receive(request.bytes, request.from, request.arrived_ns) {
            MessageDecision::Run(id, _) => id,
            MessageDecision::Answer(header, body) => return reply::<T>(request.reply, &header, body),
            MessageDecision::Drop => return Next::Drop,
        };
        self.runs.fetch_add(1, Ordering::AcqRel);
        match request.bytes.last() {
            Some(b'h') => {
                self.protocol.lock().dropped(id);
                Next::Drop
            }
            Some(b'r') => self.answer(&mut request, id, Errno::EPERM as u32),
            Some(b'b') => {
                let memory = (self.memory)(BULK);
                *request.state = Some(Moving { id, memory: memory.clone(), has_read: false });
                Next::Pull { offer: readable.unwrap().offer, memory }
            }
            _ => self.answer(&mut request, id, 0),
        }
    }

    fn moved(&self, mut request: Request<'_, T, State<T>>, outcome: Result<usize, Errno>) -> Step<T> {
        let mut moving = request.state.take().unwrap();
        let offer = self.offers(request.bytes).writable::<T::Offer>(0);
        match (outcome, offer) {
            (Ok(length), Some(found)) if !moving.has_read => {
                let memory = moving.memory.clone();
                let mut read = bytes(&memory)[..length].to_vec();
                read.reverse();
                iovec(&memory).write(0..length).unwrap().copy_from(0, &read);
                moving.has_read = true;
                *request.state = Some(moving);
                Next::Push { offer: found.offer, memory, length }
            }
            (outcome, _) => {
                let status = outcome.err().map_or(0, |errno| errno as u32);
                self.answer(&mut request, moving.id, status)
            }
        }
    }
}

pub(crate) struct Bed<T: Transport> {
    pub(crate) service: Arc<Service<T, Scripted<T>>>,
    pub(crate) client: Arc<Client<T>>,
    pub(crate) server: T::Peer,
    /// A server where nothing listens.
    pub(crate) nowhere: T::Peer,
    calling: Option<Pool>,
    _serving: Pool,
    cores: Cores,
}

/// Lost requests are repeated soon.
fn request_options() -> RequestOptions {
    RequestOptions { retry_after: Duration::from_millis(20), ..RequestOptions::default() }
}

impl Bed<Machines> {
    /// One in process, then one through helpers.
    pub(crate) fn both() -> impl Iterator<Item = Bed<Machines>> {
        [Cores::in_process, Cores::through_helpers].into_iter().map(|cores| Bed::over(cores()))
    }

    pub(crate) fn over(cores: Cores) -> Bed<Machines> {
        let (server, (core, address)) = (cores.server(), cores.client());
        let client = Machines::start(core, &address, &TmOptions::default()).unwrap();
        let pools = [&server, &client]
            .map(|machines| Pool::start("test", machines.clone(), 1, PoolOptions::default()).unwrap());
        let address = server.address();
        let nowhere = Address { nid: format!("{}@tcp", unused()).parse().unwrap(), ..address };
        let machines = server.clone();
        let memory = Box::new(move |bytes| machines.allocate(0, bytes).unwrap());
        Bed::start(cores, pools, [server, client], memory, [address, nowhere])
    }
}

impl Bed<Portals> {
    /// Answers and pushes reach the client late, and overtake each other.
    pub(crate) fn over_portals() -> Bed<Portals> {
        let cores = Cores::with_faults("delay 1us..3ms put portal 52");
        let nodes = cores.nodes();
        let [requests, answers] = [50, 52].map(|index| Portal::new(index).unwrap());
        let transport = |node: &Node, requests, bits, replies| {
            let names = PortalNames { requests, bits: vec![MatchBits(bits)], replies, lazy: false };
            Portals::new(node.lnet(), node.partitions().clone(), names).acknowledged()
        };
        let transports =
            [transport(nodes[0], requests, SERVICE, answers), transport(nodes[1], answers, CLIENT, requests)];
        let pools = nodes.map(|node| {
            let partitions = node.partitions().partitions();
            Pool::start("test", node.drive(), partitions, PoolOptions::default()).unwrap()
        });
        let local = nodes[1].nids()[0];
        let peer = |nid| Peer { id: ProcessId { nid, pid: Pid::LNET }, local };
        let peers = [peer(nodes[0].nids()[0]), peer(format!("{}@tcp", unused()).parse().unwrap())];
        let memory = Box::new(|bytes| IoVec::whole(Region::heap(bytes).unwrap()));
        Bed::start(cores, pools, transports, memory, peers)
    }
}

impl<T: Transport<Peer: Copy>> Bed<T> {
    fn start(
        cores: Cores,
        [serving, calling]: [Pool; 2],
        [server, client]: [T; 2],
        memory: Allocate<T>,
        [address, nowhere]: [T::Peer; 2],
    ) -> Bed<T> {
        let scripted = Scripted {
            memory,
            protocol: Mutex::new(new_protocol(1)),
            losses: AtomicU64::new(0),
            forgets: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            offers: Mutex::default(),
        };
        let service = Service::start(&serving, server, BufferOptions::default(), scripted).unwrap();
        let options = ClientOptions {
            tag: SERVICE,
            incarnation: Some(CLIENT),
            request: request_options(),
            ..ClientOptions::default()
        };
        let client = Client::start(&calling, client, options).unwrap();
        Bed { service, client, server: address, nowhere, calling: Some(calling), _serving: serving, cores }
    }

    pub(crate) fn scripted(&self) -> &Scripted<T> {
        self.service.handler()
    }

    /// Returns memory of the client with these bytes.
    pub(crate) fn memory(&self, bytes: &[u8]) -> T::Memory {
        let memory = self.client.transport().allocate(0, bytes.len()).unwrap();
        iovec(&memory).write(0..bytes.len()).unwrap().copy_from(0, bytes);
        memory
    }

    pub(crate) fn lose_helpers(&mut self) {
        self.cores.lose_helpers();
    }

    pub(crate) fn end_pool(&mut self) {
        self.calling = None;
    }
}

fn iovec<M: Borrow<IoVec>>(memory: &M) -> &IoVec {
    memory.borrow()
}

/// Returns the bytes of memory that is not in flight.
pub(crate) fn bytes<M: Borrow<IoVec>>(memory: &M) -> Vec<u8> {
    // Refused while a peer may still write there.
    iovec(memory).write(0..iovec(memory).len()).unwrap();
    iovec(memory).read(0..iovec(memory).len()).unwrap().to_vec()
}

/// Runs a test with each bed: over transfer machines, in process and through helpers, and over
/// portals.
macro_rules! over_each {
    (|$bed:ident| $test:block) => {{
        Bed::both().for_each(|$bed| $test);
        let $bed = Bed::over_portals();
        $test
    }};
}
pub(crate) use over_each;
