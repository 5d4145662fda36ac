//! The end of a world: everything heals, all nodes reach each other again, and all objects are
//! released.

use std::collections::BTreeMap;

use lnet::{Engine, PeerStatistics};
use lnet_api::{LNet, Lnd};
use lnet_nid::Nid;

use super::World;
use super::operations::{Kind, Operation};
use crate::kit::Transport;

const S: u64 = 1_000_000_000;

/// Operations of each kind that each NI begins with each node, once operations must succeed.
const OPERATIONS_AT_END: usize = 4;

/// The length of the idle period, in nanoseconds of virtual time.
const IDLE_NS: u64 = 200 * S;

/// Checks that no message is in flight: all credits are available, and nothing is queued.
pub(crate) fn check_credits(engine: &Engine, up: &[Nid]) -> Result<(), String> {
    for &nid in up {
        let ni = engine.ni_statistics(nid).ok_or_else(|| format!("there are no statistics of {nid}"))?;
        if ni.available_tx_credits != ni.credits || ni.credits < 1 {
            return Err(format!("credits are missing: {ni:?}"));
        }
    }
    let whole = |peer: &PeerStatistics| {
        peer.available_tx_credits == peer.max_ni_tx_credits && peer.tx_q_num_of_buf == 0
    };
    match engine.peer_statistics().into_iter().find(|peer| !whole(peer)) {
        Some(peer) => Err(format!("credits are missing: {peer:?}")),
        None => Ok(()),
    }
}

impl<T: Transport> World<T> {
    /// Ends all trouble, checks that operations succeed again, and releases all objects.
    ///
    /// # Errors
    /// The operation that does not end or succeed, or the object that is not released.
    pub(super) fn heal_and_end(&mut self) -> Result<(), String> {
        self.settling = true;
        self.trace(|| "everything heals".to_owned());
        self.net.end_faults();
        T::heal(self);
        let healed_ns = self.net.now_ns();
        self.later.clear();
        for node in 0..self.nodes.len() {
            self.restart(node)?;
            self.add_missing_nis(node)?;
            self.call_nested(node)?;
            let now_ns = self.net.now_ns();
            for shard in 0..self.nodes[node].shards.len() {
                self.nodes[node].shards[shard].asleep_until_ns = now_ns;
                self.plan_poll(node, shard, now_ns);
            }
        }
        self.no_waiter_is_left()?;
        self.check()?;
        self.everything_ends()?;
        self.what_was_met_is_received()?;
        self.everybody_is_reached()?;
        if self.scenario.lazy > 0 {
            self.what_waits_goes_on()?;
            self.everybody_is_reached()?;
        }
        self.run_until(self.net.now_ns().max(healed_ns + T::REST_NS))?;
        self.nothing_fails_any_more()?;
        T::check_settled(self)?;
        self.no_thread_is_busy()?;
        self.credits_are_home()?;
        self.all_is_given_back()
    }

