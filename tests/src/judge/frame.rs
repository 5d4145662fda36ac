//! The judge's codec of messages: prefix, header, payload, and ping information (lnet-wire 6, 7, 16
//! and 25).

use std::io::{self, Read};

use super::wire::{Nid, Order, PID};

/// The prefix of a frame without message.
pub const NOOP: u32 = 0xc0;
/// The prefix of a message.
pub const LNET: u32 = 0xc1;
/// The message type of an ACK.
pub const ACK: u32 = 0;
/// The message type of a PUT.
pub const PUT: u32 = 1;
/// The message type of a GET.
pub const GET: u32 = 2;
/// The message type of a REPLY.
pub const REPLY: u32 = 3;
/// The maximum payload in bytes.
pub const PAYLOAD_MAX: u32 = 1 << 20;
/// Match bits of pings and pushes, which go to portal 0.
pub const PING_BITS: u64 = 1 << 63;
/// No handle: no ACK is wanted.
pub const NO_HANDLE: [u8; 16] = [0xff; 16];

/// The 24 bytes before every message (lnet-wire 25.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prefix {
    /// [`NOOP`] or [`LNET`].
    pub kind: u32,
    /// 0 for none.
    pub csum: u32,
    /// Cookie 0: a request.
    pub zc_req: u64,
    /// Cookie 1: an acknowledgement.
    pub zc_ack: u64,
}

impl Prefix {
    /// Encodes the prefix.
    pub fn bytes(&self, order: Order) -> Vec<u8> {
        let words = [&order.u32(self.kind)[..], &order.u32(self.csum)].concat();
        [&words[..], &order.u64(self.zc_req), &order.u64(self.zc_ack)].concat()
    }

    /// Returns a frame without message.
    pub fn noop(zc_req: u64, zc_ack: u64) -> Prefix {
        Prefix { kind: NOOP, csum: 0, zc_req, zc_ack }
    }

    /// Returns whether this is a keepalive: a NOOP without request or acknowledgement.
    pub fn is_keepalive(&self) -> bool {
        matches!((self.kind, self.zc_req, self.zc_ack), (NOOP, 0 | 1, 1))
    }

    /// Returns the cookies that it acknowledges (lnet-wire 26); none for a keepalive.
    pub fn acked(&self) -> Vec<u64> {
        match (self.kind, self.zc_req, self.zc_ack) {
            (_, _, 0) => vec![],
            _ if self.is_keepalive() => vec![],
            (LNET, _, ack) | (_, 0, ack) => vec![ack],
            (_, request, ack) if request > ack => vec![request, ack],
            // A range longer than any peer has outstanding is truncated: its first cookies are
            // wrong already.
            (_, request, ack) => (request..=ack).take(4096).collect(),
        }
    }
}

/// Returns the size of a message without payload, including prefix and header, on connections of
/// this version (lnet-wire 25.2).
pub const fn frame_bytes(version: u32) -> usize {
    24 + header_bytes(version)
}

const fn header_bytes(version: u32) -> usize {
    if version == 4 { 96 } else { 72 }
}

/// A message: prefix, header, payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The prefix.
    pub prefix: Prefix,
    /// The destination NID.
    pub dest: Nid,
    /// The source NID.
    pub src: Nid,
    /// The destination PID.
    pub dest_pid: u32,
    /// The source PID.
    pub src_pid: u32,
    /// [`ACK`], [`PUT`], [`GET`] or [`REPLY`].
    pub kind: u32,
    /// The payload's length in the header.
    pub length: u32,
    /// The type-specific part of the header.
    pub body: [u8; 40],
    /// The payload.
    pub payload: Vec<u8>,
}

impl Message {
    /// Creates a message of a kernel node.
    pub fn new(kind: u32, src: Nid, dest: Nid, payload: &[u8]) -> Message {
        Message {
            prefix: Prefix { kind: LNET, ..Prefix::default() },
            dest,
            src,
            dest_pid: PID,
            src_pid: PID,
            kind,
            length: payload.len() as u32,
            body: [0; 40],
            payload: payload.to_vec(),
        }
    }

