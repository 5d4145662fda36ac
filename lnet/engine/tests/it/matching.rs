//! Matching against a plain model: all entries in two lists, tried one after the other (lnet-semantics 9 and 10).

use lnet_api::{LNet, Md, MdHandle, MdOptions, MeHandle, MeSpec, Position, Threshold, Unlink};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use proptest::prelude::*;

use crate::common::*;

#[derive(Debug, Clone)]
struct ModelEntry {
    handle: MeHandle,
    spec: MeSpec,
    md: Option<ModelMd>,
}

#[derive(Debug, Clone)]
struct ModelMd {
    handle: MdHandle,
    length: u64,
    threshold: Option<u32>,
    max_size: Option<u32>,
    options: MdOptions,
    offset: u64,
    auto: bool,
}

impl ModelMd {
    fn exhausted(&self) -> bool {
        self.threshold == Some(0)
            || self.max_size.is_some_and(|size| self.offset + u64::from(size) > self.length)
    }
}

/// One portal, as plain as it can be.
#[derive(Debug, Default)]
struct Model {
    entries: Vec<ModelEntry>,
}

#[derive(Debug, PartialEq)]
struct Taken {
    md: MdHandle,
    offset: u64,
    mlength: u32,
    unlinked: bool,
}

impl Model {
    fn post(&mut self, entry: ModelEntry) {
        match entry.spec.position {
            Position::Before => self.entries.insert(0, entry),
            Position::After | Position::Local => self.entries.push(entry),
        }
    }

    fn put(&mut self, source: ProcessId, bits: u64, length: u32, header_offset: u32) -> Option<Taken> {
        let masked = |entry: &ModelEntry| entry.spec.ignore_bits.0 != 0;
        let order: Vec<usize> = (0..self.entries.len())
            .filter(|&at| masked(&self.entries[at]))
            .chain((0..self.entries.len()).filter(|&at| !masked(&self.entries[at])))
            .collect();
        for at in order {
            let entry = &mut self.entries[at];
            let spec = entry.spec;
            let Some(md) = &mut entry.md else { continue };
            if md.exhausted()
                || !md.options.contains(MdOptions::OP_PUT)
                || (spec.match_bits.0 ^ bits) & !spec.ignore_bits.0 != 0
                || (spec.match_id.pid != Pid::ANY && spec.match_id.pid != source.pid)
                || (spec.match_id.nid != Nid::ANY && spec.match_id.nid != source.nid)
            {
                continue;
            }
            let remote = md.options.contains(MdOptions::MANAGE_REMOTE);
            let offset = if remote { u64::from(header_offset) } else { md.offset };
            if offset > md.length {
                return None;
            }
            let allowed = u64::from(md.max_size.unwrap_or(u32::MAX)).min(md.length - offset) as u32;
            if length > allowed && !md.options.contains(MdOptions::TRUNCATE) {
                return None;
            }
            let mlength = length.min(allowed);
            md.threshold = md.threshold.map(|left| left - 1);
            md.offset = offset + u64::from(mlength);
            let taken = Taken { md: md.handle, offset, mlength, unlinked: md.auto && md.exhausted() };
            if taken.unlinked {
                entry.md = None;
                if spec.unlink == Unlink::Auto {
                    self.entries.remove(at);
                }
            }
            return Some(taken);
        }
        None
    }
}

#[derive(Debug, Clone)]
enum Step {
    Post { spec: MeSpec, md: Option<MdShape> },
    Attach { entry: prop::sample::Index, md: MdShape },
    UnlinkEntry(prop::sample::Index),
    UnlinkMd(prop::sample::Index),
    Put { source: ProcessId, bits: u64, length: u32, offset: u32 },
}

#[derive(Debug, Clone)]
struct MdShape {
    length: usize,
    threshold: Option<u32>,
    max_size: u32,
    options: MdOptions,
    auto: bool,
}

/// Few bits and few sources, so that they meet often.
fn bits() -> impl Strategy<Value = u64> {
    0u64..6
}

fn source() -> impl Strategy<Value = ProcessId> {
    (3u8..6, 1u32..3).prop_map(|(last, pid)| ProcessId::new(nid(last), Pid(pid)))
}

fn shape() -> impl Strategy<Value = MdShape> {
    let threshold = prop::option::of(1u32..4);
    (1usize..60, threshold, 0u32..30, 0u8..16, any::<bool>(), any::<bool>()).prop_map(
        |(length, threshold, max_size, flags, auto, put)| {
            let mut options = MdOptions::OP_GET;
            options.set(MdOptions::OP_PUT, put || flags & 1 == 0);
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
                2 => ignore_bits = 3,
                3 => (match_id, ignore_bits) = (ProcessId::ANY, 4),
                _ => match_id = ProcessId::ANY,
            }
        }
        MeSpec {
            portal: Portal::new(50).unwrap(),
            match_id,
            match_bits: MatchBits(bits),
            ignore_bits: MatchBits(ignore_bits),
            unlink: if auto { Unlink::Auto } else { Unlink::Retain },
            position: match position {
                0 if !unique => Position::Before,
                1 => Position::Local,
                _ => Position::After,
            },
        }
    })
}

