//! Invalid input, one error at a time: it is refused, changes nothing, and the node continues.

use lnet_api::{
    AckRequest, Arrival, EqHandle, Errno, LNet, MdHandle, MdOptions, MeHandle, MeSpec, RxContext, Threshold,
    Unlink, Upcalls, Verdict,
};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};

use super::common::*;
use super::ping::ping;

/// Checks that the node answers pings and takes messages, and nothing is in flight.
fn assert_alive(network: &Network, node: &Node, peer: &Node) {
    assert_eq!(ping(network, peer, node.id()).nis[0].nid, node.nid);
    let buffer = memory(16);
    let md = node.expect(77, &buffer, MdOptions::OP_PUT);
    peer.put(peer.bind(&pattern(16, 5), 2), node.id(), 77, AckRequest::Ack).unwrap();
    network.run();
    assert_eq!(content(&buffer), pattern_bytes(16, 5));
    assert!(node.events().iter().any(|event| event.md == md && event.unlinked));
    peer.events();
}

/// A node with a GET and an acknowledged PUT that wait for their answers, and a buffer of 100 bytes
/// for bits 1.
struct Target {
    network: std::sync::Arc<Network>,
    node: Node,
    peer: Node,
    get: MdHandle,
    put: MdHandle,
}

impl Target {
    fn new() -> Target {
        let network = Network::new();
        let (node, peer) = (Node::new(&network, 2), Node::new(&network, 3));
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        let open = lnet_api::Md { threshold: Threshold::Infinite, ..node.md(&memory(100), options, 0) };
        node.engine.md_attach(node.post(1), open, Unlink::Retain).unwrap();
        let (get, put) = (node.bind(&memory(50), 2), node.bind(&memory(8), 2));
        node.get(get, peer.id(), 1).unwrap();
        node.put(put, peer.id(), 1, AckRequest::Ack).unwrap();
        network.lose(0);
        network.lose(0);
        node.events();
        Target { network, node, peer, get, put }
    }

    fn parse(&self, header: &Header) -> Verdict {
        let (ni, from) = (self.node.nid, ProcessId::lnet(self.peer.nid));
        self.node.engine.parse(&Arrival { ni, from, header, host: None, rx: RxContext(1) })
    }

    fn header(&self, payload_length: u32, body: Body) -> Header {
        Header { dest: self.node.id(), src: self.peer.id(), payload_length, body }
    }

    fn reply(&self, length: u32, wmd: WireHandle) -> Header {
        self.header(length, Body::Reply { dst_wmd: wmd })
    }

    fn ack(&self, wmd: WireHandle) -> Header {
        self.header(0, Body::Ack { dst_wmd: wmd, match_bits: MatchBits(1), mlength: 8 })
    }

    fn put_header(&self, portal: u32, bits: u64, offset: u32, length: u32) -> Header {
        let (ack_wmd, match_bits) = (WireHandle::NONE, MatchBits(bits));
        self.header(length, Body::Put { ack_wmd, match_bits, hdr_data: 0, portal, offset })
    }

    fn get_header(&self, portal: u32, bits: u64, offset: u32, sink_length: u32) -> Header {
        let (return_wmd, match_bits) = (WireHandle::new(1, 1), MatchBits(bits));
        let body = Body::Get { return_wmd, match_bits, portal, src_offset: offset, sink_length };
        self.header(0, body)
    }

    /// Checks that nothing happened, and that the expected answers are still expected and accepted.
    fn assert_unharmed(&self) {
        assert_eq!(self.node.events(), []);
        let Verdict::Deliver(delivery) = self.parse(&self.reply(50, self.wire(self.get))) else {
            panic!("the REPLY is not awaited")
        };
        let token = delivery.token;
        drop(delivery);
        self.node.engine.finalize_rx(token, Ok(()));
        assert!(matches!(self.parse(&self.ack(self.wire(self.put))), Verdict::Done));
        let events = self.node.events();
        assert_eq!(events.iter().map(|event| event.md).collect::<Vec<_>>(), [self.get, self.put]);
        assert!(events.iter().all(|event| event.unlinked));
        assert_alive(&self.network, &self.node, &self.peer);
        assert!(self.node.is_quiet() && self.peer.is_quiet());
    }

    fn wire(&self, md: MdHandle) -> WireHandle {
        WireHandle::new(cookie(2), md.0)
    }
}

