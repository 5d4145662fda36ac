//! The judge's codec of the connection request and hellos (lnet-wire 21 and 22): arrays and
//! offsets, written from the specification alone.

use std::fmt;
use std::io::Read;

pub use super::nid::Nid;

/// The first four bytes of a request.
pub const ACCEPTOR_MAGIC: u32 = 0xacce_7100;
/// The first four bytes of a hello.
pub const LNET_MAGIC: u32 = 0x4572_6963;
/// The first four bytes of an obsolete node's hello.
pub const OLD_MAGIC: u32 = 0xeebc_0ded;
/// The PID of every kernel node.
pub const PID: u32 = 12345;
/// The flag in the PIDs of peers that connect from unprivileged ports (lnet-wire 27).
pub const USERSPACE: u32 = 0x8000_0000;
/// The last privileged port.
pub const PRIVILEGED_MAX: u16 = 1023;

/// Connection types (lnet-wire 23), in the sender's view.
pub mod kind {
    /// A refusal.
    pub const NONE: u32 = u32::MAX;
    /// Untyped.
    pub const ANY: u32 = 0;
    /// Small messages both ways.
    pub const CONTROL: u32 = 1;
    /// The other side sends bulk on it.
    pub const BULK_IN: u32 = 2;
    /// The sender of the type sends bulk on it.
    pub const BULK_OUT: u32 = 3;

    /// Returns the type of the same connection in the other side's view.
    pub const fn inverse(kind: u32) -> u32 {
        match kind {
            BULK_IN => BULK_OUT,
            BULK_OUT => BULK_IN,
            other => other,
        }
    }

    /// Returns the name of a type.
    pub const fn name(kind: u32) -> &'static str {
        match kind {
            NONE => "NONE",
            ANY => "ANY",
            CONTROL => "CONTROL",
            BULK_IN => "BULK_IN",
            BULK_OUT => "BULK_OUT",
            _ => "no type",
        }
    }
}

/// A byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// That of every real node.
    Little,
    /// That of a node with the other byte order.
    Big,
}

impl Order {
    /// Encodes four bytes.
    pub fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    /// Encodes eight bytes.
    pub fn u64(self, value: u64) -> [u8; 8] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    /// Decodes the number at an offset; 0 beyond the end.
    pub fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let Some(Ok(four)) = bytes.get(at..at + 4).map(<[u8; 4]>::try_from) else { return 0 };
        if self == Order::Little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) }
    }

    /// Decodes the number at an offset; 0 beyond the end.
    pub fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        let Some(Ok(eight)) = bytes.get(at..at + 8).map(<[u8; 8]>::try_from) else { return 0 };
        if self == Order::Little { u64::from_le_bytes(eight) } else { u64::from_be_bytes(eight) }
    }
}

/// Returns a connection request of version 1 (lnet-wire 21).
pub fn request_v1(target: Nid, order: Order) -> Vec<u8> {
    [&order.u32(ACCEPTOR_MAGIC)[..], &order.u32(1), &order.u64(target.small())].concat()
}

/// Returns a connection request of version 2.
pub fn request_v2(target: Nid, order: Order) -> Vec<u8> {
    [&order.u32(ACCEPTOR_MAGIC)[..], &order.u32(2), &target.large()].concat()
}

/// Returns the connection request that nodes send for a NID: version 1 if it is small, version 2 if
/// it is large.
pub fn request(target: Nid, order: Order) -> Vec<u8> {
    if target.is_large() { request_v2(target, order) } else { request_v1(target, order) }
}

/// A hello of version 2, 3 or 4 (lnet-wire 22).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The protocol version.
    pub version: u32,
    /// The sender's NID.
    pub src: Nid,
    /// The receiver's NID.
    pub dst: Nid,
    /// The sender's PID.
    pub src_pid: u32,
    /// The receiver's PID, or 0.
    pub dst_pid: u32,
    /// The sender's incarnation.
    pub src_incarnation: u64,
    /// The receiver's incarnation, or 0.
    pub dst_incarnation: u64,
    /// The connection's type in the sender's view.
    pub kind: u32,
    /// The sender's interfaces; V4 has none.
    pub addresses: Vec<u32>,
}

impl Hello {
    /// Encodes the hello in the given byte order.
    pub fn bytes(&self, order: Order) -> Vec<u8> {
        let mut bytes = [order.u32(LNET_MAGIC), order.u32(self.version)].concat();
        if self.version >= 4 {
            bytes.extend(self.src.large());
            bytes.extend(self.dst.large());
        } else {
            bytes.extend(order.u64(self.src.small()));
            bytes.extend(order.u64(self.dst.small()));
        }
        bytes.extend(order.u32(self.src_pid));
        bytes.extend(order.u32(self.dst_pid));
        bytes.extend(order.u64(self.src_incarnation));
        bytes.extend(order.u64(self.dst_incarnation));
        bytes.extend(order.u32(self.kind));
        bytes.extend(order.u32(self.addresses.len() as u32));
        bytes.extend(self.addresses.iter().flat_map(|&address| order.u32(address)));
        bytes
    }

    /// Reads a hello. An unknown version is [`BadHello::Version`]: it must be answered, the other
    /// errors must not.
    pub fn read(stream: &mut impl Read) -> Result<(Hello, Order), BadHello> {
        let head: [u8; 8] = read(stream)?;
        let order = match [Order::Little, Order::Big].map(|order| order.u32_at(&head, 0) == LNET_MAGIC) {
            [true, _] => Order::Little,
            [_, true] => Order::Big,
            _ => return Err(BadHello::Wrong(format!("a hello that begins with {head:02x?}"))),
        };
        let version = order.u32_at(&head, 4);
        let (nids, rest): ([Option<Nid>; 2], [u8; 32]) = match version {
            2 | 3 => {
                let bytes: [u8; 16] = read(stream)?;
                ([0, 8].map(|at| Some(Nid::from_small(order.u64_at(&bytes, at)))), read(stream)?)
            }
            4 => {
                let bytes: [u8; 40] = read(stream)?;
                ([0, 20].map(|at| Nid::from_large(&bytes[at..at + 20])), read(stream)?)
            }
            _ => return Err(BadHello::Version(version)),
        };
        let [Some(src), Some(dst)] = nids else {
            return Err(BadHello::Wrong("a hello with a NID of a size that there is not".into()));
        };
        let count = order.u32_at(&rest, 28);
        if count > 16 {
            return Err(BadHello::Wrong(format!("a hello with {count} addresses; there are 16 at most")));
        }
        let mut addresses = Vec::new();
        for _ in 0..if version == 4 { 0 } else { count } {
            addresses.push(order.u32_at(&read::<4>(stream)?, 0));
        }
        let hello = Hello {
            version,
            src,
            dst,
            src_pid: order.u32_at(&rest, 0),
            dst_pid: order.u32_at(&rest, 4),
            src_incarnation: order.u64_at(&rest, 8),
            dst_incarnation: order.u64_at(&rest, 16),
            kind: order.u32_at(&rest, 24),
            addresses,
        };
        Ok((hello, order))
    }
}

/// The reason why no hello was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadHello {
    /// An unknown version.
    Version(u32),
    /// Another fault, in words.
    Wrong(String),
    /// The connection ended, or the time limit passed.
    Ended(String),
}

impl fmt::Display for BadHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHello::Version(version) => write!(f, "a hello of version {version}"),
            BadHello::Wrong(words) => f.write_str(words),
            BadHello::Ended(words) => write!(f, "no hello: {words}"),
        }
    }
}

fn read<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], BadHello> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map_err(|error| BadHello::Ended(error.to_string()))?;
    Ok(bytes)
}
