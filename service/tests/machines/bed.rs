//! A service on a transfer machine, and raw clients, on two nodes.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_region::IoVec;
use nlx_core::{
    Address, BufferHandle, Core, CoreTm, Descriptor, Errno, MatchCounter, Nid, Operation, OperationKind,
    PassiveBuffer, Queue, TmOptions, match_bits,
};
use nlx_service::machines::{Machines, Registered};
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service, Transport};
use nlx_testkit::buffers::pattern;

use crate::cores::Cores;

/// Bytes at the start of a request: its kind, the length of the descriptor, and room for that.
pub(crate) const HEADER: usize = 2 + Descriptor::MAX_LEN;
pub(crate) const LENGTH: usize = 160;
pub(crate) const BULK: usize = 100_000;

/// What a request asks for, in its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Echo = 0,
    Push = 1,
    Pull = 2,
}

/// Replies with the request's bytes, each plus one; moves bulk before. The first byte is the errno
/// of the bulk.
pub(crate) struct Echo {
    machines: Machines,
    /// Bulk operations that were about to begin.
    pub(crate) moving: AtomicU64,
}

fn reply(
    request: &mut Request<'_, Machines, Option<Registered>>,
    moved: Result<(), Errno>,
) -> Next<Descriptor, Registered> {
    for (to, from) in request.reply.iter_mut().zip(request.bytes) {
        *to = from.wrapping_add(1);
    }
    request.reply[0] = moved.map_or_else(|errno| errno as u8, |()| 0);
    Next::Reply { tag: 0, length: request.bytes.len() }
}

/// Returns the seed of the pattern of a request's bulk: a byte behind its header.
fn seed(bytes: &[u8]) -> u64 {
    bytes[HEADER].into()
}

impl Handler<Machines> for Echo {
    type State = Option<Registered>;

    fn request(&self, mut request: Request<'_, Machines, Self::State>) -> Next<Descriptor, Registered> {
        if request.bytes[0] == Ask::Echo as u8 {
            return reply(&mut request, Ok(()));
        }
        let length = request.bytes[1].into();
        let offer = Descriptor::from_bytes(&request.bytes[2..HEADER][..length]).unwrap();
        let memory = self.machines.allocate(request.partition, BULK).unwrap();
        self.moving.fetch_add(1, Ordering::Release);
        if request.bytes[0] == Ask::Pull as u8 {
            *request.state = Some(memory.clone());
            return Next::Pull { offer, memory };
        }
        bytes_of(&memory).write(0..BULK).unwrap().copy_from(0, &pattern(seed(request.bytes) + 1, BULK));
        Next::Push { offer, memory, length: BULK }
    }

    fn moved(
        &self,
        mut request: Request<'_, Machines, Self::State>,
        outcome: Result<usize, Errno>,
    ) -> Next<Descriptor, Registered> {
        let memory = request.state.take();
        if let (Some(memory), Ok(moved)) = (memory, outcome) {
            let bytes = bytes_of(&memory).read(0..moved).unwrap().to_vec();
            assert!(bytes == pattern(seed(request.bytes), BULK), "the bulk came changed");
        }
        reply(&mut request, outcome.map(|moved| assert_eq!(moved, BULK)))
    }
}

fn bytes_of(memory: &Registered) -> &IoVec {
    std::borrow::Borrow::borrow(memory)
}

pub(crate) struct Bed {
    pub(crate) service: Arc<Service<Machines, Echo>>,
    _pool: Pool,
    address: Address,
    cores: Cores,
}

/// Buffers that the test fills several times.
fn small() -> BufferOptions {
    BufferOptions {
        request_max: LENGTH,
        reply_max: LENGTH,
        requests_per_buffer: 8,
        ..BufferOptions::default()
    }
}

impl Bed {
    pub(crate) fn over(cores: Cores) -> Bed {
        let machines = cores.server();
        let pool = Pool::start("test", machines.clone(), 1, PoolOptions::default()).unwrap();
        let echo = Echo { machines: machines.clone(), moving: AtomicU64::new(0) };
        let address = machines.address();
        let service = Service::start(&pool, machines, small(), echo).unwrap();
        Bed { service, _pool: pool, address, cores }
    }

    /// Starts a client on the other node.
    pub(crate) fn client(&self) -> Raw {
        let (core, address) = self.cores.client();
        let tm = core.tm_start(&address, &TmOptions::default()).unwrap();
        Raw::start(core, tm, self.address)
    }

