//! Pings by and of a node, and pushes (lnet-wire 15 to 19).

use std::sync::Arc;
use std::time::Instant;

use lnet::PUSH_BACK_NS;
use lnet_api::EventKind::{Ack, Send};
use lnet_api::{AckRequest, Arrival, Errno, LNet, Put, RxContext, Sleeper, Upcalls, Verdict};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use lnet_proto::ping::{Features, NiStatus, PingInfo, PingInterface};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::IoVec;
use nlx_sync::Wake;

use super::common::*;

/// Returns a sleeper that has announced sleep.
pub(crate) fn asleep() -> Arc<Sleeper> {
    let sleeper = Sleeper::new().expect("an eventfd");
    sleeper.prepare();
    Arc::new(sleeper)
}

/// Returns whether the sleeper has been woken since it last announced sleep; announces sleep again.
fn is_woken(sleeper: &Sleeper) -> bool {
    let slept = sleeper.sleep(Some(Instant::now()), || false).expect("a bell");
    sleeper.prepare();
    slept == Wake::Signalled
}

/// Pings until there is an answer.
pub(crate) fn ping(network: &Network, from: &Node, target: ProcessId) -> PingInfo {
    let mut ping = from.engine.ping(None, target, asleep()).expect("a ping under way");
    network.run();
    ping.poll().expect("an outcome").expect("an answer")
}

