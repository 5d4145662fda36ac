//! The service layer between two processes over TCP: requests of 160 bytes, as those of `lst`, and
//! their replies.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lnet_nid::{MatchBits, Portal};
use lnet_node::Node;
use nlx_service::caller::{CallEnd, CallSpec, Caller, Line, Owner};
use nlx_service::portals::{PortalNames, Portals};
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service};

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample, Timed};
use crate::ours::lnet::rate::WINDOW;
use crate::ours::nodes::{self, Nodes};
use crate::server::{self, Server};

pub(crate) const ECHO: &str = "service-echo";

/// Length of a request and of a reply.
const LENGTH: usize = 160;

/// Time that a handler blocks in the rows of several workers.
const BLOCKS: Duration = Duration::from_millis(1);

/// Requests in flight of each client there, so that a next one is always available.
const AHEAD: u64 = 8;

/// Interval at which the measuring thread reads the count of replies.
const LOOK: Duration = Duration::from_millis(5);

/// Requests of 160 bytes, one in flight: microseconds one way.
pub(crate) fn ping(round: &Round) -> Result<Sample> {
    calls(round, 1, |time, server, batch| meter::pingpong(time, server, batch))
}

/// Requests of 160 bytes, 64 in flight: millions per second.
pub(crate) fn rate(round: &Round) -> Result<Sample> {
    calls(round, WINDOW, |time, server, batch| meter::rate(time, server, batch))
}

/// Workers for each of `PARTITIONS` partitions, and a client whose requests arrive in each; handlers
/// block. Thousands of requests per second.
pub(crate) fn partitioned<const PARTITIONS: usize>(round: &Round) -> Result<Sample> {
    handled(round, PARTITIONS, PARTITIONS)
}

/// `WORKERS` workers and clients of a node with one partition; handlers block.
pub(crate) fn unpartitioned<const WORKERS: usize>(round: &Round) -> Result<Sample> {
    handled(round, WORKERS, 1)
}

/// The names of the service.
fn names() -> Result<PortalNames> {
    let portal = |index| Portal::new(index).map_err(BenchError::nlx("name a portal"));
    Ok(PortalNames { requests: portal(50)?, bits: vec![MatchBits(7)], replies: portal(52)?, lazy: true })
}

fn pool(node: &Node) -> Result<Pool> {
    let options = PoolOptions::of(node.partitions(), 0);
    let pool = Pool::start("bench", node.drive(), node.partitions().partitions(), options);
    pool.map_err(BenchError::nlx("start workers"))
}

