//! Two nodes that connect to each other, over a network that delivers in any order, or not at all.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::{BTreeMap, BTreeSet};

use lnet_o2iblnd::links::{AttemptOutcome, ConnAnswer, LinkId, NextStep};
use lnet_proto::ib::{
    AcceptRules, Destination, Known, LocalInterface, Reject, RejectReason, Rejection, Version,
};

use lnet_sim::Rng;

mod node;

pub(crate) use node::{EstablishedLink, Node, NodeConfig};

pub(crate) const S: u64 = 1_000_000_000;

/// An event in flight.
#[derive(Clone, Debug)]
enum Event {
    Request {
        from: usize,
        id: LinkId,
        bytes: Vec<u8>,
        life: u64,
    },
    Accepted {
        to: usize,
        id: LinkId,
        life: u64,
        accepted: LinkId,
        pair: u32,
        bytes: Vec<u8>,
    },
    Rejected {
        to: usize,
        id: LinkId,
        life: u64,
        record: Option<Vec<u8>>,
    },
    /// The active side has established the connection.
    Confirmed {
        to: usize,
        id: LinkId,
        life: u64,
        pair: u32,
    },
    Closed {
        to: usize,
        pair: u32,
    },
}

pub(crate) struct World {
    pub(crate) nodes: [Node; 2],
    pub(crate) now_ns: u64,
    events: Vec<Event>,
    pairs: u32,
    /// Connections that one side has closed.
    dead: BTreeSet<u32>,
}

impl World {
    pub(crate) fn new(configs: [NodeConfig; 2]) -> World {
        let [a, b] = configs;
        World {
            nodes: [Node::new(0, a, 100), Node::new(1, b, 200)],
            now_ns: 0,
            events: Vec::new(),
            pairs: 0,
            dead: BTreeSet::new(),
        }
    }

    /// Carries out a node's own actions: sends waiting messages, begins due attempts, ends overdue
    /// ones.
    pub(crate) fn act(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        if node.waiting && node.links.pick(|_| true).is_some_and(|id| node.live.contains_key(&id)) {
            node.waiting = false;
            node.sent += 1;
            return true;
        }
        if let Some(id) = node.links.overdue(self.now_ns) {
            node.dialling.remove(&id);
            if let Some(link) = node.accepting.remove(&id) {
                self.dead.insert(link.pair);
                self.events.push(Event::Closed { to: 1 - at, pair: link.pair });
            }
            let outcome = node.links.failed(id, self.now_ns);
            node.fail(&outcome);
            return true;
        }
        match node.links.next(self.now_ns, node.waiting) {
            NextStep::Connect => {
                let (id, deadline_ns) = node.links.begin(self.now_ns);
                assert_eq!(deadline_ns, self.now_ns + 12 * S + S / 2);
                node.attempts += 1;
                node.dialling.insert(id);
                self.dial(at, id);
                true
            }
            NextStep::Unreachable if node.waiting => {
                node.fail(&AttemptOutcome::Failed);
                true
            }
            _ => false,
        }
    }

    fn dial(&mut self, from: usize, id: LinkId) {
        let node = &mut self.nodes[from];
        let made = node.config.made(node.links.params());
        let bytes = node.links.request(id, made).unwrap().to_vec();
        self.events.push(Event::Request { from, id, bytes, life: node.end.stamp });
    }

    /// Returns the time of a node's next own action.
    fn wakes_ns(&self, at: usize) -> Option<u64> {
        let node = &self.nodes[at];
        let next = match node.links.next(self.now_ns, node.waiting) {
            NextStep::Wait { until_ns } => Some(until_ns),
            _ => None,
        };
        [next, node.links.deadline_ns()].into_iter().flatten().min()
    }

    /// Carries out one event. Returns false if none is left.
    pub(crate) fn step(&mut self, rng: &mut Rng) -> bool {
        let first = rng.index(2);
        if rng.below(2) == 0 && (self.act(first) || self.act(1 - first)) {
            return true;
        }
        if !self.events.is_empty() {
            let event = self.events.swap_remove(rng.index(self.events.len()));
            self.deliver(event);
            return true;
        }
        if self.act(first) || self.act(1 - first) {
            return true;
        }
        let Some(until_ns) = [0, 1].into_iter().filter_map(|at| self.wakes_ns(at)).min() else {
            return false;
        };
        assert!(until_ns > self.now_ns, "it wakes for nothing");
        self.now_ns = until_ns;
        true
    }

