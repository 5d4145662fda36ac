//! The encoding of a connection's messages.

use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_o2iblnd::conn::EmitKind;
use lnet_proto::ib::{Body, End, Link, MESSAGE_MAX, Message, RdmaDescriptor, RdmaFragment, Version};
use lnet_proto::{Header, WireHandle};

/// Returns both ends, from the view of a node.
pub(crate) fn link(at: usize) -> Link {
    let end = |index: usize| End {
        nid: format!("10.0.0.{}@o2ib", index + 1).parse::<Nid>().unwrap(),
        stamp: 100 + index as u64,
    };
    Link { version: Version::V2, local: end(at), peer: end(1 - at) }
}

/// Returns the pieces of memory of this length.
pub(crate) fn pieces(length: u32) -> [RdmaFragment; 2] {
    [
        RdmaFragment { length: length / 2, address: 1 << 40 },
        RdmaFragment { length: length - length / 2, address: 77 },
    ]
}

/// Returns the message of operation `op`, for `length` bytes in these pieces.
pub(crate) fn message<'a>(
    link: &Link,
    credits: u8,
    kind: EmitKind,
    (op, length): (usize, u32),
    pieces: &'a [RdmaFragment],
) -> Message<'a> {
    let (dest, src) = (ProcessId::lnet(link.peer.nid), ProcessId::lnet(link.local.nid));
    let header = |payload_length, body| Header { dest, src, payload_length, body };
    let match_bits = MatchBits(op as u64);
    let put = |length| {
        let body = lnet_proto::Body::Put {
            ack_wmd: WireHandle::NONE,
            match_bits,
            hdr_data: 0,
            portal: 4,
            offset: 0,
        };
        header(length, body)
    };
    let get = || {
        let body = lnet_proto::Body::Get {
            return_wmd: WireHandle::NONE,
            match_bits,
            portal: 4,
            src_offset: 0,
            sink_length: length,
        };
        header(0, body)
    };
    let descriptor = RdmaDescriptor::new(9, pieces).unwrap();
    let body = match kind {
        EmitKind::Noop => Body::Noop,
        EmitKind::Immediate => Body::Immediate { header: put(0), payload: &[] },
        EmitKind::PutReq { cookie } => Body::PutReq { header: put(length), cookie },
        EmitKind::PutNak(done) => Body::PutNak(done),
        EmitKind::PutAck { source, sink } => Body::PutAck { source, sink, descriptor },
        EmitKind::PutDone(done) => Body::PutDone(done),
        EmitKind::GetReq { cookie } => Body::GetReq { header: get(), cookie, descriptor },
        EmitKind::GetDone(done) => Body::GetDone(done),
    };
    Message { head: link.head(credits), body }
}

/// Returns the bytes of a message.
pub(crate) fn encode(link: &Link, credits: u8, kind: EmitKind, op: usize, length: u32) -> Vec<u8> {
    let mut bytes = [0; MESSAGE_MAX];
    let total = message(link, credits, kind, (op, length), &pieces(length)).emit(&mut bytes).unwrap();
    bytes[..total].to_vec()
}

/// Returns the operation of a message.
pub(crate) fn decode_origin(header: &Header) -> usize {
    match header.body {
        lnet_proto::Body::Put { match_bits, .. } | lnet_proto::Body::Get { match_bits, .. } => {
            match_bits.0 as usize
        }
        _ => panic!("{header:?} is of no operation"),
    }
}