#[test]
fn a_node_reports_its_identity() {
    let (network, a, b) = two_nodes();
    let sleeper = asleep();
    let mut ping = a.engine.ping(Some(a.nid), b.id(), sleeper.clone()).unwrap();
    assert!(ping.poll().is_none());
    network.run();
    let info = ping.poll().unwrap().unwrap();
    assert!(is_woken(&sleeper) && !is_woken(&sleeper));
    assert_eq!(info.features, Features(0x1e));
    assert_eq!((info.pid, info.sequence), (Pid::LNET, 2));
    assert_eq!(info.nis, [PingInterface { nid: b.nid, status: NiStatus::UP }]);
    // A repeated query gives the same answer, and nothing is left.
    assert_eq!(ping.poll().unwrap().unwrap(), info);
    drop(ping);
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn a_node_pings_itself() {
    let (network, a) = one_node();
    for target in [a.id(), ProcessId::lnet(Nid::LOOPBACK)] {
        assert_eq!(ping(&network, &a, target).nis[0].nid, a.nid);
    }
}

#[test]
fn large_nids_are_reported_where_they_exist() {
    let (network, a, b) = two_nodes();
    let large: Nid = "fd77::3@tcp".parse().unwrap();
    b.engine.add_ni(ProcessId::lnet(large), network.clone()).unwrap();
    let info = ping(&network, &a, b.id());
    assert_eq!(info.features, Features(0x3e));
    assert_eq!(info.nis.iter().map(|ni| ni.nid).collect::<Vec<_>>(), [b.nid, large]);
    b.engine.remove_ni(b.nid).unwrap();
    let info = ping(&network, &b, ProcessId::lnet(Nid::LOOPBACK));
    assert_eq!((info.features, info.primary()), (Features(0x7e), Some(large)));
}

fn outcome(ping: &mut lnet::Ping) -> Errno {
    ping.poll().expect("an outcome").expect_err("a failure").errno()
}

#[test]
fn a_ping_fails_with_what_the_network_says() {
    let (network, a) = one_node();
    let sleeper = asleep();
    let mut unsent = a.engine.ping(None, ProcessId::lnet(nid(3)), sleeper.clone()).unwrap();
    network.fail(0, Errno::ECONNREFUSED);
    assert_eq!(outcome(&mut unsent), Errno::ECONNREFUSED);
    assert!(is_woken(&sleeper));
    let mut lost = a.engine.ping(None, ProcessId::lnet(nid(3)), sleeper.clone()).unwrap();
    network.lose(0);
    assert!(lost.poll().is_none());
    network.lose_peer(a.nid, nid(3), Errno::EHOSTUNREACH);
    assert_eq!(outcome(&mut lost), Errno::EHOSTUNREACH);
    assert!(is_woken(&sleeper));
    let mut late = a.engine.ping(None, ProcessId::lnet(nid(3)), sleeper.clone()).unwrap();
    network.lose(0);
    a.engine.advance(200_000_000_000);
    assert_eq!(outcome(&mut late), Errno::ETIMEDOUT);
    assert!(is_woken(&sleeper));
    let nowhere = a.engine.ping(None, "1.2.3.4@o2ib9".parse().map(ProcessId::lnet).unwrap(), sleeper.clone());
    assert_eq!(nowhere.err().map(|error| error.errno()), Some(Errno::EHOSTUNREACH));
    let foreign = a.engine.ping(Some(nid(9)), ProcessId::lnet(nid(3)), sleeper);
    assert_eq!(foreign.err().map(|error| error.errno()), Some(Errno::EADDRNOTAVAIL));
}

#[test]
fn an_answer_that_is_none_is_eproto() {
    let (network, a) = one_node();
    for garbage in [vec![], vec![0u8; 48], vec![0xff; 3960]] {
        let mut ping = a.engine.ping(None, ProcessId::lnet(nid(3)), asleep()).unwrap();
        let get = network.take(0).unwrap();
        let Body::Get { return_wmd, sink_length, .. } = get.header.body else { panic!("a GET") };
        assert!(sink_length >= 272);
        a.finalize(get.tx.unwrap());
        network.arrive(Packet {
            from: nid(3),
            to: a.id(),
            header: Header {
                dest: get.header.src,
                src: get.header.dest,
                payload_length: garbage.len() as u32,
                body: Body::Reply { dst_wmd: return_wmd },
            },
            payload: garbage,
            tx: None,
        });
        assert_eq!(outcome(&mut ping), Errno::EPROTO);
    }
}

#[test]
fn a_ping_that_is_given_up_leaves_nothing() {
    let (network, a, b) = two_nodes();
    let sleeper = asleep();
    for steps in 0..3 {
        let ping = a.engine.ping(None, b.id(), sleeper.clone()).unwrap();
        for _ in 0..steps {
            network.step();
        }
        drop(ping);
        network.run();
        assert!(a.is_quiet() && b.is_quiet());
    }
    assert!(is_woken(&sleeper), "one of them was answered");
    assert_eq!(Arc::strong_count(&sleeper), 1);
    // Slots are reused: far more pings than are possible at a time.
    for _ in 0..3000 {
        drop(a.engine.ping(None, b.id(), sleeper.clone()).unwrap());
        network.run();
    }
    let all: Vec<_> = (0..1024).map(|_| a.engine.ping(None, b.id(), sleeper.clone()).unwrap()).collect();
    let error = a.engine.ping(None, b.id(), sleeper.clone()).err().unwrap();
    assert_eq!(error.errno(), Errno::ENOMEM);
    drop(all);
}

/// An answer that does not fit contains its full length, at each query; one that fits makes another
/// query unnecessary.
#[test]
fn an_answer_that_was_cut_off_tells_its_size() {
    let (network, a, b) = two_nodes();
    for last in 4..10 {
        b.engine.add_ni(ProcessId::lnet(nid(last)), network.clone()).unwrap();
    }
    let whole = ping(&network, &a, b.id());
    let bytes = whole.encoded_len();
    for sink in [48, bytes - 1, bytes, bytes + 1] {
        let mut ping = a.engine.ping_asking(None, b.id(), asleep(), sink).unwrap();
        assert_eq!(ping.needs(), None);
        network.run();
        for _ in 0..2 {
            let fits = sink >= bytes;
            assert_eq!(
                ping.poll().unwrap().map_err(|error| error.errno()),
                fits.then(|| whole.clone()).ok_or(Errno::EPROTO)
            );
            assert_eq!(ping.needs(), (!fits).then_some(bytes));
        }
    }
    assert!(a.is_quiet() && b.is_quiet());
}

/// A node pushes its own list, and gets the peer's acceptance or an error.
#[test]
fn a_node_pushes_its_own_nids() {
    let (network, a, b) = two_nodes();
    let (first, second) = (a.nid, nid(22));
    a.engine.add_ni(ProcessId::lnet(second), network.clone()).unwrap();
    let sleeper = asleep();
    let mut push = a.engine.push(Some(second), b.id(), sleeper.clone()).unwrap();
    assert!(push.poll().is_none());
    network.run();
    assert_eq!(push.poll().unwrap().unwrap() as usize, ping(&network, &b, a.id()).encoded_len());
    assert_eq!(b.engine.primary_nid(second), first);
    assert!(is_woken(&sleeper));
    let mut unsent = a.engine.push(None, ProcessId::lnet(nid(9)), sleeper.clone()).unwrap();
    network.fail(0, Errno::ECONNREFUSED);
    assert_eq!(unsent.poll().unwrap().unwrap_err().errno(), Errno::ECONNREFUSED);
    let mut late = a.engine.push(None, ProcessId::lnet(nid(9)), sleeper).unwrap();
    network.lose(0);
    a.engine.advance(200_000_000_000);
    assert_eq!(late.poll().unwrap().unwrap_err().errno(), Errno::ETIMEDOUT);
    drop((push, unsent, late));
    assert!(a.is_quiet() && b.is_quiet());
}

/// lnet-measured, "Push from an unknown NID": the node must not end before it has acknowledged the
/// push back.
#[test]
fn a_push_back_is_awaited_until_it_has_come_or_its_time_is_over() {
    const MS: u64 = 1_000_000;
    let network = Network::new();
    let (a, b, c) = (Node::new(&network, 2), Node::new(&network, 3), Node::new(&network, 4));
    let awaits = |at_ns| a.engine.awaits_push_back(at_ns);
    let push = |to: ProcessId| a.engine.push(None, to, asleep()).unwrap();
    let begun_ns = 1_000 * MS;
    a.engine.advance(begun_ns);
    assert_eq!((awaits(begun_ns), a.engine.push_backs_end_ns()), (false, 0), "it has not pushed");
    let mut first = push(b.id());
    assert!(awaits(begun_ns) && awaits(begun_ns + PUSH_BACK_NS - 1) && !awaits(begun_ns + PUSH_BACK_NS));
    // The wait begins with the acknowledgement.
    let acked_ns = begun_ns + 100 * MS;
    network.run();
    a.engine.advance(acked_ns);
    assert!(first.poll().unwrap().is_ok());
    assert!(awaits(acked_ns + PUSH_BACK_NS - 1) && !awaits(acked_ns + PUSH_BACK_NS));
    assert_eq!(a.engine.push_backs_end_ns(), acked_ns + PUSH_BACK_NS);
    push_nids(&network, &a, c.nid, &[c.nid]);
    assert!(awaits(acked_ns), "another node has pushed");
    network.run();
    // The push back has arrived, and only its ACK is still to leave.
    push_nids(&network, &a, b.nid, &[b.nid]);
    assert_eq!((awaits(acked_ns), a.engine.sending()), (false, 1));
    network.run();
    // A peer that has this node's list does not push back again.
    let _second = push(b.id());
    assert!(!awaits(acked_ns));
    network.run();
    // A peer may push from any of its NIDs.
    let _third = push(c.id());
    network.run();
    assert!(awaits(acked_ns));
    push_nids(&network, &a, nid(24), &[nid(24), c.nid]);
    assert!(!awaits(acked_ns));
    network.run();
    // No push back is awaited after a push that has not arrived, or one to this node itself.
    let mut unsent = push(ProcessId::lnet(nid(9)));
    network.fail(0, Errno::ECONNREFUSED);
    assert!(unsent.poll().unwrap().is_err());
    let _own = [push(a.id()), push(ProcessId::lnet(Nid::LOOPBACK))];
    assert!(!awaits(acked_ns));
    // After more than a minute the peer may have restarted, and push back once more.
    let later_ns = acked_ns + 61_000 * MS;
    a.engine.advance(later_ns);
    let _fourth = push(b.id());
    assert!(awaits(later_ns) && !awaits(later_ns + PUSH_BACK_NS));
    network.run();
}

fn info(sequence: u32, features: u32, nids: &[Nid]) -> PingInfo {
    let nis = nids.iter().map(|&nid| PingInterface { nid, status: NiStatus::UP }).collect();
    PingInfo { features: Features(features), pid: Pid::LNET, sequence, nis }
}

fn bytes(info: &PingInfo) -> IoVec {
    let mut bytes = vec![0; info.encoded_len()];
    info.emit(&mut bytes).unwrap();
    let memory = memory(bytes.len());
    memory.write(0..bytes.len()).unwrap().copy_from(0, &bytes);
    memory
}

fn push(from: &Node, to: &Node, content: &IoVec) {
    from.engine
        .put(&Put {
            source: None,
            md: from.bind(content, 2),
            ack: AckRequest::Ack,
            target: to.id(),
            portal: Portal::RESERVED,
            match_bits: MatchBits::PING,
            offset: 0,
            hdr_data: 0,
        })
        .unwrap();
}

/// Delivers a push over the connection of `from`.
pub(crate) fn push_nids(network: &Network, to: &Node, from: Nid, nids: &[Nid]) {
    push_over(network, to, from, from, nids);
}

/// Delivers a push with `source` as its source over the connection of `from`.
fn push_over(network: &Network, to: &Node, from: Nid, source: Nid, nids: &[Nid]) {
    let payload = content(&bytes(&info(5, 0x1e, nids)));
    let header = push_header(to, source, payload.len() as u32);
    network.arrive(Packet { from, to: to.id(), header, payload, tx: None });
}

fn push_header(to: &Node, source: Nid, payload_length: u32) -> Header {
    let body = Body::Put {
        ack_wmd: WireHandle::new(1, 1),
        match_bits: MatchBits::PING,
        hdr_data: 0,
        portal: 0,
        offset: 0,
    };
    Header { dest: to.id(), src: ProcessId::lnet(source), payload_length, body }
}

#[test]
fn a_push_makes_the_nids_of_a_node_one_peer() {
    let (network, a, b) = two_nodes();
    let other = nid(22);
    // The push comes from the second NID of a node whose primary NID is another.
    push(&a, &b, &bytes(&info(5, 0x1e, &[other, a.nid])));
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Ack, Ok(()), true)]);
    assert_eq!(b.engine.primary_nid(a.nid), other);

    // Events name the primary NID, and entries for either NID match.
    let buffer = memory(8);
    for wanted in [other, a.nid] {
        let portal = Portal::new(40).unwrap();
        let me = lnet_api::MeSpec { portal, match_id: ProcessId::lnet(wanted), ..spec(1) };
        let me = b.engine.me_attach(&me).unwrap();
        let md = b.md(&buffer, lnet_api::MdOptions::OP_PUT, 1);
        b.engine.md_attach(me, md, lnet_api::Unlink::Auto).unwrap();
        a.engine
            .put(&Put {
                source: None,
                md: a.bind(&pattern(8, 1), 1),
                ack: AckRequest::NoAck,
                target: b.id(),
                portal,
                match_bits: MatchBits(1),
                offset: 0,
                hdr_data: 0,
            })
            .unwrap();
        network.run();
        let event = b.events().pop().unwrap();
        assert_eq!((event.initiator.nid, event.source.nid, event.sender), (other, a.nid, a.nid));
    }
    // A later push withdraws the announcement.
    push(&a, &b, &bytes(&info(6, 0x1e, &[a.nid])));
    network.run();
    assert_eq!(b.engine.primary_nid(a.nid), a.nid);
}

