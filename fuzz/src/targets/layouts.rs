//! The layouts of the TCP driver: header, connection request, hello, messages, acks.

use std::collections::BTreeSet;
use std::ops::Range;

use lnet_nid::Nid;
use lnet_proto::sock::{
    AcceptorRequest, AckQueue, Acks, Decoder, Frame, Hello, Prefix, RequestVerdict, Version,
};
use lnet_proto::{Body, ByteOrder, Decoded, Header, ProtoError};

use super::{Outcome, same};
use crate::corpus::{Item, streams};

/// Reads a header, and checks that it is written back with the same bytes, unused ones apart.
pub(super) fn header(bytes: &[u8]) -> Outcome {
    let small = bytes.first_chunk::<{ Header::LEN }>().map(|bytes| {
        let header = Header::parse(bytes)?;
        let mut out = [0; Header::LEN];
        header.emit(&mut out)?;
        same(Header::parse(&out).as_ref(), Ok(&header), "header");
        same(cleared(bytes, unused(&header.body)), out.to_vec(), "header bytes");
        Ok(header)
    });
    let large = bytes.first_chunk::<{ Header::LARGE_LEN }>().map(|bytes| {
        let header = Header::parse_large(bytes)?;
        let mut out = [0; Header::LARGE_LEN];
        header.emit_large(&mut out)?;
        same(Header::parse_large(&out).as_ref(), Ok(&header), "large header");
        Ok(header)
    });
    Outcome::of([small, large].map(|header| header.map(outcome_of_header)))
}

fn outcome_of_header(parsed: Result<Header, ProtoError>) -> u64 {
    match parsed {
        Ok(header) => Outcome::of(header.message_type()).kind,
        Err(error) => Outcome::of_error(&error).kind,
    }
}

/// Returns the bytes of a small header that the message's type does not use.
fn unused(body: &Body) -> Range<usize> {
    match body {
        Body::Ack { .. } => 60..72,
        Body::Put { .. } => 72..72,
        Body::Get { .. } => 68..72,
        Body::Reply { .. } => 48..72,
    }
}

fn cleared(bytes: &[u8], unused: Range<usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[unused].fill(0);
    bytes
}

/// Reads a connection request. Checks that it is written back with the same bytes, and that the
/// passive side's verdict agrees with the parser.
pub(super) fn request(bytes: &[u8]) -> Outcome {
    let decoded = AcceptorRequest::decode(bytes);
    let verdict = AcceptorRequest::judge(bytes, |nid| nid.ipv4().is_some().then_some(()));
    match &decoded {
        Ok(Decoded::Done(length, request)) => {
            check_length(bytes, *length, AcceptorRequest::decode);
            let mut out = [0; AcceptorRequest::LARGE_LEN];
            same(request.emit(&mut out), Ok(*length), "length of a request");
            let again = Decoded::Done(*length, *request);
            same(AcceptorRequest::decode(&out[..*length]), Ok(again), "request");
            let mine = matches!(verdict, RequestVerdict::Accept { length: l, .. } if l == *length);
            same(mine, request.nid.ipv4().is_some() && !request.nid.is_loopback(), "verdict on a request");
        }
        Ok(Decoded::Need(total)) => {
            check_need(bytes, *total, AcceptorRequest::LARGE_LEN);
            same(verdict, RequestVerdict::NeedMore { total: *total }, "verdict on a short request");
        }
        Err(_) => {
            let over = matches!(verdict, RequestVerdict::Close { .. } | RequestVerdict::ReplyAndClose { .. });
            assert!(over, "a bad request gets {verdict:?}");
        }
    }
    outcome_of_decoded(&decoded.map(|decoded| decoded.map(|request| request.version)))
}

