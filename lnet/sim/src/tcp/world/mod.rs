//! Nodes of real engines and real TCP LNDs, with programs that do random things.

mod check;
mod counters;
mod lazy;
mod ledger;
mod node;
mod program;
mod settle;
mod trouble;

use std::collections::VecDeque;
use std::net::IpAddr;

use lnet_api::{LNetError, Lnd};
use lnet_socklnd::SockLnd;
use lnet_socklnd::sys::Stream;
use std::sync::Arc;

use super::scenario::{TcpMutant, TcpScenario};
use super::{TcpNet, TcpSeen};
use crate::run::Play;
use crate::{Rng, Step};
use ledger::{Ledger, Party};
use node::{TcpNode, addresses, nids};

/// How many lines of the trace are kept.
const TRACE_LINES: usize = 120;

/// Polls of one shard in a row that find work: more, and it polls for ever.
const BUSY_POLLS_MAX: u32 = 300_000;

/// A driver that has found work polls again within so long.
const POLL_NS: u64 = 20_000;

/// Timers of the network mean nothing but that somebody is to be looked at.
const LOOK: u64 = 0;

/// Someone who connects and does not behave.
struct Stranger {
    _stream: Box<dyn Stream>,
    until_ns: u64,
}

/// A world in which everything that happens follows from its [`TcpScenario`].
pub(crate) struct TcpWorld {
    scenario: TcpScenario,
    rng: Rng,
    net: TcpNet,
    nodes: Vec<TcpNode>,
    ledger: Ledger,
    seen: TcpSeen,
    trace: Option<VecDeque<String>>,
    strangers: Vec<Stranger>,
    stranger_host: usize,
    /// Things that end at some time: a squeeze, a dead host.
    later: Vec<(u64, Later)>,
    /// LNDs of former lives. They are kept, so that no two have the same address: threads know them by that.
    graveyard: Vec<Arc<SockLnd>>,
    settling: bool,
    /// Operations on lazy portals whose buffers have not been posted.
    unposted: Vec<u64>,
    audited: usize,
}

#[derive(Debug, Clone, Copy)]
enum Later {
    EndSqueeze(usize),
    Start(usize),
    Nested(usize),
    Lazy(usize),
}

impl TcpWorld {
    pub(crate) fn new(scenario: TcpScenario, traced: bool) -> Result<TcpWorld, LNetError> {
        let mut rng = Rng::new(scenario.seed ^ 0x7c9_5eed);
        let net = TcpNet::new(rng.next_u64(), scenario.habits.clone());
        if traced {
            net.keep_log();
        }
        let config = &scenario.config;
        let ms = |ms: u32| u64::from(ms) * 1_000_000;
        let longer = if scenario.mutant == Some(TcpMutant::LongerBackoff) { 2 } else { 1 };
        net.expect_backoff(Some((ms(config.min_reconnect_ms) * longer, ms(config.max_reconnect_ms))));
        let ledger =
            Ledger { wrong_pattern: scenario.mutant == Some(TcpMutant::OtherPattern), ..Ledger::default() };
        let mut nodes = Vec::new();
        for node in 0..scenario.nodes {
            let host = net.add_host(addresses(&nids(&scenario, node)), scenario.is_privileged(node));
            nodes.push(TcpNode::start(&scenario, &net, node, host, 0)?);
        }
        let stranger_host = net.add_host(vec![IpAddr::from([10, 77, 0, 200])], true);
        let mut world = TcpWorld {
            rng,
            net,
            nodes,
            ledger,
            seen: TcpSeen::default(),
            trace: traced.then(VecDeque::new),
            strangers: Vec::new(),
            stranger_host,
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

    fn trace(&mut self, line: impl FnOnce() -> String) {
        let Some(trace) = &mut self.trace else { return };
        let now_ns = self.net.now_ns();
        let stamp = |line: String| format!("{:>14.6} {line}", now_ns as f64 / 1e9);
        trace.extend(self.net.take_log().into_iter().map(stamp));
        trace.push_back(stamp(line()));
        while trace.len() > TRACE_LINES {
            trace.pop_front();
        }
    }

    pub(crate) fn trace_lines(&mut self) -> Vec<String> {
        self.trace(|| "here it fails".to_owned());
        self.trace.iter().flatten().cloned().collect()
    }

    pub(crate) fn seen(&self) -> TcpSeen {
        let mut seen = self.seen;
        seen.add(&self.net.seen());
        seen.add(&self.ledger.seen);
        for node in &self.nodes {
            seen.keepalives += node.lnd.counters().tx.keepalives;
        }
        seen
    }

    /// A program's doing, then the time until the next one.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        if self.rng.chance(self.scenario.trouble) {
            self.make_trouble()?;
        } else {
            self.act()?;
        }
        self.check()?;
        let pause_ns = self.rng.between(self.scenario.pause_ns);
        self.run_until(self.net.now_ns() + pause_ns)
    }

