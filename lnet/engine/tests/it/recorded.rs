//! The engine against what kernel nodes said to each other: it takes either side, and must answer with the same
//! meaning. Headers are equal in all fields but our own cookies, ping infos in all but our own sequence number.

use lnet_api::{AckRequest, LNet, Put};
use lnet_nid::{MatchBits, Portal};
use lnet_proto::ping::PingInfo;
use lnet_proto::{Body, Header};
use serde_json::Value;

use super::common::*;
use super::ping::Counting;

/// A message of a recording.
#[derive(Debug, Clone)]
struct Recorded {
    header: Header,
    payload: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The LNet messages of one side on portal 0, with their answers, in order.
fn messages(file: &str, role: &str) -> Vec<Recorded> {
    let path = format!("{}/../../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let recording: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let streams = recording["streams"].as_array().unwrap().iter().filter(|stream| stream["role"] == role);
    let items = streams.flat_map(|stream| stream["items"].as_array().unwrap());
    let read = |item: &Value| Recorded {
        header: Header::parse(unhex(item["header_hex"].as_str().unwrap()).as_slice().try_into().unwrap())
            .unwrap(),
        payload: item["payload_hex"].as_str().map(unhex).unwrap_or_default(),
    };
    let on_portal_0 = |message: &Recorded| match message.header.body {
        Body::Put { portal, .. } | Body::Get { portal, .. } => portal == 0,
        Body::Ack { .. } | Body::Reply { .. } => true,
    };
    items.filter(|item| item["kind"] == "lnet").map(read).filter(on_portal_0).collect()
}

/// Feeds a message to the engine as if the network had brought it.
fn feed(network: &Network, to: &Node, message: &Recorded) {
    let packet = Packet {
        from: message.header.src.nid,
        to: to.id(),
        header: message.header,
        payload: message.payload.clone(),
        tx: None,
    };
    network.arrive(packet);
}

/// The one message that the engine has sent.
fn sent(network: &Network, node: &Node) -> Recorded {
    let packet = network.take(0).expect("a message");
    assert_eq!((packet.from, network.queue.lock().len()), (node.nid, 0));
    node.finalize(packet.tx.expect("a message being sent"));
    Recorded { header: packet.header, payload: packet.payload }
}

fn same_info(ours: &[u8], theirs: &[u8]) {
    let (ours, theirs) = (PingInfo::parse(ours).unwrap(), PingInfo::parse(theirs).unwrap());
    assert_eq!(PingInfo { sequence: theirs.sequence, ..ours }, theirs);
}

fn is_ping(message: &Recorded) -> bool {
    matches!(message.header.body, Body::Get { .. })
}

fn is_push(message: &Recorded) -> bool {
    matches!(message.header.body, Body::Put { .. })
}

#[test]
fn as_the_passive_node_the_engine_answers_as_the_kernel_did() {
    for file in
        ["tcp-ping.json", "tcp-discover.json", "tcp-lst-ping.json", "tcp-lst-read.json", "tcp-lst-write.json"]
    {
        let network = Network::new();
        let node = Node::new(&network, 3);
        let (asked, answered) = (messages(file, "active"), messages(file, "passive"));
        assert!(asked.iter().any(is_ping), "{file} has a ping");
        for question in asked.iter().filter(|message| is_ping(message) || is_push(message)) {
            feed(&network, &node, question);
            let ours = sent(&network, &node);
            let wmd = match question.header.body {
                Body::Get { return_wmd, .. } => return_wmd,
                Body::Put { ack_wmd, .. } => ack_wmd,
                _ => unreachable!(),
            };
            let answers = |message: &&Recorded| match message.header.body {
                Body::Reply { dst_wmd } | Body::Ack { dst_wmd, .. } => dst_wmd == wmd,
                _ => false,
            };
            let theirs = answered.iter().find(answers).expect("the kernel's answer");
            assert_eq!(ours.header, theirs.header, "{file}");
            if is_ping(question) {
                same_info(&ours.payload, &theirs.payload);
            }
        }
        assert!(node.is_quiet());
    }
}

#[test]
fn as_the_active_node_the_engine_asks_as_the_kernel_did() {
    for file in ["tcp-ping.json", "tcp-discover.json"] {
        let network = Network::new();
        let node = Node::new(&network, 2);
        let (asked, answered) = (messages(file, "active"), messages(file, "passive"));
        let target = asked[0].header.dest;
        let mut ping = node.engine.ping(None, target, Counting::new()).unwrap();
        let ours = sent(&network, &node);
        let theirs = asked.iter().find(|message| is_ping(message)).unwrap();
        let Body::Get { return_wmd, match_bits, portal, src_offset, sink_length } = ours.header.body else {
            panic!("{ours:?}")
        };
        let Body::Get { return_wmd: their_wmd, sink_length: their_length, .. } = theirs.header.body else {
            panic!("{theirs:?}")
        };
        // How much is asked for is each node's own choice, at least 272 bytes.
        assert!(sink_length >= 272);
        let body =
            Body::Get { return_wmd: their_wmd, match_bits, portal, src_offset, sink_length: their_length };
        assert_eq!(Header { body, ..ours.header }, theirs.header);

        // The kernel's answer, as it would be to us.
        let reply =
            answered.iter().find(|message| matches!(message.header.body, Body::Reply { .. })).unwrap();
        let body = Body::Reply { dst_wmd: return_wmd };
        feed(
            &network,
            &node,
            &Recorded { header: Header { body, ..reply.header }, payload: reply.payload.clone() },
        );
        let info = ping.poll().unwrap().unwrap();
        assert_eq!(info, PingInfo::parse(&reply.payload).unwrap());
        assert_eq!(info.nis[0].nid, target.nid);
    }
}

#[test]
fn a_push_from_the_engine_looks_like_the_kernels_and_takes_its_ack() {
    let network = Network::new();
    let node = Node::new(&network, 2);
    let (asked, answered) =
        (messages("tcp-discover.json", "active"), messages("tcp-discover.json", "passive"));
    let theirs = asked.iter().find(|message| is_push(message)).unwrap();
    let content = memory(theirs.payload.len());
    content.write(0..content.len()).unwrap().copy_from(0, &theirs.payload);
    let md = node.bind(&content, 2);
    node.engine
        .put(&Put {
            source: None,
            md,
            ack: AckRequest::Ack,
            target: theirs.header.dest,
            portal: Portal::RESERVED,
            match_bits: MatchBits::PING,
            offset: 0,
            hdr_data: 0,
        })
        .unwrap();
    let ours = sent(&network, &node);
    let Body::Put { ack_wmd, .. } = ours.header.body else { panic!("{ours:?}") };
    let Body::Put { ack_wmd: their_wmd, match_bits, hdr_data, portal, offset } = theirs.header.body else {
        panic!("{theirs:?}")
    };
    assert_eq!((ack_wmd.interface_cookie(), ack_wmd.object_cookie()), (cookie(2), md.0));
    let body = Body::Put { ack_wmd, match_bits, hdr_data, portal, offset };
    assert_eq!(ours.header, Header { body, ..theirs.header });
    assert_eq!(ours.payload, theirs.payload);
    let to_theirs = |message: &&Recorded| matches!(message.header.body, Body::Ack { dst_wmd, .. } if dst_wmd == their_wmd);
    let ack = answered.iter().find(to_theirs).unwrap();
    let Body::Ack { match_bits, mlength, .. } = ack.header.body else { unreachable!() };
    let body = Body::Ack { dst_wmd: ack_wmd, match_bits, mlength };
    feed(&network, &node, &Recorded { header: Header { body, ..ack.header }, payload: vec![] });
    let event = node.events().pop().unwrap();
    assert_eq!(
        (event.kind, event.mlength as usize, event.unlinked),
        (lnet_api::EventKind::Ack, content.len(), true)
    );
}