    /// Carries out events until none is left.
    pub(crate) fn settle(&mut self, rng: &mut Rng) {
        for _ in 0..20_000 {
            if !self.step(rng) {
                return;
            }
        }
        panic!("they never come to rest");
    }

    /// Loses an event in flight.
    pub(crate) fn lose_event(&mut self, rng: &mut Rng) {
        // The news of a connection's end is never lost.
        let lossy: Vec<_> =
            (0..self.events.len()).filter(|at| !matches!(self.events[*at], Event::Closed { .. })).collect();
        if let Some(&at) = lossy.get(rng.index(lossy.len())) {
            let event = self.events.swap_remove(at);
            // A connection that is accepted and never established ends by the deadline of either
            // side.
            if let Event::Confirmed { to, pair, .. } = event {
                self.events.push(Event::Closed { to: 1 - to, pair });
            }
        }
    }

    /// Breaks a connection; both sides are notified.
    pub(crate) fn break_one(&mut self, rng: &mut Rng) {
        let pairs: Vec<u32> = self.nodes[0].live.values().map(|link| link.pair).collect();
        if let Some(&pair) = pairs.get(rng.index(pairs.len())) {
            self.events.extend([0, 1].map(|to| Event::Closed { to, pair }));
        }
    }

    /// Restarts a node without state. The other node detects this later.
    pub(crate) fn restart(&mut self, at: usize) {
        let Node { config, end, live, accepting, .. } = &self.nodes[at];
        let closed: Vec<_> = live
            .values()
            .chain(accepting.values())
            .map(|link| Event::Closed { to: 1 - at, pair: link.pair })
            .collect();
        let (sent, failed, attempts) = (self.nodes[at].sent, self.nodes[at].failed, self.nodes[at].attempts);
        self.nodes[at] = Node { sent, failed, attempts, ..Node::new(at, *config, end.stamp + 1) };
        self.events.extend(closed);
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Request { from, id, bytes, life } => self.asked(1 - from, id, life, &bytes),
            Event::Accepted { to, id, life, accepted, pair, bytes } => {
                self.accepted(to, id, life, accepted, pair, &bytes)
            }
            Event::Rejected { to, id, life, record } => self.rejected(to, id, life, record.as_deref()),
            Event::Confirmed { to, id, life, .. } => {
                let now_ns = self.now_ns;
                let node = &mut self.nodes[to];
                if life == node.end.stamp
                    && let Some(link) = node.accepting.remove(&id)
                {
                    let close_others = node.links.established(id, link.life, now_ns);
                    node.live.insert(id, link);
                    self.close_others(to, close_others, id);
                }
            }
            Event::Closed { to, pair } => self.closed(to, pair),
        }
    }

    /// Handles a connection request.
    fn asked(&mut self, at: usize, id: LinkId, life: u64, bytes: &[u8]) {
        let node = &mut self.nodes[at];
        let interface = LocalInterface { end: node.end, limits: node.config.params() };
        let listener = AcceptRules {
            require_privileged: false,
            oldest: Version::V2,
            destination: |_| Destination::Ready(interface),
        };
        let reject = |record: &Reject| {
            let mut bytes = [0; Reject::LEN];
            record.emit(&mut bytes).unwrap();
            Event::Rejected { to: 1 - at, id, life, record: Some(bytes.to_vec()) }
        };
        let offer = match listener.judge(1023, bytes) {
            Ok(offer) => offer,
            Err(refusal) => return self.events.push(reject(&refusal.record)),
        };
        if !node.dialling.is_empty() && node.config.races > 0 {
            node.config.races -= 1;
            return self.events.push(reject(&offer.refuse(RejectReason::ConnRace)));
        }
        match node.links.offered(&offer, self.now_ns) {
            ConnAnswer::Accept { id: accepted, deadline_ns } => {
                assert!(deadline_ns > self.now_ns);
                let params = node.config.made(offer.asked);
                let life_of_peer = Known { version: offer.link.version, stamp: offer.link.peer.stamp };
                self.pairs += 1;
                let link = EstablishedLink { pair: self.pairs, own: false, life: life_of_peer, params };
                node.accepting.insert(accepted, link);
                let bytes = offer.accept(params).unwrap().to_vec();
                self.events.push(Event::Accepted { to: 1 - at, id, life, accepted, pair: self.pairs, bytes });
            }
            ConnAnswer::Reject { refusal, close_all } => {
                assert!(close_all, "there are not that many");
                self.events.push(reject(&refusal.record));
                self.close_others(at, true, LinkId(u32::MAX));
            }
        }
    }

    fn accepted(&mut self, at: usize, id: LinkId, life: u64, accepted: LinkId, pair: u32, bytes: &[u8]) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[at];
        let granted = (life == node.end.stamp).then(|| node.links.granted(id, bytes)).and_then(Result::ok);
        let Some(established) = granted else {
            // The attempt has already ended: the peer is notified.
            return self.events.push(Event::Closed { to: 1 - at, pair });
        };
        node.dialling.remove(&id);
        let known = Known { version: established.link.version, stamp: established.link.peer.stamp };
        let close_others = node.links.established(id, known, now_ns);
        node.live.insert(id, EstablishedLink { pair, own: true, life: known, params: established.params });
        let life = established.link.peer.stamp;
        if life != self.nodes[1 - at].end.stamp || self.dead.contains(&pair) {
            // The peer has accepted, and then restarted or ended the attempt.
            self.events.push(Event::Closed { to: at, pair });
        }
        self.events.push(Event::Confirmed { to: 1 - at, id: accepted, life, pair });
        self.close_others(at, close_others, id);
    }

    fn rejected(&mut self, at: usize, id: LinkId, life: u64, record: Option<&[u8]>) {
        let node = &mut self.nodes[at];
        if life != node.end.stamp {
            return;
        }
        let rejection = record.map_or(Rejection::NoListener, Rejection::Record);
        let outcome = match node.links.rejected(id, rejection, node.waiting, self.now_ns) {
            Ok(outcome) | Err((_, outcome)) => outcome,
        };
        node.fail(&outcome);
        match outcome {
            AttemptOutcome::Again { close_all } => {
                self.close_others(at, close_all, id);
                self.dial(at, id);
            }
            _ => _ = node.dialling.remove(&id),
        }
    }

    fn close_others(&mut self, at: usize, close: bool, but: LinkId) {
        if !close {
            return;
        }
        let node = &mut self.nodes[at];
        let others: Vec<_> = node.live.keys().copied().filter(|id| *id != but).collect();
        for id in others {
            let link = node.live.remove(&id).unwrap();
            node.links.lost(id, self.now_ns);
            self.events.push(Event::Closed { to: 1 - at, pair: link.pair });
        }
    }

    fn closed(&mut self, to: usize, pair: u32) {
        let now_ns = self.now_ns;
        self.dead.insert(pair);
        let node = &mut self.nodes[to];
        let of = |held: &BTreeMap<LinkId, EstablishedLink>| {
            held.iter().find(|(_, one)| one.pair == pair).map(|(id, _)| *id)
        };
        if let Some(id) = of(&node.live) {
            node.live.remove(&id);
            node.links.lost(id, now_ns);
            assert_eq!(node.links.is_connected(), !node.live.is_empty());
        } else if let Some(id) = of(&node.accepting) {
            node.accepting.remove(&id);
            let outcome = node.links.failed(id, now_ns);
            node.fail(&outcome);
        }
    }

    /// Checks that both nodes know the same connections, of their current incarnations.
    pub(crate) fn check(&self) {
        let [a, b] = &self.nodes;
        for (node, peer) in [(a, b), (b, a)] {
            assert_eq!(node.links.connections().len(), node.live.len());
            assert!(node.live.values().all(|link| link.life.stamp == peer.end.stamp), "{:?}", node.live);
            assert!(node.accepting.is_empty() && node.links.deadline_ns().is_none(), "an attempt is left");
            let own = node.live.values().filter(|link| link.own).count();
            assert!(own <= node.config.conns.into());
        }
        let pairs = [a, b].map(|node| {
            let mut pairs: Vec<_> = node.live.values().map(|link| (link.pair, link.params)).collect();
            pairs.sort_unstable_by_key(|(pair, _)| *pair);
            pairs
        });
        assert_eq!(pairs[0], pairs[1]);
    }
}
