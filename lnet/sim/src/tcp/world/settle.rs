//! The end: everything heals, everybody reaches everybody again, and everything is given back.

use std::collections::BTreeMap;

use lnet::PeerStatistics;
use lnet_api::{LNet, Lnd};

use super::TcpWorld;
use super::ledger::Kind;
use crate::tcp::tap::{BULK_IN, BULK_OUT, CONTROL, Held};

const S: u64 = 1_000_000_000;

/// Polls of one shard in a second in which nothing goes on: its timers, keepalives and their answers.
const IDLE_POLLS_PER_S: u64 = 4;

/// How long nothing goes on.
const IDLE_NS: u64 = 200 * S;

/// How often a connection is asked for that the other side refuses (lnet-wire 24), and once more.
const REFUSALS: u32 = 4;

/// After so long TCP's own keepalive has found out who is dead: 30 s, and five probes of 5 s.
const SILENCE_NS: u64 = 100 * S;

/// So many seconds in a row there is no keepalive under way.
const KEEPALIVES: u32 = 5;

impl TcpWorld {
    /// Ends everything.
    ///
    /// # Errors
    /// What does not end, does not heal, or is not given back.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.settling = true;
        self.trace(|| "everything heals".to_owned());
        self.net.calm();
        self.strangers.clear();
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
        self.nobody_waits_any_more()?;
        self.check()?;
        self.everything_ends()?;
        self.what_was_met_is_received()?;
        self.everybody_is_reached()?;
        if self.scenario.lazy > 0 {
            self.what_waits_goes_on()?;
            self.everybody_is_reached()?;
        }
        self.nothing_fails_any_more()?;
        self.both_sides_agree()?;
        self.nobody_is_busy()?;
        self.credits_are_home()?;
        self.all_is_given_back()
    }

    /// No operation outlasts its time: what waits for a connection, what is on it, and the answer.
    pub(super) fn everything_ends(&mut self) -> Result<(), String> {
        let lnd_ns = u64::from(self.scenario.config.timeout_s) * S;
        let bound_ns = 3 * lnd_ns + self.scenario.transaction_timeout_ns + 10 * S;
        let until_ns = self.net.now_ns() + bound_ns;
        while self.net.now_ns() < until_ns {
            if self.ledger.open().next().is_none() {
                return Ok(());
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        let Some((number, operation)) = self.ledger.open().next() else { return Ok(()) };
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
        all.filter(|&(from, to)| from != to && self.scenario.reaches(from, to)).collect()
    }

    /// New operations succeed within the longest back-off, and the time it takes to notice that a connection is dead.
    fn everybody_is_reached(&mut self) -> Result<(), String> {
        let config = &self.scenario.config;
        let lnd_ns = u64::from(config.timeout_s) * S;
        let backoff_ns = u64::from(config.max_reconnect_ms) * 1_000_000;
        let bound_ns = backoff_ns + 2 * lnd_ns + lnd_ns / 4 + self.scenario.transaction_timeout_ns + 10 * S;
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

    /// All that is begun now succeeds.
    fn nothing_fails_any_more(&mut self) -> Result<(), String> {
        let mut numbers = Vec::new();
        for (from, to) in self.pairs() {
            for kind in [Kind::Put { ack: true }, Kind::Get, Kind::Put { ack: false }] {
                // Each NI needs its turn; one that has not been used begins to back off from nothing.
                for _ in 0..2 * self.scenario.nis {
                    numbers.extend(self.begin(from, to, kind)?);
                }
            }
        }
        self.everything_ends()?;
        let failed = numbers.into_iter().find_map(|number| {
            let operation = self.ledger.operations.get(&number).filter(|operation| !operation.succeeded())?;
            Some((number, operation.sent, operation.answered, operation.nids))
        });
        match failed {
            Some((number, sent, answered, nids)) if self.scenario.nis == 1 => Err(format!(
                "operation {number} from {} to {} fails on a healthy network: sent {sent:?}, answered {answered:?}",
                nids.0, nids.1
            )),
            _ => Ok(()),
        }
    }

    /// Both sides have the same connections of the same lives.
    fn both_sides_agree(&mut self) -> Result<(), String> {
        // Time for the last attempts, which may have been refused and wait, and to notice that old connections are dead.
        self.run_until(self.net.now_ns() + SILENCE_NS)?;
        // Who connects anew at this very moment ends that first; and may be refused some times.
        for _ in 0..REFUSALS {
            if self.compare_sides().is_ok() {
                break;
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        self.compare_sides()?;
        // A keepalive may be under way at any moment.
        for _ in 0..KEEPALIVES {
            if self.net.on_their_way().is_none() {
                return Ok(());
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        match self.net.on_their_way() {
            None => Ok(()),
            Some((from, to, bytes)) => Err(format!("{bytes} bytes from {from} to {to} are never received")),
        }
    }

    fn compare_sides(&self) -> Result<(), String> {
        let mut sides: BTreeMap<_, Vec<(u16, i32, u64, u64)>> = BTreeMap::new();
        for node in &self.nodes {
            for Held { pair, port, conn_type, lives } in self.net.held(node.host) {
                sides.entry(pair).or_default().push((port, conn_type, lives.0, lives.1));
            }
        }
        for (pair, own) in &sides {
            let theirs = sides.get(&(pair.1, pair.0)).cloned().unwrap_or_default();
            let mut own: Vec<_> = own.iter().map(|(_, conn_type, a, b)| (*conn_type, *a, *b)).collect();
            let mut theirs: Vec<_> =
                theirs.iter().map(|(_, conn_type, a, b)| (inverse(*conn_type), *b, *a)).collect();
            own.sort_unstable();
            theirs.sort_unstable();
            if own != theirs {
                return Err(format!(
                    "{} and {} do not agree about their connections: {own:?} and {theirs:?}",
                    pair.0, pair.1
                ));
            }
            let count = |wanted| own.iter().filter(|(conn_type, ..)| *conn_type == wanted).count();
            let (control, bulk_in, bulk_out) = (count(CONTROL), count(BULK_IN), count(BULK_OUT));
            let alone = sides[pair].iter().any(|(port, ..)| *port != 0)
                || sides.get(&(pair.1, pair.0)).is_some_and(|side| side.iter().any(|(port, ..)| *port != 0));
            if control != 1 || (!alone && (bulk_in == 0 || bulk_out == 0)) {
                return Err(format!(
                    "{} and {} have no whole set of connections: {control} CONTROL, {bulk_in} BULK_IN, {bulk_out} \
                     BULK_OUT",
                    pair.0, pair.1
                ));
            }
        }
        Ok(())
    }

    /// When nothing goes on, nobody polls but for timers and keepalives.
    fn nobody_is_busy(&mut self) -> Result<(), String> {
        let (before, begun_ns) = (self.seen.polls, self.net.now_ns());
        self.run_until(begun_ns + IDLE_NS)?;
        let shards: usize = self.nodes.iter().map(|node| node.shards.len()).sum();
        let most = IDLE_NS / S * IDLE_POLLS_PER_S * shards as u64;
        match self.seen.polls - before {
            polls if polls > most => Err(format!("{polls} polls in {IDLE_NS} ns in which nothing went on")),
            _ => Ok(()),
        }
    }

    /// No message is under way: all credits are there, and nothing is queued.
    fn credits_are_home(&mut self) -> Result<(), String> {
        for (index, node) in self.nodes.iter().enumerate() {
            for &nid in &node.up {
                let ni = node.engine.ni_statistics(nid);
                let ni = ni.ok_or_else(|| format!("node {index}: no statistics of {nid}"))?;
                if ni.available_tx_credits != ni.credits || ni.credits < 1 {
                    return Err(format!("node {index} is quiet, but credits are missing: {ni:?}"));
                }
            }
            let whole = |peer: &PeerStatistics| {
                peer.available_tx_credits == peer.max_ni_tx_credits && peer.tx_q_num_of_buf == 0
            };
            if let Some(peer) = node.engine.peer_statistics().into_iter().find(|peer| !whole(peer)) {
                return Err(format!("node {index} is quiet, but credits are missing: {peer:?}"));
            }
            let counters = node.engine.counters();
            if counters.msgs_alloc > 0 || counters.rst_alloc > 0 {
                return Err(format!("node {index} is quiet, but messages or answers are left: {counters:?}"));
            }
        }
        Ok(())
    }

    /// Buffers are taken back, NIs go, and no descriptor, engine or lease is left.
    fn all_is_given_back(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            let party = self.party(node);
            let own = self.ledger.operations.values_mut().filter(|operation| operation.to == party);
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
            let open = self.net.descriptors(self.nodes[node].host);
            if open > 0 {
                return Err(format!("node {node} has no NI, but {open} sockets"));
            }
            self.check_memory(node, party.life)?;
        }
        Ok(())
    }
}

fn inverse(conn_type: i32) -> i32 {
    match conn_type {
        BULK_IN => BULK_OUT,
        BULK_OUT => BULK_IN,
        other => other,
    }
}