    /// Returns a PUT; `handle` is [`NO_HANDLE`] if no ACK is wanted.
    pub fn put(src: Nid, dest: Nid, portal: u32, bits: u64, handle: [u8; 16], payload: &[u8]) -> Message {
        let mut put = Message::new(PUT, src, dest, payload);
        put.body[..16].copy_from_slice(&handle);
        put.body[16..24].copy_from_slice(&bits.to_le_bytes());
        put.body[32..36].copy_from_slice(&portal.to_le_bytes());
        put
    }

    /// Returns a GET of `sink` bytes.
    pub fn get(src: Nid, dest: Nid, portal: u32, bits: u64, handle: [u8; 16], sink: u32) -> Message {
        let mut get = Message::new(GET, src, dest, &[]);
        get.body[..16].copy_from_slice(&handle);
        get.body[16..24].copy_from_slice(&bits.to_le_bytes());
        get.body[24..28].copy_from_slice(&portal.to_le_bytes());
        get.body[32..36].copy_from_slice(&sink.to_le_bytes());
        get
    }

    /// Returns the answer to a message: from its destination to its source, with its handle.
    pub fn answer(&self, kind: u32, own: Nid, payload: &[u8]) -> Message {
        let mut answer = Message::new(kind, own, self.src, payload);
        answer.dest_pid = self.src_pid;
        answer.body[..16].copy_from_slice(&self.handle());
        if kind == ACK {
            answer.body[16..24].copy_from_slice(&self.bits().to_le_bytes());
            answer.body[24..28].copy_from_slice(&self.length.to_le_bytes());
            answer.length = 0;
            answer.payload.clear();
        }
        answer
    }

    /// Returns the message with a request for a zero-copy acknowledgement.
    pub fn with_cookie(mut self, cookie: u64) -> Message {
        self.prefix.zc_req = cookie;
        self
    }

    /// Returns the handle: the sender's in PUT and GET, an echo in ACK and REPLY.
    pub fn handle(&self) -> [u8; 16] {
        let mut handle = [0; 16];
        handle.copy_from_slice(&self.body[..16]);
        handle
    }

    /// Returns the match bits; a REPLY has none.
    pub fn bits(&self) -> u64 {
        Order::Little.u64_at(&self.body, 16)
    }

    /// Returns the portal of a PUT or GET.
    pub fn portal(&self) -> u32 {
        Order::Little.u32_at(&self.body, if self.kind == PUT { 32 } else { 24 })
    }

    /// Returns the number of bytes that a GET requests.
    pub fn sink(&self) -> u32 {
        Order::Little.u32_at(&self.body, 32)
    }

    /// Returns the offset of a PUT or GET.
    pub fn offset(&self) -> u32 {
        Order::Little.u32_at(&self.body, if self.kind == PUT { 36 } else { 28 })
    }

    /// Returns the number of bytes that an ACK acknowledges.
    pub fn mlength(&self) -> u32 {
        Order::Little.u32_at(&self.body, 24)
    }

    /// Returns whether this is a ping.
    pub fn is_ping(&self) -> bool {
        self.kind == GET && self.portal() == 0 && self.bits() == PING_BITS
    }

    /// Returns whether this is a push.
    pub fn is_push(&self) -> bool {
        self.kind == PUT && self.portal() == 0 && self.bits() == PING_BITS
    }

    /// Returns the size on the wire in bytes.
    pub fn wire_bytes(&self, version: u32) -> usize {
        frame_bytes(version) + self.payload.len()
    }

    /// Encodes the header; it is little-endian for every sender.
    pub fn header(&self, version: u32) -> Vec<u8> {
        let mut bytes = match version {
            4 => [self.dest.large(), self.src.large()].concat(),
            _ => [self.dest.small().to_le_bytes(), self.src.small().to_le_bytes()].concat(),
        };
        for word in [self.dest_pid, self.src_pid, self.kind, self.length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.body);
        bytes
    }

