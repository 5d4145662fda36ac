//! Any operations in any order: each MD ends once, all resources are returned, and nothing waits
//! forever.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{AckRequest, Errno, LNet, MdHandle, MdOptions, NiLimits, Tx, Unlink, Upcalls};
use proptest::prelude::*;
use proptest::sample::Index;

use super::common::*;

#[derive(Debug, Clone)]
enum Step {
    Post { bits: u64, get: bool, operations: u32 },
    Put { bits: u64, ack: bool, bytes: usize },
    Get { bits: u64, bytes: usize },
    Unlink(Index),
    Deliver(Index),
    DeliverUnfinalised(Index),
    Finalise(Index),
    Lose(Index),
    Fail(Index),
    LosePeer,
    Advance(u64),
    Sending(u8),
    Withdraws(bool),
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let bits = || 0u64..3;
    let bytes = || prop_oneof![Just(0usize), 1usize..70];
    let index = any::<Index>;
    let step = prop_oneof![
        4 => (bits(), any::<bool>(), 1u32..4).prop_map(|(bits, get, operations)| Step::Post { bits, get, operations }),
        4 => (bits(), any::<bool>(), bytes()).prop_map(|(bits, ack, bytes)| Step::Put { bits, ack, bytes }),
        4 => (bits(), bytes()).prop_map(|(bits, bytes)| Step::Get { bits, bytes }),
        2 => index().prop_map(Step::Unlink),
        8 => index().prop_map(Step::Deliver),
        2 => index().prop_map(Step::DeliverUnfinalised),
        2 => index().prop_map(Step::Finalise),
        1 => index().prop_map(Step::Lose),
        1 => index().prop_map(Step::Fail),
        1 => Just(Step::LosePeer),
        1 => (0u64..100).prop_map(Step::Advance),
        1 => (0u8..6).prop_map(Step::Sending),
        1 => any::<bool>().prop_map(Step::Withdraws),
    ];
    prop::collection::vec((any::<bool>(), step), 1..150)
}

/// Two nodes with few credits, and the record of operations on them.
struct World {
    network: Arc<Network>,
    nodes: [Node; 2],
    made: [Vec<MdHandle>; 2],
    ended: [HashSet<MdHandle>; 2],
    /// Messages that have arrived, but are not finalised at their senders yet.
    unfinalised: Vec<(usize, Tx)>,
    now_ns: u64,
}

impl World {
    fn new() -> World {
        let network = Network::new();
        *network.limits.lock() = NiLimits { credits: 4, peer_credits: 3, timeout_ns: 20_000_000_000 };
        let nodes = [Node::new(&network, 2), Node::new(&network, 3)];
        World {
            network,
            nodes,
            made: Default::default(),
            ended: Default::default(),
            unfinalised: Vec::new(),
            now_ns: 0,
        }
    }

    fn play(&mut self, owner: usize, step: Step) {
        let (node, other) = (&self.nodes[owner], &self.nodes[1 - owner]);
        match step {
            Step::Post { bits, get, operations } => {
                let options = if get { MdOptions::OP_GET } else { MdOptions::OP_PUT };
                let md = node.md(&memory(100), options | MdOptions::TRUNCATE, operations);
                let md = node.engine.md_attach(node.post(bits), md, Unlink::Auto).unwrap();
                self.made[owner].push(md);
            }
            Step::Put { bits, ack, bytes } => {
                let (threshold, ack) = if ack { (2, AckRequest::Ack) } else { (1, AckRequest::NoAck) };
                let md = node.bind(&memory(bytes), threshold);
                node.put(md, other.id(), bits, ack).unwrap();
                self.made[owner].push(md);
            }
            Step::Get { bits, bytes } => {
                let md = node.bind(&memory(bytes), 2);
                node.get(md, other.id(), bits).unwrap();
                self.made[owner].push(md);
            }
            Step::Unlink(at) if !self.made[owner].is_empty() => {
                let md = self.made[owner][at.index(self.made[owner].len())];
                let result = node.engine.md_unlink(md);
                assert!(result.is_ok() || result.unwrap_err().errno() == Errno::ENOENT);
            }
            Step::Finalise(at) if !self.unfinalised.is_empty() => {
                let (owner, tx) = self.unfinalised.swap_remove(at.index(self.unfinalised.len()));
                self.nodes[owner].finalize(tx);
            }
            Step::LosePeer => {
                let (lost, reason) = (other.nid, Errno::ECONNRESET);
                while let Some(index) = self.unfinalised.iter().position(|(sender, _)| *sender == owner) {
                    let (_, tx) = self.unfinalised.swap_remove(index);
                    let token = tx.token;
                    drop(tx);
                    self.nodes[owner].engine.finalize_tx(token, Err(reason));
                }
                self.network.lose_peer(self.nodes[owner].nid, lost, reason);
            }
            Step::Advance(seconds) => {
                self.now_ns += seconds * 1_000_000_000;
                for node in &self.nodes {
                    node.engine.advance(self.now_ns);
                }
            }
            Step::Sending(kind) => {
                *self.network.sending.lock() = match kind {
                    0 => Sending::Fail(Errno::EHOSTUNREACH),
                    1 | 2 => Sending::Now,
                    _ => Sending::Later,
                };
            }
            Step::Withdraws(withdraws) => self.network.withdraws.store(withdraws, Ordering::Relaxed),
            Step::Unlink(_) | Step::Finalise(_) => {}
            Step::Deliver(at) | Step::DeliverUnfinalised(at) | Step::Lose(at) | Step::Fail(at) => {
                self.treat_message(at, &step);
            }
        }
        self.look_at_events();
    }

