//! What clients and the helper say to each other (`docs/driver-protocol.md`): the helper reads what hostile clients write.

use nlx_driver_proto::{Header, PACKET_MAX, ProtoError, Refusal, Reply, Request, Submission};
use zerocopy::{FromZeros, IntoBytes};

use super::{Outcome, same};

#[path = "../../../driver-proto/tests/it/document.rs"]
mod document;

/// The bytes as they came, and with a header that tells their length.
pub(super) fn request(bytes: &[u8]) -> Outcome {
    Outcome::of((read_request(bytes), read_request(&mended(bytes))))
}

/// The same for what a client reads.
pub(super) fn reply(bytes: &[u8]) -> Outcome {
    Outcome::of((read_reply(bytes), read_reply(&mended(bytes))))
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

fn read_request(packet: &[u8]) -> (u64, u64) {
    let (id, request) = match Request::read(packet) {
        Ok(read) => read,
        Err(error) => return (0, refused(packet, &error)),
    };
    let mut again = Vec::new();
    request.write(id, &mut again);
    // What a hello says of other versions, this one does not say again.
    if !matches!(request, Request::Hello(_)) {
        same(&again[..], packet, "a request, written again");
    }
    same(Request::read(&again), Ok((id, request.clone())), "a request, read again");
    let segments = match &request {
        Request::Register { segments, .. } => segments.len().min(4),
        _ => 0,
    };
    (1 + request.kind() as u64, segments as u64)
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

fn read_reply(packet: &[u8]) -> (u64, u64) {
    let (id, reply) = match Reply::read(packet) {
        Ok(read) => read,
        Err(error) => return (0, told(&error)),
    };
    let kind = Header::peek(packet).map_or(0, |header| header.kind.get());
    let mut again = Vec::new();
    reply.write(kind, id, &mut again);
    // Numbers that this version does not know, it does not say again.
    let (unknown, detail) = match &reply {
        Reply::Refused(refusal) => (true, u64::from(refusal.reason as u32)),
        Reply::Welcome(_) => (true, 0),
        Reply::Nids(nids) => (false, nids.len().min(4) as u64),
        _ => (false, 0),
    };
    if !unknown {
        same(&again[..], packet, "a reply, written again");
    }
    same(Reply::read(&again), Ok((id, reply)), "a reply, read again");
    (kind.into(), detail)
}

/// Tells errors apart.
fn told(error: &ProtoError) -> u64 {
    assert!(error.errno() as i32 > 0 && !error.to_string().is_empty(), "{error:?}");
    match error {
        ProtoError::Field { object, field, .. } => Outcome::of((object, field)).0,
        ProtoError::Length { object, .. } => Outcome::of(object).0,
        _ => Outcome::of(std::mem::discriminant(error)).0,
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

/// All packets of the document, of either direction.
pub(super) fn packet_seeds() -> Vec<Vec<u8>> {
    seeds(|name| !name.starts_with('e'))
}

/// Its entries.
pub(super) fn entry_seeds() -> Vec<Vec<u8>> {
    seeds(|name| name.starts_with("entry"))
}

fn seeds(wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
    document::names().into_iter().filter(|name| wanted(name)).map(document::bytes).collect()
}