#[test]
fn pushes_that_say_nothing_useful_are_acknowledged_and_ignored() {
    let (network, a, b) = two_nodes();
    let single_rail = info(5, 0x06, &[nid(22), a.nid]);
    let too_long: Vec<Nid> =
        (0..300).map(|n| Nid::new_numeric(lnet_nid::Net::TCP, 0x0a58_0000 + n)).collect();
    let mut too_long = too_long;
    too_long[1] = a.nid;
    let ours = info(5, 0x1e, &[b.nid, a.nid]);
    for content in
        [memory(0), pattern(100, 1), bytes(&single_rail), bytes(&info(5, 0x1e, &too_long)), bytes(&ours)]
    {
        push(&a, &b, &content);
        network.run();
        let last = a.events().pop().unwrap();
        assert_eq!((last.kind, last.mlength as usize), (Ack, content.len().min(4096)));
        assert_eq!(b.engine.primary_nid(a.nid), a.nid);
    }
}

#[test]
fn many_pushes_at_once_are_all_acknowledged() {
    let network = Network::new();
    let b = Node::new(&network, 3);
    let nodes: Vec<Node> = (100..110).map(|last| Node::new(&network, last)).collect();
    let rounds = 50;
    for node in &nodes {
        for round in 0..rounds {
            push(node, &b, &bytes(&info(round, 0x1e, &[node.nid, nid(node_number(node) + 100)])));
        }
    }
    // All headers arrive before the first payload: more headers than the node has buffers.
    let mut receiving = Vec::new();
    while let Some(mut packet) = network.take(0) {
        let to_b = packet.to.nid == b.nid;
        if let Some(tx) = packet.tx.take() {
            let sender = nodes.iter().find(|node| node.nid == packet.from).unwrap_or(&b);
            sender.finalize(tx);
        }
        let delivered = network.arrive_header(&packet);
        assert_eq!(delivered.is_some(), to_b, "no push waits");
        receiving.extend(delivered);
    }
    for (token, receiver) in receiving {
        receiver.finalize_rx(token, Ok(()));
    }
    network.run();
    assert_eq!((network.verdicts().discarded, b.engine.counters().drop_count), (0, 0));
    for node in &nodes {
        let acks = node.events().iter().filter(|event| event.kind == Ack).count();
        assert_eq!(acks, rounds as usize);
        assert_eq!(b.engine.primary_nid(nid(node_number(node) + 100)), node.nid);
        assert!(node.is_quiet());
    }
    assert!(b.is_quiet());
}

