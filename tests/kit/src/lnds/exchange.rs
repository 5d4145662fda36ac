//! One message and its answer.

use lnet_api::{EventKind, MdOptions};
use lnet_region::IoVec;

use super::{Node, TestBed};
use crate::buffers::{bytes, fill};

/// Transfers all of `source` into the beginning of `sink`, by a PUT and by a GET, and compares the
/// bytes.
pub fn exchange<B: TestBed>(bed: &B, [a, b]: [&Node<B::Kind>; 2], source: &IoVec, sink: &IoVec) {
    put(bed, [a, b], source, sink);
    get(bed, [a, b], source, sink);
}

/// Transfers all of `source` into the beginning of `sink` by a PUT, and compares the bytes.
pub fn put<B: TestBed>(bed: &B, [a, b]: [&Node<B::Kind>; 2], source: &IoVec, sink: &IoVec) {
    let sent = bytes(source);
    fill(sink, &vec![0; sink.len()]);
    b.post(sink, 7, MdOptions::OP_PUT | MdOptions::TRUNCATE);
    a.put(b.id, source, 7);
    bed.until(&[a, b], || a.has(EventKind::Ack) && b.has(EventKind::Put));
    assert!(bytes(sink)[..sent.len()] == sent, "a PUT of {} bytes", sent.len());
    [a, b].into_iter().for_each(Node::clear);
}

/// Transfers all of `source` into the beginning of `sink` by a GET, and compares the bytes.
pub fn get<B: TestBed>(bed: &B, [a, b]: [&Node<B::Kind>; 2], source: &IoVec, sink: &IoVec) {
    let sent = bytes(source);
    fill(sink, &vec![0; sink.len()]);
    b.post(source, 7, MdOptions::OP_GET | MdOptions::TRUNCATE);
    a.get(b.id, sink, 7);
    bed.until(&[a, b], || a.has(EventKind::Reply) && b.has(EventKind::Get));
    assert!(bytes(sink)[..sent.len()] == sent, "a GET of {} bytes", sent.len());
    [a, b].into_iter().for_each(Node::clear);
}
