//! Matching, compared with the plain model (lnet-semantics 9 to 11).

use lnet::{EngineConfig, MatchOrder, Rotor, Stealing};
use lnet_api::{LNet, Md, MdHandle, MdOptions, MeHandle, MeSpec, Position, Threshold, Unlink};
use lnet_cpt::with_partition;
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use proptest::prelude::*;
use proptest::sample::Index;

use super::PARTITIONS;
use super::common::*;
use super::model::{Message, Model, ModelEntry, ModelMd, REST_NS, Rules, Taken};

/// A portal whose entries, unless they are local, are in the last partition of four.
const PORTAL: u32 = 51;

#[derive(Debug, Clone)]
enum Step {
    Post {
        spec: MeSpec,
        here: usize,
        md: Option<MdShape>,
    },
    Insert {
        beside: Index,
        spec: MeSpec,
        md: Option<MdShape>,
    },
    Attach {
        entry: Index,
        md: MdShape,
    },
    UnlinkEntry(Index),
    /// Unlinks all entries of a kind.
    Clear(Clear),
    UnlinkMd(Index),
    Message(Message),
    Time,
}

#[derive(Debug, Clone, Copy)]
enum Clear {
    Masked,
    Local,
    Both,
}

#[derive(Debug, Clone)]
struct MdShape {
    length: usize,
    threshold: Option<u32>,
    max_size: u32,
    options: MdOptions,
    auto: bool,
}

fn rules(unique: bool) -> impl Strategy<Value = Rules> {
    let order = prop_oneof![3 => Just(MatchOrder::List), 1 => Just(MatchOrder::IgnoreBitsFirst)];
    let rotor = prop_oneof![Just(Rotor::Off), Just(Rotor::On), Just(Rotor::RrRt), Just(Rotor::HashRt)];
    let stealing = prop_oneof![Just(Stealing::All), Just(Stealing::LazyPuts)];
    (any::<bool>(), order, rotor, stealing).prop_map(move |(lazy, order, rotor, stealing)| Rules {
        unique,
        lazy,
        order,
        rotor,
        stealing,
    })
}

/// Bits of at most one transfer machine per partition, few of each, so that entries and messages
/// often match.
fn bits() -> impl Strategy<Value = u64> {
    (0u64..4, 0u64..2).prop_map(|(machine, low)| machine << 52 | low)
}

/// Generates nodes of this network, and one of another network.
fn source() -> impl Strategy<Value = ProcessId> {
    (3u8..8, 1u32..3).prop_map(|(last, pid)| {
        let nid = if last == 7 { "10.9.0.7@tcp5".parse().unwrap() } else { nid(last) };
        ProcessId::new(nid, Pid(pid))
    })
}

fn message() -> impl Strategy<Value = Message> {
    let op = prop_oneof![3 => Just(MdOptions::OP_PUT), 1 => Just(MdOptions::OP_GET)];
    // Messages of another network arrive over one of two gateways.
    (op, source(), bits(), 0u32..40, 0u32..70, 8u8..10).prop_map(
        |(op, source, bits, length, offset, gateway)| {
            let from = if source.nid.net() == nid(3).net() { source.nid } else { nid(gateway) };
            Message { op, source, from, bits, length, offset }
        },
    )
}

fn shape() -> impl Strategy<Value = MdShape> {
    let threshold = prop::option::of(1u32..4);
    (1usize..60, threshold, 0u32..30, 0u8..16, any::<bool>(), 0u8..6).prop_map(
        |(length, threshold, max_size, flags, auto, ops)| {
            let mut options = match ops {
                0 => MdOptions::OP_GET,
                1 => MdOptions::OP_PUT | MdOptions::OP_GET,
                _ => MdOptions::OP_PUT,
            };
            options.set(MdOptions::MANAGE_REMOTE, flags & 3 == 3);
            options.set(MdOptions::TRUNCATE, flags & 4 != 0);
            options.set(MdOptions::MAX_SIZE, flags & 8 != 0);
            MdShape { length, threshold, max_size: max_size.min(length as u32), options, auto }
        },
    )
}

fn entry_spec(unique: bool) -> impl Strategy<Value = MeSpec> {
    (source(), bits(), 0u8..8, any::<bool>(), 0u8..4).prop_map(move |(id, bits, open, auto, position)| {
        let (mut match_id, mut ignore_bits) = (id, 0);
        if !unique {
            match open {
                0 => match_id.pid = Pid::ANY,
                1 => match_id.nid = Nid::ANY,
                2 => ignore_bits = 0xfff << 52,
                3 => (match_id, ignore_bits) = (ProcessId::ANY, 1),
                4 => (match_id, ignore_bits) = (ProcessId::ANY, 1 << 52 | 1),
                _ => match_id = ProcessId::ANY,
            }
        }
        MeSpec {
            portal: Portal::new(PORTAL).unwrap(),
            match_id,
            match_bits: MatchBits(bits),
            ignore_bits: MatchBits(ignore_bits),
            unlink: if auto { Unlink::Auto } else { Unlink::Retain },
            position: match position {
                0 if !unique => Position::Before,
                1 | 2 => Position::Local,
                _ => Position::After,
            },
        }
    })
}