fn node_number(node: &Node) -> u8 {
    node.nid.ipv4().expect("an IPv4 address").octets()[3]
}

#[test]
fn empty_pushes_without_end_are_taken() {
    let (network, a, b) = two_nodes();
    for _ in 0..1000 {
        push(&a, &b, &memory(0));
        network.run();
    }
    assert_eq!(a.events().iter().filter(|event| event.kind == Ack).count(), 1000);
}

#[test]
fn a_push_finds_no_buffer_and_is_acknowledged_without_holding_its_connection() {
    let (network, a, b) = two_nodes();
    // The payloads of these pushes never arrive; there are far more of them than buffers.
    let stalled = (100..200).map(|last| {
        let packet = Packet {
            from: nid(last),
            to: b.id(),
            header: push_header(&b, nid(last), 4096),
            payload: vec![0; 4096],
            tx: None,
        };
        network.arrive_header(&packet).expect("a push is received at once")
    });
    let stalled: Vec<_> = stalled.collect();
    push(&a, &b, &bytes(&info(5, 0x1e, &[a.nid, nid(22)])));
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Ack, Ok(()), true)]);
    assert_eq!(b.engine.primary_nid(nid(22)), nid(22));
    // A push of the node to itself is not blocked either.
    push(&b, &b, &bytes(&info(5, 0x1e, &[b.nid])));
    network.run();
    assert_eq!(b.events().iter().filter(|event| event.kind == Ack).count(), 1);
    // When the stalled pushes have ended, buffers are free again.
    for (token, receiver) in stalled {
        receiver.finalize_rx(token, Err(Errno::ECONNRESET));
    }
    push(&a, &b, &bytes(&info(6, 0x1e, &[a.nid, nid(22)])));
    network.run();
    assert_eq!(b.engine.primary_nid(nid(22)), a.nid);
    assert_eq!((network.verdicts().delayed, network.verdicts().discarded), (0, 0));
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn a_peer_fills_one_place_for_pushes_at_a_time() {
    let (network, a, b) = two_nodes();
    let packet = |ack_wmd| {
        let Header { dest, src, payload_length, body } = push_header(&b, nid(100), 4096);
        let Body::Put { match_bits, hdr_data, portal, offset, .. } = body else { panic!("a PUT") };
        let body = Body::Put { ack_wmd, match_bits, hdr_data, portal, offset };
        let header = Header { dest, src, payload_length, body };
        Packet { from: nid(100), to: b.id(), header, payload: vec![0; 4096], tx: None }
    };
    // Half of the pushes request an ACK.
    let stalled: Vec<_> = (0..100)
        .map(|n| if n % 2 == 0 { WireHandle::NONE } else { WireHandle::new(1, 1) })
        .map(|ack| network.arrive_header(&packet(ack)).expect("a push is received at once"))
        .collect();
    push(&a, &b, &bytes(&info(5, 0x1e, &[a.nid, nid(22)])));
    network.run();
    assert_eq!(b.engine.primary_nid(nid(22)), a.nid);
    for (token, receiver) in stalled {
        receiver.finalize_rx(token, Ok(()));
    }
    network.run();
    // The next push of the peer is read.
    push_nids(&network, &b, nid(100), &[nid(100), nid(23)]);
    network.run();
    assert_eq!(b.engine.primary_nid(nid(23)), nid(100));
    assert!(a.is_quiet() && b.is_quiet());
}

