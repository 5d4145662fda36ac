//! A peer made of raw bytes: it uses captured streams and no code of nlx.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file has its own copy of this module and uses a part of it"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod forwarder;
pub mod hosts;
pub mod peer;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

/// The two nodes of the captures.
const CAPTURED: [[u8; 4]; 2] = [[10, 77, 0, 2], [10, 77, 0, 3]];

/// A captured exchange, with other addresses in place of the captured ones.
pub struct Capture {
    streams: Vec<Value>,
    /// Addresses of the active and of the passive node.
    nodes: [Ipv4Addr; 2],
}

impl Capture {
    pub fn load(name: &str, active: Ipv4Addr, passive: Ipv4Addr) -> Capture {
        let path = format!("{}/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let capture: Value = serde_json::from_str(&text).unwrap();
        Capture { streams: capture["streams"].as_array().unwrap().clone(), nodes: [active, passive] }
    }

    /// Returns the items of the `number`th connection in one direction, as bytes: "active" or
    /// "passive".
    pub fn items(&self, role: &str, number: usize) -> Vec<Item> {
        let of_role = |stream: &&Value| stream["role"] == role;
        let stream = self.streams.iter().filter(of_role).nth(number).unwrap();
        stream["items"].as_array().unwrap().iter().map(|item| self.item(item)).collect()
    }

    fn item(&self, item: &Value) -> Item {
        let mut bytes = Vec::new();
        for key in ["hex", "prefix_hex", "header_hex", "payload_hex"] {
            if let Some(text) = item[key].as_str() {
                bytes.extend(unhex(text));
            }
        }
        self.readdress(&mut bytes);
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_string();
        Item { kind: text("kind"), message: text("type"), bytes }
    }

    /// Replaces the captured NIDs (address in little-endian, network tcp) by those of the test's
    /// nodes.
    fn readdress(&self, bytes: &mut [u8]) {
        let nid = |address: [u8; 4]| [address[3], address[2], address[1], address[0], 0, 0, 2, 0];
        for at in 0..bytes.len().saturating_sub(7) {
            for (captured, node) in CAPTURED.iter().zip(self.nodes) {
                if bytes[at..at + 8] == nid(*captured) {
                    bytes[at..at + 8].copy_from_slice(&nid(node.octets()));
                    break;
                }
            }
        }
    }
}

/// One item of a captured stream.
#[derive(Debug, Clone)]
pub struct Item {
    /// `acceptor-request`, `hello`, `lnet` or `noop`.
    pub kind: String,
    /// For `lnet`: `GET`, `PUT`, `ACK` or `REPLY`.
    pub message: String,
    pub bytes: Vec<u8>,
}

/// Returns the first item of a message type.
pub fn message<'a>(items: &'a [Item], kind: &str) -> &'a Item {
    items.iter().find(|item| item.message == kind).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Reads exactly `count` bytes.
pub fn read(peer: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    peer.read_exact(&mut bytes).unwrap();
    bytes
}

/// Compares bytes, except for the ranges that differ in each run of a node.
#[track_caller]
pub fn assert_same_meaning(got: &[u8], captured: &[u8], free: &[std::ops::Range<usize>]) {
    assert_eq!(got.len(), captured.len());
    for at in 0..got.len() {
        if !free.iter().any(|range| range.contains(&at)) {
            assert_eq!(got[at], captured[at], "byte {at}:\n     got {got:02x?}\ncaptured {captured:02x?}");
        }
    }
}

/// Connects from one loopback address to another.
pub fn connect(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> TcpStream {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
    use std::os::fd::AsRawFd;
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let address = |ip: Ipv4Addr, port| {
        let [a, b, c, d] = ip.octets();
        SockaddrIn::new(a, b, c, d, port)
    };
    bind(fd.as_raw_fd(), &address(from, 0)).unwrap();
    connect(fd.as_raw_fd(), &address(to, port)).unwrap();
    TcpStream::from(fd)
}

/// Returns a port that is free on an address at this moment.
pub fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind(SocketAddr::from((address, 0))).unwrap().local_addr().unwrap().port()
}

/// Writes all bytes.
pub fn write(peer: &mut TcpStream, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
}

/// Returns the legacy NID of an address on network tcp.
pub fn nid4(address: Ipv4Addr) -> u64 {
    0x0002_0000 << 32 | u64::from(u32::from(address))
}

/// Accepts a connection as a handmade node: reads the request and the hello, and answers.
pub fn accept(listener: &TcpListener, own: Ipv4Addr) -> (TcpStream, u32) {
    let (mut peer, _) = listener.accept().unwrap();
    let request = read(&mut peer, 16);
    assert_eq!(request[8..], nid4(own).to_le_bytes(), "the NID asked for");
    let hello = read(&mut peer, 56);
    let conn_type = u32::from_le_bytes(hello[48..52].try_into().unwrap());
    let mut answer = hello.clone();
    answer[8..16].copy_from_slice(&hello[16..24]);
    answer[16..24].copy_from_slice(&hello[8..16]);
    answer[32..40].copy_from_slice(&7u64.to_le_bytes());
    // BULK_IN and BULK_OUT are each other's inverse.
    let mirrored = [0, 1, 3, 2][conn_type as usize];
    answer[48..52].copy_from_slice(&u32::to_le_bytes(mirrored));
    write(&mut peer, &answer);
    (peer, conn_type)
}

/// Connects as a handmade node, with the type CONTROL.
pub fn join(own: Ipv4Addr, to: Ipv4Addr, port: u16) -> TcpStream {
    let mut peer = connect(own, to, port);
    write(&mut peer, &greeting(own, to));
    read(&mut peer, 56);
    peer
}

/// Returns the request and hello of a node that connects with the type CONTROL (lnet-wire 21,
/// 22.2).
pub fn greeting(own: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0xacce_7100u32.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(nid4(to).to_le_bytes());
    bytes.extend(0x4572_6963u32.to_le_bytes());
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(nid4(own).to_le_bytes());
    bytes.extend(nid4(to).to_le_bytes());
    bytes.extend(12345u32.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(7u64.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// Returns the prefix and header of a message (lnet-wire 6, 25): `rest` is the union, from its
/// first byte on.
pub fn lnet_message(from: Ipv4Addr, to: Ipv4Addr, message_type: u32, payload: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0xc1u32.to_le_bytes());
    bytes.extend([0; 20]);
    bytes.extend(nid4(to).to_le_bytes());
    bytes.extend(nid4(from).to_le_bytes());
    bytes.extend(12345u32.to_le_bytes());
    bytes.extend(12345u32.to_le_bytes());
    bytes.extend(message_type.to_le_bytes());
    bytes.extend(payload.to_le_bytes());
    bytes.extend(rest);
    bytes.resize(24 + 72, 0);
    bytes
}

/// Returns the union of a PUT without ACK.
pub fn put(portal: u32, match_bits: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; 16];
    bytes.extend(match_bits.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(portal.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// Returns the descriptor of a passive buffer (motr-transport 4.4); `queue` 2 receives data, 3
/// sends it.
pub fn descriptor(address: Ipv4Addr, portal: u32, tmid: u32, counter: u64, queue: u32, size: u64) -> Vec<u8> {
    let words = [
        u64::from(tmid) << 52 | counter,
        nid4(address),
        u64::from(portal) << 32 | 12345,
        u64::from(queue) << 32 | u64::from(tmid),
        size,
    ];
    let checksum = words.iter().fold(0, |sum, word| sum ^ word);
    words.iter().chain([&checksum]).flat_map(|word| word.to_le_bytes()).collect()
}
