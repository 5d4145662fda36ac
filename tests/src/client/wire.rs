//! Packets and entries, as bytes.

use std::net::Ipv4Addr;

use nix::errno::Errno;

/// The maximum size of a packet in bytes.
pub const PACKET_MAX: usize = 8192;
/// The size of a packet's header in bytes.
pub const HEADER: usize = 16;
/// Set in the kind of every reply.
pub const REPLY: u16 = 0x8000;
/// The size of an entry of the submission ring in bytes.
pub const ENTRY: usize = 120;
/// The PID of every node.
pub const PID: u32 = 12345;

/// The version of the protocol.
pub const VERSION: u16 = 3;

/// The requests, by their number.
pub mod kind {
    #![expect(missing_docs, reason = "each is the request of this name")]
    pub const HELLO: u16 = 1;
    pub const CREATE_ARENA: u16 = 2;
    pub const RELEASE_ARENA: u16 = 4;
    pub const REGISTER: u16 = 5;
    pub const START_TM: u16 = 6;
    pub const STOP_TM: u16 = 7;
    pub const TM_DESCRIPTOR: u16 = 8;
    pub const SYNC: u16 = 9;
    pub const NIDS: u16 = 10;
    /// All request kinds.
    pub const ALL: [u16; 9] =
        [HELLO, CREATE_ARENA, RELEASE_ARENA, REGISTER, START_TM, STOP_TM, TM_DESCRIPTOR, SYNC, NIDS];
}

/// The kinds of operations, by their number.
pub mod queue {
    #![expect(missing_docs, reason = "each is the queue of this name")]
    pub const RECEIVE: u32 = 0;
    pub const SEND: u32 = 1;
    pub const PASSIVE_RECEIVE: u32 = 2;
    pub const PASSIVE_SEND: u32 = 3;
    pub const ACTIVE_RECEIVE: u32 = 4;
    pub const ACTIVE_SEND: u32 = 5;
}

/// Concatenates bytes.
pub fn bytes<const N: usize>(parts: [&[u8]; N]) -> Vec<u8> {
    parts.concat()
}

/// Builds a packet with its header.
pub fn packet(kind: u16, id: u64, body: &[u8]) -> Vec<u8> {
    let length = (HEADER + body.len()) as u32;
    bytes([&kind.to_le_bytes(), &[0; 2], &length.to_le_bytes(), &id.to_le_bytes(), body])
}

/// Returns the body of a hello with this protocol version.
pub fn hello(name: &str, version: u16) -> Vec<u8> {
    let mut padded = [0; 32];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let (version, features) = (version.to_le_bytes(), 2u64.to_le_bytes());
    bytes([b"nlx:nlxd", &version, &version, &[0; 4], &features, &padded])
}

/// Returns the body of a request for an arena.
pub fn create_arena(bytes_wanted: u64, huge: u32, near: u32) -> Vec<u8> {
    bytes([&bytes_wanted.to_le_bytes(), &huge.to_le_bytes(), &near.to_le_bytes()])
}

/// Returns the body of a request that names an arena.
pub fn arena(number: u32) -> Vec<u8> {
    bytes([&number.to_le_bytes(), &[0; 4]])
}

/// Returns the body of a registration of segments: arena, offset, length.
pub fn register(buffer: u64, segments: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut body = bytes([&buffer.to_le_bytes(), &(segments.len() as u32).to_le_bytes(), &[0; 4]]);
    for (arena, offset, length) in segments {
        body.extend(bytes([&arena.to_le_bytes(), &[0; 4], &offset.to_le_bytes(), &length.to_le_bytes()]));
    }
    body
}

/// Returns the body of a request to start a transfer machine; `tmid` 0 for any.
pub fn start_tm(nid: [u8; 20], portal: u32, tmid: u32, events_max: u32, lazy: u32) -> Vec<u8> {
    let numbers = [PID, portal, tmid, events_max, lazy].map(u32::to_le_bytes);
    bytes([&nid, numbers.as_flattened()])
}

/// Encodes a NID of network `tcp` in its 20 bytes.
pub fn nid(address: Ipv4Addr) -> [u8; 20] {
    nid_on("tcp", address)
}

/// Encodes a NID of network `tcp` or `o2ib` in its 20 bytes.
pub fn nid_on(net: &str, address: Ipv4Addr) -> [u8; 20] {
    let mut nid = [0; 20];
    nid[1] = if net == "o2ib" { 5 } else { 2 };
    nid[4..8].copy_from_slice(&address.octets());
    nid
}

/// The address of a transfer machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The NID's 20 bytes as they travel.
    pub nid: [u8; 20],
    /// The number of the portal; any value can be sent.
    pub portal: u32,
    /// The transfer machine id.
    pub tmid: u32,
}

impl Address {
    /// Encodes the address as the target of a send.
    pub fn bytes(&self) -> Vec<u8> {
        let numbers = [PID, self.portal, self.tmid].map(u32::to_le_bytes);
        bytes([&self.nid, numbers.as_flattened()])
    }

