//! Messages of kernel nodes over RDMA are parsed, emitted again from the fields alone, and
//! plausible (S-207, S-417).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::{RdmaItem, rdma_items};
use lnet_proto::ib::{
    AcceptRules, Attempt, Body, ConnParams, Connector, Destination, Link, LocalInterface, MESSAGE_MAX,
    Message, RdmaDescriptor, RdmaFragment, Version, emit_immediate, verify_checksum,
};
use lnet_proto::ping::PingInfo;

#[test]
fn every_message_is_read_and_written_back() {
    let mut seen = BTreeMap::new();
    for RdmaItem { file, kind, bytes } in rdma_items() {
        let message = Message::parse(&bytes).unwrap();
        // The message is built from copied values alone: the fragments, too.
        let fragments: Vec<RdmaFragment> = match message.body {
            Body::PutAck { descriptor, .. } | Body::GetReq { descriptor, .. } => {
                descriptor.fragments().collect()
            }
            _ => Vec::new(),
        };
        let own = |descriptor: RdmaDescriptor<'_>| RdmaDescriptor::new(descriptor.key, &fragments).unwrap();
        let body = match message.body {
            Body::PutAck { source, sink, descriptor } => {
                Body::PutAck { source, sink, descriptor: own(descriptor) }
            }
            Body::GetReq { header, cookie, descriptor } => {
                Body::GetReq { header, cookie, descriptor: own(descriptor) }
            }
            other => other,
        };
        let mut out = [0x5a; MESSAGE_MAX];
        assert_eq!(Message { head: message.head, body }.emit(&mut out), Ok(bytes.len()), "{file} {kind}");
        assert_eq!(out[..bytes.len()], bytes, "{file} {kind}");
        assert!(out[bytes.len()..].iter().all(|byte| *byte == 0x5a), "nothing is written behind the message");
        assert_eq!((message.head.version, verify_checksum(&bytes)), (Version::V2, Ok(())));
        *seen.entry(message.body.kind().to_string()).or_insert(0) += 1;
        let named =
            [("cm-req", "CONNREQ"), ("cm-rep", "CONNACK")].into_iter().find(|(name, _)| *name == kind);
        assert_eq!(message.body.kind().to_string(), named.map_or(kind.as_str(), |(_, name)| name));
    }
    let kinds: Vec<_> = seen.keys().map(String::as_str).collect();
    let expected =
        ["CONNACK", "CONNREQ", "GET_DONE", "GET_REQ", "IMMEDIATE", "PUT_ACK", "PUT_DONE", "PUT_REQ"];
    assert_eq!(kinds, expected);
}

#[test]
fn an_immediate_message_can_be_written_around_its_payload() {
    let mut pings = 0;
    for RdmaItem { bytes, .. } in rdma_items() {
        let Message { head, body: Body::Immediate { header, payload } } = Message::parse(&bytes).unwrap()
        else {
            continue;
        };
        let mut out = [0; MESSAGE_MAX];
        let total = emit_immediate(&head, &header, &mut out).unwrap();
        out[total - payload.len()..total].copy_from_slice(payload);
        assert_eq!(out[..total], bytes);
        assert_eq!(header.src.nid.net(), "o2ib".parse().unwrap());
        if payload.starts_with(b"gnip") {
            let info = PingInfo::parse(payload).unwrap();
            let mut again = vec![0; info.encoded_len()];
            assert_eq!(info.emit(&mut again), Ok(payload.len()));
            assert_eq!(again, payload);
            pings += 1;
        }
    }
    assert!(pings > 0);
}

/// lnet-wire 34 and lnet-measured: both machines send what the recorded nodes sent, and agree.
#[test]
fn the_recorded_negotiation_is_played_again() {
    for (request, acceptance) in handshakes() {
        let (asked, answered) = (Message::parse(&request).unwrap(), Message::parse(&acceptance).unwrap());
        assert_eq!(
            (asked.body, answered.body),
            (Body::ConnReq(ConnParams::DEFAULT), Body::ConnAck(ConnParams::DEFAULT))
        );
        assert_eq!(asked.head.dst.stamp, 0, "the active side knows nothing of the passive side");

        let connector = Connector::new(Attempt {
            local: asked.head.src,
            peer: asked.head.dst,
            version: Version::V2,
            oldest: Version::V2,
            params: ConnParams::DEFAULT,
        })
        .unwrap();
        assert_eq!(connector.request(), request);

        let passive = LocalInterface { end: answered.head.src, limits: ConnParams::DEFAULT };
        let listener = AcceptRules {
            require_privileged: true,
            oldest: Version::V2,
            destination: |nid| match nid == passive.end.nid {
                true => Destination::Ready(passive),
                false => Destination::Unknown,
            },
        };
        let offer = listener.judge(1023, &request).unwrap();
        assert_eq!(offer.accept(offer.asked).unwrap()[..], acceptance);

        let established = connector.accepted(&acceptance).unwrap();
        let Link { version, local, peer } = established.link;
        assert_eq!(offer.link, Link { version, local: peer, peer: local }, "each is the other's peer");
        assert_eq!(established.params, offer.asked);
    }
}

/// lnet-wire 32: every recorded message names the two ends of its connection.
#[test]
fn recorded_messages_belong_to_their_connection() {
    let mut link = None;
    for RdmaItem { kind, bytes, .. } in rdma_items() {
        let head = Message::parse(&bytes).unwrap().head;
        match kind.as_str() {
            "cm-req" => link = None,
            "cm-rep" => link = Some(Link { version: head.version, local: head.dst, peer: head.src }),
            _ => {
                let link = link.unwrap();
                let back = Link { local: link.peer, peer: link.local, ..link };
                let good = [link, back].map(|link| link.check(&head).is_ok());
                assert_eq!(good.iter().filter(|good| **good).count(), 1, "one direction fits");
                assert_eq!([link, back].map(|link| link.head(head.credits) == head), [good[1], good[0]]);
            }
        }
    }
    assert!(link.is_some());
}

fn handshakes() -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = |kind: &'static str| {
        rdma_items().into_iter().filter(move |item| item.kind == kind).map(|item| item.bytes)
    };
    let pairs: Vec<_> = of("cm-req").zip(of("cm-rep")).collect();
    assert_eq!(pairs.len(), 3);
    pairs
}