    /// Checks that each operation ends within its time: the wait for a connection, the time on it,
    /// and the answer.
    pub(super) fn everything_ends(&mut self) -> Result<(), String> {
        let bound_ns = self.scenario.transport.end_ns() + self.scenario.transaction_timeout_ns;
        let until_ns = self.net.now_ns() + bound_ns;
        while self.net.now_ns() < until_ns {
            if self.table.open().next().is_none() {
                return Ok(());
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        let Some((number, operation)) = self.table.open().next() else { return Ok(()) };
        let age_ns = self.net.now_ns() - operation.begun_ns;
        let (kind, sent, answered) = (operation.kind, operation.sent, operation.answered);
        let from = operation.from.node;
        Err(format!(
            "operation {number} of node {from} never ends: {kind:?}, sent {sent:?}, answered {answered:?}, begun \
             {age_ns} ns ago"
        ))
    }

    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let nodes = 0..self.nodes.len();
        let all = nodes.clone().flat_map(|from| nodes.clone().map(move |to| (from, to)));
        all.filter(|&(from, to)| from != to && self.scenario.transport.is_reached(to)).collect()
    }

    /// Checks that new operations succeed within the longest back-off and the time to notice that a
    /// connection is dead.
    fn everybody_is_reached(&mut self) -> Result<(), String> {
        let bound_ns = self.scenario.transport.reach_ns() + self.scenario.transaction_timeout_ns;
        let until_ns = self.net.now_ns() + bound_ns;
        let mut left: BTreeMap<(usize, usize), Option<u64>> =
            self.pairs().into_iter().map(|pair| (pair, None)).collect();
        while !left.is_empty() {
            for (pair, number) in left.clone() {
                let operation = number.and_then(|number| self.table.operations.get(&number));
                match operation.map(|operation| (operation.ended, operation.succeeded())) {
                    Some((true, true)) => {
                        left.remove(&pair);
                    }
                    Some((false, _)) => {}
                    Some((true, false)) | None => {
                        let number = self.begin(pair.0, pair.1, Kind::Put { ack: true })?;
                        left.insert(pair, number);
                    }
                }
            }
            if self.net.now_ns() > until_ns && !left.is_empty() {
                let tell = |pair: &(usize, usize)| {
                    let lnd = &self.nodes[pair.0].lnd;
                    let failure = lnd.last_failure(self.nodes[pair.1].nids[0]);
                    format!("from node {} to node {}: {failure:?}", pair.0, pair.1)
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

    /// Checks that all new operations succeed.
    fn nothing_fails_any_more(&mut self) -> Result<(), String> {
        let mut failed = None;
        for _ in 0..=T::spare_rounds(self) {
            failed = self.one_that_fails()?;
            if failed.is_none() {
                break;
            }
        }
        match failed.and_then(|number| self.table.operations.get(&number).map(|it| (number, it))) {
            // With several NIs, an NI that has not been used may still be in a back-off.
            Some((number, Operation { nids, sent, answered, .. })) if self.scenario.nis == 1 => Err(format!(
                "operation {number} from {} to {} fails on a healthy network: sent {sent:?}, answered {answered:?}",
                nids.0, nids.1
            )),
            _ => Ok(()),
        }
    }

    /// Runs some operations of each kind between all nodes to their end; returns one that fails, if
    /// any does.
    fn one_that_fails(&mut self) -> Result<Option<u64>, String> {
        let mut numbers = Vec::new();
        for (from, to) in self.pairs() {
            for kind in [Kind::Put { ack: true }, Kind::Get, Kind::Put { ack: false }] {
                // One round for each NI, so that every NI is used; the back-off of an unused NI
                // starts at its minimum.
                for _ in 0..OPERATIONS_AT_END * self.scenario.nis {
                    numbers.extend(self.begin(from, to, kind)?);
                }
            }
        }
        self.everything_ends()?;
        let fails = |number: &u64| self.table.operations.get(number).is_some_and(|it| !it.succeeded());
        Ok(numbers.into_iter().find(fails))
    }

    /// Checks that idle nodes poll only for timers and keepalives.
    fn no_thread_is_busy(&mut self) -> Result<(), String> {
        let (before, begun_ns) = (self.seen.nodes.polls, self.net.now_ns());
        self.run_until(begun_ns + IDLE_NS)?;
        let shards: usize = self.nodes.iter().map(|node| node.shards.len()).sum();
        let most = IDLE_NS / S * T::IDLE_POLLS_PER_S * shards as u64;
        match self.seen.nodes.polls - before {
            polls if polls > most => Err(format!("{polls} polls in {IDLE_NS} ns in which nothing went on")),
            _ => Ok(()),
        }
    }

    /// Checks that all credits are available, and that no message, answer or memory is in use.
    fn credits_are_home(&mut self) -> Result<(), String> {
        for (index, node) in self.nodes.iter().enumerate() {
            check_credits(&node.engine, &node.up)
                .map_err(|error| format!("node {index} is quiet, but {error}"))?;
            let counters = node.engine.counters();
            if counters.msgs_alloc > 0 || counters.rst_alloc > 0 {
                return Err(format!("node {index} is quiet, but messages or answers are left: {counters:?}"));
            }
        }
        for (number, operation) in &self.table.operations {
            let fragments = operation.memory.iter().flat_map(|memory| memory.fragments());
            if !fragments.map(|fragment| fragment.region()).all(|region| region.is_idle()) {
                return Err(format!("the memory of operation {number} is in use, and nothing goes on"));
            }
        }
        Ok(())
    }

    /// Checks that no descriptor, engine or lease is left after buffers and NIs are removed.
    fn all_is_given_back(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            let party = self.party(node);
            let own = self.table.operations.values_mut().filter(|operation| operation.to == party);
            let mes: Vec<_> = own.filter_map(|operation| operation.me.take()).collect();
            for me in mes {
                let unlinked = self.nodes[node].engine.me_unlink(me);
                unlinked.map_err(|error| format!("node {node}: a posted buffer is gone: {error}"))?;
            }
            self.check()?;
            self.audit(node)?;
            let freed = self.nodes[node].engine.eq_free(self.nodes[node].eq);
            freed.map_err(|error| format!("node {node}: an MD is left behind: {error}"))?;
            self.end(node, None)?;
            if self.nodes[node].lnd.is_active() {
                return Err(format!("node {node} has no NI, but its LND is active"));
            }
            T::check_given_back(self, node)?;
            self.check_memory(node, party.life)?;
        }
        self.table.operations.clear();
        self.nodes.clear();
        self.graveyard.clear();
        T::check_gone(&self.net)
    }
}