    /// Ends the helpers.
    pub(crate) fn lose_helpers(&mut self) {
        self.cores.lose_helpers();
    }
}

/// A client: one call at a time.
pub(crate) struct Raw {
    tm: Box<dyn CoreTm>,
    server: Address,
    request: (IoVec, BufferHandle),
    reply: (IoVec, BufferHandle),
    bulk: (IoVec, BufferHandle),
}

/// The reply to a call, and the bytes of the bulk buffer.
pub(crate) struct Answer {
    pub(crate) reply: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
}

impl Raw {
    fn start(core: Arc<dyn Core>, tm: Box<dyn CoreTm>, server: Address) -> Raw {
        let buffer = |bytes| {
            let memory = IoVec::whole(core.allocate(bytes).unwrap());
            let handle = core.register(&memory).unwrap();
            (memory, handle)
        };
        Raw { tm, server, request: buffer(LENGTH), reply: buffer(LENGTH), bulk: buffer(BULK) }
    }

    fn submit(&self, buffer: BufferHandle, cookie: u64, kind: OperationKind) -> Option<Descriptor> {
        self.tm.submit(&Operation { buffer, cookie, kind }).unwrap().descriptor
    }

    /// Starts the passive operation that a request asks for, and returns its offer.
    fn offer(&self, ask: Ask, seed: u8, cookie: u64) -> Descriptor {
        self.bulk.0.write(0..BULK).unwrap().copy_from(0, &pattern(seed.into(), BULK));
        let kind = match ask {
            Ask::Pull => OperationKind::PassiveSend { length: BULK as u64 },
            _ => OperationKind::PassiveReceive,
        };
        self.submit(self.bulk.1, cookie, kind).unwrap()
    }

    /// Sends a request. `cookie` distinguishes the calls.
    fn send(&self, ask: Ask, offer: Descriptor, seed: u8, cookie: u64) {
        let offer = offer.as_bytes();
        let mut bytes = pattern(seed.into(), LENGTH);
        bytes[..2].copy_from_slice(&[ask as u8, offer.len() as u8]);
        bytes[2..HEADER][..offer.len()].copy_from_slice(offer);
        bytes[HEADER] = seed;
        self.request.0.write(0..LENGTH).unwrap().copy_from(0, &bytes);
        self.send_again(cookie);
    }

    /// Sends the last request, or an echo of zeros.
    fn send_again(&self, cookie: u64) {
        let receive = OperationKind::Receive { min_receive_size: LENGTH as u64, max_messages: 1 };
        self.submit(self.reply.1, cookie, receive);
        let length = LENGTH as u64;
        self.submit(self.request.1, cookie, OperationKind::Send { length, to: self.server });
    }

    /// Sends a request whose memory is at another node.
    pub(crate) fn begin_with_memory_at(&self, nid: Nid) {
        let address = Address { nid, ..self.server };
        let match_bits = match_bits(address.tmid, MatchCounter::FIRST);
        let queue = Queue::PassiveBulkSend;
        let passive = PassiveBuffer { address, match_bits, queue, length: BULK as u64 };
        self.send(Ask::Pull, Descriptor::encode(&passive).unwrap(), 0, 0);
    }

    /// Waits for the last events of this number of operations.
    fn ends(&self, operations: usize) {
        let mut ended = 0;
        while ended < operations {
            match self.tm.event_get().unwrap() {
                Some(event) => {
                    assert_eq!(event.status(), Ok(()));
                    ended += usize::from(event.unlinked());
                }
                None => drop(self.tm.event_wait(None)),
            }
        }
    }

    /// Makes the last call again, without bulk and without looking at the reply.
    pub(crate) fn echo(&self, cookie: u64) {
        self.send_again(cookie);
        self.ends(2);
    }

    pub(crate) fn call(&self, ask: Ask, seed: u8, cookie: u64) -> Answer {
        let offer = if ask == Ask::Echo { Descriptor::NONE } else { self.offer(ask, seed, cookie) };
        self.send(ask, offer, seed, cookie);
        self.ends(if ask == Ask::Echo { 2 } else { 3 });
        Answer { reply: bytes(&self.reply.0), bulk: bytes(&self.bulk.0) }
    }
}

fn bytes(memory: &IoVec) -> Vec<u8> {
    memory.read(0..memory.len()).unwrap().to_vec()
}