/// Sends the next request of a line as soon as the last one is answered.
struct Repeater {
    call: CallSpec,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Owner for Repeater {
    type State = ();

    fn ended(&self, caller: &Caller<Repeater>, line: &Arc<Line<()>>, ended: CallEnd) {
        let counter = if ended.reply == Ok(LENGTH) { &self.answered } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.begin(caller, line);
    }
}

impl Repeater {
    fn begin(&self, caller: &Caller<Repeater>, line: &Arc<Line<()>>) {
        let reply_bits = MatchBits(u64::from(line.number()));
        if caller.begin(line, LENGTH, &CallSpec { reply_bits, ..self.call.clone() }).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A client whose calls are repeated. Dropped before its node.
struct Client {
    caller: Arc<Caller<Repeater>>,
    _pool: Pool,
}

impl Client {
    /// Keeps `in_flight` calls in flight.
    fn start(node: &Node, server: Ipv4Addr, in_flight: u64) -> Result<Client> {
        let (pool, names) = (pool(node)?, names()?);
        let call = CallSpec {
            to: nodes::process(server),
            from: None,
            portal: names.requests,
            bits: names.bits[0],
            reply_portal: names.replies,
            reply_bits: MatchBits(0),
            bulk: None,
            deadline_ns: None,
        };
        let repeater = Repeater { call, answered: AtomicU64::new(0), failed: AtomicU64::new(0) };
        let caller = Caller::start(&pool, node.lnet(), (LENGTH, LENGTH), repeater);
        let caller = caller.map_err(BenchError::nlx("make calls"))?;
        for number in 0..in_flight {
            let line = caller.line(number as usize % caller.partitions());
            let line = line.map_err(BenchError::nlx("make a line for calls"))?;
            line.request()
                .write(0..LENGTH)
                .map(|mut request| request.copy_from(0, &number.to_le_bytes()))
                .map_err(BenchError::nlx("write a request"))?;
            caller.owner().begin(&caller, &line);
        }
        Ok(Client { caller, _pool: pool })
    }

    /// Returns the result of a measurement, unless calls have failed.
    fn checked(&self, sample: Sample) -> Result<Sample> {
        match self.caller.owner().failed.load(Ordering::Relaxed) {
            0 => Ok(sample),
            value => Err(BenchError::Wrong { subject: "the number of failed calls", value, expected: 0 }),
        }
    }
}

/// Measures with `in_flight` calls in flight.
fn calls(
    round: &Round,
    in_flight: u64,
    measure: impl FnOnce(Duration, &Server, &mut dyn FnMut() -> Result<u64>) -> Result<Sample>,
) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let node = Node::start(&nodes.config(nodes.client)?).map_err(BenchError::nlx("start a node"))?;
    let server = Server::start(ECHO, round.cores, &nodes.args(&[]))?;
    let client = Client::start(&node, nodes.server, in_flight)?;
    let mut seen = 0;
    let sample = measure(round.time, &server, &mut || {
        std::thread::sleep(LOOK);
        let before = std::mem::replace(&mut seen, client.caller.owner().answered.load(Ordering::Relaxed));
        Ok(seen - before)
    })?;
    client.checked(sample)
}

/// Returns the number of requests per second whose handlers block, in thousands.
fn handled(round: &Round, workers: usize, partitions: usize) -> Result<Sample> {
    let nodes = Nodes::choose()?.partitioned(partitions);
    let start = |nodes: Nodes, own| {
        nodes.config(own).and_then(|config| Node::start(&config).map_err(BenchError::nlx("start a node")))
    };
    let node = start(nodes, nodes.server)?;
    let threads = (workers / partitions) as u32;
    let options = PoolOptions { threads_min: threads, threads_max: threads, ..PoolOptions::default() };
    let pool = Pool::start("bench", node.drive(), partitions, options);
    let pool = pool.map_err(BenchError::nlx("start workers"))?;
    let service = service(&node, &pool, Blocking { handled: AtomicU64::new(0) })?;
    let peers = nodes.partitioned(workers).peers_by_partition()?;
    let peers = peers.into_iter().map(|own| start(nodes.partitioned(1), own)).collect::<Result<Vec<_>>>()?;
    let clients = peers.iter().map(|node| Client::start(node, nodes.server, AHEAD));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let mut seen = 0;
    let timed = Timed::warm(round.time, || {
        std::thread::sleep(LOOK);
        let before = std::mem::replace(&mut seen, service.handler().handled.load(Ordering::Relaxed));
        Ok(seen - before)
    })?;
    let sample = Sample::of(timed.millions_per_second() * 1e3);
    clients.iter().try_fold(sample, |sample, client| client.checked(sample))
}

fn service<H: Handler<Portals>>(node: &Node, pool: &Pool, handler: H) -> Result<Arc<Service<Portals, H>>> {
    let portals = Portals::new(node.lnet(), node.partitions().clone(), names()?);
    let options = BufferOptions { request_max: LENGTH, reply_max: LENGTH, ..BufferOptions::default() };
    Service::start(pool, portals, options, handler).map_err(BenchError::nlx("start a service"))
}

/// Replies with the request after a time, as if it waited for a disk.
struct Blocking {
    handled: AtomicU64,
}

impl Handler<Portals> for Blocking {
    type State = ();

    fn request(&self, request: Request<'_, Portals, ()>) -> Next<MatchBits> {
        std::thread::sleep(BLOCKS);
        self.handled.fetch_add(1, Ordering::Relaxed);
        Echo.request(request)
    }
}

/// Replies with the request.
struct Echo;

impl Handler<Portals> for Echo {
    type State = ();

    fn request(&self, request: Request<'_, Portals, ()>) -> Next<MatchBits> {
        let length = request.bytes.len();
        request.reply[..length].copy_from_slice(request.bytes);
        let tag = request.bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Next::Reply { tag, length }
    }
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let nodes = Nodes::parse(args)?.0;
    let node = Node::start(&nodes.config(nodes.server)?).map_err(BenchError::nlx("start a node"))?;
    let pool = pool(&node)?;
    let _service = service(&node, &pool, Echo)?;
    server::ready("")?;
    loop {
        std::thread::park();
    }
}