/// Creates a node that has sent something to `peer`.
fn node_with_peer(network: &std::sync::Arc<Network>, peer: Nid) -> Node {
    let node = Node::new(network, 2);
    node.put(node.bind(&memory(8), 1), ProcessId::lnet(peer), 1, AckRequest::NoAck).unwrap();
    network.lose(0);
    node
}

#[test]
fn a_push_renames_no_other_peer() {
    let network = Network::new();
    let (victim, hostile) = (nid(3), nid(4));
    // The victim's NID is in the list, or is its primary NID.
    for list in [[hostile, victim], [victim, hostile]] {
        let node = node_with_peer(&network, victim);
        push_nids(&network, &node, hostile, &list);
        assert_eq!(node.engine.primary_nid(victim), victim);
        assert_eq!(node.engine.primary_nid(hostile), hostile);
    }
    // The other NIDs of such a list are accepted.
    let node = node_with_peer(&network, victim);
    push_nids(&network, &node, hostile, &[hostile, victim, nid(5)]);
    assert_eq!([victim, nid(5)].map(|nid| node.engine.primary_nid(nid)), [victim, hostile]);
}

#[test]
fn a_push_in_the_name_of_a_peer_counts_only_over_its_own_connection() {
    let network = Network::new();
    let (victim, hostile, unused) = (nid(3), nid(4), nid(5));
    let node = node_with_peer(&network, victim);
    push_over(&network, &node, hostile, victim, &[unused, victim]);
    assert_eq!(node.engine.primary_nid(victim), victim);
    push_nids(&network, &node, victim, &[victim, nid(6)]);
    // A hostile peer also cannot make the node forget the list of another.
    for list in [&[victim][..], &[unused, victim], &[victim, unused]] {
        push_over(&network, &node, hostile, victim, list);
        assert_eq!(node.engine.primary_nid(nid(6)), victim);
    }
}

