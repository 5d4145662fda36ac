//! A node with buffers, and the thread that drives it while it waits.
//!
//! It is apart from the stations of the tests: those log every event under a lock and search the
//! log, which would be measured too, while this one counts the operations that have ended. Its
//! buffers also serve any number of operations, and its errors are values that a report shows.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use lnet_api::{
    AckRequest, DEFAULT_SPIN, Drive, EqHandle, Errno, Event, EventKind, Get, LNet, Md, MdHandle, MdOptions,
    MeSpec, Position, Put, Sleeper, Threshold, Unlink, wait_until,
};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_node::Node;
use lnet_region::{IoVec, Region};
use nlx_testkit::events::on_both;

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::ours::nodes::{self, Nodes};
use crate::server::STEP_TIMEOUT;

/// Number of buffers for which a station counts events.
const SLOTS: usize = 16;

/// The portal of all buffers; Motr's data portal.
const PORTAL: u32 = 34;

/// The way in which a thread waits for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The thread drives the node, and sleeps at once when nothing arrives.
    Sleep,
    /// The thread drives the node, and polls for a while before it sleeps: the default.
    Default,
    /// The thread drives the node and never sleeps; if both sides share a core, it yields to the
    /// other side.
    Poll(Cores),
}

impl Wait {
    /// Returns the argument for a server.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wait::Sleep => "sleep",
            Wait::Default => "default",
            Wait::Poll(_) => "poll",
        }
    }

    /// Parses the argument of a server.
    pub(crate) fn parse(name: Option<&String>, cores: Cores) -> Wait {
        let all = [Wait::Default, Wait::Poll(cores)];
        all.into_iter().find(|wait| name.is_some_and(|name| name == wait.name())).unwrap_or(Wait::Sleep)
    }

    /// Returns the spin limit: the time that a thread polls before it sleeps.
    fn spin(self) -> Duration {
        if self == Wait::Sleep { Duration::ZERO } else { DEFAULT_SPIN }
    }
}

/// A node, its buffers, and the number of operations that have ended on each of them.
pub(crate) struct Station<N = Node> {
    lnet: Arc<dyn LNet>,
    drive: Arc<dyn Drive>,
    sleeper: Arc<Sleeper>,
    ended: Arc<Ended>,
    eq: EqHandle,
    portal: Portal,
    peer: ProcessId,
    pub(crate) node: N,
}

impl Station {
    /// Starts the client's node.
    pub(crate) fn client(nodes: Nodes) -> Result<Station> {
        Station::start(nodes, nodes.client, nodes.server)
    }

    /// Starts the server's node.
    pub(crate) fn server(nodes: Nodes) -> Result<Station> {
        Station::start(nodes, nodes.server, nodes.client)
    }

    /// Starts the node at `own`, whose messages go to the one at `peer`.
    pub(super) fn start(nodes: Nodes, own: Ipv4Addr, peer: Ipv4Addr) -> Result<Station> {
        let node = Node::start(&nodes.config(own)?).map_err(BenchError::nlx("start a node"))?;
        let (lnet, drive) = (node.lnet(), node.drive());
        Station::over(lnet, drive, node, nodes::process(peer))
    }

    /// Waits until the node has opened `count` connections in all.
    pub(crate) fn wait_for_connections(&self, count: u64) -> Result<()> {
        let ready = || self.node.tcp().counters().rx.connects >= count || self.ended.has_failed();
        let in_time = wait_until(&*self.drive, &self.sleeper, Some(self.deadline_ns()), ready);
        self.ended.check()?;
        if in_time {
            return Ok(());
        }
        Err(BenchError::TimedOut { event: "a connection to each peer", seconds: STEP_TIMEOUT.as_secs() })
    }
}