    fn treat_message(&mut self, at: Index, step: &Step) {
        let under_way = self.network.queue.lock().len();
        if under_way == 0 {
            return;
        }
        let at = at.index(under_way);
        match step {
            Step::Lose(_) => self.network.lose(at),
            Step::Fail(_) => self.network.fail(at, Errno::EIO),
            _ => {
                let mut packet = self.network.take(at).unwrap();
                if let Some(tx) = packet.tx.take() {
                    let sender = usize::from(packet.from == self.nodes[1].nid);
                    match step {
                        Step::DeliverUnfinalised(_) => self.unfinalised.push((sender, tx)),
                        _ => self.nodes[sender].finalize(tx),
                    }
                }
                self.network.arrive(packet);
            }
        }
    }

    fn look_at_events(&mut self) {
        for (owner, node) in self.nodes.iter().enumerate() {
            assert_eq!(node.engine.audit(), Ok(()));
            for event in node.events() {
                assert!(!self.ended[owner].contains(&event.md), "an event after the last one: {event:?}");
                if event.unlinked {
                    self.ended[owner].insert(event.md);
                }
            }
        }
    }

    /// Completes all operations.
    fn settle(&mut self) {
        *self.network.sending.lock() = Sending::Later;
        for (owner, tx) in std::mem::take(&mut self.unfinalised) {
            self.nodes[owner].finalize(tx);
        }
        self.network.run();
        // After this time the answers that never came are late.
        self.now_ns += 1_000_000_000_000;
        for node in &self.nodes {
            node.engine.advance(self.now_ns);
            assert!(node.is_quiet());
        }
        self.look_at_events();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_descriptor_ends_once_and_everything_is_given_back(steps in steps()) {
        let mut world = World::new();
        for (second, step) in steps {
            world.play(usize::from(second), step);
        }
        world.settle();
        for (owner, node) in world.nodes.iter().enumerate() {
            for &md in &world.made[owner] {
                // The only MDs left are buffers that wait for messages.
                let posted = node.engine.md_unlink(md).is_ok();
                prop_assert!(posted != world.ended[owner].contains(&md));
            }
            prop_assert!(node.events().iter().all(|event| event.unlinked));
            // No EQ is in use any more, and all credits are returned.
            node.engine.eq_free(node.eq).unwrap();
            let eq = node.engine.eq_alloc(node.log.clone()).unwrap();
            for _ in 0..5 {
                let md = lnet_api::Md { eq: Some(eq), ..node.md(&memory(1), MdOptions::empty(), 1) };
                let md = node.engine.md_bind(md, Unlink::Auto).unwrap();
                node.put(md, world.nodes[1 - owner].id(), 9, AckRequest::NoAck).unwrap();
            }
            prop_assert_eq!(world.network.queue.lock().len(), 3);
            world.network.run();
        }
    }
}