#[test]
fn a_push_takes_no_nid_that_its_node_has_announced() {
    let (network, node) = one_node();
    let (victim, hostile) = (nid(3), nid(4));
    push_nids(&network, &node, victim, &[victim, nid(5)]);
    for list in [&[hostile, victim][..], &[hostile, nid(5)], &[nid(5), hostile], &[hostile, nid(5), victim]] {
        push_nids(&network, &node, hostile, list);
        assert_eq!([victim, nid(5)].map(|nid| node.engine.primary_nid(nid)), [victim; 2]);
    }
}

#[test]
fn a_node_keeps_its_nids_when_it_pushes_again() {
    let (network, node) = one_node();
    let (first, second) = (nid(3), nid(4));
    push_nids(&network, &node, first, &[first, second]);
    // There is traffic with either NID now.
    for peer in [first, second] {
        node.put(node.bind(&memory(8), 1), ProcessId::lnet(peer), 1, AckRequest::NoAck).unwrap();
    }
    network.run();
    for sender in [first, second] {
        push_nids(&network, &node, sender, &[first, second, nid(5)]);
        assert_eq!([second, nid(5)].map(|nid| node.engine.primary_nid(nid)), [first; 2]);
    }
}

#[test]
fn a_peer_with_another_pid_is_not_renamed_by_others() {
    let (network, node) = one_node();
    let victim = ProcessId::new(nid(3), Pid(Pid::LNET.0 | 0x8000_0000));
    node.put(node.bind(&memory(8), 1), victim, 1, AckRequest::NoAck).unwrap();
    network.lose(0);
    push_nids(&network, &node, nid(4), &[nid(4), victim.nid]);
    assert_eq!(node.engine.primary_nid(victim.nid), victim.nid);
}

/// One address with changing NIDs, each of which announces another node: the pushes beyond a burst
/// are acknowledged and ignored. Pushes of other addresses are still accepted.
#[test]
fn one_address_tells_of_few_nodes_in_a_time() {
    const NODES: u8 = 100;
    let (_network, a) = one_node();
    let names =
        |host: u8, number: u8| [1, 2].map(|ni| format!("10.{host}.{ni}.{number}@tcp").parse().unwrap());
    let tell = |names: [Nid; 2], host: u8| {
        let payload = content(&bytes(&info(5, 0x1e, &names)));
        let header = push_header(&a, names[0], payload.len() as u32);
        let (from, host) = (ProcessId::lnet(names[0]), Some(format!("10.200.0.{host}").parse().unwrap()));
        let arrival = Arrival { ni: a.nid, from, header: &header, host, rx: RxContext(1) };
        let Verdict::Deliver(mut delivery) = a.engine.parse(&arrival) else { panic!("a push is refused") };
        let mut sink = delivery.sink.take().expect("there is a buffer");
        assert_eq!(sink.copy_from(0, &payload), payload.len());
        drop(sink);
        a.engine.finalize_rx(delivery.token, Ok(()));
    };
    for number in 1..=NODES {
        tell(names(9, number), 9);
    }
    let ignored = a.engine.counters().pushes_ignored;
    assert!((1..u64::from(NODES)).contains(&ignored), "{ignored} of {NODES}");
    // An honest node with another address is known by both its NIDs. Its second push changes
    // nothing.
    for _ in 0..2 {
        tell(names(7, 1), 7);
    }
    assert_eq!(a.engine.counters().pushes_ignored, ignored);
    a.engine.audit().unwrap();
}