    /// Encodes the descriptor of a passive buffer at this address; `queue` is the passive one.
    pub fn descriptor(&self, counter: u64, queue: u32, size: u64) -> Vec<u8> {
        let ip = u32::from_be_bytes([self.nid[4], self.nid[5], self.nid[6], self.nid[7]]);
        let words = [
            u64::from(self.tmid) << 52 | counter,
            u64::from(self.nid[1]) << 48 | u64::from(ip),
            u64::from(self.portal) << 32 | u64::from(PID),
            u64::from(queue) << 32 | u64::from(self.tmid),
            size,
        ];
        let checksum = words.iter().fold(0, |sum, word| sum ^ word);
        words.iter().chain([&checksum]).flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// An entry of the ring, field by field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of this name")]
pub struct Entry {
    pub kind: u32,
    pub queue: u32,
    pub tm: u64,
    pub buffer: u64,
    pub cookie: u64,
    pub length: u64,
    pub counter_or_offset: u64,
    pub count: u32,
    /// The length of the target in the entry: that of `target`, unless set.
    pub target_length: Option<u32>,
    pub target: Vec<u8>,
    pub reserved: u64,
}

impl Entry {
    /// Returns an operation of a transfer machine.
    pub fn operate(queue: u32, tm: u64, buffer: u64, cookie: u64) -> Entry {
        Entry { kind: 1, queue, tm, buffer, cookie, ..Entry::default() }
    }

    /// Returns an entry that sends a message of `length` bytes.
    pub fn send(tm: u64, buffer: u64, cookie: u64, length: u64, to: &Address) -> Entry {
        Entry { length, target: to.bytes(), ..Entry::operate(queue::SEND, tm, buffer, cookie) }
    }

    /// Returns an entry that receives messages.
    pub fn receive(tm: u64, buffer: u64, cookie: u64, least: u64, messages: u32) -> Entry {
        Entry { length: least, count: messages, ..Entry::operate(queue::RECEIVE, tm, buffer, cookie) }
    }

    /// Returns an entry with a passive buffer for a bulk transfer; `queue` is one of the two
    /// passive ones.
    pub fn passive(queue: u32, tm: u64, buffer: u64, cookie: u64, counter: u64, length: u64) -> Entry {
        let length = if queue == queue::PASSIVE_SEND { length } else { 0 };
        Entry { counter_or_offset: counter, length, ..Entry::operate(queue, tm, buffer, cookie) }
    }

    /// Returns an entry that starts a bulk transfer; `queue` is one of the two active ones.
    pub fn active(queue: u32, tm: u64, buffer: u64, cookie: u64, length: u64, descriptor: &[u8]) -> Entry {
        let length = if queue == queue::ACTIVE_SEND { length } else { 0 };
        Entry { length, target: descriptor.to_vec(), ..Entry::operate(queue, tm, buffer, cookie) }
    }

    /// Returns an entry that cancels an operation.
    pub fn cancel(tm: u64, buffer: u64, cookie: u64) -> Entry {
        Entry { kind: 2, tm, buffer, cookie, ..Entry::default() }
    }

    /// Returns an entry that registers a buffer of one segment.
    pub fn register(buffer: u64, arena: u32, offset: u64, length: u64) -> Entry {
        Entry { kind: 3, buffer, count: arena, counter_or_offset: offset, length, ..Entry::default() }
    }

    /// Returns an entry that deregisters a buffer.
    pub fn deregister(buffer: u64) -> Entry {
        Entry { kind: 4, buffer, ..Entry::default() }
    }

    /// Encodes the entry as it lies in the ring.
    pub fn bytes(&self) -> [u8; ENTRY] {
        let target_length = self.target_length.unwrap_or(self.target.len() as u32);
        let words =
            [self.tm, self.buffer, self.cookie, self.length, self.counter_or_offset].map(u64::to_le_bytes);
        let mut target = [0; 56];
        target[..self.target.len()].copy_from_slice(&self.target);
        let all = bytes([
            &self.kind.to_le_bytes(),
            &self.queue.to_le_bytes(),
            words.as_flattened(),
            &self.count.to_le_bytes(),
            &target_length.to_le_bytes(),
            &target,
            &self.reserved.to_le_bytes(),
        ]);
        all.try_into().unwrap_or_else(|_| unreachable!("the parts are as long as an entry"))
    }
}

/// A reply of the helper.
#[derive(Debug)]
pub struct Reply {
    /// The request's number.
    pub id: u64,
    /// The kind of the request.
    pub kind: u16,
    /// The result: 0 or a negative errno.
    pub status: i32,
    /// The reason of a refusal.
    pub reason: u32,
    /// The value that was refused.
    pub value: u64,
    /// The rest of the packet.
    pub body: Vec<u8>,
    /// Descriptors that came with it.
    pub fds: Vec<std::os::fd::OwnedFd>,
}

impl Reply {
    /// Decodes a packet and its descriptors; returns an error if it is not a reply.
    pub fn read(packet: &[u8], fds: Vec<std::os::fd::OwnedFd>) -> Result<Reply, String> {
        if packet.len() < HEADER + 24 || u32_at(packet, 4) as usize != packet.len() {
            return Err(format!("a reply of {} bytes: {packet:02x?}", packet.len()));
        }
        let kind = u16_at(packet, 0);
        if kind & REPLY == 0 || u16_at(packet, 2) != 0 {
            return Err(format!("a reply of kind {kind:#x}"));
        }
        Ok(Reply {
            id: u64_at(packet, 8),
            kind: kind & !REPLY,
            status: u32_at(packet, 16) as i32,
            reason: u32_at(packet, 20),
            value: u64_at(packet, 24),
            body: packet[HEADER + 24..].to_vec(),
            fds,
        })
    }

    /// Returns the reply, or an error if the request was refused.
    ///
    /// # Errors
    /// The errno.
    pub fn done(self) -> Result<Reply, Errno> {
        if self.status == 0 { Ok(self) } else { Err(Errno::from_raw(self.status.wrapping_neg())) }
    }
}

/// Reads a little-endian number.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a little-endian number.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Reads a little-endian number.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