/// Reads a hello. Checks that it is read the same in any pieces, and written back with the same
/// meaning.
pub(super) fn hello(bytes: &[u8]) -> Outcome {
    let decoded = Hello::decode(bytes);
    match &decoded {
        Ok(Decoded::Done(length, (hello, order))) => {
            check_length(bytes, *length, Hello::decode);
            same(hello.encoded_len(), *length, "length of a hello");
            let out = hello.to_bytes().unwrap_or_else(|error| panic!("{hello:?} was read: {error}"));
            let again = Decoded::Done(*length, (*hello, ByteOrder::Little));
            same(Hello::decode(&out), Ok(again), "hello");
            // Version 4 has a count of addresses and unused bytes of NIDs, which are not read; an
            // invalid NID of the receiver is read as any.
            if *order == ByteOrder::Little && hello.version != Version::V4 && !hello.dst_nid.is_any() {
                same(&out[..], &bytes[..*length], "hello bytes");
            }
            assert!(!hello.src_nid.is_any(), "the wildcard says hello");
        }
        Ok(Decoded::Need(total)) => check_need(bytes, *total, 56 + 4 * 16),
        Err(_) => {}
    }
    outcome_of_decoded(
        &decoded.map(|decoded| decoded.map(|(hello, order)| (hello.version, order, hello.conn_type))),
    )
}

/// Checks that every incomplete part of an object is answered with a request for more bytes.
fn check_length<T>(bytes: &[u8], length: usize, decode: impl Fn(&[u8]) -> Result<Decoded<T>, ProtoError>) {
    assert!(length <= bytes.len(), "{length} bytes of {} consumed", bytes.len());
    for cut in 0..length {
        let Ok(Decoded::Need(total)) = decode(&bytes[..cut]) else {
            panic!("{cut} bytes of {length} are enough")
        };
        assert!(cut < total && total <= length, "{total} bytes wanted with {cut} of {length}");
    }
}

fn check_need(bytes: &[u8], total: usize, limit: usize) {
    assert!(bytes.len() < total && total <= limit, "{total} bytes wanted with {} there", bytes.len());
}

fn outcome_of_decoded<T: std::hash::Hash>(decoded: &Result<Decoded<T>, ProtoError>) -> Outcome {
    match decoded {
        Ok(Decoded::Need(total)) => Outcome::of(("need", total)),
        Ok(Decoded::Done(length, value)) => Outcome::of(("done", length, value)),
        Err(error) => Outcome::of_error(error),
    }
}

/// Decodes a stream of messages to its end. The first byte chooses version and byte order; the rest
/// is the stream.
pub(super) fn decoder(bytes: &[u8]) -> Outcome {
    let Some((choice, mut rest)) = bytes.split_first() else { return Outcome::of("empty") };
    let version = [Version::V2, Version::V3, Version::V4][usize::from(choice % 3)];
    let order = if choice & 0x80 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let decoder = Decoder::new(version, order);
    let mut walked = Vec::new();
    loop {
        let (length, frame) = match decoder.decode(rest) {
            Ok(Some(found)) => found,
            Ok(None) => {
                assert!(rest.len() < decoder.frame_len(), "{} bytes are not enough", rest.len());
                return Outcome::of((version, order, walked));
            }
            Err(error) => return Outcome::of((walked, Outcome::of_error(&error).kind)),
        };
        assert!(0 < length && length <= rest.len() && length <= Decoder::FRAME_MAX, "{length} consumed");
        let (raw, behind) = rest.split_at(length);
        check_prefix(&frame, raw, order);
        let payload_length = match frame {
            Frame::Noop(prefix) => {
                walked.push(prefix.acks().count().min(3) as u32);
                0
            }
            Frame::Lnet(_, header) => {
                walked.push(0xc1 + header.message_type() as u32);
                header.payload_length as usize
            }
        };
        let payload = &behind[..payload_length.min(behind.len())];
        if let Some(mut checksum) = decoder.checksum(raw) {
            checksum.update(payload);
            let _ = checksum.verify();
        }
        rest = &behind[payload.len()..];
    }
}

