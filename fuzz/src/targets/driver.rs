//! What clients and the helper say to each other (`docs/driver-protocol.md`): the helper reads what hostile clients write.

use std::net::Ipv4Addr;

use lnet_nid::{Net, NetType, Nid};
use nlx_driver_proto::{
    Header, NIDS_MAX, PACKET_MAX, ProtoError, Refusal, Reply, Request, SEGMENTS_MAX, Segment, Submission,
};
use zerocopy::{FromZeros, IntoBytes};

use super::{Outcome, same};

#[path = "../../../driver-proto/tests/it/document.rs"]
mod document;

/// Bytes of the longest packet, and some more, which make it too long.
pub(super) const PACKET_INPUT_MAX: usize = PACKET_MAX + 64;

/// The bytes as they came, and with a header that tells their length.
pub(super) fn request(bytes: &[u8]) -> Outcome {
    let (raw, mended) = (read_request(bytes), read_request(&mended(bytes)));
    Outcome::of_list((raw.0, raw.1, mended.0, mended.1), mended.2, SEGMENTS_MAX)
}

/// The same for what a client reads.
pub(super) fn reply(bytes: &[u8]) -> Outcome {
    let (raw, mended) = (read_reply(bytes), read_reply(&mended(bytes)));
    Outcome::of_list((raw.0, raw.1, mended.0, mended.1), mended.2, NIDS_MAX)
}

/// An entry of the ring: whatever is there of it, and zeros.
pub(super) fn entry(bytes: &[u8]) -> Outcome {
    let mut submission = Submission::new_zeroed();
    let length = bytes.len().min(size_of::<Submission>());
    submission.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
    match submission.read() {
        Ok(entry) => {
            same(entry.write(), submission, "an entry, written again");
            Outcome::of((submission.kind.get(), submission.queue.get()))
        }
        Err(error) => Outcome::of(told(&error)),
    }
}

/// What a packet is, what of it is worth telling apart, and how many segments it has.
fn read_request(packet: &[u8]) -> (u64, u64, usize) {
    let (id, request) = match Request::read(packet) {
        Ok(read) => read,
        Err(error) => return (0, refused(packet, &error), 0),
    };
    let mut again = Vec::new();
    request.write(id, &mut again);
    // What a hello says of other versions, this one does not say again.
    if !matches!(request, Request::Hello(_)) {
        same(&again[..], packet, "a request, written again");
    }
    same(Request::read(&again), Ok((id, request.clone())), "a request, read again");
    let segments = match &request {
        Request::Register { segments, .. } => segments.len(),
        _ => 0,
    };
    (1 + request.kind() as u64, 0, segments)
}

/// A packet that is none has an answer, if it has a header; what is wrong with it.
fn refused(packet: &[u8], error: &ProtoError) -> u64 {
    if let Some(header) = Header::peek(packet) {
        let refusal = Refusal::from(error);
        let mut answer = Vec::new();
        Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut answer);
        same(Reply::read(&answer), Ok((header.id.get(), Reply::Refused(refusal))), "the answer");
    }
    told(error)
}

/// The same of a reply, and how many NIDs it has.
fn read_reply(packet: &[u8]) -> (u64, u64, usize) {
    let (id, reply) = match Reply::read(packet) {
        Ok(read) => read,
        Err(error) => return (0, told(&error), 0),
    };
    let kind = Header::peek(packet).map_or(0, |header| header.kind.get());
    let mut again = Vec::new();
    reply.write(kind, id, &mut again);
    // Numbers that this version does not know, it does not say again.
    let (unknown, detail, nids) = match &reply {
        Reply::Refused(refusal) => (true, u64::from(refusal.reason as u32), 0),
        Reply::Welcome(_) => (true, 0, 0),
        Reply::Nids(nids) => (false, 0, nids.len()),
        _ => (false, 0, 0),
    };
    if !unknown {
        same(&again[..], packet, "a reply, written again");
    }
    same(Reply::read(&again), Ok((id, reply)), "a reply, read again");
    (kind.into(), detail, nids)
}

/// Tells errors apart.
fn told(error: &ProtoError) -> u64 {
    assert!(error.errno() as i32 > 0 && !error.to_string().is_empty(), "{error:?}");
    match error {
        ProtoError::Field { object, field, .. } => Outcome::of((object, field)).kind,
        ProtoError::Length { object, .. } => Outcome::of(object).kind,
        _ => Outcome::of(std::mem::discriminant(error)).kind,
    }
}

/// The same bytes with the length that the header should tell.
pub(super) fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.truncate(PACKET_MAX);
    let length = bytes.len() as u32;
    if let Some(field) = bytes.get_mut(4..8) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

/// All packets of the document, of either direction, and those with the longest lists.
pub(super) fn packet_seeds() -> Vec<Vec<u8>> {
    let segment = |number: usize| Segment { arena: 1, offset: number as u64 * 4096, length: 4096 };
    let register = Request::Register { buffer: 1 << 32, segments: (0..SEGMENTS_MAX).map(segment).collect() };
    let mut long = vec![Vec::new(); 2];
    register.write(7, &mut long[0]);
    let nid = |number: u32| Nid::new_v4(Net::new(NetType(2), 0), Ipv4Addr::from_bits(0x0a4d_0000 + number));
    let nids = (1..=NIDS_MAX as u32).map(nid).collect();
    Reply::Nids(nids).write(Request::Nids.kind() as u16, 7, &mut long[1]);
    let mut all = seeds(|name| !name.starts_with('e'));
    all.append(&mut long);
    all
}

/// Its entries.
pub(super) fn entry_seeds() -> Vec<Vec<u8>> {
    seeds(|name| name.starts_with("entry"))
}

fn seeds(wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    document::names().into_iter().filter(|name| wanted(name)).map(document::bytes).collect()
}
