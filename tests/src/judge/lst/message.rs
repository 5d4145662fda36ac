//! The 160 bytes of an lst message, by offset (lst 3, 5 and 8). Every field can be wrong.

use crate::judge::wire::Order;

/// The length of every message.
pub const LENGTH: usize = 160;
/// The first four bytes of every message.
pub const MAGIC: u32 = 0xeeb0_f00d;
/// The magic inside a PING.
pub const PING_MAGIC: u32 = 0xbabe_face;
/// The portal of requests to the data services.
pub const DATA: u32 = 50;
/// The portal of requests to the framework services.
pub const FRAMEWORK: u32 = 51;
/// The portal of replies and of bulk.
pub const REPLIES: u32 = 52;

/// The status values of replies.
pub mod status {
    /// No such batch, session or test.
    pub const ENOENT: u32 = 2;
    /// No such session.
    pub const ESRCH: u32 = 3;
    /// No memory.
    pub const ENOMEM: u32 = 12;
    /// Another session, or a running batch.
    pub const EBUSY: u32 = 16;
    /// A field is out of range.
    pub const EINVAL: u32 = 22;
    /// A wrong version or wrong features.
    pub const EPROTO: u32 = 71;
    /// The data of a WRITE are wrong.
    pub const EBADMSG: u32 = 74;
}

/// The match bits of the requests of each service.
pub mod service {
    /// DEBUG: asks for the session.
    pub const DEBUG: u64 = 0;
    /// MKSN: makes a session.
    pub const MKSN: u64 = 1;
    /// RMSN: ends a session.
    pub const RMSN: u64 = 2;
    /// BATCH: runs, stops or queries a batch.
    pub const BATCH: u64 = 3;
    /// TEST: adds a test to a batch.
    pub const TEST: u64 = 4;
    /// STAT: asks for counters.
    pub const STAT: u64 = 5;
    /// JOIN: asks a console to take a node into a group.
    pub const JOIN: u64 = 6;
    /// BRW: transfers data in bulk.
    pub const BRW: u64 = 11;
    /// PING: makes a round trip.
    pub const PING: u64 = 12;

    /// Returns the message type of a service's requests; that of the replies is one more.
    pub fn request_type(service: u64) -> Option<u32> {
        let types = [
            (MKSN, 0),
            (RMSN, 2),
            (BATCH, 4),
            (STAT, 6),
            (TEST, 8),
            (DEBUG, 10),
            (BRW, 12),
            (PING, 14),
            (JOIN, 16),
        ];
        types.into_iter().find(|&(known, _)| known == service).map(|(_, kind)| kind)
    }

    /// Returns the portal of a service's requests.
    pub fn portal(service: u64) -> u32 {
        if service > 10 { super::DATA } else { super::FRAMEWORK }
    }
}

/// A session id: the console's NID in its 64-bit form, and a stamp.
pub type Sid = (u64, u64);
/// The session id of a node that is in no session.
pub const NO_SESSION: Sid = (u64::MAX, u64::MAX);

/// A message, in the byte order of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lst {
    /// The bytes; there are 160 in a correct message.
    pub bytes: Vec<u8>,
    /// The byte order of all fields.
    pub order: Order,
}

impl Lst {
    /// Creates a message of version 1 with zeros behind its head.
    pub fn new(order: Order, kind: u32, features: u32) -> Lst {
        let empty = Lst { bytes: vec![0; LENGTH], order };
        empty.u32(0, MAGIC).u32(4, 1).u32(8, kind).u32(20, features)
    }

    /// Takes received bytes; their order is that of the magic. `None` for another length or magic.
    pub fn received(bytes: &[u8]) -> Option<Lst> {
        let orders = [Order::Little, Order::Big];
        let order = orders.into_iter().find(|order| order.u32_at(bytes, 0) == MAGIC)?;
        (bytes.len() == LENGTH).then(|| Lst { bytes: bytes.to_vec(), order })
    }

    /// Sets bytes.
    pub fn set(mut self, at: usize, bytes: &[u8]) -> Lst {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Sets a number of two bytes.
    pub fn u16(self, at: usize, value: u16) -> Lst {
        let little = self.order == Order::Little;
        self.set(at, &if little { value.to_le_bytes() } else { value.to_be_bytes() })
    }

    /// Sets a number of four bytes.
    pub fn u32(self, at: usize, value: u32) -> Lst {
        let order = self.order;
        self.set(at, &order.u32(value))
    }

    /// Sets a number of eight bytes.
    pub fn u64(self, at: usize, value: u64) -> Lst {
        let order = self.order;
        self.set(at, &order.u64(value))
    }

    /// Sets a session id.
    pub fn sid(self, at: usize, (nid, stamp): Sid) -> Lst {
        self.u64(at, nid).u64(at + 8, stamp)
    }

    /// Returns the number of four bytes at an offset.
    pub fn at(&self, at: usize) -> u32 {
        self.order.u32_at(&self.bytes, at)
    }

    /// Returns the number of eight bytes at an offset.
    pub fn wide(&self, at: usize) -> u64 {
        self.order.u64_at(&self.bytes, at)
    }

    /// Returns the number of two bytes at an offset.
    pub fn short(&self, at: usize) -> u16 {
        let two = [self.bytes[at], self.bytes[at + 1]];
        if self.order == Order::Little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) }
    }

    /// Returns the session id at an offset.
    pub fn sid_at(&self, at: usize) -> Sid {
        (self.wide(at), self.wide(at + 8))
    }

    /// Returns the type.
    pub fn kind(&self) -> u32 {
        self.at(8)
    }

    /// Returns the features word of the message.
    pub fn features(&self) -> u32 {
        self.at(20)
    }

    /// Returns the status of a reply.
    pub fn status(&self) -> u32 {
        self.at(24)
    }

    /// Returns the session id of a framework reply.
    pub fn session(&self) -> Sid {
        self.sid_at(28)
    }

    /// Returns the reply id of a request.
    pub fn reply_id(&self) -> u64 {
        self.wide(24)
    }

    /// Returns the NUL-terminated text of at most 32 bytes at an offset.
    pub fn text(&self, at: usize) -> String {
        let bytes: Vec<u8> = self.bytes[at..at + 32].iter().copied().take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
