//! How a world comes to its end: everything heals, ends, works again, and is given back.

use std::collections::BTreeMap;

use lnet_api::{LNet, Lnd};

use super::IbWorld;
use super::ledger::Kind;
use super::node::portals;

const S: u64 = 1_000_000_000;

/// The longest pause between attempts to connect.
const BACKOFF_NS: u64 = 60 * S;

/// The LND does not ask a device before for memory that it has refused.
const REFUSED_NS: u64 = 10 * S;

impl IbWorld {
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.settling = true;
        self.trace(|| "everything heals".to_owned());
        self.net.calm();
        let healed_ns = self.net.now_ns();
        for node in 0..self.nodes.len() {
            let host = self.nodes[node].host;
            self.net.plug(host);
            self.net.set_port(host, true);
        }
        let started_ns = self.later.iter().map(|(at_ns, _)| *at_ns).max();
        self.run_until(started_ns.unwrap_or_default().max(self.net.now_ns()) + 1)?;
        for node in 0..self.nodes.len() {
            if !self.nodes[node].up {
                self.restart_ni(node)?;
                if !self.nodes[node].up {
                    return Err(format!("the NI of node {node} does not come up"));
                }
            }
        }
        self.post_all_late()?;
        self.check()?;
        self.everything_ends()?;
        // What was for an earlier life of a node, and has come to this one, waits for a buffer that nobody will post.
        self.nodes.iter().for_each(|node| node.engine.set_lazy(portals()[1], false));
        self.everybody_is_reached()?;
        self.run_until(self.net.now_ns().max(healed_ns + REFUSED_NS + 1))?;
        self.nothing_fails_any_more()?;
        self.nobody_is_held_any_more()?;
        self.all_is_idle()?;
        self.all_is_given_back()
    }

    fn timeout_ns(&self) -> u64 {
        u64::from(self.scenario.configs[0].timeout_s) * S
    }

    /// No operation outlasts its time: what waits for a connection, what is on it, and the answer.
    fn everything_ends(&mut self) -> Result<(), String> {
        let bound_ns = 4 * self.timeout_ns() + self.scenario.transaction_timeout_ns + 20 * S;
        let until_ns = self.net.now_ns() + bound_ns;
        while self.net.now_ns() < until_ns && self.ledger.open().next().is_some() {
            self.run_until(self.net.now_ns() + S)?;
        }
        match self.ledger.open().next() {
            None => Ok(()),
            Some((number, it)) => {
                let age_ns = self.net.now_ns() - it.begun_ns;
                Err(format!(
                    "operation {number} of node {} never ends: {:?}, begun {age_ns} ns ago",
                    it.from.0, it.kind
                ))
            }
        }
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let nodes = 0..self.nodes.len();
        let all = nodes.clone().flat_map(|from| nodes.clone().map(move |to| (from, to)));
        all.filter(|(from, to)| from != to).collect()
    }

    /// New operations succeed within the longest back-off, and the time it takes to notice that a connection is dead.
    fn everybody_is_reached(&mut self) -> Result<(), String> {
        let bound_ns = BACKOFF_NS + 3 * self.timeout_ns() + self.scenario.transaction_timeout_ns + 10 * S;
        let until_ns = self.net.now_ns() + bound_ns;
        let mut left: BTreeMap<(usize, usize), Option<u64>> =
            self.pairs().into_iter().map(|pair| (pair, None)).collect();
        while !left.is_empty() {
            for (pair, number) in left.clone() {
                let operation = number.and_then(|number| self.ledger.operations.get(&number));
                match operation.map(|operation| (operation.ended, operation.succeeded())) {
                    Some((true, true)) => {
                        left.remove(&pair);
                    }
                    Some((false, _)) => {}
                    Some((true, false)) | None => {
                        let number = self.begin(pair.0, pair.1, Kind::Put { ack: true }, false)?;
                        left.insert(pair, number);
                    }
                }
            }
            if self.net.now_ns() > until_ns && !left.is_empty() {
                let tell = |(from, to): &(usize, usize)| {
                    let failure = self.nodes[*from].lnd.last_failure(self.nodes[*to].nid);
                    format!("from node {from} to node {to}: {failure:?}")
                };
                let tell: Vec<String> = left.keys().map(tell).collect();
                return Err(format!(
                    "{bound_ns} ns after all is healed nothing gets through {}",
                    tell.join("; ")
                ));
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        Ok(())
    }

    /// All kinds of operations between all nodes, many at a time.
    fn nothing_fails_any_more(&mut self) -> Result<(), String> {
        // A connection that was idle when its other end went is noticed when it is used, or by a keepalive much later. Each
        // round that fails ends one of these at least.
        let dead_max: usize = self.nodes.iter().map(|node| node.lnd.census().connections).sum();
        let mut failed = None;
        for _ in 0..=dead_max {
            failed = self.one_that_fails()?;
            if failed.is_none() {
                break;
            }
        }
        match failed {
            None => Ok(()),
            Some(number) => Err(format!("operation {number} fails though nothing is wrong any more")),
        }
    }

    /// Some operations of each kind between all nodes, to their end: one of them that fails, if any does.
    fn one_that_fails(&mut self) -> Result<Option<u64>, String> {
        let mut numbers = Vec::new();
        for (from, to) in self.pairs() {
            for kind in [Kind::Put { ack: true }, Kind::Put { ack: false }, Kind::Get] {
                for _ in 0..4 {
                    numbers.extend(self.begin(from, to, kind, false)?);
                }
            }
        }
        self.everything_ends()?;
        let failed = |number: &u64| !self.ledger.operations.get(number).is_some_and(|it| it.succeeded());
        Ok(numbers.into_iter().find(failed))
    }

    /// No buffer will ever come for what waited for a way to a node while that began a new life: a lazy portal holds it until
    /// it is lazy no more.
    fn nobody_is_held_any_more(&mut self) -> Result<(), String> {
        let [_, lazy] = portals();
        for (number, node) in self.nodes.iter().enumerate() {
            let (held, before) = (node.engine.waiting(lazy) as u64, node.engine.counters().drop_count);
            node.engine.set_lazy(lazy, false);
            let dropped = node.engine.counters().drop_count - before;
            if dropped != held {
                return Err(format!("node {number} holds {held} messages, and drops {dropped}"));
            }
        }
        Ok(())
    }

    /// Nothing goes on; all credits are where they belong.
    fn all_is_idle(&mut self) -> Result<(), String> {
        // Sends complete, and credits that are owed may stay so.
        self.run_until(self.net.now_ns() + S)?;
        let mut sum = lnet_o2iblnd::Census::default();
        for (node, it) in self.nodes.iter().enumerate() {
            let sending = it.engine.sending();
            if sending > 0 {
                return Err(format!("node {node} still sends {sending} messages"));
            }
            let census = it.lnd.census();
            if (census.operations, census.waiting, census.receives, census.bounces) != (0, 0, 0, 0) {
                return Err(format!("node {node} is not idle: {census:?}"));
            }
            if census.reserved != census.depth {
                return Err(format!("node {node} has lost transfers: {census:?}"));
            }
            sum.connections += census.connections;
            sum.credits += census.credits;
            sum.owed += census.owed;
            sum.depth += census.depth;
        }
        if sum.credits + sum.owed != sum.depth {
            return Err(format!("credits have got lost: {sum:?}"));
        }
        for (number, operation) in &self.ledger.operations {
            for memory in &operation.memory {
                if !memory.fragments().iter().all(|fragment| fragment.region().is_idle()) {
                    return Err(format!("the memory of operation {number} is in use, and nothing goes on"));
                }
            }
        }
        (0..self.nodes.len()).try_for_each(|node| {
            self.nodes[node].engine.audit().map_err(|error| format!("node {node}: {error}"))
        })
    }

    /// With the last NI all connections, with the last buffer all registrations go.
    fn all_is_given_back(&mut self) -> Result<(), String> {
        for node in &self.nodes {
            let counters = node.lnd.counters();
            self.seen.bounced_bytes += counters.tx.bytes_bounced + counters.rx.bytes_bounced;
        }
        for node in 0..self.nodes.len() {
            for operation in
                self.ledger.operations.values_mut().filter(|it| it.to == (node, self.nodes[node].life))
            {
                if let Some(me) = operation.me.take() {
                    let _ = self.nodes[node].engine.me_unlink(me);
                }
            }
            self.nodes[node].remove_ni();
            let (host, shards) = (self.nodes[node].host, self.nodes[node].lnd.shards());
            let ends = self.net.ends(host);
            if ends > 0 {
                return Err(format!("node {node} has {ends} queue pairs without an NI, on {shards} shards"));
            }
        }
        self.ledger.operations.clear();
        self.nodes.clear();
        match self.net.registrations() {
            0 => Ok(()),
            left => Err(format!("{left} registrations are left without any memory")),
        }
    }
}
