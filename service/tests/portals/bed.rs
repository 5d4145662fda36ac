//! A service and its callers on two nodes.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lnet_api::Errno;
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};
use nlx_service::caller::{Bulk, CallEnd, CallSpec, Caller, Line, Owner};
use nlx_service::portals::{PortalNames, Portals};
use nlx_service::{BufferOptions, Handler, Next, OnPartitions, Pool, PoolOptions, Request, Service};
use nlx_testkit::addresses::unused;
use nlx_testkit::buffers::pattern;
use nlx_testkit::until;
use parking_lot::Mutex;

const REQUESTS: u32 = 50;
const REPLIES: u32 = 52;
const ECHO: MatchBits = MatchBits(7);
pub(crate) const LENGTH: usize = 160;
pub(crate) const BULK: usize = 100_000;

fn portal(index: u32) -> Portal {
    Portal::new(index).unwrap()
}

/// What a request asks for, in its ninth byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Echo = 0,
    Push = 1,
    Pull = 2,
    Nothing = 3,
    Panic = 4,
}

/// Replies with the request's bytes behind its tag, each plus one; moves bulk before.
pub(crate) struct Echo;

fn tag(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn echo(request: &mut Request<'_, Portals, Option<IoVec>>) -> Next<MatchBits> {
    for (to, from) in request.reply.iter_mut().zip(request.bytes) {
        *to = from.wrapping_add(1);
    }
    Next::Reply { tag: tag(request.bytes), length: request.bytes.len() }
}

impl Handler<Portals> for Echo {
    type State = Option<IoVec>;

    fn request(&self, mut request: Request<'_, Portals, Option<IoVec>>) -> Next<MatchBits> {
        let offer = MatchBits(tag(request.bytes) + 1);
        let memory = || IoVec::whole(Region::heap(BULK).unwrap());
        match request.bytes[8] {
            0 => echo(&mut request),
            1 => {
                let memory = memory();
                memory.write(0..BULK).unwrap().copy_from(0, &pattern(offer.0, BULK));
                Next::Push { offer, memory, length: BULK }
            }
            2 => {
                let memory = request.state.insert(memory()).clone();
                Next::Pull { offer, memory }
            }
            3 => Next::Drop,
            _ => panic!("a handler that panics"),
        }
    }

    fn moved(
        &self,
        mut request: Request<'_, Portals, Option<IoVec>>,
        outcome: Result<usize, Errno>,
    ) -> Next<MatchBits> {
        assert_eq!(outcome, Ok(BULK));
        if let Some(memory) = request.state.take() {
            assert_eq!(memory.read(0..BULK).unwrap().to_vec(), pattern(tag(request.bytes) + 1, BULK));
        }
        echo(&mut request)
    }
}

/// Collects the ends of calls, unless it only counts them.
#[derive(Default)]
pub(crate) struct Collector {
    ended: Mutex<Vec<(Vec<u8>, CallEnd)>>,
    pub(crate) count: AtomicUsize,
    pub(crate) only_counts: AtomicBool,
}

impl Owner for Collector {
    type State = ();

    fn ended(&self, _: &Caller<Collector>, line: &Arc<Line<()>>, ended: CallEnd) {
        if self.only_counts.load(Ordering::Relaxed) {
            self.count.fetch_add(1, Ordering::Release);
            return;
        }
        let reply = line.reply().read(0..ended.reply.unwrap_or(0)).unwrap().to_vec();
        self.ended.lock().push((reply, ended));
        self.count.fetch_add(1, Ordering::Release);
    }
}

pub(crate) struct Bed {
    server: Node,
    client: Node,
    pub(crate) serving: Pool,
    pub(crate) service: Arc<Service<Portals, Echo>>,
    _calling: Pool,
    pub(crate) caller: Arc<Caller<Collector>>,
}

impl Bed {
    pub(crate) fn new(partitions: usize, buffers: BufferOptions) -> Bed {
        Bed::on(partitions, (0..partitions).collect(), buffers)
    }

    /// A bed whose service is on some of the CPU partitions.
    pub(crate) fn on(partitions: usize, cpts: Arc<[usize]>, buffers: BufferOptions) -> Bed {
        let node = || {
            let net = format!("tcp({})", unused());
            let config = NodeConfig::new().net(&net).unwrap();
            Node::start(&config.partitions(Arc::new(CptTable::virtual_parts(partitions).unwrap()))).unwrap()
        };
        let (server, client) = (node(), node());
        let options = PoolOptions::default();
        let chosen = OnPartitions { drive: server.drive(), cpts: cpts.clone() };
        let serving = Pool::start("test", chosen, cpts.len(), options).unwrap();
        let calling = Pool::start("test", client.drive(), partitions, options).unwrap();
        let names = PortalNames {
            requests: portal(REQUESTS),
            bits: vec![MatchBits(3), ECHO],
            replies: portal(REPLIES),
            lazy: true,
        };
        let portals = Portals::new(server.lnet(), server.partitions().clone(), names).on(cpts);
        let service = Service::start(&serving, portals, buffers, Echo).unwrap();
        let caller = Caller::start(&calling, client.lnet(), (LENGTH, LENGTH), Collector::default()).unwrap();
        Bed { server, client, serving, service, _calling: calling, caller }
    }

    /// Begins a call.
    pub(crate) fn call(&self, number: u64, ask: Ask) {
        let (line, call) = self.prepare(number, ask);
        self.caller.begin(&line, LENGTH, &call).unwrap();
    }

    /// Makes a call that can be begun.
    pub(crate) fn prepare(&self, number: u64, ask: Ask) -> (Arc<Line<()>>, CallSpec) {
        let partition = number as usize % self.caller.partitions();
        let line = self.caller.line(partition).unwrap();
        let reply_bits = MatchBits(number * 2);
        let mut bytes = pattern(number, LENGTH);
        bytes[..8].copy_from_slice(&reply_bits.0.to_le_bytes());
        bytes[8] = ask as u8;
        line.request().write(0..LENGTH).unwrap().copy_from(0, &bytes);
        let memory = IoVec::whole(Region::heap(BULK).unwrap());
        let bits = MatchBits(number * 2 + 1);
        memory.write(0..BULK).unwrap().copy_from(0, &pattern(bits.0, BULK));
        let is_source = ask == Ask::Pull;
        let bulk = matches!(ask, Ask::Push | Ask::Pull).then_some(Bulk { bits, memory, is_source });
        let deadline_ns = matches!(ask, Ask::Nothing | Ask::Panic).then(|| self.caller.now_ns() + 50_000_000);
        let call = CallSpec {
            to: ProcessId { nid: self.server.nids()[0], pid: Pid::LNET },
            from: Some(self.client.nids()[0]),
            portal: portal(REQUESTS),
            bits: ECHO,
            reply_portal: portal(REPLIES),
            reply_bits,
            bulk,
            deadline_ns,
        };
        (line, call)
    }

    /// Waits for the ends of this number of calls, and returns what was collected.
    pub(crate) fn ends(&self, count: usize) -> Vec<(Vec<u8>, CallEnd)> {
        until("all calls end", || self.caller.owner().count.load(Ordering::Acquire) >= count);
        std::mem::take(&mut *self.caller.owner().ended.lock())
    }
}

pub(crate) fn small() -> BufferOptions {
    BufferOptions {
        request_max: LENGTH,
        reply_max: LENGTH,
        requests_per_buffer: 8,
        buffers_min: 2,
        buffers_max: 16,
    }
}
