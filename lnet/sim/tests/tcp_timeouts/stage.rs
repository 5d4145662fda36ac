//! A node under test: an engine and an LND on a simulated host, driven as by a thread that sleeps.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventKind, LNet, Lnd, Md, MdOptions, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Net, NetType, Nid, Pid, Portal, ProcessId};
use lnet_region::{IoVec, Region};
use lnet_sim::tcp::{SimHost, TcpBehaviour, TcpNet};
use lnet_socklnd::{SockConfig, SockLnd};
use nlx_testkit::events::EventLog;
use parking_lot::Mutex;

/// The node, its scripted peer, and a third host.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 7);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 5);

/// The time after which a driver that has found work polls again.
const POLL_NS: u64 = 20_000;

/// The limit for polls within one wait: more mean that the driver polls without end.
const POLLS_MAX: usize = 200_000;

/// The LNDs of earlier stages, kept because threads identify an LND by its address, which must not
/// be used again.
static GRAVEYARD: Mutex<Vec<Arc<SockLnd>>> = Mutex::new(Vec::new());

pub(crate) struct Stage {
    pub(crate) net: TcpNet,
    pub(crate) lnd: Arc<SockLnd>,
    /// The host on which the script runs; it also has a third address.
    pub(crate) peer: SimHost,
    engine: Arc<Engine>,
    node: SimHost,
    log: Arc<EventLog>,
    eq: EqHandle,
    puts: u64,
    poll_ns: Option<u64>,
    polls: usize,
}

pub(crate) fn nid(ip: Ipv4Addr) -> Nid {
    Nid::new_v4(Net::new(NetType::TCP, 0), ip)
}

impl Stage {
    pub(crate) fn new(config: &SockConfig) -> Stage {
        Stage::over(config, TcpBehaviour::reliable())
    }

    pub(crate) fn over(config: &SockConfig, behaviour: TcpBehaviour) -> Stage {
        let net = TcpNet::new(1, behaviour);
        let hosts = [vec![NODE], vec![PEER, OTHER]];
        let hosts = hosts.map(|ips| net.add_host(ips.into_iter().map(IpAddr::V4).collect(), true));
        let [node, peer] = hosts.map(|host| net.host(host));
        let lnd = Arc::new(SockLnd::over(config.clone(), Arc::new(node.clone())).unwrap());
        let engine = Engine::new(EngineConfig::new(Pid::LNET, 1));
        engine.advance(net.now_ns());
        let log = EventLog::new();
        let eq = engine.eq_alloc(log.clone()).unwrap();
        engine.add_ni(ProcessId::lnet(nid(NODE)), lnd.clone()).unwrap();
        let mut stage = Stage { net, lnd, peer, engine, node, log, eq, puts: 0, poll_ns: Some(0), polls: 0 };
        // With this poll the listener exists.
        stage.run_for(0);
        stage
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }

    /// Cuts off everything that the node sends.
    pub(crate) fn silence_the_node(&self) {
        self.net.cut(0, 1, None);
    }

    /// Begins a PUT; returns its number.
    pub(crate) fn put(&mut self, to: Ipv4Addr, size: usize) -> u64 {
        self.puts += 1;
        self.engine.advance(self.now_ns());
        let md = Md {
            memory: IoVec::whole(Region::heap(size.max(1)).unwrap()).trimmed(size).unwrap(),
            threshold: Threshold::Limited(1),
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: self.puts,
            eq: Some(self.eq),
        };
        let put = Put {
            source: None,
            md: self.engine.md_bind(md, Unlink::Auto).unwrap(),
            ack: AckRequest::NoAck,
            target: ProcessId::lnet(nid(to)),
            portal: Portal::new(34).unwrap(),
            match_bits: MatchBits(7),
            offset: 0,
            hdr_data: 0,
        };
        self.engine.put(&put).unwrap();
        self.puts
    }

    /// Returns the result of a PUT, if it has ended.
    pub(crate) fn result(&self, put: u64) -> Option<Result<(), Errno>> {
        let is_its = |event: &&Event| event.kind == EventKind::Send && event.user_ptr == put;
        self.log.events().iter().rfind(is_its).map(|event| event.status)
    }

    /// Lets time pass until `seen` returns a value, at most `limit_ns`.
    pub(crate) fn until<T>(
        &mut self,
        limit_ns: u64,
        mut seen: impl FnMut(&mut Stage) -> Option<T>,
    ) -> Option<T> {
        let end_ns = self.now_ns() + limit_ns;
        self.net.at(end_ns, 0);
        self.polls = 0;
        loop {
            self.poll_if_due();
            let found = seen(self);
            if found.is_some() || self.now_ns() >= end_ns {
                return found;
            }
            self.net.step();
        }
    }

    pub(crate) fn run_for(&mut self, ns: u64) {
        self.until(ns, |_| None::<()>);
    }

    /// Runs a script until a PUT has ended; returns the time this takes, and the PUT's result.
    pub(crate) fn end_of(
        &mut self,
        put: u64,
        limit_ns: u64,
        mut script: impl FnMut(&mut Stage),
    ) -> Option<(u64, Result<(), Errno>)> {
        let begun_ns = self.now_ns();
        self.until(limit_ns, |stage| {
            script(stage);
            Some((stage.now_ns() - begun_ns, stage.result(put)?))
        })
    }

    fn poll_if_due(&mut self) {
        let now_ns = self.now_ns();
        if !self.node.is_ready(0) && self.poll_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        self.polls += 1;
        assert!(self.polls < POLLS_MAX, "the node polls for ever");
        let (poll, armed) = lnet_cpt::with_partition(0, || {
            let poll = self.lnd.poll(0, now_ns, 64);
            self.engine.advance(now_ns);
            (poll, self.lnd.arm(0))
        });
        let busy = poll.work > 0 || !armed;
        self.poll_ns = if busy { Some(now_ns + POLL_NS) } else { poll.deadline_ns };
        self.poll_ns.into_iter().for_each(|at_ns| self.net.at(at_ns, 0));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Engine and LND hold references to each other, which would leak.
        let _ = self.engine.remove_ni(nid(NODE));
        GRAVEYARD.lock().push(self.lnd.clone());
    }
}