fn step(unique: bool) -> impl Strategy<Value = Step> {
    let md = || prop::option::weighted(0.9, shape());
    let insert =
        (any::<Index>(), entry_spec(unique), any::<bool>(), md()).prop_map(|(beside, spec, before, md)| {
            let position = if before { Position::Before } else { Position::After };
            Step::Insert { beside, spec: MeSpec { position, ..spec }, md }
        });
    prop_oneof![
        4 => (entry_spec(unique), 0..PARTITIONS, md())
            .prop_map(|(spec, here, md)| Step::Post { spec, here, md }),
        2 => insert,
        1 => (any::<Index>(), shape()).prop_map(|(entry, md)| Step::Attach { entry, md }),
        1 => any::<Index>().prop_map(Step::UnlinkEntry),
        1 => any::<Index>().prop_map(Step::UnlinkMd),
        1 => prop_oneof![Just(Clear::Masked), Just(Clear::Local), Just(Clear::Both)].prop_map(Step::Clear),
        8 => message().prop_map(Step::Message),
        1 => Just(Step::Time),
    ]
}

/// Returns the steps of a portal, possibly without local entries, and without ignore bits.
fn steps(unique: bool) -> impl Strategy<Value = Vec<Step>> {
    let steps = prop::collection::vec(step(unique), 1..100);
    (any::<bool>(), prop::bool::weighted(0.2), steps).prop_map(|(local, exact, mut steps)| {
        for step in &mut steps {
            if let Step::Post { spec, .. } | Step::Insert { spec, .. } = step {
                if !local && spec.position == Position::Local {
                    spec.position = Position::After;
                }
                if exact && spec.ignore_bits.0 != 0 {
                    (spec.match_id, spec.ignore_bits) = (ProcessId::ANY, MatchBits(0));
                }
            }
        }
        steps
    })
}

/// A portal, and its model.
struct Pair {
    network: std::sync::Arc<Network>,
    node: Node,
    model: Model,
    unique: bool,
}

impl Pair {
    fn new(rules: Rules) -> Pair {
        let network = Network::new();
        let config = EngineConfig {
            match_order: rules.order,
            portal_rotor: rules.rotor,
            stealing: rules.stealing,
            ..EngineConfig::new(Pid::LNET, 1)
        };
        let node = Node::with_config(&network, 2, config);
        node.engine.set_lazy(Portal::new(PORTAL).unwrap(), rules.lazy);
        Pair { network, node, model: Model::new(rules), unique: rules.unique }
    }

    /// Returns the handle of one of the entries for which `which` holds.
    fn pick(&self, at: Index, which: impl Fn(&ModelEntry) -> bool) -> Option<MeHandle> {
        let found: Vec<MeHandle> =
            self.model.entries().filter(|&entry| which(entry)).map(|entry| entry.handle).collect();
        (!found.is_empty()).then(|| found[at.index(found.len())])
    }

    fn taken(&self) -> Vec<Taken> {
        self.network.run();
        let to_taken = |event: lnet_api::Event| {
            let (md, offset, rlength, mlength) = (event.md, event.offset, event.rlength, event.mlength);
            assert_eq!(event.status, Ok(()));
            Taken { md, offset, rlength, mlength, unlinked: event.unlinked }
        };
        self.node.events().into_iter().map(to_taken).collect()
    }

    fn attach(&mut self, me: MeHandle, shape: &MdShape) {
        let md = Md {
            max_size: shape.max_size,
            threshold: shape.threshold.map_or(Threshold::Infinite, Threshold::Limited),
            ..self.node.md(&memory(shape.length), shape.options, 0)
        };
        let unlink = if shape.auto { Unlink::Auto } else { Unlink::Retain };
        let handle = self.node.engine.md_attach(me, md, unlink).unwrap();
        let md = ModelMd {
            handle,
            length: shape.length as u64,
            threshold: shape.threshold,
            max_size: shape.options.contains(MdOptions::MAX_SIZE).then_some(shape.max_size),
            options: shape.options,
            offset: 0,
            auto: shape.auto,
        };
        assert_eq!(self.taken(), self.model.attach(me, md));
    }

    fn send(&mut self, message: &Message) {
        let Message { op, source, from, length, offset, .. } = *message;
        let match_bits = MatchBits(message.bits);
        let (payload_length, body) = if op == MdOptions::OP_PUT {
            let ack_wmd = WireHandle::NONE;
            (length, Body::Put { ack_wmd, match_bits, hdr_data: 0, portal: PORTAL, offset })
        } else {
            let return_wmd = WireHandle::new(1, 1);
            (0, Body::Get { return_wmd, match_bits, portal: PORTAL, src_offset: offset, sink_length: length })
        };
        let header = Header { dest: self.node.id(), src: source, payload_length, body };
        let payload = pattern_bytes(payload_length as usize, 1);
        self.network.arrive(Packet { from, to: self.node.id(), header, payload, tx: None });
        let expected: Vec<Taken> = self.model.arrive(message).into_iter().collect();
        assert_eq!(self.taken(), expected, "{message:?}");
    }

