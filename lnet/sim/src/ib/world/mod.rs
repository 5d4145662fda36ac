//! Nodes with programs that do random things, on a network with trouble.

mod ledger;
mod node;
mod program;
mod settle;
mod trouble;

use std::collections::VecDeque;

use lnet_api::{LNetError, Lnd};

use self::ledger::Ledger;
use self::node::Node;
use super::{IbNet, IbScenario, IbSeen};
use crate::run::Play;
use crate::{Rng, Step};

/// A number of the network's timers: somebody is to be looked at.
const LOOK: u64 = 0;

/// How long a poll takes.
const POLL_NS: u64 = 2_000;

/// So many polls in a row that find something are too many.
const BUSY_POLLS_MAX: u32 = 20_000;

/// Of a failure, the last lines are shown.
const TRACE_LINES: usize = 400;

pub(crate) struct IbWorld {
    scenario: IbScenario,
    rng: Rng,
    net: IbNet,
    nodes: Vec<Node>,
    ledger: Ledger,
    seen: IbSeen,
    trace: Option<VecDeque<String>>,
    /// Programs that start at a time.
    later: Vec<(u64, usize)>,
    settling: bool,
    audited: usize,
}

impl IbWorld {
    pub(crate) fn new(scenario: IbScenario, traced: bool) -> Result<IbWorld, LNetError> {
        let mut rng = Rng::new(scenario.seed ^ 0x1b_5eed);
        let net = IbNet::new(rng.next_u64(), scenario.habits.clone());
        if traced {
            net.keep_log();
        }
        let mut nodes = Vec::new();
        for node in 0..scenario.nodes {
            let host = net.add_host(vec![node::address(node)], scenario.privileged);
            nodes.push(Node::start(&scenario, &net, (node, host, 0))?);
        }
        let mut world = IbWorld {
            rng,
            net,
            nodes,
            ledger: Ledger::default(),
            seen: IbSeen::default(),
            trace: traced.then(VecDeque::new),
            later: Vec::new(),
            settling: false,
            audited: 0,
            scenario,
        };
        for node in 0..world.nodes.len() {
            world.plan_advance(node, world.net.now_ns());
        }
        world.look_at_all();
        Ok(world)
    }

    fn trace(&mut self, line: impl FnOnce() -> String) {
        let Some(trace) = &mut self.trace else { return };
        trace.extend(self.net.take_log());
        trace.push_back(format!("{:>14} {}", self.net.now_ns(), line()));
        while trace.len() > TRACE_LINES {
            trace.pop_front();
        }
    }

    /// Lets everything happen that happens until then.
    fn run_until(&mut self, until_ns: u64) -> Result<(), String> {
        self.net.at(until_ns, LOOK);
        self.look_at_all();
        while self.net.now_ns() < until_ns || self.net.next_ns().is_some_and(|next_ns| next_ns <= until_ns) {
            let Some(step) = self.net.step() else { return Ok(()) };
            if let Step::Timer(_) = step {
                self.run_due(self.net.now_ns())?;
            }
            self.look_at_all();
        }
        self.check()
    }

