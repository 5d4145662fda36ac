//! A service and its callers on two nodes over TCP, with 1, 2 and 4 partitions.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::Errno;
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};
use nlx_service::caller::{Bulk, Call, Caller, Ended, Line, Owner};
use nlx_service::portals::{PortalNames, Portals};
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service};
use nlx_testkit::addresses::unused;
use nlx_testkit::buffers::pattern;
use nlx_testkit::until;
use parking_lot::Mutex;

const REQUESTS: u32 = 50;
const REPLIES: u32 = 52;
const ECHO: MatchBits = MatchBits(7);
const LENGTH: usize = 160;
const BULK: usize = 100_000;

fn portal(index: u32) -> Portal {
    Portal::new(index).unwrap()
}

/// What a request asks for, in its ninth byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Echo = 0,
    Push = 1,
    Pull = 2,
    Nothing = 3,
    Panic = 4,
}

/// Replies with the request's bytes behind its tag, each plus one; moves bulk before.
struct Echo;

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
                Next::Push { offer, memory }
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

/// Collects the ends of calls.
#[derive(Default)]
struct Collector {
    ended: Mutex<Vec<(Vec<u8>, Ended)>>,
    count: AtomicUsize,
}

impl Owner for Collector {
    type State = ();

    fn ended(&self, _: &Caller<Collector>, line: &Arc<Line<()>>, ended: Ended) {
        let reply = line.reply().read(0..ended.reply.unwrap_or(0)).unwrap().to_vec();
        self.ended.lock().push((reply, ended));
        self.count.fetch_add(1, Ordering::Release);
    }
}

struct Bed {
    server: Node,
    client: Node,
    _serving: Pool,
    service: Arc<Service<Portals, Echo>>,
    _calling: Pool,
    caller: Arc<Caller<Collector>>,
}

impl Bed {
    fn new(partitions: usize, buffers: BufferOptions) -> Bed {
        let node = || {
            let net = format!("tcp({})", unused());
            let config = NodeConfig::new().net(&net).unwrap();
            Node::start(&config.partitions(Arc::new(CptTable::virtual_parts(partitions).unwrap()))).unwrap()
        };
        let (server, client) = (node(), node());
        let pool = |node: &Node| {
            Pool::start("test", node.drive(), node.partitions().partitions(), PoolOptions::default()).unwrap()
        };
        let (serving, calling) = (pool(&server), pool(&client));
        let names = PortalNames {
            requests: portal(REQUESTS),
            bits: vec![MatchBits(3), ECHO],
            replies: portal(REPLIES),
            lazy: true,
        };
        let portals = Portals::new(server.lnet(), server.partitions().clone(), names);
        let service = Service::start(&serving, portals, buffers, Echo).unwrap();
        let caller = Caller::start(&calling, client.lnet(), (LENGTH, LENGTH), Collector::default()).unwrap();
        Bed { server, client, _serving: serving, service, _calling: calling, caller }
    }

    fn call(&self, number: u64, ask: Ask) {
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
        let call = Call {
            to: ProcessId { nid: self.server.nids()[0], pid: Pid::LNET },
            from: Some(self.client.nids()[0]),
            portal: portal(REQUESTS),
            bits: ECHO,
            reply_portal: portal(REPLIES),
            reply_bits,
            bulk,
            deadline_ns,
        };
        self.caller.begin(&line, LENGTH, &call).unwrap();
    }

    fn ends(&self, count: usize) -> Vec<(Vec<u8>, Ended)> {
        until("all calls end", || self.caller.owner().count.load(Ordering::Acquire) >= count);
        std::mem::take(&mut *self.caller.owner().ended.lock())
    }
}

fn small() -> BufferOptions {
    BufferOptions {
        request_max: LENGTH,
        reply_max: LENGTH,
        requests_per_buffer: 8,
        buffers_min: 2,
        buffers_max: 16,
    }
}

/// Every kind of call gets its own answer, and the bulk arrives before it.
// Covers: S-313
#[test]
fn each_call_is_answered_once() {
    for partitions in [1, 2, 4] {
        let bed = Bed::new(partitions, small());
        let kinds = [Ask::Echo, Ask::Push, Ask::Pull];
        let calls = 300;
        for number in 1..=calls {
            bed.call(number, kinds[number as usize % 3]);
        }
        let mut ended = bed.ends(calls as usize);
        ended.sort_by_key(|(reply, _)| reply.get(9..).map(<[u8]>::to_vec));
        let mut expected: Vec<_> = (1..=calls)
            .map(|number| {
                let mut bytes = pattern(number, LENGTH);
                bytes[..8].copy_from_slice(&(number * 2).to_le_bytes());
                bytes[8] = kinds[number as usize % 3] as u8;
                let moved = (!number.is_multiple_of(3)).then_some(BULK);
                bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                (bytes, Ended { reply: Ok(LENGTH), moved })
            })
            .collect();
        expected.sort_by_key(|(reply, _)| reply[9..].to_vec());
        assert_eq!(ended, expected);
        let counters = bed.service.counters();
        let sum = |of: fn(&nlx_service::ServiceCounters) -> u64| counters.iter().map(of).sum::<u64>();
        assert_eq!((sum(|c| c.requests), sum(|c| c.bulk), sum(|c| c.dropped)), (calls, 200, 0));
        until("replies have left", || bed.service.counters().iter().map(|c| c.replies).sum::<u64>() == calls);
        assert_eq!(bed.service.service_times().count, calls);
    }
}

/// A request without a reply ends at its deadline; a handler that panics costs its request alone.
#[test]
fn without_a_reply_a_call_ends_at_its_deadline() {
    let bed = Bed::new(2, small());
    for (number, ask) in [(1, Ask::Nothing), (2, Ask::Panic), (3, Ask::Echo)] {
        bed.call(number, ask);
    }
    let ended = bed.ends(3);
    let timed_out = ended.iter().filter(|(_, ended)| ended.reply == Err(Errno::ETIMEDOUT)).count();
    let answered = ended.iter().filter(|(_, ended)| ended.reply == Ok(LENGTH)).count();
    assert_eq!((timed_out, answered), (2, 1));
}