#[test]
fn each_field_that_is_out_of_range_is_discarded_or_closes_the_connection() {
    let target = Target::new();
    let max = 1 << 20;
    let (put, get) = (target.put_header(34, 1, 0, 10), target.get_header(34, 1, 0, 10));
    let from = |src| Header { src, ..put };
    let to = |dest| Header { dest, ..put };
    let lo = ProcessId::lnet(Nid::LOOPBACK);
    let discarded = [
        // PUTs to portals that do not exist.
        target.put_header(64, 1, 0, 10),
        target.put_header(u32::MAX, 1, 0, 10),
        target.get_header(64, 1, 0, 10),
        target.get_header(u32::MAX, 1, 0, 10),
        // Match bits without a buffer, and the node's own portal.
        target.put_header(34, 2, 0, 10),
        target.get_header(34, u64::MAX, 0, 10),
        target.put_header(0, 1, 0, 10),
        // Beyond the end of the memory.
        target.put_header(34, 1, 91, 10),
        target.put_header(34, 1, u32::MAX, 1),
        target.put_header(34, 1, 101, 0),
        target.put_header(34, 1, 0, max),
        target.get_header(34, 1, 91, 10),
        target.get_header(34, 1, u32::MAX, u32::MAX),
        target.get_header(34, 1, 0, u32::MAX),
        target.get_header(34, 1, 0, 101),
        // Messages with an invalid source.
        from(target.node.id()),
        from(lo),
        from(ProcessId::ANY),
        from(ProcessId::new(Nid::ANY, Pid::LNET)),
        Header { src: target.node.id(), ..get },
        // A message for a node of another network.
        to("12345-10.0.0.1@o2ib".parse().unwrap()),
        // ACK and REPLY without a request.
        target.ack(WireHandle::NONE),
        target.reply(8, WireHandle::NONE),
        target.ack(WireHandle::new(0, 0)),
        target.ack(target.wire(target.get)),
        target.reply(8, target.wire(target.put)),
        // REPLYs longer than the memory of the GET.
        target.reply(51, target.wire(target.get)),
        target.reply(max, target.wire(target.get)),
    ];
    for header in &discarded {
        let verdict = target.parse(header);
        assert!(matches!(verdict, Verdict::Discard), "{header:?}: {verdict:?}");
    }
    let closing = [
        Header { payload_length: 1, ..get },
        Header { payload_length: u32::MAX, ..get },
        Header { payload_length: 1, ..target.ack(WireHandle::NONE) },
        Header { payload_length: max + 1, ..put },
        Header { payload_length: u32::MAX, ..put },
        target.reply(max + 1, target.wire(target.get)),
        target.reply(u32::MAX, target.wire(target.get)),
        to(ProcessId::lnet(nid(99))),
        to(lo),
    ];
    for header in &closing {
        let verdict = target.parse(header);
        assert!(matches!(verdict, Verdict::Close(Errno::EPROTO)), "{header:?}: {verdict:?}");
    }
    assert_eq!(target.node.engine.counters().drop_count, discarded.len() as u64);
    target.assert_unharmed();
}

#[test]
fn what_looks_odd_but_fits_is_taken() {
    let target = Target::new();
    let any_pid = ProcessId::new(target.node.nid, Pid(7));
    // Valid requests: at the very end of the memory without payload, and for another PID, which is
    // ignored.
    let end = target.put_header(34, 1, 100, 0);
    let taken = [end, target.get_header(34, 1, 100, 0), Header { dest: any_pid, ..end }];
    for header in &taken {
        assert!(matches!(target.parse(header), Verdict::Done), "{header:?}");
    }
    target.network.run();
    assert_eq!(target.node.events().len(), 3);
    target.assert_unharmed();
}

/// A wire handle that differs in one bit is invalid (S-107; lnet-wire 5).
#[test]
fn wire_handles_that_differ_in_a_bit_name_nothing() {
    let target = Target::new();
    for bit in 0..64 {
        let flip = 1u64 << bit;
        for md in [target.get, target.put] {
            for wmd in [WireHandle::new(cookie(2) ^ flip, md.0), WireHandle::new(cookie(2), md.0 ^ flip)] {
                assert!(matches!(target.parse(&target.ack(wmd)), Verdict::Discard));
                assert!(matches!(target.parse(&target.reply(8, wmd)), Verdict::Discard));
            }
        }
    }
    // Handles of other kinds, and of another engine.
    let other = target.peer.bind(&memory(8), 1);
    let posted = target.node.expect(5, &memory(8), MdOptions::OP_PUT);
    let me = target.node.post(6);
    for value in [other.0, posted.0, me.0, target.node.eq.0] {
        let wmd = WireHandle::new(cookie(2), value);
        assert!(matches!(target.parse(&target.ack(wmd)), Verdict::Discard));
        assert!(matches!(target.parse(&target.reply(8, wmd)), Verdict::Discard));
    }
    target.node.engine.md_unlink(posted).unwrap();
    target.node.engine.me_unlink(me).unwrap();
    target.node.events();
    target.assert_unharmed();
}