impl<N> Station<N> {
    /// Creates a station on a running node, whose messages go to the peer.
    pub(crate) fn over(
        lnet: Arc<dyn LNet>,
        drive: Arc<dyn Drive>,
        node: N,
        peer: ProcessId,
    ) -> Result<Station<N>> {
        let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().map_err(BenchError::system("make an eventfd"))?);
        let ended = Arc::new(Ended::default());
        let (counting, waking) = (ended.clone(), sleeper.clone());
        let handler = on_both(move |event| counting.note(event), move || waking.wake());
        let eq = lnet.eq_alloc(handler).map_err(BenchError::nlx("make an event queue"))?;
        let portal = Portal::new(PORTAL).map_err(BenchError::nlx("choose a portal"))?;
        Ok(Station { lnet, drive, sleeper, ended, eq, portal, peer, node })
    }

    /// Posts a buffer for any number of PUTs and GETs of every sender; its events count for `slot`.
    pub(crate) fn post(&self, slot: usize, memory: IoVec) -> Result<()> {
        self.post_for(self.eq, slot, memory)
    }

    /// Posts a buffer as [`Station::post`] does, with another event queue.
    pub(crate) fn post_for(&self, eq: EqHandle, slot: usize, memory: IoVec) -> Result<()> {
        let me = MeSpec {
            portal: self.portal,
            match_id: ProcessId::ANY,
            match_bits: bits_of(slot),
            ignore_bits: MatchBits(0),
            unlink: Unlink::Retain,
            position: Position::After,
        };
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        let me = self.lnet.me_attach(&me).map_err(BenchError::nlx("post a match entry"))?;
        let md = Md { eq: Some(eq), ..self.md(slot, memory, options) };
        let md = self.lnet.md_attach(me, md, Unlink::Retain);
        md.map(drop).map_err(BenchError::nlx("post a buffer"))
    }

    /// Binds a buffer for any number of local PUTs or GETs; its events count for `slot`.
    pub(crate) fn bind(&self, slot: usize, memory: IoVec) -> Result<MdHandle> {
        let md = self.md(slot, memory, MdOptions::empty());
        self.lnet.md_bind(md, Unlink::Retain).map_err(BenchError::nlx("bind a buffer"))
    }

    /// PUTs a buffer into the one that the peer has posted as `slot`.
    pub(crate) fn put(&self, md: MdHandle, slot: usize, offset: u32, ack: AckRequest) -> Result<()> {
        self.put_to(self.peer, md, slot, offset, ack)
    }

    /// PUTs a buffer into the one that another peer has posted as `slot`.
    pub(crate) fn put_to(
        &self,
        target: ProcessId,
        md: MdHandle,
        slot: usize,
        offset: u32,
        ack: AckRequest,
    ) -> Result<()> {
        let (portal, match_bits) = (self.portal, bits_of(slot));
        let put = Put { source: None, md, ack, target, portal, match_bits, offset, hdr_data: 0 };
        self.lnet.put(&put).map_err(BenchError::nlx("PUT"))
    }

    /// GETs into a buffer from the one that the peer has posted as `slot`.
    pub(crate) fn get(&self, md: MdHandle, slot: usize) -> Result<()> {
        let (target, portal, match_bits) = (self.peer, self.portal, bits_of(slot));
        let get = Get { source: None, md, target, portal, match_bits, offset: 0 };
        self.lnet.get(&get).map_err(BenchError::nlx("GET"))
    }

    /// Returns the number of operations that have ended on a buffer: PUTs received, replies and
    /// acknowledgements received.
    pub(crate) fn ended(&self, slot: usize) -> u64 {
        self.ended.counts[slot].load(Ordering::Acquire)
    }

    /// Waits until `count` operations have ended on a buffer.
    pub(crate) fn wait_for(&self, slot: usize, count: u64, wait: Wait) -> Result<()> {
        self.wait_until(|| self.ended(slot) >= count, wait)
    }

    /// Waits until `ready` returns true.
    pub(crate) fn wait_until(&self, ready: impl Fn() -> bool, wait: Wait) -> Result<()> {
        let ready = || ready() || self.ended.has_failed();
        let in_time = match wait {
            Wait::Poll(cores) => self.poll_until(cores, ready),
            Wait::Sleep | Wait::Default => {
                self.sleeper.spin_for(wait.spin());
                wait_until(&*self.drive, &self.sleeper, Some(self.deadline_ns()), ready)
            }
        };
        self.ended.check()?;
        if in_time {
            return Ok(());
        }
        Err(BenchError::TimedOut { event: "the end of an LNet operation", seconds: STEP_TIMEOUT.as_secs() })
    }

    /// Drives the node until this process ends.
    pub(crate) fn serve(&self, wait: Wait) -> Result<()> {
        let failed = || self.ended.has_failed();
        match wait {
            Wait::Poll(cores) => while !self.poll_until(cores, failed) {},
            Wait::Sleep | Wait::Default => {
                self.sleeper.spin_for(wait.spin());
                wait_until(&*self.drive, &self.sleeper, None, failed);
            }
        }
        self.ended.check()
    }

    /// Drives the node once.
    #[cfg(feature = "verbs")]
    pub(crate) fn poll(&self) -> Result<()> {
        self.drive.poll_free_shards();
        self.ended.check()
    }

    fn poll_until(&self, cores: Cores, ready: impl Fn() -> bool) -> bool {
        // The raw loop has no deadline, so this one is checked rarely.
        const POLLS_PER_LOOK_AT_THE_CLOCK: u32 = 1024;
        let deadline_ns = self.deadline_ns();
        let mut polls = 0_u32;
        while !ready() {
            polls = polls.wrapping_add(1);
            if self.drive.poll_free_shards().work > 0 {
                continue;
            }
            if polls.is_multiple_of(POLLS_PER_LOOK_AT_THE_CLOCK) && self.drive.now_ns() > deadline_ns {
                return false;
            }
            if cores.client == cores.server {
                cores.relax();
            }
        }
        true
    }

    fn deadline_ns(&self) -> u64 {
        self.drive.now_ns() + STEP_TIMEOUT.as_nanos() as u64
    }

    fn md(&self, slot: usize, memory: IoVec, options: MdOptions) -> Md {
        let (threshold, user_ptr, eq) = (Threshold::Infinite, slot as u64, Some(self.eq));
        Md { memory, threshold, max_size: 0, options, user_ptr, eq }
    }
}

