//! Nodes with programs that do random operations, checked against the model after each step.

mod actions;
mod node;
mod settle;
mod trouble;

use std::sync::Arc;

use lnet_api::{LNetError, Lnd, LndError};
use lnet_nid::{NetType, Nid, ProcessId};
use parking_lot::Mutex;

use crate::kit::{Trace, stamped};
use crate::model::Model;
use crate::net::{LinkModel, Note, Observer, Seen, SimNet, Step};
use crate::run::Play;
use crate::{Counts, Rng, Scenario};
use node::WorldNode;
pub use node::engine_config;

/// Passes notes to the model and to the trace.
pub(crate) struct Watch {
    pub(crate) model: Mutex<Model>,
    pub(crate) trace: Mutex<Trace>,
}

impl Observer for Watch {
    fn note(&self, now_ns: u64, note: &Note) {
        self.trace.lock().add(|| [stamped(now_ns, &format!("{note:?}"))]);
        self.model.lock().note(note);
    }
}

/// A world in which every event follows from its [`Scenario`].
pub(crate) struct World {
    scenario: Scenario,
    rng: Rng,
    net: Arc<SimNet>,
    lnds: Vec<Arc<dyn Lnd>>,
    watch: Arc<Watch>,
    nodes: Vec<WorldNode>,
    leases: Vec<actions::ProgramLease>,
    /// Number of the last PUT.
    puts: u64,
    /// The time that has passed in addition to the network's time.
    extra_ns: u64,
    settling: bool,
    /// The node that was audited last.
    audited: usize,
    seen: Seen,
}

impl World {
    pub(crate) fn new(scenario: Scenario, traced: bool) -> Result<World, LNetError> {
        let mut rng = Rng::new(scenario.seed ^ 0x5eed);
        let links = [Some(&scenario.tcp), scenario.o2ib.as_ref()];
        let orderly = links.into_iter().flatten().all(LinkModel::is_orderly);
        let model = Model::new(orderly, &scenario);
        let watch = Arc::new(Watch { model: Mutex::new(model), trace: Mutex::new(Trace::new(traced)) });
        let net = SimNet::new(rng.next_u64(), watch.clone());
        let mut lnds = vec![net.lnd(NetType::TCP, scenario.tcp.clone())?];
        if let Some(o2ib) = &scenario.o2ib {
            lnds.push(net.lnd(NetType::O2IB, o2ib.clone())?);
        }
        let mut world = World {
            rng,
            net,
            lnds,
            watch,
            nodes: Vec::new(),
            leases: Vec::new(),
            puts: 0,
            extra_ns: 0,
            settling: false,
            audited: 0,
            seen: Seen::default(),
            scenario,
        };
        for index in 0..world.scenario.nodes {
            world.add_node(index)?;
        }
        Ok(world)
    }

    /// Runs the network's next event, if there is one.
    fn let_happen(&mut self) -> bool {
        match self.net.step() {
            Some(Step::Timer(node)) => self.tick(node as usize),
            Some(Step::Network) => {}
            None => return false,
        }
        true
    }

    /// Advances a node's time, and plans the next advance.
    fn tick(&mut self, node: usize) {
        self.advance(node);
        if !self.settling {
            let delay = self.rng.between((self.scenario.advance_ns / 4, self.scenario.advance_ns));
            self.net.after(delay, node as u64);
        }
    }

    fn advance(&mut self, node: usize) {
        let now = self.net.now_ns() + self.extra_ns;
        self.trace(|| format!("node {node}: advance {now}"));
        self.watch.model.lock().advance(node, now);
        self.nodes[node].engine.advance(now);
    }

    /// Compares the world with the model.
    fn check(&mut self) -> Result<(), String> {
        // An audit checks all tables: auditing each node at each step would take most of a run's
        // time.
        self.audited = (self.audited + 1) % self.nodes.len();
        self.audit(self.audited)?;
        (0..self.nodes.len()).try_for_each(|node| self.poll(node))?;
        let mut model = self.watch.model.lock();
        model.check_step();
        for (index, node) in self.nodes.iter().enumerate() {
            model.check_counters(index, &node.engine.counters());
        }
        model.failure().map_or(Ok(()), |what| Err(what.to_owned()))
    }

    /// Lets a node's engine audit its tables.
    fn audit(&self, node: usize) -> Result<(), String> {
        self.nodes[node].engine.audit().map_err(|error| format!("node {node}: {error}"))
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        self.watch.trace.lock().add(|| [line()]);
    }

    /// Reports a call whose result differs from the expected one.
    fn compare<T>(&mut self, what: &str, expected: Result<(), lnet_api::Errno>, is: &Result<T, LNetError>) {
        let errno = is.as_ref().map(|_| ()).map_err(LNetError::errno);
        self.seen.refused += u64::from(errno.is_err());
        if errno != expected {
            self.watch.model.lock().fail(|| format!("{what} gives {errno:?} instead of {expected:?}"));
        }
    }

    /// Returns the LND of a NID's network.
    fn lnd(&self, nid: Nid) -> Result<Arc<dyn Lnd>, LNetError> {
        let lnd = self.lnds.iter().find(|lnd| lnd.net_type() == nid.net().net_type());
        let missing = || LndError { what: format!("no LND for {nid}"), errno: lnet_api::Errno::ENODEV };
        Ok(lnd.cloned().ok_or_else(missing)?)
    }

    fn start_ni(&mut self, node: usize, nid: Nid) -> Result<(), LNetError> {
        let lnd = self.lnd(nid)?;
        let link = if nid.net().net_type() == NetType::TCP {
            &self.scenario.tcp
        } else {
            self.scenario.o2ib.as_ref().unwrap_or(&self.scenario.tcp)
        };
        let limits = link.limits;
        let all: Vec<usize> = (0..self.scenario.partitions).collect();
        let mut cpts = all.clone();
        if all.len() > 1 && self.rng.chance(self.scenario.bound_nis) {
            // The NI is bound to some of the partitions, in any order.
            cpts.rotate_left(self.rng.index(all.len()));
            cpts.truncate(1 + self.rng.index(all.len() - 1));
            self.seen.nis_bound += 1;
        }
        let chosen = if cpts == all { &[][..] } else { &cpts[..] };
        self.nodes[node].engine.add_ni_on(ProcessId::lnet(nid), lnd, chosen)?;
        self.watch.model.lock().add_ni(node, nid, limits, cpts);
        self.nodes[node].up.push(nid);
        Ok(())
    }
}

impl Play for World {
    type Seen = Seen;

    /// Runs the next event: a program's operation, or one of the network.
    fn step(&mut self) -> Result<(), String> {
        if self.rng.chance(self.scenario.activity) {
            // A program runs in any of the partitions.
            let here = self.rng.index(self.scenario.partitions);
            self.watch.model.lock().here = here;
            lnet_cpt::with_partition(here, || self.act());
        } else {
            self.let_happen();
        }
        self.check()
    }

    fn settle(&mut self) -> Result<(), String> {
        self.end_all()
    }

    fn seen(&self) -> Seen {
        let mut seen = self.seen;
        seen.add(&self.net.seen());
        seen.add(&self.watch.model.lock().seen);
        seen
    }

    fn trace_lines(&mut self) -> Vec<String> {
        self.watch.trace.lock().lines()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Engines and networks hold references to each other, which would leak.
        self.net.crash_all();
    }
}
