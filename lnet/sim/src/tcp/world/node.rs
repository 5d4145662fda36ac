//! A node: engine, LND, and the thread that drives each shard.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Weak};

use lnet::{Engine, EngineConfig};
use lnet_api::{EqHandle, Event, EventHandler, Get, LNet, LNetError, Lnd, LndError, Put};
use lnet_cpt::CptTable;
use lnet_nid::{Net, NetType, Nid, Pid, ProcessId};
use lnet_socklnd::SockLnd;
use parking_lot::Mutex;

use crate::tcp::{SimHost, TcpNet, TcpScenario};

/// A call that is made as soon as LNet wakes the program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Put(Put),
    Get(Get),
}

/// What a program's event queue does: it keeps the events, and makes calls from inside an upcall.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) events: Mutex<Vec<Event>>,
    /// Operations to begin when LNet wakes the program, by number.
    pub(super) nested: Mutex<VecDeque<(u64, Call)>>,
    /// What became of such calls.
    pub(super) called: Mutex<Vec<(u64, Result<(), LNetError>)>>,
    engine: Mutex<Weak<Engine>>,
}

impl EventHandler for Inbox {
    fn event(&self, event: &Event) {
        self.events.lock().push(*event);
    }

    fn wake(&self) {
        let Some((number, call)) = self.nested.lock().pop_front() else { return };
        let Some(engine) = self.engine.lock().upgrade() else { return };
        let result = make(&engine, call);
        self.called.lock().push((number, result));
    }
}

pub(super) fn make(engine: &Engine, call: Call) -> Result<(), LNetError> {
    match call {
        Call::Put(put) => engine.put(&put),
        Call::Get(get) => engine.get(&get),
    }
}

/// The driver of one shard, as a thread would be one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shard {
    /// When it polls next, if it is not asleep for ever.
    pub(super) poll_ns: Option<u64>,
    /// It does nothing before then.
    pub(super) asleep_until_ns: u64,
    /// Polls since the last one that found nothing.
    pub(super) busy_polls: u32,
}

pub(super) struct TcpNode {
    pub(super) host: usize,
    pub(super) life: u64,
    pub(super) sim: SimHost,
    pub(super) lnd: Arc<SockLnd>,
    pub(super) engine: Arc<Engine>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) eq: EqHandle,
    pub(super) nids: Vec<Nid>,
    pub(super) up: Vec<Nid>,
    pub(super) shards: Vec<Shard>,
    /// Messages that it held on its lazy portal when that was last looked at, and peers it had lost by then.
    pub(super) held: (u64, u64),
    /// When the engine is to be told the time.
    pub(super) advance_ns: Option<u64>,
    /// The most connections per type and peer that this life was allowed.
    pub(super) most_per_peer: u8,
    /// One of its NIs has been removed, whatever was going on there.
    pub(super) interrupted: bool,
    /// The node is there: its host is up, and its program runs.
    pub(super) alive: bool,
}

/// The NIDs of a node.
pub(super) fn nids(scenario: &TcpScenario, node: usize) -> Vec<Nid> {
    (0..scenario.nis)
        .map(|ni| {
            // Not in the order of their numbers: the higher NID wins a race.
            let last = [7, 3, 9, 5][node % 4] + 16 * (node / 4) as u16;
            let net = Net::new(NetType::TCP, ni as u16);
            match scenario.large_nids {
                true => Nid::new_v6(net, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, ni as u16, last)),
                false => Nid::new_v4(net, Ipv4Addr::new(10, 77, ni as u8, last as u8)),
            }
        })
        .collect()
}

pub(super) fn addresses(nids: &[Nid]) -> Vec<IpAddr> {
    nids.iter().filter_map(|nid| nid.ip()).collect()
}

impl TcpNode {
    pub(super) fn start(
        scenario: &TcpScenario,
        net: &TcpNet,
        node: usize,
        host: usize,
        life: u64,
    ) -> Result<TcpNode, LNetError> {
        let sim = net.host(host);
        let config = scenario.config_of(node);
        let most_per_peer = config.conns_per_peer;
        let lnd = Arc::new(SockLnd::over(config, Arc::new(sim.clone()))?);
        let one = |_| CptTable::single();
        let engine = Engine::new(EngineConfig {
            partitions: Arc::new(CptTable::virtual_parts(scenario.partitions).unwrap_or_else(one)),
            transaction_timeout_ns: scenario.transaction_timeout_ns,
            ..EngineConfig::new(Pid::LNET, (node as u64 + 1) << 32 | life)
        });
        let inbox = Arc::new(Inbox::default());
        *inbox.engine.lock() = Arc::downgrade(&engine);
        let eq = engine.eq_alloc(inbox.clone())?;
        let nids = nids(scenario, node);
        engine.advance(net.now_ns());
        let mut node = TcpNode {
            host,
            life,
            sim,
            lnd,
            engine,
            inbox,
            eq,
            up: Vec::new(),
            shards: Vec::new(),
            held: (0, 0),
            advance_ns: None,
            most_per_peer,
            interrupted: false,
            alive: true,
            nids,
        };
        if scenario.lazy > 0 {
            node.engine.set_lazy(super::lazy::portal(), true);
        }
        for nid in node.nids.clone() {
            node.add_ni(nid)?;
        }
        Ok(node)
    }

    pub(super) fn add_ni(&mut self, nid: Nid) -> Result<(), LNetError> {
        let lnd: Arc<dyn Lnd> = self.lnd.clone();
        self.engine.add_ni(ProcessId::lnet(nid), lnd)?;
        self.up.push(nid);
        if self.lnd.shards() > self.sim.pollers() {
            let what = format!("{} shards have {} pollers", self.lnd.shards(), self.sim.pollers());
            return Err(LndError { what, errno: lnet_api::Errno::EINVAL }.into());
        }
        self.shards.resize(self.lnd.shards(), Shard::default());
        Ok(())
    }
}