    fn unlink_entry(&mut self, me: MeHandle) {
        let entry = self.model.unlink_entry(me);
        self.node.engine.me_unlink(me).unwrap();
        assert_eq!(self.node.events().len(), usize::from(entry.md.is_some()));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Post { spec, here, md } => {
                let handle = with_partition(here, || self.node.engine.me_attach(&spec)).unwrap();
                self.model.post(handle, spec, here);
                md.into_iter().for_each(|shape| self.attach(handle, &shape));
            }
            Step::Insert { beside, spec, md } => {
                let Some(beside) = self.pick(beside, |_| true) else { return };
                let inserted = self.node.engine.me_insert(beside, &spec);
                if self.unique {
                    // The insertion is refused by S-103.
                    assert_eq!(inserted.unwrap_err().errno(), lnet_api::Errno::EPERM);
                    return;
                }
                let handle = inserted.unwrap();
                self.model.insert(beside, handle, spec);
                md.into_iter().for_each(|shape| self.attach(handle, &shape));
            }
            Step::Attach { entry, md } => {
                if let Some(me) = self.pick(entry, |entry| entry.md.is_none()) {
                    self.attach(me, &md);
                }
            }
            Step::UnlinkEntry(at) => {
                let Some(me) = self.pick(at, |_| true) else { return };
                self.unlink_entry(me);
            }
            Step::Clear(clear) => {
                let goes = |entry: &&ModelEntry| match clear {
                    Clear::Masked => entry.is_masked(),
                    Clear::Local => entry.is_local(),
                    Clear::Both => entry.is_masked() || entry.is_local(),
                };
                let all: Vec<MeHandle> =
                    self.model.entries().filter(goes).map(|entry| entry.handle).collect();
                all.into_iter().for_each(|me| self.unlink_entry(me));
            }
            Step::UnlinkMd(at) => {
                let Some(me) = self.pick(at, |entry| entry.md.is_some()) else { return };
                let md = self.model.entry(me).unwrap().md.clone().unwrap();
                self.node.engine.md_unlink(md.handle).unwrap();
                assert_eq!(self.node.events().len(), 1);
                self.model.unlink_md(me);
            }
            Step::Message(message) => self.send(&message),
            Step::Time => {
                self.model.now_ns += REST_NS * 3 / 5;
                self.node.engine.advance(self.model.now_ns);
            }
        }
    }

    /// Checks that the remaining messages match nothing, and that no object is left.
    fn end(self) {
        self.node.engine.set_lazy(Portal::new(PORTAL).unwrap(), false);
        assert_eq!(self.taken(), []);
        assert!(self.node.is_quiet());
    }
}

fn run(rules: Rules, steps: Vec<Step>) {
    let mut pair = Pair::new(rules);
    for step in steps {
        pair.take(step);
        pair.node.engine.audit().unwrap();
    }
    pair.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// A search by hash finds the same entries as a search of the lists.
    // Covers: S-102, S-104, S-108, S-109, S-308, S-309, S-310
    #[test]
    fn a_wildcard_portal_matches_as_one_list_would_or_one_per_partition(
        rules in rules(false), steps in steps(false),
    ) {
        run(rules, steps);
    }

    /// Entries for sources of several partitions are in one list.
    // Covers: S-102, S-103, S-308
    #[test]
    fn a_unique_portal_matches_as_one_list_would(
        rules in rules(true), steps in steps(true),
    ) {
        run(rules, steps);
    }
}

// Covers: S-102
#[test]
fn very_many_buffers_are_each_found() {
    let (network, node) = one_node();
    let buffer = memory(8);
    let source = ProcessId::new(nid(3), Pid::LNET);
    for (portal, match_id) in [(50, source), (51, ProcessId::ANY)] {
        let portal = Portal::new(portal).unwrap();
        let many = 20_000u64;
        let mds: Vec<MdHandle> = (0..many)
            .map(|bits| {
                let match_bits = MatchBits(bits * 0x1_0001);
                let me = node.engine.me_attach(&MeSpec { portal, match_id, match_bits, ..spec(0) }).unwrap();
                node.engine.md_attach(me, node.md(&buffer, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap()
            })
            .collect();
        for bits in (0..many).rev() {
            let match_bits = MatchBits(bits * 0x1_0001);
            let body = Body::Put {
                ack_wmd: WireHandle::NONE,
                match_bits,
                hdr_data: 0,
                portal: portal.get(),
                offset: 0,
            };
            let header = Header { dest: node.id(), src: source, payload_length: 0, body };
            network.arrive(Packet { from: source.nid, to: node.id(), header, payload: vec![], tx: None });
            assert_eq!(node.events().pop().map(|event| event.md), Some(mds[bits as usize]));
        }
    }
}