    /// Encodes the message, with the prefix in the given byte order.
    pub fn bytes(&self, version: u32, order: Order) -> Vec<u8> {
        [&self.prefix.bytes(order)[..], &self.header(version), &self.payload].concat()
    }

    /// Returns the checksum of a V2 message (lnet-wire 25.3): over the whole message, with 0 as the
    /// checksum.
    pub fn checksum(&self) -> u32 {
        let clean = Message { prefix: Prefix { csum: 0, ..self.prefix }, ..self.clone() };
        clean.bytes(2, Order::Little).iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
        })
    }
}

/// One frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A prefix alone.
    Noop(Prefix),
    /// A message.
    Lnet(Box<Message>),
}

/// The reason why no frame was read.
#[derive(Debug)]
pub enum NoFrame {
    /// The connection ended between two frames.
    End,
    /// The stream ended inside a frame.
    Cut(io::Error),
    /// The bytes are not a frame.
    Wrong(String),
}

/// Reads the next frame of a connection.
pub fn read_frame(stream: &mut impl Read, version: u32, order: Order) -> Result<Frame, NoFrame> {
    let mut prefix = [0; 24];
    match stream.read(&mut prefix) {
        Ok(0) => return Err(NoFrame::End),
        Ok(count) => stream.read_exact(&mut prefix[count..]).map_err(NoFrame::Cut)?,
        // A reset between frames is an end, too: closing with unread bytes resets the connection.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(NoFrame::End),
        Err(error) => return Err(NoFrame::Cut(error)),
    }
    let prefix = Prefix {
        kind: order.u32_at(&prefix, 0),
        csum: order.u32_at(&prefix, 4),
        zc_req: order.u64_at(&prefix, 8),
        zc_ack: order.u64_at(&prefix, 16),
    };
    match prefix.kind {
        NOOP => Ok(Frame::Noop(prefix)),
        LNET => read_message(stream, version, prefix).map(|message| Frame::Lnet(Box::new(message))),
        kind => Err(NoFrame::Wrong(format!("a prefix of type {kind:#x}"))),
    }
}

fn read_message(stream: &mut impl Read, version: u32, prefix: Prefix) -> Result<Message, NoFrame> {
    let mut header = vec![0; header_bytes(version)];
    stream.read_exact(&mut header).map_err(NoFrame::Cut)?;
    let (nids, rest) = header.split_at(if version == 4 { 40 } else { 16 });
    let (dest, src) = match version {
        4 => (Nid::from_large(&nids[..20]), Nid::from_large(&nids[20..])),
        _ => {
            let nid = |at| Some(Nid::from_small(Order::Little.u64_at(nids, at)));
            (nid(0), nid(8))
        }
    };
    let (Some(dest), Some(src)) = (dest, src) else {
        return Err(NoFrame::Wrong(format!("a header with NIDs of an invalid size: {nids:02x?}")));
    };
    let word = |at| Order::Little.u32_at(rest, at);
    let (kind, length) = (word(8), word(12));
    match kind {
        ACK | GET if length != 0 => {
            return Err(NoFrame::Wrong(format!("a message of type {kind} with {length} bytes of payload")));
        }
        ACK | GET => {}
        PUT | REPLY if length <= PAYLOAD_MAX => {}
        PUT | REPLY => return Err(NoFrame::Wrong(format!("{length} bytes of payload, above 1 MiB"))),
        _ => return Err(NoFrame::Wrong(format!("a message of type {kind}"))),
    }
    let mut body = [0; 40];
    body.copy_from_slice(&rest[16..]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).map_err(NoFrame::Cut)?;
    Ok(Message { prefix, dest, src, dest_pid: word(0), src_pid: word(4), kind, length, body, payload })
}
