//! Nodes of real engines and real LNDs, with programs that do random operations.

mod check;
mod lazy;
mod node;
mod operations;
mod program;
mod settle;
mod trouble;

use std::net::IpAddr;
use std::sync::Arc;

use lnet_api::{LNetError, Lnd};
use lnet_lnd::Network;
use lnet_nid::Nid;

use super::{Net, NodeScenario, Trace, Transport, Wire, WorldSeen, stamped};
use crate::run::{Failure, Play, Worlds, play, search};
use crate::{Counts, Rng, Step};
use node::Node;
use operations::{OperationTable, Party};
pub(crate) use settle::check_credits;

/// The number of all timers of the network. A timer only causes a check of the actions that are
/// due.
pub(crate) const LOOK: u64 = 0;

/// The counts of events in a world of this kind.
type SeenOf<T> = WorldSeen<<<T as Transport>::Wire as Wire>::Seen>;

/// A world in which every event follows from its [`NodeScenario`].
pub struct World<T: Transport> {
    pub(crate) scenario: NodeScenario<T>,
    pub(crate) rng: Rng,
    pub(crate) net: Net<T::Wire>,
    pub(crate) nodes: Vec<Node<T>>,
    pub(crate) own: T::WorldData,
    pub(crate) seen: SeenOf<T>,
    table: OperationTable,
    trace: Trace,
    /// Planned events: the end of some trouble, the start of a dead node.
    later: Vec<(u64, Later)>,
    /// LNDs of earlier incarnations. They are kept so that no two have the same address, by which
    /// threads identify them.
    graveyard: Vec<Arc<Network<T::Protocol>>>,
    settling: bool,
    /// Operations on lazy portals whose buffers have not been posted.
    unposted: Vec<u64>,
    audited: usize,
}

/// A planned event of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Later {
    EndTrouble(usize),
    Start(usize),
    Nested(usize),
    Lazy(usize),
}

impl<T: Transport> NodeScenario<T> {
    /// Returns the NIDs of a node.
    fn nids(&self, node: usize) -> Vec<Nid> {
        (0..self.nis).map(|ni| self.transport.nid(node, ni)).collect()
    }
}

impl<T: Transport> Worlds for NodeScenario<T> {
    type Seen = SeenOf<T>;

    const COMMAND: &str = T::COMMAND;
    const STEPS: u64 = T::STEPS;

    fn of_seed(seed: u64) -> NodeScenario<T> {
        NodeScenario::from_seed(seed)
    }

    fn run_for(self, steps: u64) -> Result<SeenOf<T>, Box<Failure>> {
        run(&NodeScenario { steps, ..self })
    }
}

