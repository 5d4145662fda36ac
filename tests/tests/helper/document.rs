//! The raw client writes the examples of `docs/driver-protocol.md`, byte for byte.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use nlx_tests::client::wire::{self, Address, Entry, Reply, kind, queue};

/// Returns the examples of the document, by name.
fn examples() -> HashMap<String, Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/driver-protocol.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut blocks = HashMap::new();
    for block in text.split("```hex ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let (content, _) = rest.split_once("```").unwrap();
        let words = content.lines().flat_map(|line| line.split(';').next().unwrap().split_whitespace());
        let bytes = words.flat_map(|word| {
            let (hex, times) = word.split_once('*').unwrap_or((word, "1"));
            vec![u8::from_str_radix(hex, 16).unwrap(); times.parse().unwrap()]
        });
        blocks.insert(name.to_string(), bytes.collect());
    }
    blocks
}

const BUFFER: u64 = 1 << 32;
const TM: u64 = 2 << 32 | 1;
const COOKIE: u64 = 77;

fn peer() -> Address {
    Address { nid: wire::nid(Ipv4Addr::new(10, 0, 0, 2)), portal: 40, tmid: 7 }
}

// Covers: S-3
#[test]
fn requests_are_those_of_the_document() {
    let examples = examples();
    let nid = wire::nid(Ipv4Addr::new(10, 0, 0, 1));
    let segments = [(1, 4096, 65536), (2, 0, 100)];
    let requests = [
        ("hello", kind::HELLO, wire::hello("raw", wire::VERSION)),
        ("create-arena", kind::CREATE_ARENA, wire::create_arena(16 << 20, 1, 2)),
        ("release-arena", kind::RELEASE_ARENA, wire::arena(3)),
        ("register", kind::REGISTER, wire::register(2 << 32 | 5, &segments)),
        ("start-tm", kind::START_TM, wire::start_tm(nid, 40, 0, 1024, 1)),
        ("stop-tm", kind::STOP_TM, TM.to_le_bytes().to_vec()),
        ("tm-descriptor", kind::TM_DESCRIPTOR, TM.to_le_bytes().to_vec()),
        ("sync", kind::SYNC, Vec::new()),
        ("nids", kind::NIDS, Vec::new()),
    ];
    for (name, kind, body) in requests {
        assert_eq!(wire::packet(kind, kind.into(), &body), examples[name], "{name}");
    }
}

// Covers: S-3
#[test]
fn entries_are_those_of_the_document() {
    let examples = examples();
    let peer = peer();
    let there = peer.descriptor(8, queue::PASSIVE_SEND, 8192);
    let entries = [
        ("entry-receive", Entry::receive(TM, BUFFER, COOKIE, 4096, 16)),
        ("entry-send", Entry::send(TM, BUFFER, COOKIE, 5, &peer)),
        ("entry-passive-receive", Entry::passive(queue::PASSIVE_RECEIVE, TM, BUFFER, COOKIE, 7, 0)),
        ("entry-passive-send", Entry::passive(queue::PASSIVE_SEND, TM, BUFFER, COOKIE, 8, 8192)),
        ("entry-active-receive", Entry::active(queue::ACTIVE_RECEIVE, TM, BUFFER, COOKIE, 8192, &there)),
        ("entry-cancel", Entry::cancel(TM, BUFFER, COOKIE)),
        ("entry-register", Entry::register(BUFFER, 1, 8192, 4096)),
        ("entry-deregister", Entry::deregister(BUFFER)),
    ];
    for (name, entry) in entries {
        assert_eq!(entry.bytes()[..], examples[name], "{name}");
    }
}

// Covers: S-3
#[test]
fn replies_are_read_as_the_document_says() {
    let examples = examples();
    let read = |name: &str| Reply::read(&examples[name], Vec::new()).unwrap();
    let refused = read("refused");
    assert_eq!((refused.id, refused.kind, refused.status, refused.reason), (6, kind::START_TM, -1, 3));
    assert_eq!(refused.value, 30);
    assert!(read("done").done().unwrap().body.is_empty());
    let welcome = read("welcome").body;
    assert_eq!((welcome.len(), wire::u64_at(&welcome, 16)), (96, 9));
    assert_eq!((wire::u32_at(&welcome, 52), wire::u32_at(&welcome, 56)), (4096, 64));
    let started = read("started").body;
    assert_eq!((wire::u64_at(&started, 0), wire::u32_at(&started, 36)), (TM, 4095));
    assert_eq!((started.len(), wire::u32_at(&started, 40)), (48, 2));
}