/// Makes every call with a handle without an object.
fn assert_nameless(node: &Node, value: u64) {
    let (eq, me, md) = (EqHandle(value), MeHandle(value), MdHandle(value));
    let refused = |result: Result<(), lnet_api::LNetError>| assert_eq!(errno(result), Errno::ENOENT);
    refused(node.engine.eq_free(eq));
    refused(node.engine.eq_poll(&[eq]).map(drop));
    let with_eq = lnet_api::Md { eq: Some(eq), ..node.md(&memory(8), MdOptions::empty(), 1) };
    refused(node.engine.md_bind(with_eq, Unlink::Auto).map(drop));
    refused(node.engine.me_unlink(me));
    refused(node.engine.me_insert(me, &spec(1)).map(drop));
    refused(node.engine.md_attach(me, node.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Auto).map(drop));
    refused(node.engine.md_unlink(md));
    refused(node.put(md, node.id(), 1, AckRequest::Ack));
    refused(node.get(md, node.id(), 1));
}

// Covers: S-107
#[test]
fn forged_stale_and_foreign_handles_are_enoent_and_change_nothing() {
    let target = Target::new();
    let (node, peer) = (&target.node, &target.peer);
    let me = node.post(3);
    let posted = node.expect(4, &memory(8), MdOptions::OP_PUT);
    for live in [node.eq.0, me.0, posted.0, target.get.0] {
        (0..64).for_each(|bit| assert_nameless(node, live ^ 1 << bit));
    }
    for foreign in [peer.eq.0, peer.post(1).0, peer.bind(&memory(8), 1).0] {
        assert_nameless(node, foreign);
    }
    for guess in [0, 1, u64::MAX, 1 << 32] {
        assert_nameless(node, guess);
    }
    node.engine.me_unlink(me).unwrap();
    node.engine.md_unlink(posted).unwrap();
    node.events();
    assert_nameless(node, me.0);
    assert_nameless(node, posted.0);
    target.assert_unharmed();
}

#[test]
fn contradictory_descriptors_are_refused_and_leave_nothing() {
    let target = Target::new();
    let node = &target.node;
    let md = |options, max_size, bytes| lnet_api::Md { max_size, ..node.md(&memory(bytes), options, 1) };
    let (put, get, limit) = (MdOptions::OP_PUT, MdOptions::OP_GET, MdOptions::MAX_SIZE);
    for (options, max_size, bytes) in
        [(put, 0, 8), (get, 0, 8), (put | get, 0, 8), (limit, 9, 8), (limit, u32::MAX, 8), (limit, 1, 0)]
    {
        assert_eq!(errno(node.engine.md_bind(md(options, max_size, bytes), Unlink::Auto)), Errno::EINVAL);
    }
    let too_long = node.engine.md_bind(md(MdOptions::empty(), 0, (1 << 20) + 1), Unlink::Auto);
    assert_eq!(errno(too_long), Errno::EINVAL);
    for (options, max_size) in [
        (MdOptions::empty(), 0),
        (MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE, 0),
        (put | limit, 9),
        (get | limit, u32::MAX),
    ] {
        let me = node.engine.me_attach(&MeSpec { unlink: Unlink::Retain, ..spec(3) }).unwrap();
        assert_eq!(errno(node.engine.md_attach(me, md(options, max_size, 8), Unlink::Auto)), Errno::EINVAL);
        // The entry was removed with the MD, whichever call had posted them.
        assert_eq!(errno(node.engine.me_unlink(me)), Errno::ENOENT);
    }
    // Without its option, max_size has no effect.
    node.engine.md_unlink(node.engine.md_bind(md(MdOptions::empty(), 9, 8), Unlink::Auto).unwrap()).unwrap();
    node.events();
    target.assert_unharmed();
}

/// An LND that passes an unknown token makes an error, which must have no effect.
#[test]
fn tokens_of_nothing_do_nothing() {
    let target = Target::new();
    let engine = &target.node.engine;
    let values = (0..64).map(|bit| 1u64 << bit).chain([0, u64::MAX]);
    for value in values {
        engine.finalize_rx(lnet_api::RxToken(value), Ok(()));
        engine.finalize_tx(lnet_api::TxToken(value), Ok(()));
        assert!(engine.sink_of_get(lnet_api::TxToken(value)).is_none());
        engine.finalize_get(lnet_api::TxToken(value), Ok(u32::MAX));
    }
    engine.peer_lost(nid(99), target.peer.id(), Errno::EIO);
    engine.peer_lost(target.node.nid, ProcessId::lnet(nid(99)), Errno::EIO);
    target.assert_unharmed();
}
