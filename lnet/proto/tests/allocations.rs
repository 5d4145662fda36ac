//! Messages allocate no memory, and a peer causes allocations only in proportion to the bytes that
//! it has sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Item, rdma_items, streams};
use lnet_nid::Pid;
use lnet_proto::ib::{
    AcceptRules, Attempt, Body, ConnParams, Cookie, Destination, End, Link, MESSAGE_MAX, Message,
    RdmaDescriptor, RdmaFragment, Rejection, Version, verify_checksum,
};
use lnet_proto::ping::{Features, NIS_MAX, NiStatus, PingInfo, PingInterface};
use lnet_proto::sock::{self, AckQueue, Acks, Decoder, Frame, Hello, LocalInterface, Prefix};
use lnet_proto::{ByteOrder, Header, ProtoError};
use nlx_testkit::heap::{COUNTING, WatchedHeap, allocations as counted, peak_bytes};

#[global_allocator]
static HEAP: WatchedHeap = COUNTING;

#[test]
fn rdma_messages_cost_no_memory() {
    let mut out = [0; MESSAGE_MAX];
    let items = rdma_items();
    let (total, allocations) = counted(|| {
        let mut total = 0;
        for item in &items {
            let message = Message::parse(&item.bytes).unwrap();
            verify_checksum(&item.bytes).unwrap();
            if let Body::PutAck { descriptor, .. } | Body::GetReq { descriptor, .. } = &message.body {
                total += descriptor.total_len();
            }
            total += message.emit(&mut out).unwrap() as u64;
        }
        total
    });
    assert!(total > 0);
    assert_eq!(allocations, 0);

    let end = |text: &str| End { nid: text.parse().unwrap(), stamp: 1 };
    let link = Link { version: Version::V2, local: end("10.0.0.1@o2ib"), peer: end("10.0.0.2@o2ib") };
    let fragments = [RdmaFragment { length: 4096, address: 5 }; 257];
    let (total, allocations) = counted(|| {
        let descriptor = RdmaDescriptor::new(1, &fragments).unwrap();
        let body = Body::PutAck { source: Cookie::new(1), sink: Cookie::new(2), descriptor };
        let length = Message { head: link.head(0), body }.emit(&mut out).unwrap();
        let Body::PutAck { descriptor, .. } = Message::parse(&out[..length]).unwrap().body else { panic!() };
        descriptor.total_len()
    });
    assert_eq!((total, allocations), (257 * 4096, 0));
}

#[test]
fn negotiation_over_rdma_costs_no_memory() {
    let items = rdma_items();
    let listener =
        AcceptRules { require_privileged: false, oldest: Version::V2, destination: |_| Destination::Unknown };
    let end = |text: &str| End { nid: text.parse().unwrap(), stamp: 1 };
    let mut connector = lnet_proto::ib::Connector::new(Attempt {
        local: end("10.0.0.1@o2ib"),
        peer: end("10.0.0.2@o2ib"),
        version: Version::V2,
        oldest: Version::V2,
        params: ConnParams::DEFAULT,
    })
    .unwrap();
    let ((), allocations) = counted(|| {
        for item in &items {
            let refusal = listener.judge(1023, &item.bytes).unwrap_err();
            let mut record = [0; 24];
            refusal.record.emit(&mut record).unwrap();
            let _ = (connector.accepted(&item.bytes), connector.rejected(Rejection::Record(&record)));
        }
    });
    assert_eq!(allocations, 0);
}

#[test]
fn tcp_messages_cost_no_memory() {
    let streams = streams();
    let mut frames = Vec::new();
    for stream in &streams {
        let large = stream.hello()[4] == 4;
        let version = if large { sock::Version::V4 } else { sock::Version::V3 };
        frames.extend(stream.items.iter().filter_map(|item| match item {
            Item::Noop(bytes) => Some((version, bytes.clone())),
            Item::Lnet(lnet) => Some((version, [&lnet.prefix[..], &lnet.header].concat())),
            _ => None,
        }));
    }
    let (messages, allocations) = counted(|| {
        let mut messages = 0;
        for (version, bytes) in &frames {
            let (_, frame) = Decoder::new(*version, ByteOrder::Little).decode(bytes).unwrap().unwrap();
            let (Frame::Noop(prefix) | Frame::Lnet(prefix, _)) = frame;
            prefix.emit(&mut [0; Prefix::LEN]);
            if let Frame::Lnet(_, header) = frame {
                header.emit_large(&mut [0; Header::LARGE_LEN]).unwrap();
                messages += 1;
            }
        }
        messages
    });
    assert!(messages > 0);
    assert_eq!(allocations, 0);
}

/// Zero-copy acks take no memory after the first use, in which the queue allocates the little it
/// needs.
#[test]
fn zero_copy_acks_cost_no_memory() {
    let mut queue = AckQueue::new();
    let mut use_it = || {
        for cookie in (2..200).step_by(3) {
            queue.push(cookie).unwrap();
        }
        while queue.pop() != Acks::None {}
    };
    use_it();
    assert_eq!(counted(use_it).1, 0);
}

#[test]
fn a_handshake_costs_no_memory() {
    let interface = LocalInterface { pid: Pid::LNET, incarnation: 1 };
    for stream in streams().iter().filter(|stream| stream.active) {
        let bytes = [stream.request(), stream.hello()].concat();
        let (hello, allocations) = counted(|| {
            let mut acceptor = sock::Acceptor::new(|_| Some(interface));
            let (mut rest, mut hello) = (&bytes[..], None);
            while !rest.is_empty() {
                // The request arrives byte by byte, so the machine must keep the bytes it needs.
                let (taken, progress) = acceptor.feed(&rest[..1]);
                rest = &rest[taken..];
                if let sock::AcceptProgress::Hello(offer) = progress {
                    hello = Some(offer.accept(offer.claimed()).unwrap());
                }
            }
            hello
        });
        assert!(matches!(Hello::decode(&hello.unwrap()), Ok(lnet_proto::Decoded::Done(..))));
        assert_eq!(allocations, 0);
    }
}

/// A ping info is the only object whose memory depends on the peer.
#[test]
fn a_ping_info_earns_its_memory() {
    let nid = |index: usize| format!("10.1.{}.{}@tcp", index / 256, index % 256).parse().unwrap();
    let nis: Vec<_> =
        (0..NIS_MAX - 1).map(|index| PingInterface { nid: nid(index), status: NiStatus::UP }).collect();
    let info = PingInfo { features: Features::NI_STATUS, pid: Pid::LNET, sequence: 1, nis };
    let mut bytes = vec![0; info.encoded_len()];
    info.emit(&mut bytes).unwrap();

    // The head claims many entries, but only few are sent.
    for length in [16, 32, 48, 1000, bytes.len() - 1] {
        let (parsed, held) = peak_bytes(|| PingInfo::parse(&bytes[..length]));
        assert!(matches!(parsed, Err(ProtoError::Truncated { .. })), "{parsed:?}");
        assert_eq!(held, 0, "{length} bytes of {}", bytes.len());
    }
    let (parsed, held) = peak_bytes(|| PingInfo::parse(&bytes));
    assert_eq!(parsed, Ok(info));
    // An entry takes 32 bytes at most, and a growing vector briefly three times its content.
    assert!(held <= 6 * bytes.len(), "{held} bytes held for {}", bytes.len());
}
