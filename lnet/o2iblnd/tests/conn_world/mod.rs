//! Two connections and the network between them: reliable and in order, with delays that a seed
//! determines.
//!
//! The world counts buffers and credits itself, and records the expected result of each operation.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of this")]

mod node;
pub(crate) mod rng;
mod wire;

use lnet_api::Errno;
use lnet_o2iblnd::conn::{Limits, Receipt, ReceivedMessage};
use lnet_proto::ib::{Message, MessageKind};

use lnet_sim::Rng;
use node::{Node, Role};
pub(crate) use wire::{decode_origin, link, message, pieces};

/// A deadline that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

/// The maximum number of work requests of a transfer in these worlds, DONE included.
pub(crate) const CHAIN_MAX: u64 = 5;

/// Two nodes, and the messages between them.
pub(crate) struct World {
    pub(crate) nodes: [Node; 2],
    pub(crate) rng: Rng,
    depth: u16,
    /// True if no new operations are begun; all requests are answered.
    pub(crate) draining: bool,
    pub(crate) now_ns: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let depth = if rng.below(50) == 0 { 255 } else { rng.between((1, 16)) };
        let nodes = [0, 1].map(|index| {
            let limits = Limits {
                depth: depth as u8,
                high_water: rng.below(depth + 1) as u16,
                sends: rng.between((1, 2 * depth)) as u16,
                works: rng.between((CHAIN_MAX, 40 * depth)) as u32,
                messages: rng.between((1, 40)) as u16,
                keepalive_ns: NEVER,
            };
            Node::new(index, &limits)
        });
        World { nodes, rng, depth: depth as u16, draining: false, now_ns: 0 }
    }

    /// Creates a world whose sides both have these limits.
    pub(crate) fn of(limits: &Limits) -> World {
        let nodes = [0, 1].map(|index| Node::new(index, limits));
        World { nodes, rng: Rng::new(0), depth: limits.depth.into(), draining: false, now_ns: 0 }
    }

    /// Carries out a random step. Returns false if it is not possible now.
    pub(crate) fn step(&mut self) -> bool {
        let (at, choice) = (self.rng.index(2), self.rng.below(12));
        let happened = self.act(at, choice);
        self.check();
        happened
    }

    /// Carries out all remaining steps.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        loop {
            let mut happened = false;
            for at in 0..2 {
                for choice in 1..10 {
                    while self.act(at, choice) {
                        happened = true;
                        self.check();
                    }
                }
            }
            if !happened {
                return;
            }
        }
    }

    pub(crate) fn act(&mut self, at: usize, choice: u64) -> bool {
        match choice {
            0 | 10 => self.nodes[at].begin(&mut self.rng),
            1 => self.nodes[at].emit(self.now_ns),
            2 => self.deliver(at),
            3 => self.nodes[at].complete(),
            4 => self.process(at),
            5 | 6 => self.repost(at),
            7 => self.answer(at),
            8 | 9 => self.write(at),
            _ => self.nodes[at].withdraw(&mut self.rng),
        }
    }

    /// Delivers the oldest message in flight from this node.
    pub(crate) fn deliver(&mut self, from: usize) -> bool {
        let Some(bytes) = self.nodes[from].wire.pop_front() else { return false };
        self.nodes[from].undelivered -= 1;
        let peer = &mut self.nodes[1 - from];
        assert!(peer.buffers > 0, "a message arrives and there is no buffer for it");
        peer.buffers -= 1;
        peer.arrived.push_back(bytes);
        true
    }

    /// Lets a node process the oldest message that has arrived.
    pub(crate) fn process(&mut self, at: usize) -> bool {
        let [node, peer] = self.both(at);
        let Some(bytes) = node.arrived.pop_front() else { return false };
        let message = Message::parse(&bytes).unwrap();
        link(at).check(&message.head).unwrap();
        peer.credits_on_wire -= u32::from(message.head.credits);
        let origin = message.body.header().map(decode_origin);
        let (receipt, received) = node.conn().received(&message).unwrap();
        if matches!(message.body.kind(), MessageKind::Immediate | MessageKind::PutReq | MessageKind::GetReq) {
            node.credit_messages_in += 1;
        }
        node.receipts.push(receipt);
        match received {
            ReceivedMessage::Nothing | ReceivedMessage::Immediate => {}
            ReceivedMessage::PutReq(key) => {
                node.requests.push((key, MessageKind::PutReq, origin.unwrap()));
            }
            ReceivedMessage::GetReq(key) => node.requests.push((key, MessageKind::GetReq, origin.unwrap())),
            ReceivedMessage::PutAck { put, length } => {
                let op = *node.conn().item(put).unwrap();
                node.wanted.push((put, length, op));
            }
            ReceivedMessage::Ended(ended) => node.ended(ended),
        }
        true
    }

    fn repost(&mut self, at: usize) -> bool {
        let place = self.rng.index(self.nodes[at].receipts.len());
        self.repost_at(at, place)
    }

    /// Lets a node post the buffer of a message again.
    pub(crate) fn repost_at(&mut self, at: usize, place: usize) -> bool {
        let [node, peer] = self.both(at);
        if place >= node.receipts.len() {
            return false;
        }
        let receipt = node.receipts.swap_remove(place);
        node.buffers += 1;
        match &receipt {
            Receipt::Credit => peer.used -= 1,
            Receipt::PutReq(key) => match node.refused.iter().position(|refused| refused == key) {
                Some(place) => {
                    node.refused.swap_remove(place);
                    peer.used -= 1;
                }
                None => node.reposted.push(*key),
            },
            Receipt::Plain | Receipt::Answer => {}
        }
        node.conn().reposted(receipt);
        true
    }

    /// Lets a node answer a request.
    fn answer(&mut self, at: usize) -> bool {
        let choice = self.rng.below(4);
        let World { nodes: [a, b], rng, .. } = self;
        let (node, peer) = if at == 0 { (a, b) } else { (b, a) };
        if node.requests.is_empty() {
            return false;
        }
        let (key, kind, origin) = node.requests.swap_remove(rng.index(node.requests.len()));
        let length = peer.ops[origin].length();
        if kind == MessageKind::GetReq {
            let result = if choice == 0 { Err(Errno::ENODATA) } else { Ok(length - length / 3) };
            let op = node.note(Role::Source(result));
            node.conn().attach(key, op).unwrap();
            node.conn().done(key, result, rng.below(CHAIN_MAX) as u32, NEVER).unwrap();
            peer.ops[origin].expected = Some(result);
            return true;
        }
        let known = node.reposted.iter().position(|reposted| *reposted == key);
        if choice > 0 && known.is_none() {
            // The buffer is posted again before the payload is requested.
            node.requests.push((key, kind, origin));
            return false;
        }
        let known = known.map(|place| node.reposted.swap_remove(place));
        if choice == 0 {
            let reason = if rng.below(2) == 0 { Ok(()) } else { Err(Errno::ENOMEM) };
            assert_eq!(node.conn().nak(key, reason, NEVER), Ok(None));
            peer.ops[origin].expected = Some(reason.map(|()| 0));
            if known.is_some() {
                peer.used -= 1;
            } else {
                node.refused.push(key);
            }
            return true;
        }
        // Some answers request more than the payload.
        let wanted = if rng.below(20) == 0 { length + 1 } else { length - length / 2 };
        let op = node.note(Role::Sink { length: wanted, origin });
        node.conn().attach(key, op).unwrap();
        node.conn().ack(key, wanted, NEVER).unwrap();
        peer.ops[origin].sink = Some(op);
        if wanted > length {
            peer.ops[origin].expected = Some(Err(Errno::EPROTO));
            node.ops[op].expected = Some(Err(Errno::EPROTO));
        }
        true
    }

    /// Reports that a node has prepared the writes of a PUT.
    fn write(&mut self, at: usize) -> bool {
        let World { nodes: [a, b], rng, .. } = self;
        let (node, peer) = if at == 0 { (a, b) } else { (b, a) };
        if node.wanted.is_empty() {
            return false;
        }
        let (key, length, op) = node.wanted.swap_remove(rng.index(node.wanted.len()));
        let result = if rng.below(8) == 0 { Err(Errno::EMSGSIZE) } else { Ok(length) };
        node.conn().done(key, result, rng.below(CHAIN_MAX) as u32, NEVER).unwrap();
        node.ops[op].expected = Some(result);
        peer.ops[node.ops[op].sink.unwrap()].expected = Some(result);
        true
    }

    fn both(&mut self, at: usize) -> [&mut Node; 2] {
        let [a, b] = &mut self.nodes;
        if at == 0 { [a, b] } else { [b, a] }
    }

    /// Checks that no credit is lost or created.
    fn check(&self) {
        for (node, peer) in [(0, 1), (1, 0)].map(|(node, peer)| (&self.nodes[node], &self.nodes[peer])) {
            let (Some(conn), Some(other)) = (&node.conn, &peer.conn) else { continue };
            let (own, theirs) = (conn.counts(), other.counts());
            let all =
                u32::from(own.credits) + u32::from(theirs.outstanding) + peer.credits_on_wire + node.used;
            assert_eq!(all, self.depth.into(), "credits: {own:?}, {theirs:?}, {} used", node.used);
            assert!(own.reserved <= self.depth);
            assert_eq!(own.posted, node.posted.len());
        }
    }

    /// Checks that all operations have ended well, nothing of them is left, and all credits have
    /// returned.
    pub(crate) fn check_end(&mut self) {
        for at in 0..2 {
            let node = &mut self.nodes[at];
            for (id, op) in node.ops.iter().enumerate() {
                assert!(op.ended || op.withdrawn, "operation {id} of node {at} never ends: {op:?}");
            }
            let counts = node.conn().counts();
            assert_eq!((counts.operations, counts.own, counts.queued, counts.posted), (0, 0, 0, 0));
            assert_eq!(counts.reserved, self.depth);
            assert_eq!(node.buffers, 2 * u32::from(self.depth) + 2);
            assert_eq!((node.used, node.refused.len(), node.reposted.len()), (0, 0, 0));
            assert!(node.noops <= node.credit_messages_in, "{} NOOPs", node.noops);
        }
    }

    /// Loses the connection now.
    pub(crate) fn lose(&mut self) {
        for node in &mut self.nodes {
            for ended in node.conn.take().unwrap().close() {
                let errno = if node.ops[ended.item].left { Errno::EIO } else { Errno::ECONNABORTED };
                assert_eq!(ended.outcome, Err(errno), "{:?}", node.ops[ended.item]);
                let op = &mut node.ops[ended.item];
                assert!(!std::mem::replace(&mut op.ended, true) && !op.withdrawn, "{op:?} ends twice");
            }
            for op in &node.ops {
                assert!(op.ended || op.withdrawn, "{op:?} is lost with the connection");
            }
        }
    }
}
