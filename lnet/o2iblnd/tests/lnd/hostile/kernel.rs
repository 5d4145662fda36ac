//! A simulated kernel node, which answers GETs and writes as measured. Its bytes are made by hand
//! (lnet-wire 35, lnet-measured "Short replies over o2ib").

use std::sync::Arc;

use lnet_o2iblnd::fabric::{Piece, RegisteredMemory, SendKind, SendWork};
use lnet_region::{IoVec, Region};

use super::bytes::*;
use super::stranger::{Line, Scene};

/// The longest payload of an immediate message (lnet-wire 35).
const IMMEDIATE_MAX: usize = 3976;

/// The length of the pieces of the node's memory: a page.
const PAGE: usize = 4096;

/// The length of the memory from which the node writes.
const BYTES: usize = 1 << 17;

pub(super) struct Kernel<'a> {
    scene: &'a Scene,
    line: Line,
    node: End,
    /// The number of pieces of one write: the module parameter of this name, 2 by default.
    wrq_sge: usize,
    region: Region,
    memory: Arc<dyn RegisteredMemory>,
    buffer: IoVec,
    /// Messages that were received and not handled.
    unhandled: Vec<Vec<u8>>,
    /// The number of credits to return.
    owed: u8,
}

/// A descriptor that the node has sent: its key, and length and address of each fragment.
pub(super) struct Target {
    key: u32,
    fragments: Vec<(usize, u64)>,
}

impl Target {
    fn of(bytes: &[u8]) -> Target {
        let fragments = (0..word(bytes, 4) as usize).map(|index| 8 + 12 * index);
        let fragments = fragments.map(|at| (word(bytes, at) as usize, long(bytes, at + 4)));
        Target { key: word(bytes, 0), fragments: fragments.collect() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.fragments.iter().map(|(length, _)| length).sum()
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl<'a> Kernel<'a> {
    /// Connects to the node of the scene.
    pub(super) fn connected(scene: &'a Scene, wrq_sge: usize) -> Kernel<'a> {
        let (line, node) = scene.connected();
        let region = Region::heap(BYTES).unwrap();
        let memory = scene.device.register(&region, false).unwrap();
        let buffer = IoVec::whole(region.clone());
        Kernel { scene, line, node, wrq_sge, region, memory, buffer, unhandled: Vec::new(), owed: 0 }
    }

    /// Returns the node's next message that is not a NOOP.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let Kernel { scene, line, unhandled, .. } = self;
        scene.until(|| {
            unhandled.extend(line.taken().into_iter().filter(|bytes| bytes[6] != NOOP));
            !unhandled.is_empty()
        });
        let next = unhandled.remove(0);
        self.owed += u8::from([IMMEDIATE, GET_REQ].contains(&next[6]));
        next
    }

    /// Answers the node's next GET with the payload, cut to the length of the sink; returns the
    /// type of the request.
    pub(super) fn answer_get(&mut self, payload: &[u8]) -> u8 {
        let request = self.next();
        let sink = word(&request, 112) as usize;
        let payload = &payload[..payload.len().min(sink)];
        match request[6] {
            IMMEDIATE => {
                assert!(payload.len() <= IMMEDIATE_MAX, "a longer reply would be announced");
                let reply = self.reply(&request, payload.len());
                self.send(IMMEDIATE, &[&reply[..], payload].concat());
            }
            GET_REQ => {
                let target = Target::of(&request[128..]);
                assert_eq!(target.bytes(), sink, "the descriptor covers the whole MD");
                self.write(&target, payload);
                self.done(GET_DONE, &request[120..128], payload.len());
            }
            other => panic!("{other:#x} is no GET"),
        }
        request[6]
    }

    /// Returns LNet's header of the reply to a GET (lnet-wire 6), with the type 3 and the handle
    /// from the GET.
    fn reply(&self, request: &[u8], length: usize) -> Vec<u8> {
        let mut bytes = header(1, self.scene.own().nid, self.node.nid, length as u32, 0);
        bytes[24..28].copy_from_slice(&3u32.to_le_bytes());
        bytes[32..48].copy_from_slice(&request[80..96]);
        bytes[48..].fill(0);
        bytes
    }

    /// Announces a payload to the node, and writes the part that the node requests; returns its
    /// length.
    pub(super) fn put(&mut self, payload: &[u8], match_bits: u64) -> usize {
        let header = header(1, self.scene.own().nid, self.node.nid, payload.len() as u32, match_bits);
        self.send(PUT_REQ, &[&header[..], &[7; 8]].concat());
        let answer = self.next();
        assert_eq!((answer[6], &answer[48..56]), (PUT_ACK, &[7; 8][..]));
        let target = Target::of(&answer[64..]);
        let wanted = target.bytes();
        self.write(&target, &payload[..wanted]);
        self.done(PUT_DONE, &answer[56..64], wanted);
        wanted
    }

    /// Writes the payload by the kernel's rule: pieces are collected until there are `wrq_sge`, or
    /// a fragment of the sink is full. Pieces that are still collected at the end are lost.
    fn write(&self, target: &Target, payload: &[u8]) {
        if !payload.is_empty() {
            self.buffer.write(0..payload.len()).unwrap().copy_from(0, payload);
        }
        let mut collected: Vec<(usize, u64, usize)> = Vec::new();
        let mut at = 0;
        for &(room, address) in &target.fragments {
            let mut filled = 0;
            while filled < room && at < payload.len() {
                let length = (PAGE - at % PAGE).min(room - filled).min(payload.len() - at);
                collected.push((at, address + filled as u64, length));
                (at, filled) = (at + length, filled + length);
                if collected.len() == self.wrq_sge || filled == room {
                    collected.drain(..).for_each(|piece| self.post(piece, target.key));
                }
            }
        }
    }

    fn post(&self, (at, address, length): (usize, u64, usize), key: u32) {
        let own = Piece {
            address: self.region.address_of(at),
            length: length as u32,
            key: self.memory.local_key(),
        };
        let kind = SendKind::Write { address, key };
        let work = SendWork { id: 1001, pieces: &[own], kind, signalled: false, inline: false };
        self.line.endpoint.post_sends(&[work]).unwrap();
    }

    /// Ends a transfer with the received cookie, and the number of bytes that should have been
    /// written.
    fn done(&mut self, kind: u8, cookie: &[u8], bytes: usize) {
        self.send(kind, &[cookie, &(bytes as u32).to_le_bytes()].concat());
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let mut bytes = message(kind, self.scene.own(), self.node, body);
        bytes[7] = std::mem::take(&mut self.owed);
        self.line.send(&bytes);
    }

    /// Ends the connection to the node.
    pub(super) fn leave(self) {
        self.line.endpoint.disconnect();
    }
}
