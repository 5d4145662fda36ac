//! A node of the world.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Weak};

use lnet::{Engine, EngineConfig, MatchOrder};
use lnet_api::{EqHandle, Event, EventHandler, LNet, LNetError, Polled};
use lnet_cpt::CptTable;
use lnet_nid::{Net, Nid, Pid};
use parking_lot::Mutex;

use super::{Watch, World};
use crate::Scenario;

/// Returns the engine's configuration for a scenario: the only place that determines it.
#[must_use]
pub fn engine_config(scenario: &Scenario, interface_cookie: u64) -> EngineConfig {
    let one = |_| CptTable::single();
    EngineConfig {
        partitions: Arc::new(CptTable::virtual_parts(scenario.partitions).unwrap_or_else(one)),
        transaction_timeout_ns: scenario.transaction_timeout_ns,
        match_order: match scenario.ignore_bits_first {
            true => MatchOrder::IgnoreBitsFirst,
            false => MatchOrder::List,
        },
        portal_rotor: scenario.portal_rotor,
        stealing: scenario.stealing,
        ..EngineConfig::new(Pid::LNET, interface_cookie)
    }
}

pub(super) struct WorldNode {
    pub(super) engine: Arc<Engine>,
    /// All NIDs of the node, and those that are up; the others may be added.
    pub(super) nids: Vec<Nid>,
    pub(super) up: Vec<Nid>,
    pub(super) eqs: Vec<EqHandle>,
    pub(super) polled: Vec<PolledQueue>,
    pub(super) lives: u64,
}

/// A queue with a callback that is also polled: polling must give the events that the callback got.
pub(super) struct PolledQueue {
    eq: EqHandle,
    log: Arc<Mutex<Vec<Event>>>,
}

/// The number of events that a polled queue keeps: few, so that some are overwritten.
const POLLED_COUNT: usize = 2;

/// A queue's handler, which passes events to the model.
struct Handler {
    node: usize,
    watch: Weak<Watch>,
    /// The log of a polled queue.
    log: Option<Arc<Mutex<Vec<Event>>>>,
}

impl EventHandler for Handler {
    fn event(&self, event: &Event) {
        let Some(watch) = self.watch.upgrade() else { return };
        watch.trace.lock().add(|| [format!("node {}: {event:?}", self.node)]);
        watch.model.lock().event(self.node, event);
        if let Some(log) = &self.log {
            log.lock().push(*event);
        }
    }

    fn wake(&self) {}
}

impl World {
    fn nids(&self, index: usize) -> Vec<Nid> {
        let last = index as u8 + 1;
        let nid = |net| match self.scenario.large_nids {
            true => Nid::new_v6(net, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
            false => Nid::new_v4(net, Ipv4Addr::new(10, 77, 0, last)),
        };
        let o2ib = self.scenario.o2ib.as_ref().map(|_| nid(Net::O2IB));
        std::iter::once(nid(Net::TCP)).chain(o2ib).collect()
    }

    pub(super) fn add_node(&mut self, index: usize) -> Result<(), LNetError> {
        let cookie = cookie(index, 0);
        let config = engine_config(&self.scenario, cookie);
        let timeout_ns = config.transaction_timeout_ns;
        self.watch.model.lock().add_node(config.pid, cookie, timeout_ns);
        let nids = self.nids(index);
        let node = WorldNode {
            engine: Engine::new(config),
            nids,
            up: Vec::new(),
            eqs: Vec::new(),
            polled: Vec::new(),
            lives: 0,
        };
        self.nodes.push(node);
        self.equip(index)?;
        self.net.after(0, index as u64);
        Ok(())
    }

    fn equip(&mut self, index: usize) -> Result<(), LNetError> {
        for nid in self.nodes[index].nids.clone() {
            self.start_ni(index, nid)?;
        }
        for _ in 0..2 {
            let log = self.rng.chance(self.scenario.polled).then(Arc::default);
            let handler =
                Arc::new(Handler { node: index, watch: Arc::downgrade(&self.watch), log: log.clone() });
            let node = &mut self.nodes[index];
            let eq = match log {
                None => node.engine.eq_alloc(handler)?,
                Some(log) => {
                    let eq = node.engine.eq_alloc_polled(POLLED_COUNT, Some(handler))?;
                    node.polled.push(PolledQueue { eq, log });
                    eq
                }
            };
            node.eqs.push(eq);
        }
        Ok(())
    }

    /// Polls a node's queues: each has the last events that its callback got, in order, and reports
    /// the number of missed ones.
    pub(super) fn poll(&mut self, index: usize) -> Result<(), String> {
        let node = &self.nodes[index];
        for PolledQueue { eq, log } in &node.polled {
            let events = std::mem::take(&mut *log.lock());
            let mut missed = (events.len() as u64).saturating_sub(POLLED_COUNT as u64);
            self.seen.missed += missed;
            for event in events.into_iter().skip(missed as usize) {
                self.seen.polled += 1;
                let polled = node.engine.eq_poll(&[*eq]).map_err(|error| format!("node {index}: {error}"))?;
                let expected = Polled { eq: *eq, event, missed: std::mem::take(&mut missed) };
                if polled != Some(expected) {
                    return Err(format!("node {index}: polled {polled:?} instead of {event:?}"));
                }
            }
            match node.engine.eq_poll(&[*eq]) {
                Ok(None) => {}
                more => return Err(format!("node {index}: polled {more:?} instead of nothing")),
            }
        }
        Ok(())
    }

    /// Restarts a node with the same NIDs.
    pub(super) fn restart(&mut self, index: usize) {
        self.trace(|| format!("node {index} restarts"));
        self.seen.restarts += 1;
        if let Err(what) =
            self.kill(index).and_then(|()| self.equip(index).map_err(|error| error.to_string()))
        {
            self.watch.model.lock().fail(|| format!("node {index} restarts: {what}"));
        }
    }

    /// Kills a node: all that it had is released. A new, empty engine takes its place.
    pub(super) fn kill(&mut self, index: usize) -> Result<(), String> {
        self.end_leases(|_, lease| lease.node == index);
        for nid in self.nodes[index].nids.clone() {
            self.net.crash(nid);
        }
        let now = self.net.now_ns() + self.extra_ns;
        let node = &mut self.nodes[index];
        node.lives += 1;
        node.up.clear();
        node.eqs.clear();
        node.polled.clear();
        let cookie = cookie(index, node.lives);
        let fresh = Engine::new(engine_config(&self.scenario, cookie));
        fresh.advance(now);
        let dead = std::mem::replace(&mut node.engine, fresh);
        let others = Arc::strong_count(&dead) - 1;
        drop(dead);
        let memory = self.watch.model.lock().restart_node(index, cookie, now);
        if others > 0 {
            return Err(format!("the engine is still held, {others} times"));
        }
        for (at, memory) in memory.iter().enumerate() {
            let free = memory.write(0..memory.len());
            free.map_err(|error| format!("memory {at} of {}: {error}", memory.len()))?;
        }
        Ok(())
    }
}

fn cookie(index: usize, life: u64) -> u64 {
    (index as u64 + 1) << 32 | life
}
