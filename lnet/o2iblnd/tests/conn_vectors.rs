//! A [`Conn`] replays each side of the recorded connections of kernel nodes: it sends what the
//! kernel node sent, with the same meaning, and accepts the other one's answers (lnet-measured,
//! o2ib).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::Path;

use lnet_o2iblnd::conn::{Conn, EmitKind, Limits, OpKey, Own, ReceivedMessage};
use lnet_proto::ib::{Body, Cookie, Message, MessageKind, TransferStatus};
use serde_json::Value;

const NEVER: u64 = u64::MAX;

/// Returns the messages after the handshake, each with the NID address of its sender.
fn recorded(file: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors").join(file);
    let recording: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let items = recording["items"].as_array().unwrap();
    let sends = items.iter().filter(|item| item["kind"] == "send");
    sends
        .map(|item| (item["from"].as_str().unwrap().to_owned(), hex(item["hex"].as_str().unwrap())))
        .collect()
}

fn hex(digits: &str) -> Vec<u8> {
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// One side of a recording.
struct Player {
    conn: Conn<MessageKind>,
    /// The cookies of the recorded node, and those of the player in their place.
    cookies: HashMap<Cookie, Cookie>,
    /// The requests to be answered, by kind.
    open: Vec<(MessageKind, OpKey, u32)>,
    ended: Vec<(MessageKind, u32)>,
    begun: usize,
    given: [u32; 2],
}

impl Player {
    fn new() -> Player {
        let limits =
            Limits { depth: 8, high_water: 4, sends: 8, works: 2080, messages: 256, keepalive_ns: NEVER };
        Player {
            conn: Conn::new(&limits, 0),
            cookies: HashMap::new(),
            open: Vec::new(),
            ended: Vec::new(),
            begun: 0,
            given: [0; 2],
        }
    }

    fn mapped(&self, done: &TransferStatus) -> TransferStatus {
        TransferStatus { cookie: self.cookies[&done.cookie], ..*done }
    }

    /// Sends a message that the recorded node sent.
    fn sends(&mut self, message: &Message<'_>) {
        self.decide(&message.body);
        let emit = self.conn.next(0).unwrap_or_else(|| panic!("it may send {}", message.body.kind()));
        let (id, kind) = (emit.id, emit.kind);
        self.given[0] += u32::from(emit.credits);
        self.given[1] += u32::from(message.head.credits);
        assert!(self.given[0] >= self.given[1], "no credit is returned later than the kernel node does");
        match (&message.body, kind) {
            (Body::Immediate { .. }, EmitKind::Immediate) => {}
            (Body::PutReq { cookie: recorded, .. }, EmitKind::PutReq { cookie })
            | (Body::GetReq { cookie: recorded, .. }, EmitKind::GetReq { cookie }) => {
                self.cookies.insert(*recorded, cookie);
            }
            (Body::PutAck { source: recorded, sink: own, .. }, EmitKind::PutAck { source, sink }) => {
                assert_eq!(*recorded, source, "it is echoed");
                self.cookies.insert(*own, sink);
            }
            (Body::PutDone(recorded), EmitKind::PutDone(done))
            | (Body::GetDone(recorded), EmitKind::GetDone(done)) => {
                assert_eq!(*recorded, done);
            }
            (recorded, said) => panic!("{said:?} in place of {recorded:?}"),
        }
        if let Some(ended) = self.conn.completed(id.bits()).unwrap() {
            self.ended.push((ended.item, ended.outcome.unwrap()));
        }
    }

    /// Calls the function of the connection that leads to this message.
    fn decide(&mut self, body: &Body<'_>) {
        let kind = body.kind();
        self.begun += 1;
        let answered = |player: &mut Player, request| {
            let at = player.open.iter().position(|(kind, ..)| *kind == request).expect("something to answer");
            let (_, key, length) = player.open.remove(at);
            (key, length)
        };
        match body {
            Body::Immediate { .. } => self.conn.queue(Own::Immediate, NEVER, kind).unwrap(),
            Body::PutReq { header, .. } => {
                self.conn.queue(Own::Put { length: header.payload_length }, NEVER, kind).unwrap();
            }
            Body::GetReq { descriptor, .. } => {
                let length = descriptor.total_len() as u32;
                self.conn.queue(Own::Get { length }, NEVER, kind).unwrap();
            }
            Body::PutAck { descriptor, .. } => {
                let (key, _) = answered(self, MessageKind::PutReq);
                self.conn.attach(key, kind).unwrap();
                self.conn.ack(key, descriptor.total_len() as u32, NEVER).unwrap();
            }
            Body::PutDone(done) => {
                let (key, length) = answered(self, MessageKind::PutAck);
                assert_eq!(done.outcome(), Ok(length));
                self.conn.done(key, Ok(length), 1, NEVER).unwrap();
                // This message continues the PUT; no operation begins.
                self.begun -= 1;
            }
            Body::GetDone(done) => {
                let (key, _) = answered(self, MessageKind::GetReq);
                self.conn.attach(key, kind).unwrap();
                self.conn.done(key, Ok(done.outcome().unwrap()), 1, NEVER).unwrap();
            }
            other => panic!("no recording has {other:?}"),
        }
    }

    /// Receives a message that the other recorded node sent.
    fn receives(&mut self, message: &Message<'_>) {
        let body = match message.body {
            Body::PutAck { source, sink, descriptor } => {
                Body::PutAck { source: self.cookies[&source], sink, descriptor }
            }
            Body::PutDone(done) => Body::PutDone(self.mapped(&done)),
            Body::GetDone(done) => Body::GetDone(self.mapped(&done)),
            other => other,
        };
        let (receipt, received) = self.conn.received(&Message { head: message.head, body }).unwrap();
        match received {
            ReceivedMessage::Nothing | ReceivedMessage::Immediate => {}
            ReceivedMessage::PutReq(key) => self.open.push((MessageKind::PutReq, key, 0)),
            ReceivedMessage::GetReq(key) => self.open.push((MessageKind::GetReq, key, 0)),
            ReceivedMessage::PutAck { put, length } => self.open.push((MessageKind::PutAck, put, length)),
            ReceivedMessage::Ended(ended) => self.ended.push((ended.item, ended.outcome.unwrap())),
        }
        self.conn.reposted(receipt);
    }
}

#[test]
fn either_side_of_the_recordings_can_be_played() {
    let mut transfers = 0;
    for file in ["o2ib-ping.json", "o2ib-lst-read.json", "o2ib-lst-write.json"] {
        let messages = recorded(file);
        for side in ["10.77.0.2", "10.77.0.3"] {
            let mut player = Player::new();
            for (from, bytes) in &messages {
                let message = Message::parse(bytes).unwrap();
                if from == side { player.sends(&message) } else { player.receives(&message) }
            }
            assert_eq!((player.ended.len(), player.open.len()), (player.begun, 0), "{file} {side}");
            assert_eq!((player.conn.counts().operations, player.conn.counts().reserved), (0, 8));
            // S-501: each bulk transfer has 1 MiB.
            let bulk = player.ended.iter().filter(|(kind, _)| *kind != MessageKind::Immediate);
            for (kind, bytes) in bulk {
                assert_eq!(*bytes, 1 << 20, "{kind}");
                transfers += 1;
            }
        }
    }
    assert_eq!(transfers, 8, "two transfers in each of two recordings, from both sides");
}