    /// Whoever is due polls, or is told the time.
    fn run_due(&mut self, now_ns: u64) -> Result<(), String> {
        while let Some(place) = self.later.iter().position(|(at_ns, _)| *at_ns <= now_ns) {
            let (_, node) = self.later.swap_remove(place);
            self.start(node)?;
        }
        for node in 0..self.nodes.len() {
            if !self.nodes[node].alive {
                continue;
            }
            if self.nodes[node].advance_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                let next_ns = self.nodes[node].engine.advance(now_ns);
                self.nodes[node].advance_ns = None;
                self.plan_advance(node, next_ns.unwrap_or(now_ns + lnet::ADVANCE_INTERVAL_NS));
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
        // A deadline that has passed is looked at in a moment, not for ever at this one.
        let at_ns = at_ns.max(self.net.now_ns() + POLL_NS);
        self.nodes[node].advance_ns = Some(at_ns);
        self.net.at(at_ns, LOOK);
    }

    /// Drives a shard once.
    fn poll(&mut self, node: usize, shard: usize) -> Result<(), String> {
        let now_ns = self.net.now_ns();
        let Node { lnd, engine, .. } = &self.nodes[node];
        let (lnd, engine) = (lnd.clone(), engine.clone());
        let budget = self.scenario.budget;
        let (poll, armed) = lnet_cpt::with_partition(lnd.partition(shard), || {
            let poll = lnd.poll(shard, now_ns, budget);
            engine.advance(now_ns);
            // Who has found something polls on before he sleeps, as a waiting thread does.
            (poll, poll.work == 0 && lnd.arm(shard))
        });
        let busy = poll.work > 0 || !armed;
        let busy_polls = &mut self.nodes[node].shards[shard].busy_polls;
        *busy_polls = if busy { *busy_polls + 1 } else { 0 };
        if *busy_polls > BUSY_POLLS_MAX {
            return Err(format!("node {node} polls shard {shard} for ever: {poll:?}, armed: {armed}"));
        }
        let again_ns = match (busy, poll.deadline_ns) {
            (true, _) => Some(now_ns + self.rng.between((0, POLL_NS))),
            (false, Some(deadline_ns)) if deadline_ns <= now_ns => {
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
        if shard.poll_ns.is_none_or(|planned_ns| at_ns < planned_ns) {
            shard.poll_ns = Some(at_ns);
            self.net.at(at_ns, LOOK);
        }
    }

    /// Wakes the drivers whose descriptors are readable.
    fn look_at_all(&mut self) {
        let now_ns = self.net.now_ns();
        let soon_ns = now_ns + self.scenario.wake_ns.1;
        for node in 0..self.nodes.len() {
            for shard in 0..self.nodes[node].shards.len() {
                let planned = self.nodes[node].shards[shard].poll_ns.is_some_and(|at_ns| at_ns <= soon_ns);
                if self.nodes[node].alive && !planned && self.nodes[node].fabric.is_ready(shard) {
                    let delay_ns = self.rng.between(self.scenario.wake_ns);
                    self.plan_poll(node, shard, now_ns + delay_ns);
                }
            }
        }
    }

    /// Compares the world with what is expected of it.
    fn check(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            self.take_events(node)?;
        }
        if let Some(wrong) = self.net.wrong() {
            return Err(format!("a driver is wrong: {wrong}"));
        }
        const AUDIT_EVERY: usize = 8;
        self.audited += 1;
        if self.audited.is_multiple_of(AUDIT_EVERY) {
            let node = self.audited / AUDIT_EVERY % self.nodes.len();
            self.nodes[node].engine.audit().map_err(|error| format!("node {node}: {error}"))?;
        }
        Ok(())
    }
}

impl Play for IbWorld {
    type Seen = IbSeen;

    /// A program's doing, then the time until the next one.
    fn step(&mut self) -> Result<(), String> {
        if self.rng.chance(self.scenario.trouble) {
            self.make_trouble()?;
        } else {
            self.act()?;
        }
        // What a call has brought about comes before what others hear of it.
        self.check()?;
        let pause_ns = self.rng.between(self.scenario.pause_ns);
        self.run_until(self.net.now_ns() + pause_ns)
    }

    fn settle(&mut self) -> Result<(), String> {
        IbWorld::settle(self)
    }

    fn seen(&self) -> IbSeen {
        let mut seen = self.seen;
        seen.add(&self.net.seen());
        seen.add(&self.ledger.seen);
        seen
    }

    fn trace_lines(&mut self) -> Vec<String> {
        self.trace(|| "here it fails".to_owned());
        self.trace.iter().flatten().cloned().collect()
    }
}

impl Drop for IbWorld {
    fn drop(&mut self) {
        // Engines and LNDs name each other.
        for node in &mut self.nodes {
            node.remove_ni();
        }
    }
}
