//! A service whose course the test decides, and a client.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lnet_region::IoVec;
use nlx_core::{Address, Descriptor, Errno, TmOptions};
use nlx_service::client::{Client, ClientOptions};
use nlx_service::machines::{Machines, Registered};
use nlx_service::offers::Offers;
use nlx_service::rpc::{
    HEADER, Header, Kind, MessageDecision, RequestId, RequestOptions, ResponderOptions, Server,
};
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service, Transport};
use parking_lot::Mutex;

use crate::cores::Cores;

pub(crate) const BULK: usize = 100_000;

/// Requests end with the letter of what they ask for:
///
/// | letter | the service |
/// | --- | --- |
/// | e | answers with the request |
/// | r | refuses it with EPERM |
/// | h | never answers |
/// | b | reads the first readable offer, and fills the first writable one with its bytes in reverse order |
/// | n | answers, and moves nothing |
pub(crate) struct Scripted {
    machines: Machines,
    protocol: Mutex<Server<Address>>,
    /// The number of further requests that are lost on their way.
    pub(crate) losses: AtomicU64,
    /// The service forgets its sessions when a request is lost.
    pub(crate) forgets: AtomicBool,
    pub(crate) runs: AtomicU64,
    /// The readable offers of all requests that came, lost ones included.
    pub(crate) offers: Mutex<BTreeSet<Vec<u8>>>,
}

/// The course of a request with bulk.
pub(crate) struct Moving {
    id: RequestId,
    memory: Registered,
    has_read: bool,
}

type State = Option<Moving>;
type Step = Next<Descriptor, Registered>;

fn new_protocol(seed: u64) -> Server<Address> {
    Server::new(seed, &ResponderOptions::default())
}

impl Scripted {
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

    fn answer(&self, request: &mut Request<'_, Machines, State>, id: RequestId, status: u32) -> Step {
        let body = if status == 0 { &request.bytes[HEADER..] } else { &[] };
        let header = self.protocol.lock().answered(id, status, body, request.arrived_ns);
        header.map_or(Next::Drop, |header| reply(request.reply, &header, body))
    }
}

fn reply(memory: &mut [u8], header: &Header, body: &[u8]) -> Step {
    memory[..HEADER].copy_from_slice(&header.emit());
    memory[HEADER..][..body.len()].copy_from_slice(body);
    Next::Reply { tag: 0, length: HEADER + body.len() }
}

impl Handler<Machines> for Scripted {
    type State = State;

    fn request(&self, mut request: Request<'_, Machines, State>) -> Step {
        let is_request = Header::parse(request.bytes).is_some_and(|header| header.kind != Kind::Open);
        let offers = self.offers(request.bytes);
        let readable = offers.readable::<Descriptor>(0);
        self.offers.lock().extend(readable.map(|found| found.offer.as_bytes().to_vec()));
        if is_request && self.loses() {
            return Next::Drop;
        }
        let id = match self.protocol.lock().receive(request.bytes, request.from, request.arrived_ns) {
            MessageDecision::Run(id, _) => id,
            MessageDecision::Answer(header, body) => return reply(request.reply, &header, body),
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
                let memory = self.machines.allocate(request.partition, BULK).unwrap();
                *request.state = Some(Moving { id, memory: memory.clone(), has_read: false });
                Next::Pull { offer: readable.unwrap().offer, memory }
            }
            _ => self.answer(&mut request, id, 0),
        }
    }

    fn moved(&self, mut request: Request<'_, Machines, State>, outcome: Result<usize, Errno>) -> Step {
        let mut moving = request.state.take().unwrap();
        let offer = self.offers(request.bytes).writable::<Descriptor>(0);
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

pub(crate) struct Bed {
    pub(crate) service: Arc<Service<Machines, Scripted>>,
    pub(crate) client: Arc<Client<Machines>>,
    pub(crate) server: Address,
    calling: Option<Pool>,
    _serving: Pool,
    cores: Cores,
}

/// Lost requests are repeated soon.
fn request_options() -> RequestOptions {
    RequestOptions { retry_after: Duration::from_millis(20), ..RequestOptions::default() }
}

impl Bed {
    /// One in process, then one through helpers.
    pub(crate) fn both() -> impl Iterator<Item = Bed> {
        [Cores::in_process, Cores::through_helpers].into_iter().map(|cores| Bed::over(cores()))
    }

    pub(crate) fn over(cores: Cores) -> Bed {
        let (server, (core, address)) = (cores.server(), cores.client());
        let client = Machines::start(core, &address, &TmOptions::default()).unwrap();
        let pool =
            |machines: &Machines| Pool::start("test", machines.clone(), 1, PoolOptions::default()).unwrap();
        let (serving, calling) = (pool(&server), pool(&client));
        let scripted = Scripted {
            machines: server.clone(),
            protocol: Mutex::new(new_protocol(1)),
            losses: AtomicU64::new(0),
            forgets: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            offers: Mutex::default(),
        };
        let address = server.address();
        let service = Service::start(&serving, server, BufferOptions::default(), scripted).unwrap();
        let options = ClientOptions { request: request_options(), ..ClientOptions::default() };
        let client = Client::start(&calling, client, options).unwrap();
        Bed { service, client, server: address, calling: Some(calling), _serving: serving, cores }
    }

    pub(crate) fn scripted(&self) -> &Scripted {
        self.service.handler()
    }

    /// Returns memory of the client with these bytes.
    pub(crate) fn memory(&self, bytes: &[u8]) -> Registered {
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

fn iovec(memory: &Registered) -> &IoVec {
    memory.borrow()
}

/// Returns the bytes of memory that is not in flight.
pub(crate) fn bytes(memory: &Registered) -> Vec<u8> {
    // Refused while a peer may still write there.
    iovec(memory).write(0..iovec(memory).len()).unwrap();
    iovec(memory).read(0..iovec(memory).len()).unwrap().to_vec()
}
