//! The RDMA driver's messages and reject records.

use lnet_proto::ib::{
    Body, ConnParams, Link, MESSAGE_MAX, Message, RDMA_FRAGMENTS_MAX, RdmaDescriptor, RdmaFragment, Reject,
    RejectReason, TransferStatus, Version, verify_checksum,
};
use lnet_proto::{ByteOrder, ProtoError};

use super::{Outcome, same};
use crate::corpus::rdma;

/// Maximum length of an input: the longest message, and 64 bytes after it, which are not read.
pub(super) const MESSAGE_INPUT_MAX: usize = MESSAGE_MAX + 64;

/// Reads a message, and checks that it is written back with the same meaning and, where all of it
/// is read, with the same bytes.
pub(super) fn message(bytes: &[u8]) -> Outcome {
    let message = match Message::parse(bytes) {
        Ok(message) => message,
        Err(error) => {
            if let ProtoError::Truncated { length, needed, .. } = error {
                assert!(length == bytes.len() && length < needed && needed <= MESSAGE_MAX, "{error}");
            }
            return Outcome::of_error(&error);
        }
    };
    let length = message.encoded_len();
    assert!(length <= MESSAGE_MAX && length <= bytes.len(), "{length} bytes of {}", bytes.len());
    let mut out = [0; MESSAGE_MAX];
    same(message.emit(&mut out), Ok(length), "length of a message");
    same(Message::parse(&out[..length]), Ok(message), "message");
    let order = order_of(bytes);
    if order == ByteOrder::Little && message.body.header().is_none() && out[8..12] == bytes[8..12] {
        same(&out[..length], &bytes[..length], "message bytes");
    }
    let checksum = verify_checksum(bytes);
    assert!(message.head.checksum != 0 || checksum.is_ok(), "no checksum is a good one");
    let link = Link { version: message.head.version, local: message.head.dst, peer: message.head.src };
    same(link.check(&message.head), Ok(()), "a message and its own connection");
    let (detail, fragments) = detail(&message.body);
    let limit = usize::from(RDMA_FRAGMENTS_MAX);
    Outcome::of_list((order, message.head.version, message.body.kind(), detail), fragments, limit)
}

/// Returns the parts of a body that make outcomes distinct, and the number of its fragments.
fn detail(body: &Body<'_>) -> (u64, usize) {
    match body {
        Body::PutAck { descriptor, .. } | Body::GetReq { descriptor, .. } => {
            let (count, total) = (descriptor.count(), descriptor.total_len());
            assert!((1..=usize::from(RDMA_FRAGMENTS_MAX)).contains(&count), "{count} fragments");
            same(descriptor.fragments().len(), count, "number of fragments");
            same(
                descriptor.fragments().map(|fragment| u64::from(fragment.length)).sum(),
                total,
                "total length",
            );
            (0, count)
        }
        Body::Immediate { header, payload } => {
            same(payload.len(), header.payload_length as usize, "payload");
            (header.message_type() as u64, 0)
        }
        Body::PutNak(TransferStatus { status, .. })
        | Body::PutDone(TransferStatus { status, .. })
        | Body::GetDone(TransferStatus { status, .. }) => (u64::from(*status < 0), 0),
        _ => (0, 0),
    }
}

/// Reads a reject record, and checks that it is written back with the same bytes, padding apart.
pub(super) fn reject(bytes: &[u8]) -> Outcome {
    let reject = match Reject::parse(bytes) {
        Ok(reject) => reject,
        Err(error) => return Outcome::of_error(&error),
    };
    let length = reject.encoded_len();
    assert!(length <= Reject::LEN && length <= bytes.len(), "{length} bytes of {}", bytes.len());
    let mut out = [0; Reject::LEN];
    same(reject.emit(&mut out), Ok(length), "length of a record");
    same(Reject::parse(&out[..length]), Ok(reject), "record");
    let order = order_of(bytes);
    if order == ByteOrder::Little {
        same((&out[..7], &out[8..length]), (&bytes[..7], &bytes[8..length]), "record bytes");
    }
    Outcome::of((order, reject.version, reject.reason, reject.params.is_some()))
}

fn order_of(bytes: &[u8]) -> ByteOrder {
    if bytes.first() == Some(&0x91) { ByteOrder::Little } else { ByteOrder::Big }
}

pub(super) fn message_seeds() -> Vec<Vec<u8>> {
    let recorded = rdma().into_iter().map(|(_, bytes)| bytes);
    let most = usize::from(RDMA_FRAGMENTS_MAX);
    recorded.chain([16, most - 1, most].into_iter().flat_map(messages_of)).collect()
}

/// Returns the recorded messages with a descriptor, each with a descriptor of `count` fragments.
fn messages_of(count: usize) -> Vec<Vec<u8>> {
    let fragments: Vec<_> =
        (0..count as u64).map(|number| RdmaFragment { length: 4096, address: number << 12 }).collect();
    let descriptor = RdmaDescriptor::new(7, &fragments).unwrap_or_else(|error| panic!("{error}"));
    let recorded = rdma();
    let messages = recorded.iter().filter_map(|(_, bytes)| {
        let Message { head, body } = Message::parse(bytes).ok()?;
        let body = match body {
            Body::PutAck { source, sink, .. } => Body::PutAck { source, sink, descriptor },
            Body::GetReq { header, cookie, .. } => Body::GetReq { header, cookie, descriptor },
            _ => return None,
        };
        let mut out = vec![0; MESSAGE_MAX];
        let message = Message { head, body };
        let length = message.emit(&mut out).unwrap_or_else(|error| panic!("{error}"));
        out.truncate(length);
        Some(out)
    });
    messages.collect()
}

pub(super) fn reject_seeds() -> Vec<Vec<u8>> {
    let reasons = [RejectReason::ConnRace, RejectReason::MsgQueueSize];
    let records = [Some(ConnParams::DEFAULT), None].into_iter().flat_map(|params| {
        let of = move |reason| Reject { version: Version::V2, reason, stamp: 7, params };
        reasons.map(of)
    });
    records
        .map(|record| {
            let mut bytes = vec![0; record.encoded_len()];
            same(record.emit(&mut bytes), Ok(bytes.len()), "length of a seed");
            bytes
        })
        .collect()
}