fn check_prefix(frame: &Frame, raw: &[u8], order: ByteOrder) {
    let (Frame::Noop(prefix) | Frame::Lnet(prefix, _)) = frame;
    let mut out = [0; Prefix::LEN];
    prefix.emit(&mut out);
    same(Prefix::parse(&out, ByteOrder::Little).as_ref(), Ok(prefix), "prefix");
    if order == ByteOrder::Little {
        same(&out[..], &raw[..Prefix::LEN], "prefix bytes");
    }
    if let Some(noop) = prefix.acks().to_noop() {
        same(noop.acks(), prefix.acks(), "acks");
    }
}

/// Compares the queue of acknowledgements with a set of cookies. Each byte is a cookie to
/// acknowledge, except that some bytes send.
pub(super) fn ack_queue(bytes: &[u8]) -> Outcome {
    let mut queue = AckQueue::new();
    let mut owed = BTreeSet::new();
    let mut shapes = Vec::new();
    for byte in bytes {
        match byte {
            0..=239 => {
                let cookie = u64::from(*byte);
                queue
                    .push(cookie)
                    .unwrap_or_else(|error| panic!("{} cookies are too many: {error}", owed.len()));
                if cookie > 1 {
                    owed.insert(cookie);
                }
            }
            240..=251 => shapes.push(settle(queue.pop(), &mut owed)),
            _ => {
                if let Some(cookie) = queue.pop_piggyback() {
                    assert!(owed.remove(&cookie), "cookie {cookie} is not owed");
                }
            }
        }
        same(queue.is_empty(), owed.is_empty(), "emptiness");
    }
    while !queue.is_empty() {
        settle(queue.pop(), &mut owed);
    }
    assert!(owed.is_empty(), "{owed:?} were never acknowledged");
    Outcome::of(shapes.get(..8).unwrap_or(&shapes))
}

/// Removes the cookies that a NOOP acknowledges from the owed ones; all of them must be owed.
fn settle(acks: Acks, owed: &mut BTreeSet<u64>) -> u64 {
    let before = owed.len();
    owed.retain(|cookie| !acks.contains(*cookie));
    same((before - owed.len()) as u64, acks.count(), "cookies acknowledged");
    acks.count().min(3)
}

fn items(kind: &str) -> Vec<(bool, Item)> {
    let of_stream = streams().into_iter().flat_map(|stream| {
        let large = stream.large;
        stream.items.into_iter().map(move |item| (large, item))
    });
    of_stream.filter(|(_, item)| item.kind == kind).collect()
}

pub(super) fn header_seeds() -> Vec<Vec<u8>> {
    items("lnet").into_iter().map(|(_, item)| item.header).collect()
}

pub(super) fn request_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = items("acceptor-request").into_iter().map(|(_, item)| item.bytes).collect();
    seeds.push(AcceptorRequest::REPLY.to_vec());
    seeds
}

pub(super) fn hello_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = items("hello").into_iter().map(|(_, item)| item.bytes).collect();
    // A hello of an old node, with addresses.
    let listed = seeds.first().map(|hello| {
        let mut listed = hello.clone();
        listed[52] = 2;
        listed.extend([1, 0, 0, 10, 2, 0, 0, 10]);
        listed
    });
    seeds.extend(listed);
    seeds
}

pub(super) fn decoder_seeds() -> Vec<Vec<u8>> {
    let seeds = streams().into_iter().map(|stream| {
        let choice = if stream.large { 2 } else { 1 };
        let messages = stream.items.into_iter().filter(|item| matches!(item.kind.as_str(), "lnet" | "noop"));
        let mut seed = vec![choice];
        seed.extend(messages.flat_map(|item| item.bytes).take(1000));
        seed
    });
    seeds.filter(|seed| seed.len() > 1).collect()
}

pub(super) fn ack_seeds() -> Vec<Vec<u8>> {
    let all = 2..=60;
    vec![
        all.clone().collect(),
        all.clone().step_by(2).collect(),
        all.rev().collect(),
        vec![5, 7, 240, 6, 252, 240],
    ]
}

// The wildcard must never be taken for one of a node's own interfaces.
const _: () = assert!(Nid::ANY.ipv4().is_none());