/// Returns match bits like those of a transfer machine with this id: each slot lies in the next CPU
/// partition.
fn bits_of(slot: usize) -> MatchBits {
    MatchBits((slot as u64) << 52)
}

/// Returns a buffer in a new region, every byte of which is written: memory that was never written
/// is faster than any other, for the system maps one page of zeroes for all of it.
pub(crate) fn buffer(length: usize) -> Result<IoVec> {
    let memory = IoVec::whole(Region::heap(length).map_err(BenchError::nlx("make a buffer"))?);
    let mut bytes = memory.write(0..length).map_err(BenchError::nlx("fill a buffer"))?;
    bytes.fill(0x5a);
    drop(bytes);
    Ok(memory)
}

/// Counters of the operations that have ended on each buffer.
#[derive(Default)]
struct Ended {
    counts: [AtomicU64; SLOTS],
    failure: AtomicI32,
}

impl Ended {
    fn has_failed(&self) -> bool {
        self.failure.load(Ordering::Acquire) != 0
    }

    fn check(&self) -> Result<()> {
        match self.failure.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(BenchError::nlx("an LNet operation")(Errno::from_raw(errno))),
        }
    }

    fn note(&self, event: &Event) {
        if let Err(errno) = event.status {
            self.failure.store(errno as i32, Ordering::Release);
        }
        let ends = matches!(event.kind, EventKind::Put | EventKind::Reply | EventKind::Ack);
        if let (true, Some(count)) = (ends, self.counts.get(event.user_ptr as usize)) {
            count.fetch_add(1, Ordering::Release);
        }
    }
}
