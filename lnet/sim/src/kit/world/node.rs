//! A node: engine, LND, and the driver of each shard.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lnet::{Engine, EngineConfig};
use lnet_api::{EqHandle, Event, EventHandler, Get, LNet, LNetError, Lnd, LndError, Md, MdHandle, Put};
use lnet_cpt::CptTable;
use lnet_lnd::Network;
use lnet_nid::{Nid, Pid, ProcessId};
use parking_lot::Mutex;

use crate::kit::{HostHandle, Net, NodeScenario, Transport};

/// A call that is made as soon as LNet wakes the program.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Put(Put),
    Get(Get),
    BindPut(Put<Md>),
    BindGet(Get<Md>),
}

/// A program's event handler: it keeps the events, and makes calls from inside an upcall.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) events: Mutex<Vec<Event>>,
    /// Operations to begin when LNet wakes the program, by number.
    pub(super) nested: Mutex<VecDeque<(u64, Call)>>,
    /// The results of the calls made inside an upcall, by operation.
    pub(super) called: Mutex<Vec<(u64, Called)>>,
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

/// The result of a call: the MD that the call has created, unless that MD has ended.
pub(super) type Called = Result<Option<MdHandle>, LNetError>;

pub(super) fn make(engine: &Engine, call: Call) -> Called {
    match call {
        Call::Put(put) => engine.put(&put).map(|()| None),
        Call::Get(get) => engine.get(&get).map(|()| None),
        Call::BindPut(put) => engine.bind_put(put),
        Call::BindGet(get) => engine.bind_get(get),
    }
}

/// The driver of one shard, in place of a thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shard {
    /// The time of its next poll; `None` while it sleeps without a deadline.
    pub(super) poll_ns: Option<u64>,
    /// The time until which the driver does nothing.
    pub(super) asleep_until_ns: u64,
    /// Number of consecutive polls that found work.
    pub(super) busy_polls: u32,
}

pub(crate) struct Node<T: Transport> {
    pub(crate) host: usize,
    pub(crate) life: u64,
    pub(super) handle: HostHandle<T::Wire>,
    pub(crate) lnd: Arc<Network<T::Protocol>>,
    pub(crate) engine: Arc<Engine>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) eq: EqHandle,
    pub(crate) nids: Vec<Nid>,
    pub(crate) up: Vec<Nid>,
    pub(super) shards: Vec<Shard>,
    /// The number of messages held on the node's lazy portal at the last check, and of peers lost
    /// by then.
    pub(super) held: (u64, u64),
    /// The time at which the engine's clock is advanced.
    pub(super) advance_ns: Option<u64>,
    /// The maximum number of connections per type and peer in this incarnation.
    pub(crate) most_per_peer: u8,
    /// True if one of the node's NIs has been removed during traffic.
    pub(crate) interrupted: bool,
    /// True while the node's host is up and its program runs.
    pub(super) alive: bool,
}

impl<T: Transport> Node<T> {
    pub(super) fn start(
        scenario: &NodeScenario<T>,
        net: &Net<T::Wire>,
        node: usize,
        host: usize,
        life: u64,
    ) -> Result<Node<T>, LNetError> {
        let handle = net.host(host);
        let lnd = scenario.transport.lnd(node, handle.clone())?;
        let one = |_| CptTable::single();
        let engine = Engine::new(EngineConfig {
            partitions: Arc::new(CptTable::virtual_parts(scenario.partitions).unwrap_or_else(one)),
            transaction_timeout_ns: scenario.transaction_timeout_ns,
            ..EngineConfig::new(Pid::LNET, (node as u64 + 1) << 32 | life)
        });
        let inbox = Arc::new(Inbox::default());
        *inbox.engine.lock() = Arc::downgrade(&engine);
        let eq = engine.eq_alloc(inbox.clone())?;
        engine.advance(net.now_ns());
        engine.set_lazy(super::lazy::portal(), scenario.lazy > 0);
        let mut node = Node {
            host,
            life,
            handle,
            lnd,
            engine,
            inbox,
            eq,
            nids: scenario.nids(node),
            up: Vec::new(),
            shards: Vec::new(),
            held: (0, 0),
            advance_ns: None,
            most_per_peer: scenario.transport.conns_and_credits(node).0,
            interrupted: false,
            alive: true,
        };
        for nid in node.nids.clone() {
            node.add_ni(nid)?;
        }
        Ok(node)
    }

    pub(super) fn add_ni(&mut self, nid: Nid) -> Result<(), LNetError> {
        self.engine.add_ni(ProcessId::lnet(nid), self.lnd.clone())?;
        self.up.push(nid);
        if self.lnd.shards() > self.handle.channels() {
            let what = format!("{} shards have {} pollers", self.lnd.shards(), self.handle.channels());
            return Err(LndError { what, errno: lnet_api::Errno::EINVAL }.into());
        }
        self.shards.resize(self.lnd.shards(), Shard::default());
        Ok(())
    }
}
