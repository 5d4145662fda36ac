//! The protocol between clients and the helper (`docs/driver-protocol.md`): the helper reads
//! packets of hostile clients.

use std::net::Ipv4Addr;

use lnet_nid::{Net, NetType, Nid};
use nlx_driver_proto::{
    Header, NIDS_MAX, PACKET_MAX, PacketError, Refusal, Reply, Request, SEGMENTS_MAX, Segment, Submission,
};
use zerocopy::{FromZeros, IntoBytes};

use super::{Outcome, same};

#[path = "../../../driver-proto/tests/it/document.rs"]
mod document;

/// Length of the longest packet and some more bytes, which make it too long.
pub(super) const PACKET_INPUT_MAX: usize = PACKET_MAX + 64;

/// Reads the bytes as a request, as they are and with their real length in the header.
pub(super) fn request(bytes: &[u8]) -> Outcome {
    let (raw, mended) = (read_request(bytes), read_request(&mended(bytes)));
    Outcome::of_list((raw.0, raw.1, mended.0, mended.1), mended.2, SEGMENTS_MAX)
}

/// Reads the bytes as a reply, which a client reads, as they are and with their real length in the
/// header.
pub(super) fn reply(bytes: &[u8]) -> Outcome {
    let (raw, mended) = (read_reply(bytes), read_reply(&mended(bytes)));
    Outcome::of_list((raw.0, raw.1, mended.0, mended.1), mended.2, NIDS_MAX)
}

/// Reads the bytes, filled up with zeros, as an entry of the ring.
pub(super) fn entry(bytes: &[u8]) -> Outcome {
    let mut submission = Submission::new_zeroed();
    let length = bytes.len().min(size_of::<Submission>());
    submission.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
    match submission.read() {
        Ok(entry) => {
            same(entry.write(), submission, "an entry, written again");
            Outcome::of((submission.kind.get(), submission.queue.get()))
        }
        Err(error) => Outcome::of(error_number(&error)),
    }
}

/// Reads a request; returns its kind, a detail that makes outcomes distinct, and the number of its
/// segments.
fn read_request(packet: &[u8]) -> (u64, u64, usize) {
    let (id, request) = match Request::read(packet) {
        Ok(read) => read,
        Err(error) => return (0, refused(packet, &error), 0),
    };
    let mut again = Vec::new();
    request.write(id, &mut again);
    // A hello's features and versions that this version does not know are not written again.
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

/// Checks that an invalid packet with a header has an answer; returns a number for the error.
fn refused(packet: &[u8], error: &PacketError) -> u64 {
    if let Some(header) = Header::peek(packet) {
        let refusal = Refusal::from(error);
        let mut answer = Vec::new();
        Reply::Refused(refusal).write(header.kind.get(), header.id.get(), &mut answer);
        same(Reply::read(&answer), Ok((header.id.get(), Reply::Refused(refusal))), "the answer");
    }
    error_number(error)
}

/// Reads a reply in the same way; the last number is that of its NIDs.
fn read_reply(packet: &[u8]) -> (u64, u64, usize) {
    let (id, reply) = match Reply::read(packet) {
        Ok(read) => read,
        Err(error) => return (0, error_number(&error), 0),
    };
    let kind = Header::peek(packet).map_or(0, |header| header.kind.get());
    let mut again = Vec::new();
    reply.write(kind, id, &mut again);
    // Numbers that this version does not know are not written again.
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

/// Returns a number that distinguishes errors.
fn error_number(error: &PacketError) -> u64 {
    assert!(error.errno() as i32 > 0 && !error.to_string().is_empty(), "{error:?}");
    match error {
        PacketError::Field { object, field, .. } => Outcome::of((object, field)).kind,
        PacketError::Length { object, .. } => Outcome::of(object).kind,
        _ => Outcome::of(std::mem::discriminant(error)).kind,
    }
}

/// Returns the same bytes with their real length in the header.
pub(super) fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.truncate(PACKET_MAX);
    let length = bytes.len() as u32;
    if let Some(field) = bytes.get_mut(4..8) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

/// Returns the packets of the document in both directions, and those with the longest lists.
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

/// Returns the ring entries of the document.
pub(super) fn entry_seeds() -> Vec<Vec<u8>> {
    seeds(|name| name.starts_with("entry"))
}

fn seeds(wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    document::names().into_iter().filter(|name| wanted(name)).map(document::bytes).collect()
}
