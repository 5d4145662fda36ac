//! Messages that wait on a lazy portal for a buffer that comes later, or never (lnet-semantics 11;
//! S-109, S-310).

use lnet_api::{Errno, LNet};
use lnet_lnd::Config;
use lnet_nid::Portal;

use super::operations::{Kind, Operation, Party};
use super::{Later, World};
use crate::kit::Transport;

const LAZY_PORTAL: u32 = 35;

const MS: u64 = 1_000_000;

/// The time within which everything arrives on a healthy network; short compared with every
/// timeout.
const COMES_NS: u64 = 1_000 * MS;

/// Chance in 10,000 that the waiting messages are lost with their connections.
const CUT: u32 = 3_000;

/// Chance in 10,000 that the waiting messages wait longer than any timeout, with other messages
/// behind them.
const LONG: u32 = 3_000;

/// The length of such a long wait, in timeouts.
const LONG_TIMEOUTS: u64 = 4;

/// The number of messages from each node to each other that must wait.
const HELD: usize = 4;

/// A node's counters of dropped messages.
struct Drops {
    all: u64,
    /// Messages for which the LND had no memory.
    beyond: u64,
}

pub(super) fn portal() -> Portal {
    Portal::new(LAZY_PORTAL).unwrap_or(Portal::RESERVED)
}

impl<T: Transport> World<T> {
    /// Begins a PUT for which there is no buffer yet.
    pub(super) fn begin_unposted(
        &mut self,
        from: usize,
        to: usize,
        kind: Kind,
    ) -> Result<Option<u64>, String> {
        let begun = self.begin_at(from, to, kind, portal(), false)?;
        self.unposted.extend(begun);
        self.seen.nodes.expected_later += u64::from(begun.is_some());
        Ok(begun)
    }

    /// Posts a late buffer, or makes a portal non-lazy for a while.
    pub(super) fn attend_to_lazy(&mut self) -> Result<(), String> {
        let node = self.rng.index(self.nodes.len());
        if self.rng.chance(2_000) {
            self.set_lazy(node, false)?;
            let rest_ns = self.rng.pick(&[0, MS, 1_000 * MS]);
            self.plan_later(rest_ns, Later::Lazy(node));
            return Ok(());
        }
        if self.unposted.is_empty() {
            return Ok(());
        }
        let number = self.unposted.swap_remove(self.rng.index(self.unposted.len()));
        self.post_late(number)
    }

    /// Posts the buffer of an operation that has begun, if its target is still alive.
    fn post_late(&mut self, number: u64) -> Result<(), String> {
        let Some(to) = self.table.operations.get(&number).map(|operation| operation.to) else {
            return Ok(());
        };
        let node = to.node;
        if !self.nodes[node].alive || to != self.party(node) {
            return Ok(());
        }
        self.trace(|| format!("node {node}: posts the buffer of operation {number}"));
        let before = self.held(node);
        self.post(number, portal())?;
        let met = before - self.held(node);
        if met > 1 {
            return Err(format!("the buffer of operation {number} meets {met} messages that were held"));
        }
        if let Some(operation) = self.table.operations.get_mut(&number) {
            operation.met = met == 1;
        }
        self.seen.nodes.held_and_met += met;
        self.note_held(node);
        self.look(node);
        self.check()
    }

