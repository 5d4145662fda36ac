//! The service layer between two processes over TCP: requests of 160 bytes, as those of `lst`, and
//! their replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lnet_nid::{MatchBits, Portal};
use lnet_node::Node;
use nlx_service::caller::{Call, Caller, Ended, Line, Owner};
use nlx_service::portals::{PortalNames, Portals};
use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service};

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::lnet::rate::WINDOW;
use crate::ours::nodes::{self, Nodes};
use crate::server::{self, Server};

pub(crate) const ECHO: &str = "service-echo";

/// Length of a request and of a reply.
const LENGTH: usize = 160;

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
    call: Call,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Owner for Repeater {
    type State = ();

    fn ended(&self, caller: &Caller<Repeater>, line: &Arc<Line<()>>, ended: Ended) {
        let counter = if ended.reply == Ok(LENGTH) { &self.answered } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.begin(caller, line);
    }
}

impl Repeater {
    fn begin(&self, caller: &Caller<Repeater>, line: &Arc<Line<()>>) {
        let reply_bits = MatchBits(u64::from(line.number()));
        if caller.begin(line, LENGTH, &Call { reply_bits, ..self.call.clone() }).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Keeps `in_flight` calls in flight.
fn calls(
    round: &Round,
    in_flight: u64,
    measure: impl FnOnce(Duration, &Server, &mut dyn FnMut() -> Result<u64>) -> Result<Sample>,
) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let node = Node::start(&nodes.config(nodes.client)?).map_err(BenchError::nlx("start a node"))?;
    let server = Server::start(ECHO, round.cores, &nodes.args(&[]))?;
    let (pool, names) = (pool(&node)?, names()?);
    let call = Call {
        to: nodes::process(nodes.server),
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
    let mut seen = 0;
    let sample = measure(round.time, &server, &mut || {
        std::thread::sleep(LOOK);
        let before = std::mem::replace(&mut seen, caller.owner().answered.load(Ordering::Relaxed));
        Ok(seen - before)
    })?;
    match caller.owner().failed.load(Ordering::Relaxed) {
        0 => Ok(sample),
        value => Err(BenchError::Wrong { subject: "the number of failed calls", value, expected: 0 }),
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
    let portals = Portals::new(node.lnet(), node.partitions().clone(), names()?);
    let options = BufferOptions { request_max: LENGTH, reply_max: LENGTH, ..BufferOptions::default() };
    let service = Service::start(&pool, portals, options, Echo);
    let _service = service.map_err(BenchError::nlx("start a service"))?;
    server::ready("")?;
    loop {
        std::thread::park();
    }
}
