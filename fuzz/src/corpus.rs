//! Recordings of real nodes, from which inputs start.

use serde_json::Value;

/// The recordings of the TCP driver, in the order of their names.
const RECORDINGS: [&str; 6] = [
    include_str!("../../tests/vectors/tcp-discover.json"),
    include_str!("../../tests/vectors/tcp-discover-ipv6.json"),
    include_str!("../../tests/vectors/tcp-lst-ping.json"),
    include_str!("../../tests/vectors/tcp-lst-read.json"),
    include_str!("../../tests/vectors/tcp-lst-write.json"),
    include_str!("../../tests/vectors/tcp-ping.json"),
];

/// The recordings of the RDMA driver.
const RDMA_RECORDINGS: [&str; 3] = [
    include_str!("../../tests/vectors/o2ib-lst-read.json"),
    include_str!("../../tests/vectors/o2ib-lst-write.json"),
    include_str!("../../tests/vectors/o2ib-ping.json"),
];

/// One direction of one recorded connection: its objects in order.
pub(crate) struct Stream {
    pub(crate) active: bool,
    /// Set if its hello has version 4, hence large headers.
    pub(crate) large: bool,
    pub(crate) items: Vec<Item>,
}

/// One recorded object.
pub(crate) struct Item {
    pub(crate) kind: String,
    /// All its bytes, as far as they were recorded; for a message prefix, header and payload.
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Returns all recorded streams.
pub(crate) fn streams() -> Vec<Stream> {
    let mut streams = Vec::new();
    for text in RECORDINGS {
        let recording: Value = serde_json::from_str(text).expect("the recordings are JSON");
        streams.extend(list(&recording["streams"]).iter().map(|stream| {
            let items: Vec<_> = list(&stream["items"]).iter().map(item).collect();
            let large = list(&stream["items"]).iter().any(|item| item["version"] == 4);
            Stream { active: stream["role"] == "active", large, items }
        }));
    }
    streams
}

/// Returns all recorded messages of the RDMA driver and private data of its connections: kind and
/// bytes.
pub(crate) fn rdma() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for text in RDMA_RECORDINGS {
        let recording: Value = serde_json::from_str(text).expect("the recordings are JSON");
        found.extend(list(&recording["items"]).iter().filter_map(|item| {
            let bytes = item["hex"].as_str().or(item["private_data_hex"].as_str())?;
            Some((item["kind"].as_str()?.to_owned(), hex(bytes)))
        }));
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn item(item: &Value) -> Item {
    let part = |name: &str| item[name].as_str().map(hex).unwrap_or_default();
    let (header, payload) = (part("header_hex"), part("payload_hex"));
    let bytes = [part("hex"), part("prefix_hex"), header.clone(), payload.clone()].concat();
    Item { kind: item["kind"].as_str().unwrap_or_default().to_owned(), bytes, header, payload }
}

fn hex(digits: &str) -> Vec<u8> {
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("the recordings are in hexadecimal") as u8;
    pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}
