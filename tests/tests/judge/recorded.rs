//! The judge against recordings of real nodes: it decodes every byte, and encodes the same bytes.

use nlx_tests::judge::frame::{Frame, read_frame};
use nlx_tests::judge::info::{PingInfo, feature};
use nlx_tests::judge::wire::{Hello, Nid, Order, request};
use serde_json::Value;

/// TCP exchanges of real nodes, the last one with large NIDs.
const RECORDINGS: [&str; 6] =
    ["tcp-ping", "tcp-discover", "tcp-lst-ping", "tcp-lst-read", "tcp-lst-write", "tcp-discover-ipv6"];

fn streams(recording: &str) -> Vec<Value> {
    let path = format!("{}/vectors/{recording}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let recording: Value = serde_json::from_str(&text).unwrap();
    recording["streams"].as_array().unwrap().clone()
}

/// Returns the bytes under one of an item's names; empty if the item lacks it.
fn bytes(item: &Value, name: &str) -> Vec<u8> {
    let text = item[name].as_str().unwrap_or_default();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_judge_writes_what_nodes_were_recorded_to_send() {
    let little = Order::Little;
    for recording in RECORDINGS {
        let mut seen = 0;
        for stream in streams(recording) {
            let mut version = 0;
            for item in stream["items"].as_array().unwrap() {
                let hex = bytes(item, "hex");
                match item["kind"].as_str().unwrap() {
                    "acceptor-request" => {
                        let large = little.u32_at(&hex, 4) == 2;
                        let nid = match large {
                            true => Nid::from_large(&hex[8..]).unwrap(),
                            false => Nid::from_small(little.u64_at(&hex, 8)),
                        };
                        assert_eq!((nid.is_large(), request(nid, little)), (large, hex), "{recording}");
                    }
                    "hello" => {
                        let (hello, order) = Hello::read(&mut &hex[..]).unwrap();
                        assert_eq!((hello.bytes(order), order), (hex, little), "{recording}");
                        assert_eq!(hello.version, hello.src.version(), "{recording}");
                        version = hello.version;
                    }
                    _ => {
                        let names = ["hex", "prefix_hex", "header_hex", "payload_hex"];
                        let mut whole: Vec<u8> = names.iter().flat_map(|name| bytes(item, name)).collect();
                        // For long payloads the recordings have only the length.
                        let left_out = item["payload_length"].as_u64().unwrap_or(0) as usize
                            - bytes(item, "payload_hex").len();
                        whole.resize(whole.len() + left_out, 0);
                        compare(&whole, version, recording);
                    }
                }
                seen += 1;
            }
        }
        assert!(seen > 4, "{recording}: {seen} items");
    }
}

fn compare(whole: &[u8], version: u32, recording: &str) {
    let little = Order::Little;
    match read_frame(&mut &whole[..], version, little) {
        Ok(Frame::Noop(prefix)) => assert_eq!(prefix.bytes(little), whole, "{recording}"),
        Ok(Frame::Lnet(message)) => {
            assert_eq!(message.bytes(version, little), whole, "{recording}");
            if PingInfo::parse(&message.payload).is_ok() {
                let said = PingInfo::of(message.src, feature::KERNEL);
                assert_eq!(said.bytes(), message.payload, "{recording}");
            }
        }
        Err(error) => panic!("{recording}: {error:?} in {} bytes", whole.len()),
    }
}
