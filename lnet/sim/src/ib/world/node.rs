//! A node: engine, LND, and the thread that drives each shard.

use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::{EqHandle, Event, EventHandler, LNet, LNetError};
use lnet_cpt::CptTable;
use lnet_nid::{Net, NetType, Nid, Pid, Portal, ProcessId};
use lnet_o2iblnd::O2ibLnd;
use parking_lot::Mutex;

use crate::ib::{IbNet, IbScenario, SimFabric};

/// What a program's event queue does: it keeps the events.
#[derive(Default)]
pub(super) struct Inbox(pub(super) Mutex<Vec<Event>>);

impl EventHandler for Inbox {
    fn event(&self, event: &Event) {
        self.0.lock().push(*event);
    }

    fn wake(&self) {}
}

/// The driver of one shard, as a thread would be one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shard {
    /// When it polls next, if it is not asleep for ever.
    pub(super) poll_ns: Option<u64>,
    /// Polls since the last one that found nothing.
    pub(super) busy_polls: u32,
}

pub(super) struct Node {
    pub(super) host: usize,
    pub(super) life: u64,
    pub(super) fabric: SimFabric,
    pub(super) lnd: Arc<O2ibLnd>,
    pub(super) engine: Arc<Engine>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) eq: EqHandle,
    pub(super) nid: Nid,
    pub(super) up: bool,
    pub(super) shards: Vec<Shard>,
    /// When the engine is to be told the time.
    pub(super) advance_ns: Option<u64>,
    /// The node is there: its host is up, and its program runs.
    pub(super) alive: bool,
}

/// The portal on which buffers are posted before they are used, and the one on which messages wait for them.
pub(super) fn portals() -> [Portal; 2] {
    [34, 35].map(|number| Portal::new(number).unwrap_or(Portal::RESERVED))
}

pub(super) fn address(node: usize) -> Ipv4Addr {
    // Not in the order of their numbers.
    Ipv4Addr::new(10, 88, 0, [7, 3, 9, 5][node % 4])
}

impl Node {
    pub(super) fn start(
        scenario: &IbScenario,
        net: &IbNet,
        (node, host, life): (usize, usize, u64),
    ) -> Result<Node, LNetError> {
        let fabric = net.host(host);
        let lnd = Arc::new(O2ibLnd::over(scenario.configs[node].clone(), Arc::new(fabric.clone()))?);
        let one = |_| CptTable::single();
        let engine = Engine::new(EngineConfig {
            partitions: Arc::new(CptTable::virtual_parts(scenario.partitions).unwrap_or_else(one)),
            transaction_timeout_ns: scenario.transaction_timeout_ns,
            ..EngineConfig::new(Pid::LNET, (node as u64 + 1) << 32 | life)
        });
        let inbox = Arc::new(Inbox::default());
        let eq = engine.eq_alloc(inbox.clone())?;
        engine.advance(net.now_ns());
        engine.set_lazy(portals()[1], true);
        let nid = Nid::new_v4(Net::new(NetType::O2IB, 0), address(node));
        let mut node = Node {
            host,
            life,
            fabric,
            lnd,
            engine,
            inbox,
            eq,
            nid,
            up: false,
            shards: Vec::new(),
            advance_ns: None,
            alive: true,
        };
        node.add_ni()?;
        Ok(node)
    }

    pub(super) fn add_ni(&mut self) -> Result<(), LNetError> {
        self.engine.add_ni(ProcessId::lnet(self.nid), self.lnd.clone())?;
        self.up = true;
        use lnet_api::Lnd;
        self.shards.resize(self.lnd.shards(), Shard::default());
        Ok(())
    }

    pub(super) fn remove_ni(&mut self) {
        self.up = false;
        let _ = self.engine.remove_ni(self.nid);
    }
}
