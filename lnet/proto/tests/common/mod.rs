//! The bytes recorded between two kernel nodes, for the tests.

#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod ib;
pub(crate) mod strategies;

use std::fs;
use std::path::Path;

use serde_json::Value;

/// One direction of one TCP connection.
pub(crate) struct Stream {
    /// File, source and destination, for test messages.
    pub(crate) name: String,
    /// True if the stream's sender opened the connection.
    pub(crate) active: bool,
    /// The socket addresses of both ends, the sender's first.
    pub(crate) ends: (String, String),
    pub(crate) items: Vec<Item>,
}

/// One object of a stream.
pub(crate) enum Item {
    Request(Vec<u8>),
    Hello(Vec<u8>),
    Noop(Vec<u8>),
    Lnet(Lnet),
}

pub(crate) struct Lnet {
    pub(crate) prefix: Vec<u8>,
    pub(crate) header: Vec<u8>,
    pub(crate) message_type: String,
    pub(crate) payload_length: u64,
    /// The payload; `None` if it is not in the recording.
    pub(crate) payload: Option<Vec<u8>>,
}

impl Stream {
    /// Returns the hello, which every stream has.
    pub(crate) fn hello(&self) -> &[u8] {
        let hello = self.items.iter().find_map(|item| match item {
            Item::Hello(bytes) => Some(bytes),
            _ => None,
        });
        hello.unwrap_or_else(|| panic!("{} has a hello", self.name))
    }

    /// Returns the connection request, which active streams have.
    pub(crate) fn request(&self) -> &[u8] {
        match &self.items[0] {
            Item::Request(bytes) => bytes,
            _ => panic!("{} starts with a request", self.name),
        }
    }
}

/// Returns all streams that were recorded from their beginning.
pub(crate) fn streams() -> Vec<Stream> {
    let begins = |stream: &Stream| stream.items.iter().any(|item| matches!(item, Item::Hello(_)));
    all_streams().into_iter().filter(begins).collect()
}

/// Returns all recorded streams; some were recorded from a later message on.
pub(crate) fn all_streams() -> Vec<Stream> {
    let mut streams = Vec::new();
    for (file, recording) in recordings("tcp-") {
        let listed = recording["streams"].as_array().unwrap();
        streams.extend(listed.iter().map(|stream| read_stream(&file, stream)));
    }
    streams
}

/// One recorded object of the RDMA driver.
pub(crate) struct RdmaItem {
    pub(crate) file: String,
    /// `cm-req`, `cm-rep`, or the type of the message.
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
}

/// Returns all recorded messages and private data of the RDMA driver, in order.
pub(crate) fn rdma_items() -> Vec<RdmaItem> {
    let mut items = Vec::new();
    for (file, recording) in recordings("o2ib-") {
        for item in recording["items"].as_array().unwrap() {
            let (kind, bytes) = match item["kind"].as_str().unwrap() {
                "send" => (text(&item["type"]), hex(&item["hex"])),
                "cm-req" | "cm-rep" => (text(&item["kind"]), hex(&item["private_data_hex"])),
                "cm-rtu" | "rdma-write" => continue,
                kind => panic!("unknown kind {kind}"),
            };
            items.push(RdmaItem { file: file.clone(), kind, bytes });
        }
    }
    items
}

/// Returns the recordings whose file names start with `prefix`, sorted by name.
fn recordings(prefix: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if file.starts_with(prefix) && file.ends_with(".json") {
            found.push((file.to_owned(), serde_json::from_slice(&fs::read(&path).unwrap()).unwrap()));
        }
    }
    assert!(!found.is_empty(), "{} holds recordings", folder.display());
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Returns the two directions of each recorded connection, the active side's first.
pub(crate) fn connections() -> Vec<(Stream, Stream)> {
    let (active, mut passive): (Vec<_>, Vec<_>) = streams().into_iter().partition(|stream| stream.active);
    let pairs = active.into_iter().map(|active| {
        let (file, _) = active.name.split_once(' ').unwrap();
        let back = (active.ends.1.clone(), active.ends.0.clone());
        let at = passive.iter().position(|other| other.ends == back && other.name.starts_with(file));
        let answer = passive.remove(at.unwrap_or_else(|| panic!("{} has an answer", active.name)));
        (active, answer)
    });
    pairs.collect()
}

pub(crate) fn array<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.try_into().unwrap()
}

fn read_stream(file: &str, stream: &Value) -> Stream {
    let ends = (text(&stream["from"]), text(&stream["to"]));
    Stream {
        name: format!("{file} {} to {}", ends.0, ends.1),
        active: stream["role"] == "active",
        ends,
        items: stream["items"].as_array().unwrap().iter().map(read_item).collect(),
    }
}

fn read_item(item: &Value) -> Item {
    match item["kind"].as_str().unwrap() {
        "acceptor-request" => Item::Request(hex(&item["hex"])),
        "hello" => Item::Hello(hex(&item["hex"])),
        "noop" => Item::Noop(hex(&item["hex"])),
        "lnet" => Item::Lnet(Lnet {
            prefix: hex(&item["prefix_hex"]),
            header: hex(&item["header_hex"]),
            message_type: text(&item["type"]),
            payload_length: item["payload_length"].as_u64().unwrap(),
            payload: item.get("payload_hex").map(hex),
        }),
        kind => panic!("unknown kind {kind}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

pub(crate) fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap().as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty());
    pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Reverses each of the consecutive fields of these lengths: the bytes of a big-endian node. A
/// field of length 0 - n stays unchanged.
pub(crate) fn flip(bytes: &mut [u8], fields: &[isize]) {
    let mut offset = 0;
    for field in fields {
        let end = offset + field.unsigned_abs();
        if *field > 0 {
            bytes[offset..end].reverse();
        }
        offset = end;
    }
    assert_eq!(offset, bytes.len());
}