fn step(unique: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (entry_spec(unique), prop::option::weighted(0.9, shape())).prop_map(|(spec, md)| Step::Post { spec, md }),
        1 => (any::<prop::sample::Index>(), shape()).prop_map(|(entry, md)| Step::Attach { entry, md }),
        1 => any::<prop::sample::Index>().prop_map(Step::UnlinkEntry),
        1 => any::<prop::sample::Index>().prop_map(Step::UnlinkMd),
        6 => (source(), bits(), 0u32..40, 0u32..70)
            .prop_map(|(source, bits, length, offset)| Step::Put { source, bits, length, offset }),
    ]
}

fn attach(node: &Node, me: MeHandle, shape: &MdShape) -> ModelMd {
    let md = Md {
        max_size: shape.max_size,
        threshold: shape.threshold.map_or(Threshold::Infinite, Threshold::Limited),
        ..node.md(&memory(shape.length), shape.options, 0)
    };
    let unlink = if shape.auto { Unlink::Auto } else { Unlink::Retain };
    let handle = node.engine.md_attach(me, md, unlink).unwrap();
    ModelMd {
        handle,
        length: shape.length as u64,
        threshold: shape.threshold,
        max_size: shape.options.contains(MdOptions::MAX_SIZE).then_some(shape.max_size),
        options: shape.options,
        offset: 0,
        auto: shape.auto,
    }
}

fn put(
    network: &Network,
    node: &Node,
    source: ProcessId,
    bits: u64,
    length: u32,
    offset: u32,
) -> Option<Taken> {
    let (ack_wmd, match_bits) = (WireHandle::NONE, MatchBits(bits));
    let body = Body::Put { ack_wmd, match_bits, hdr_data: 0, portal: 50, offset };
    let header = Header { dest: node.id(), src: source, payload_length: length, body };
    let payload = pattern_bytes(length as usize, 1);
    network.arrive(Packet { from: source.nid, to: node.id(), header, payload, tx: None });
    let mut events = node.events();
    assert!(events.len() <= 1);
    events.pop().map(|event| Taken {
        md: event.md,
        offset: event.offset,
        mlength: event.mlength,
        unlinked: event.unlinked,
    })
}

fn run(unique: bool, steps: Vec<Step>) {
    let network = Network::new();
    let config = lnet::EngineConfig::new(Pid::LNET, 1);
    let match_order = lnet::MatchOrder::IgnoreBitsFirst;
    let node = Node::with_config(&network, 2, lnet::EngineConfig { match_order, ..config });
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Post { spec, md } => {
                let handle = node.engine.me_attach(&spec).unwrap();
                let md = md.map(|shape| attach(&node, handle, &shape));
                model.post(ModelEntry { handle, spec, md });
            }
            Step::Attach { entry, md } => {
                let mut free: Vec<&mut ModelEntry> =
                    model.entries.iter_mut().filter(|entry| entry.md.is_none()).collect();
                if !free.is_empty() {
                    let at = entry.index(free.len());
                    free[at].md = Some(attach(&node, free[at].handle, &md));
                }
            }
            Step::UnlinkEntry(at) if !model.entries.is_empty() => {
                let entry = model.entries.remove(at.index(model.entries.len()));
                node.engine.me_unlink(entry.handle).unwrap();
                assert_eq!(node.events().len(), usize::from(entry.md.is_some()));
            }
            Step::UnlinkMd(at) if !model.entries.is_empty() => {
                let at = at.index(model.entries.len());
                if let Some(md) = model.entries[at].md.take() {
                    node.engine.md_unlink(md.handle).unwrap();
                    assert_eq!(node.events().len(), 1);
                    if model.entries[at].spec.unlink == Unlink::Auto {
                        model.entries.remove(at);
                    }
                }
            }
            Step::UnlinkEntry(_) | Step::UnlinkMd(_) => {}
            Step::Put { source, bits, length, offset } => {
                let expected = model.put(source, bits, length, offset);
                let taken = put(&network, &node, source, bits, length, offset);
                assert_eq!(taken, expected, "unique: {unique}, {source} {bits} {length} bytes at {offset}");
            }
        }
    }
}

proptest! {
    // S-102: what the hash finds is what the lists would find.
    #[test]
    fn a_wildcard_portal_matches_as_two_lists_would(steps in prop::collection::vec(step(false), 1..120)) {
        run(false, steps);
    }

    #[test]
    fn a_unique_portal_matches_as_one_list_would(steps in prop::collection::vec(step(true), 1..120)) {
        run(true, steps);
    }
}

#[test]
fn very_many_buffers_are_each_found() {
    let network = Network::new();
    let node = Node::new(&network, 2);
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