/// Runs a scenario of whole nodes to its end; a failure has a trace and the fewest steps that show
/// it.
///
/// # Errors
/// The failed check.
pub fn run<T: Transport>(scenario: &NodeScenario<T>) -> Result<SeenOf<T>, Box<Failure>> {
    search(T::COMMAND, scenario.seed, scenario.steps, |steps, traced| {
        let scenario = || NodeScenario { steps, ..scenario.clone() };
        // On a new thread, so that no thread-local state of the LND is left from an earlier run.
        let attempt = || lnet_cpt::with_partition(0, || play(World::new(scenario(), traced), steps));
        std::thread::scope(|scope| match scope.spawn(attempt).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

impl<T: Transport> World<T> {
    fn new(scenario: NodeScenario<T>, traced: bool) -> Result<World<T>, LNetError> {
        let mut rng = Rng::new(scenario.seed ^ T::SALT ^ 0x5eed_0000);
        let net = Net::new(rng.next_u64(), scenario.transport.behaviour().clone());
        if traced {
            net.keep_log();
        }
        let table = OperationTable {
            wrong_pattern: scenario.other_pattern,
            transaction_timeout_ns: scenario.transaction_timeout_ns,
            unsent_is_lost: T::UNSENT_IS_LOST,
            ..OperationTable::default()
        };
        let mut nodes = Vec::new();
        for node in 0..scenario.nodes {
            let addresses: Vec<IpAddr> = scenario.nids(node).iter().filter_map(|nid| nid.ip()).collect();
            let host = net.add_host(addresses, scenario.transport.is_privileged(node));
            nodes.push(Node::start(&scenario, &net, node, host, 0)?);
        }
        let mut world = World {
            rng,
            own: scenario.transport.world_data(&net),
            net,
            nodes,
            table,
            seen: WorldSeen::default(),
            trace: Trace::new(traced),
            later: Vec::new(),
            graveyard: Vec::new(),
            settling: false,
            unposted: Vec::new(),
            audited: 0,
            scenario,
        };
        for node in 0..world.nodes.len() {
            world.plan_advance(node, world.net.now_ns());
            world.look(node);
        }
        Ok(world)
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        let net = &self.net;
        self.trace.add(|| net.take_log().into_iter().chain([stamped(net.now_ns(), &line())]));
    }

    /// Runs all events until this time.
    pub(crate) fn run_until(&mut self, until_ns: u64) -> Result<(), String> {
        self.net.at(until_ns, LOOK);
        // Calls from outside wake drivers at once, so the nodes are checked first.
        self.look_at_all();
        while self.net.now_ns() < until_ns || self.net.next_ns().is_some_and(|next_ns| next_ns <= until_ns) {
            self.happen()?;
        }
        self.check()
    }

    /// Runs the next event.
    fn happen(&mut self) -> Result<(), String> {
        let Some(step) = self.net.step() else { return Ok(()) };
        let now_ns = self.net.now_ns();
        if let Step::Timer(_) = step {
            self.run_due(now_ns)?;
        }
        self.look_at_all();
        Ok(())
    }

    /// Polls the shards and advances the engines that are due.
    fn run_due(&mut self, now_ns: u64) -> Result<(), String> {
        while let Some(place) = self.later.iter().position(|(at_ns, _)| *at_ns <= now_ns) {
            let (_, what) = self.later.swap_remove(place);
            self.happen_later(what)?;
        }
        T::time_passed(self, now_ns);
        for node in 0..self.nodes.len() {
            if !self.nodes[node].alive {
                continue;
            }
            if self.nodes[node].advance_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                let next_ns = self.nodes[node].engine.advance(now_ns);
                self.nodes[node].advance_ns = None;
                self.plan_advance(node, next_ns.unwrap_or(now_ns + lnet::ADVANCE_INTERVAL_NS));
                self.check()?;
            }
            for shard in 0..self.nodes[node].shards.len() {
                if self.nodes[node].shards[shard].poll_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                    self.poll(node, shard)?;
                }
            }
        }
        Ok(())
    }

    fn plan_advance(&mut self, node: usize, at_ns: u64) {
        // A deadline that has passed is handled a moment later, so that time advances.
        let at_ns = at_ns.max(self.net.now_ns() + T::POLL_NS);
        self.nodes[node].advance_ns = Some(at_ns);
        self.net.at(at_ns, LOOK);
    }

    /// Drives a shard once.
    fn poll(&mut self, node: usize, shard: usize) -> Result<(), String> {
        let now_ns = self.net.now_ns();
        let Node { lnd, engine, .. } = &self.nodes[node];
        let (lnd, engine) = (lnd.clone(), engine.clone());
        let budget = self.scenario.budget;
        // A thread that has found work may poll again before it prepares to sleep.
        let arms = self.rng.chance(5_000);
        let (poll, armed) = lnet_cpt::with_partition(lnd.partition(shard), || {
            let poll = lnd.poll(shard, now_ns, budget);
            engine.advance(now_ns);
            (poll, (arms || poll.work == 0) && lnd.arm(shard))
        });
        self.seen.nodes.polls += 1;
        let busy = poll.work > 0 || !armed;
        let busy_polls = &mut self.nodes[node].shards[shard].busy_polls;
        *busy_polls = if busy { *busy_polls + 1 } else { 0 };
        if *busy_polls > T::BUSY_POLLS_MAX {
            return Err(format!("node {node} polls shard {shard} for ever: {poll:?}, armed: {armed}"));
        }
        let again_ns = match (busy, poll.deadline_ns) {
            (true, _) => Some(now_ns + self.rng.between((0, T::POLL_NS))),
            (false, Some(deadline_ns)) if deadline_ns <= now_ns => {
                // The poll has done nothing, and its deadline has passed: the shard would be polled
                // without end.
                return Err(format!(
                    "node {node} asks to be polled at {deadline_ns}, which is over at {now_ns}, and does nothing"
                ));
            }
            (false, deadline_ns) => deadline_ns,
        };
        self.nodes[node].shards[shard].poll_ns = None;
        if let Some(again_ns) = again_ns {
            self.plan_poll(node, shard, again_ns);
        }
        self.check()
    }

    fn plan_poll(&mut self, node: usize, shard: usize, at_ns: u64) {
        let shard = &mut self.nodes[node].shards[shard];
        let at_ns = at_ns.max(shard.asleep_until_ns);
        if shard.poll_ns.is_none_or(|planned_ns| at_ns < planned_ns) {
            shard.poll_ns = Some(at_ns);
            self.net.at(at_ns, LOOK);
        }
    }

    pub(crate) fn look_at_all(&mut self) {
        for node in 0..self.nodes.len() {
            self.look(node);
        }
    }

    /// Wakes the drivers of a node whose descriptors are readable.
    fn look(&mut self, node: usize) {
        if !self.nodes[node].alive {
            return;
        }
        let now_ns = self.net.now_ns();
        for shard in 0..self.nodes[node].shards.len() {
            let soon_ns = now_ns + self.scenario.wake_ns.1;
            let planned = self.nodes[node].shards[shard].poll_ns.is_some_and(|at_ns| at_ns <= soon_ns);
            if !planned && self.nodes[node].handle.is_ready(shard) {
                let delay_ns = self.rng.between(self.scenario.wake_ns);
                self.plan_poll(node, shard, now_ns + delay_ns);
            }
        }
    }

    fn party(&self, node: usize) -> Party {
        Party { node, life: self.nodes[node].life }
    }
}

impl<T: Transport> Play for World<T> {
    type Seen = SeenOf<T>;

    /// Runs an operation of a program, then the events until the next operation.
    fn step(&mut self) -> Result<(), String> {
        if self.rng.chance(self.scenario.trouble) {
            self.make_trouble()?;
        } else {
            self.act()?;
        }
        self.check()?;
        let pause_ns = self.rng.between(self.scenario.pause_ns);
        self.run_until(self.net.now_ns() + pause_ns)
    }

    fn settle(&mut self) -> Result<(), String> {
        self.heal_and_end()
    }

    fn seen(&self) -> SeenOf<T> {
        let mut seen = self.seen;
        seen.network.add(&self.net.seen());
        seen.nodes.add(&self.table.seen);
        seen
    }

    fn trace_lines(&mut self) -> Vec<String> {
        self.trace(|| "here it fails".to_owned());
        self.trace.lines()
    }
}

impl<T: Transport> Drop for World<T> {
    fn drop(&mut self) {
        // The NIs are removed, because engines and LNDs hold references to each other.
        for node in &mut self.nodes {
            for nid in std::mem::take(&mut node.up) {
                let _ = node.engine.remove_ni(nid);
            }
        }
    }
}