    /// Lets everything happen that happens until then.
    fn run_until(&mut self, until_ns: u64) -> Result<(), String> {
        self.net.at(until_ns, LOOK);
        // What has been done from outside wakes drivers at once.
        self.look_at_all();
        while self.net.now_ns() < until_ns || self.net.next_ns().is_some_and(|next_ns| next_ns <= until_ns) {
            self.happen()?;
        }
        Ok(())
    }

    /// The next thing that happens.
    fn happen(&mut self) -> Result<(), String> {
        let Some(step) = self.net.step() else { return Ok(()) };
        let now_ns = self.net.now_ns();
        if let Step::Timer(_) = step {
            self.run_due(now_ns)?;
        }
        self.look_at_all();
        Ok(())
    }

    /// Whoever is due polls, or is told the time.
    fn run_due(&mut self, now_ns: u64) -> Result<(), String> {
        while let Some(place) = self.later.iter().position(|(at_ns, _)| *at_ns <= now_ns) {
            let (_, what) = self.later.swap_remove(place);
            self.happen_later(what)?;
        }
        self.strangers.retain(|stranger| stranger.until_ns > now_ns);
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
        // A deadline that has passed is looked at in a moment, not for ever at this one.
        let at_ns = at_ns.max(self.net.now_ns() + POLL_NS);
        self.nodes[node].advance_ns = Some(at_ns);
        self.net.at(at_ns, LOOK);
    }

    /// Drives a shard once.
    fn poll(&mut self, node: usize, shard: usize) -> Result<(), String> {
        let now_ns = self.net.now_ns();
        let TcpNode { lnd, engine, .. } = &self.nodes[node];
        let (lnd, engine) = (lnd.clone(), engine.clone());
        let partition = lnd.partition(shard);
        let budget = self.scenario.budget;
        let (poll, armed) = lnet_cpt::with_partition(partition, || {
            let poll = lnd.poll(shard, now_ns, budget);
            engine.advance(now_ns);
            (poll, lnd.arm(shard))
        });
        self.seen.polls += 1;
        let busy = poll.work > 0 || !armed;
        let busy_polls = &mut self.nodes[node].shards[shard].busy_polls;
        *busy_polls = if busy { *busy_polls + 1 } else { 0 };
        if *busy_polls > BUSY_POLLS_MAX {
            return Err(format!("node {node} polls shard {shard} for ever: {poll:?}, armed: {armed}"));
        }
        let again_ns = match (busy, poll.deadline_ns) {
            (true, _) => Some(now_ns + self.rng.between((0, POLL_NS))),
            (false, Some(deadline_ns)) if deadline_ns <= now_ns => {
                // Nothing was done, and the deadline has passed: it would be polled for ever.
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

    fn look_at_all(&mut self) {
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
            if !planned && self.nodes[node].sim.is_ready(shard) {
                let delay_ns = self.rng.between(self.scenario.wake_ns);
                self.plan_poll(node, shard, now_ns + delay_ns);
            }
        }
    }

    fn party(&self, node: usize) -> Party {
        Party { node, life: self.nodes[node].life }
    }
}

impl Play for TcpWorld {
    type Seen = TcpSeen;

    fn step(&mut self) -> Result<(), String> {
        TcpWorld::step(self)
    }

    fn settle(&mut self) -> Result<(), String> {
        TcpWorld::settle(self)
    }

    fn seen(&self) -> TcpSeen {
        TcpWorld::seen(self)
    }

    fn trace_lines(&mut self) -> Vec<String> {
        TcpWorld::trace_lines(self)
    }
}

impl Drop for TcpWorld {
    fn drop(&mut self) {
        // Engines and LNDs name each other.
        for node in &mut self.nodes {
            for nid in std::mem::take(&mut node.up) {
                let _ = node.engine.remove_ni(nid);
            }
        }
    }
}