    /// Makes a node's lazy portal lazy or non-lazy; with the latter, waiting messages are dropped,
    /// each once.
    pub(super) fn set_lazy(&mut self, node: usize, lazy: bool) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        self.trace(|| format!("node {node}: lazy: {lazy}"));
        let (held, before) = (self.held(node), self.nodes[node].engine.counters().drop_count);
        self.nodes[node].engine.set_lazy(portal(), lazy);
        let dropped = self.nodes[node].engine.counters().drop_count - before;
        if dropped != if lazy { 0 } else { held } {
            return Err(format!("node {node}, lazy: {lazy}: holds {held} messages, and drops {dropped}"));
        }
        self.seen.nodes.held_and_dropped += dropped;
        self.note_held(node);
        self.look(node);
        self.check()
    }

    fn held(&self, node: usize) -> u64 {
        self.nodes[node].engine.waiting(portal()) as u64
    }

    /// Records the number of messages that a node holds, after an action of its program.
    pub(super) fn note_held(&mut self, node: usize) {
        let lnd = &self.nodes[node].lnd;
        self.nodes[node].held = (self.held(node), T::losses(lnd) + T::dropped_beyond(lnd));
    }

    /// Checks that held messages are lost only by the program's action, with their connection, or
    /// for lack of memory.
    pub(super) fn check_held(&mut self, node: usize) -> Result<(), String> {
        let (before, lost) = self.nodes[node].held;
        self.note_held(node);
        let (now, now_lost) = self.nodes[node].held;
        let cut = before.saturating_sub(now);
        if cut > 0 && lost == now_lost {
            return Err(format!(
                "node {node} held {before} messages, holds {now}, and has lost no connection and dropped none"
            ));
        }
        self.seen.nodes.held_and_cut += cut;
        Ok(())
    }

    /// Posts the buffers of all waiting messages, or has the messages dropped.
    pub(super) fn no_waiter_is_left(&mut self) -> Result<(), String> {
        for number in std::mem::take(&mut self.unposted) {
            if self.rng.chance(5_000) {
                self.post_late(number)?;
            }
        }
        (0..self.nodes.len()).try_for_each(|node| self.set_lazy(node, false))
    }

    /// Checks that each buffer that has met a message gets one event for it.
    pub(super) fn what_was_met_is_received(&mut self) -> Result<(), String> {
        let until_ns = self.net.now_ns() + 3 * self.scenario.transport.timeout_ns();
        loop {
            let reported = |operation: &Operation| operation.delivered + operation.failed;
            let here = |party: Party| self.party(party.node) == party;
            let mut met =
                self.table.operations.iter().filter(|(_, operation)| operation.met && here(operation.to));
            let Some((number, operation)) = met.find(|(_, operation)| reported(operation) != 1) else {
                return Ok(());
            };
            if reported(operation) > 1 || self.net.now_ns() > until_ns {
                return Err(format!(
                    "the buffer of operation {number} met a message that was held; {} were delivered, {} failed",
                    operation.delivered, operation.failed
                ));
            }
            self.run_until(self.net.now_ns() + COMES_NS)?;
        }
    }

    /// Runs the world while a condition holds. Needed because a message without an ACK ends for its
    /// sender when the sockets have it, and may still be in flight.
    fn run_while(&mut self, is_on_its_way: impl Fn(&Self) -> bool) -> Result<(), String> {
        let until_ns = self.net.now_ns() + self.scenario.transport.timeout_ns();
        while is_on_its_way(self) && self.net.now_ns() < until_ns {
            self.run_until(self.net.now_ns() + COMES_NS)?;
        }
        Ok(())
    }

    /// Checks on a healthy network that a held message is received once its buffer is posted; else
    /// it is dropped, or cut with its connection.
    pub(super) fn what_waits_goes_on(&mut self) -> Result<(), String> {
        (0..self.nodes.len()).try_for_each(|node| self.set_lazy(node, true))?;
        let before: Vec<Drops> = (0..self.nodes.len()).map(|node| self.drops(node)).collect();
        let numbers = self.begin_held()?;
        if self.rng.chance(CUT) {
            return self.what_is_in_memory_outlives_its_connection(numbers);
        }
        if self.scenario.nis == 1 && self.rng.chance(LONG) {
            return self.what_is_held_waits_for_long(numbers);
        }
        self.what_is_met_is_received_and_the_rest_dropped(numbers, &before)
    }

    /// Begins messages between all nodes that must wait for their buffers, and checks that every
    /// node that can hold messages does.
    fn begin_held(&mut self) -> Result<Vec<u64>, String> {
        for (from, to) in self.pairs() {
            for number in 0..HELD {
                self.begin_unposted(from, to, Kind::Put { ack: number % 2 == 0 })?;
            }
        }
        self.run_until(self.net.now_ns() + COMES_NS)?;
        let alone = (0..self.nodes.len()).find(|node| self.held(*node) == 0);
        // A held message that does not fit into the sockets keeps its sender's credit: with few
        // credits, no other message leaves.
        let enough = self.scenario.transport.conns_and_credits(0).1 >= HELD * self.nodes.len();
        let holds =
            |node: &usize| !self.drops_beyond(*node) && self.scenario.nis == 1 && self.is_asked(*node);
        if let Some(node) = alone.filter(|node| enough && holds(node)) {
            return Err(format!("node {node} holds nothing, and its buffers are not posted"));
        }
        Ok(std::mem::take(&mut self.unposted))
    }

    /// Posts the buffers of about half of the messages, and checks that these are received, and that
    /// the others are dropped, each counted once since `before`.
    fn what_is_met_is_received_and_the_rest_dropped(
        &mut self,
        numbers: Vec<u64>,
        before: &[Drops],
    ) -> Result<(), String> {
        let (met, mut dropped): (Vec<u64>, Vec<u64>) =
            numbers.into_iter().partition(|_| self.rng.chance(5_000));
        met.iter().rev().try_for_each(|number| self.post_late(*number))?;
        self.run_until(self.net.now_ns() + COMES_NS / 2)?;
        (0..self.nodes.len()).try_for_each(|node| self.set_lazy(node, false))?;
        self.everything_ends()?;
        self.what_was_met_is_received()?;
        self.run_while(|world| {
            let mut met = met.iter().map(|number| &world.table.operations[number]);
            met.any(|operation| operation.succeeded() && operation.delivered + operation.failed == 0)
        })?;
        if self.scenario.nis > 1 {
            // An NI that has not been used may still be in a back-off.
            return Ok(());
        }
        // Messages that arrived when there was no memory left were dropped at once, and counted.
        let (met, beyond): (Vec<u64>, Vec<u64>) = met.into_iter().partition(|number| {
            let operation = &self.table.operations[number];
            operation.met || operation.delivered > 0 || !self.drops_beyond(operation.to.node)
        });
        self.seen.nodes.held_beyond += beyond.len() as u64;
        dropped.extend(&beyond);
        for (node, before) in before.iter().enumerate() {
            self.check_drops(node, before, &dropped, &beyond)?;
        }
        self.check_outcomes(&met, |operation| operation.succeeded() && operation.delivered == 1)?;
        self.check_outcomes(&dropped, |operation| {
            let answer = (operation.kind == Kind::Put { ack: true }).then_some(Err(Errno::ETIMEDOUT));
            let sent =
                if T::SENT_WHILE_HELD { operation.sent == Some(Ok(())) } else { operation.sent.is_some() };
            operation.delivered == 0 && sent && operation.answered == answer
        })
    }

    /// Checks that a node has counted the messages to it that were dropped, those for which it had no
    /// memory apart.
    fn check_drops(
        &mut self,
        node: usize,
        before: &Drops,
        dropped: &[u64],
        beyond: &[u64],
    ) -> Result<(), String> {
        let to_it = |world: &Self, numbers: &[u64]| {
            numbers.iter().filter(|number| world.table.operations[number].to.node == node).count()
        };
        let (beyond, counted) = (to_it(self, beyond) as u64, self.drops(node).beyond - before.beyond);
        if beyond > counted {
            return Err(format!("node {node} has not taken {beyond} messages, and dropped {counted}"));
        }
        let expected = to_it(self, dropped);
        // Answers to operations that have failed before may arrive only at this point.
        let given_up = |operation: &&Operation| operation.from.node == node && !operation.succeeded();
        let late = self.table.operations.values().filter(given_up).count();
        let counted = |world: &Self| (world.drops(node).all - before.all) as usize;
        self.run_while(|world| counted(world) < expected)?;
        let is = counted(self);
        if !(expected..=expected + late).contains(&is) {
            return Err(format!("node {node} drops {is} messages, but {expected} were not met"));
        }
        Ok(())
    }

    fn drops(&self, node: usize) -> Drops {
        let node = &self.nodes[node];
        Drops { all: node.engine.counters().drop_count, beyond: T::dropped_beyond(&node.lnd) }
    }

    /// Checks that sent messages held on connections, or waiting behind such, are lost with these
    /// connections, and that messages in memory are not.
    fn what_is_in_memory_outlives_its_connection(&mut self, numbers: Vec<u64>) -> Result<(), String> {
        let sent = |number: &u64| self.table.operations[number].sent == Some(Ok(()));
        let gone: Vec<u64> = numbers.iter().copied().filter(sent).collect();
        for (a, b) in self.pairs() {
            self.net.reset(a, b);
        }
        // The ends of the connections are detected before any buffer is posted.
        self.run_until(self.net.now_ns() + COMES_NS)?;
        let in_memory: Vec<usize> = self.nodes.iter().map(|node| node.lnd.held()).collect();
        numbers.iter().try_for_each(|number| self.post_late(*number))?;
        (0..self.nodes.len()).try_for_each(|node| self.set_lazy(node, false))?;
        self.everything_ends()?;
        self.what_was_met_is_received()?;
        self.check_outcomes(&gone, |operation| operation.delivered <= 1)?;
        for (node, in_memory) in in_memory.into_iter().enumerate() {
            let delivered = |numbers: &[u64]| {
                let to_it = numbers.iter().map(|number| &self.table.operations[number]);
                to_it.filter(|it| it.to.node == node && it.delivered == 1).count()
            };
            // Some messages in memory may not have been reported as sent, and messages that had not
            // left have been sent again.
            if !(delivered(&gone)..=delivered(&numbers)).contains(&in_memory) {
                return Err(format!(
                    "node {node} had {in_memory} messages in memory, and takes {}",
                    delivered(&gone)
                ));
            }
        }
        Ok(())
    }

    /// Checks that no node closes its connection to a peer that holds messages back, whatever waits
    /// behind them: messages reported as sent are received when their buffers are posted.
    fn what_is_held_waits_for_long(&mut self, mut numbers: Vec<u64>) -> Result<(), String> {
        let losses = |world: &Self| world.nodes.iter().map(|node| T::losses(&node.lnd)).collect::<Vec<u64>>();
        let before = losses(self);
        for (from, to) in self.pairs() {
            for _ in 0..HELD {
                numbers.extend(self.begin_unposted(from, to, Kind::Put { ack: false })?);
            }
        }
        self.unposted.clear();
        self.run_until(self.net.now_ns() + LONG_TIMEOUTS * self.scenario.transport.timeout_ns())?;
        if losses(self) != before {
            return Err(format!(
                "nodes hold messages, and have lost {before:?}, then {:?} peers",
                losses(self)
            ));
        }
        self.seen.nodes.held_for_long += self.nodes.iter().map(|node| node.lnd.held() as u64).sum::<u64>();
        let sent = |number: &u64| self.table.operations[number].sent == Some(Ok(()));
        let gone: Vec<u64> = numbers.iter().copied().filter(sent).collect();
        numbers.iter().try_for_each(|number| self.post_late(*number))?;
        self.everything_ends()?;
        self.what_was_met_is_received()?;
        let is_kept = |number: &&u64| !self.drops_beyond(self.table.operations[*number].to.node);
        let kept: Vec<u64> = gone.iter().copied().filter(|number| is_kept(&number)).collect();
        self.run_while(|world| kept.iter().any(|number| world.table.operations[number].delivered == 0))?;
        (0..self.nodes.len()).try_for_each(|node| self.set_lazy(node, false))?;
        self.check_outcomes(&kept, |operation| operation.delivered == 1)?;
        self.check_outcomes(&numbers, |operation| operation.delivered <= 1)
    }

    fn check_outcomes(&self, numbers: &[u64], good: impl Fn(&Operation) -> bool) -> Result<(), String> {
        let wrong = numbers.iter().find(|number| !good(&self.table.operations[number]));
        let Some(number) = wrong else { return Ok(()) };
        let Operation { kind, sent, answered, delivered, failed, met, .. } = &self.table.operations[number];
        Err(format!(
            "operation {number} ({kind:?}) on a lazy portal, held when its buffer came: {met}: sent {sent:?}, answered \
             {answered:?}, {delivered} delivered, {failed} failed"
        ))
    }

    /// Returns whether a node drops messages for which it has no memory.
    fn drops_beyond(&self, node: usize) -> bool {
        self.nodes[node].lnd.config().held().drop_beyond
    }

    /// Returns whether any node can send to a node.
    fn is_asked(&self, node: usize) -> bool {
        self.pairs().iter().any(|(_, to)| *to == node)
    }
}
