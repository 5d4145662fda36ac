//! The crate's one error: what a peer sent, or what a caller wants to send, breaks the protocol.

use lnet_nid::{Nid, NidError, Pid};
use thiserror::Error;

use crate::MessageType;
use crate::ib::{MessageKind, RejectReason};
use crate::sock::ConnType;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const EPROTO: i32 = 71;
const ECONNRESET: i32 = 104;
const ENOBUFS: i32 = 105;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;
const ESTALE: i32 = 116;

/// Why bytes are not the protocol's, or why a value has no bytes.
///
/// Except for [`ProtoError::LargeNid`], [`ProtoError::Buffer`] and [`ProtoError::Attempt`], which blame the caller,
/// each variant blames the peer, and the connection it came on must be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtoError {
    /// The first four bytes are not the object's magic number in either byte order.
    #[error("{object} starts with {value:#010x}{}, not {expected:#010x}", letters(*value))]
    Magic {
        /// What was to be read.
        object: &'static str,
        /// The four bytes as a little-endian number.
        value: u32,
        /// The magic number.
        expected: u32,
    },
    /// The object's version is not spoken here.
    #[error("{object} has version {value}, not {min} to {max}")]
    Version {
        /// What was to be read.
        object: &'static str,
        /// The version.
        value: u32,
        /// Oldest version spoken.
        min: u32,
        /// Newest version spoken.
        max: u32,
    },
    /// A field holds no NID.
    #[error("{field}: {source}")]
    Nid {
        /// The field.
        field: &'static str,
        /// What is wrong with the NID.
        source: NidError,
    },
    /// A field that must name one interface holds the wildcard or loopback NID.
    #[error("{field} is {nid}, which names no interface of a peer")]
    NotInterface {
        /// The field.
        field: &'static str,
        /// The NID in it.
        nid: Nid,
    },
    /// A NID with a 16-byte address where only 4 bytes of address fit.
    #[error("{field} {nid} has no 64-bit form")]
    LargeNid {
        /// The field.
        field: &'static str,
        /// The NID.
        nid: Nid,
    },
    /// The type of an LNet message (lnet-wire 9, row 3).
    #[error("message type {value} is not 0 (ACK), 1 (PUT), 2 (GET) or 3 (REPLY)")]
    MessageType {
        /// The type.
        value: u32,
    },
    /// More payload than the type of message may carry (lnet-wire 9, rows 1 and 2).
    #[error("payload length {value} of a {message} is above {limit}")]
    PayloadLength {
        /// The type of message.
        message: MessageType,
        /// The payload length in bytes.
        value: u32,
        /// The most this type may carry, in bytes.
        limit: u32,
    },
    /// The type of a message prefix (lnet-wire 25.2).
    #[error("prefix type {value:#x} is not {noop:#x} (NOOP) or {lnet:#x} (LNET)", noop = 0xc0, lnet = 0xc1)]
    PrefixType {
        /// The type.
        value: u32,
    },
    /// The connection type in a hello is none of the five.
    #[error("connection type {value} is not -1 to 3")]
    ConnType {
        /// The type.
        value: i32,
    },
    /// An active side opens a connection of type NONE, which is a refusal.
    #[error("hello of the active side has connection type NONE")]
    ConnTypeNone,
    /// The passive side's hello does not have the inverse of the type asked for (lnet-wire 23).
    #[error("hello answers connection type {got}, not {wanted}")]
    ConnTypeMismatch {
        /// The type in the answer.
        got: ConnType,
        /// The inverse of the type asked for.
        wanted: ConnType,
    },
    /// Too many interface addresses in a hello.
    #[error("hello lists {value} interface addresses, at most {limit} allowed")]
    AddressCount {
        /// The number of addresses.
        value: u32,
        /// The most a hello may list.
        limit: u32,
    },
    /// An interface address in a hello is zero.
    #[error("interface address {index} in hello is 0.0.0.0")]
    ZeroAddress {
        /// Which one, from 0.
        index: usize,
    },
    /// The connection request names a NID that is not this node's.
    #[error("connection request is for {nid}, which is not a NID of this node")]
    NotMine {
        /// The NID asked for.
        nid: Nid,
    },
    /// The passive side does not understand the connection request and named its own version.
    #[error("peer refuses the connection request and speaks version {version} of it")]
    RequestRefused {
        /// The version of the request it speaks.
        version: u32,
    },
    /// The hello comes from another NID than the one connected to.
    #[error("hello comes from {got}, not from {wanted}")]
    WrongNid {
        /// The sender in the hello.
        got: Nid,
        /// The NID connected to.
        wanted: Nid,
    },
    /// The hello comes from another process id than the one connected to.
    #[error("hello comes from process {got}, not {wanted}")]
    WrongPid {
        /// The process id in the hello.
        got: Pid,
        /// The process id connected to.
        wanted: Pid,
    },
    /// What is to be connected cannot be asked for.
    #[error("{field} {value} cannot be asked for in a connection request")]
    Attempt {
        /// The field of the attempt.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A checksum that is not that of the bytes (lnet-wire 25.3 and 32).
    #[error("checksum of a {object} is {value:#010x}, its bytes have {expected:#010x}")]
    Checksum {
        /// What it was the checksum of.
        object: &'static str,
        /// The checksum in the prefix.
        value: u32,
        /// The checksum of the bytes.
        expected: u32,
    },
    /// The object needs more bytes than there are, and no more will come.
    #[error("{object} has {length} bytes and needs {needed}")]
    Truncated {
        /// What was to be read.
        object: &'static str,
        /// The bytes there are.
        length: usize,
        /// The bytes it claims to have.
        needed: usize,
    },
    /// There is no memory for what is to be read.
    #[error("no memory for a {object} of {length} bytes")]
    NoMemory {
        /// What was to be read.
        object: &'static str,
        /// Its bytes.
        length: usize,
    },
    /// The peer closed the connection during the handshake.
    #[error("connection closed {length} bytes into the {object}")]
    Closed {
        /// What was to be read.
        object: &'static str,
        /// How much of it had come.
        length: usize,
    },
    /// A ping info lacks a mandatory feature or claims one that its content denies.
    #[error("ping info has features {value:#x}: {problem}")]
    PingFeatures {
        /// The feature bits.
        value: u32,
        /// What does not fit.
        problem: &'static str,
    },
    /// The number of interfaces in a ping info.
    #[error("ping info lists {value} interfaces, not {min} to {limit}")]
    PingCount {
        /// The number of interfaces.
        value: usize,
        /// The fewest.
        min: usize,
        /// The most.
        limit: usize,
    },
    /// The first entry of a ping info is not the loopback NID.
    #[error("first entry of the ping info is {nid}, not 0@lo")]
    PingFirst {
        /// The NID in it.
        nid: Nid,
    },
    /// The total size in a ping info does not fit its content.
    #[error("ping info claims a total size of {value} bytes, its entries end at {expected}")]
    PingSize {
        /// The size it claims, in bytes.
        value: usize,
        /// Where an entry ends, in bytes.
        expected: usize,
    },
    /// A NID with a 4-byte address among the large entries of a ping info.
    #[error("large entry of the ping info holds the small NID {nid}")]
    PingSmallNid {
        /// The NID.
        nid: Nid,
    },
    /// The caller's buffer is too small for what is to be emitted.
    #[error("{object} needs {needed} bytes, the buffer has {length}")]
    Buffer {
        /// What was to be emitted.
        object: &'static str,
        /// The buffer's length in bytes.
        length: usize,
        /// The bytes it takes.
        needed: usize,
    },
    /// A peer makes more zero-copy requests than can be remembered until they are acknowledged.
    #[error("{limit} separate runs of zero-copy acks are pending, cookie {cookie} has no room")]
    AcksPending {
        /// The cookie that has no room.
        cookie: u64,
        /// The limit.
        limit: usize,
    },
    /// The type of an RDMA driver's message (lnet-wire 32).
    #[error("o2iblnd message type {value:#x} is none of the ten")]
    MessageKind {
        /// The type.
        value: u8,
    },
    /// An RDMA driver's message is shorter than its type needs, or longer than a receive buffer.
    #[error("{kind} has {value} bytes, needs {min} and may have {limit}")]
    MessageLength {
        /// The type of message.
        kind: MessageKind,
        /// Its length in bytes.
        value: usize,
        /// The shortest message of this type with this content, in bytes.
        min: usize,
        /// The longest message, in bytes.
        limit: usize,
    },
    /// An RDMA driver's message that is of no use where it came.
    #[error("{kind} where a {wanted} is due")]
    WrongKind {
        /// The type of message.
        kind: MessageKind,
        /// What may come.
        wanted: MessageKind,
    },
    /// An RDMA driver's message carries an LNet message that it is not made for.
    #[error("{kind} carries a {message}")]
    Embedded {
        /// The RDMA driver's message.
        kind: MessageKind,
        /// The LNet message in it.
        message: MessageType,
    },
    /// The number of fragments in an RDMA descriptor.
    #[error("RDMA descriptor has {value} fragments, not 1 to {limit}")]
    Fragments {
        /// The number of fragments.
        value: usize,
        /// The most a descriptor may have.
        limit: usize,
    },
    /// A parameter of a connection is not acceptable.
    #[error("{field} is {value}, not {min} to {limit}")]
    Parameter {
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The least acceptable.
        min: u32,
        /// The most acceptable.
        limit: u32,
    },
    /// A message names other ends than those of the connection it came on.
    #[error("{field} is {got}, the connection's is {wanted}")]
    WrongEnd {
        /// The field.
        field: &'static str,
        /// The NID in it.
        got: Nid,
        /// The NID of the connection.
        wanted: Nid,
    },
    /// A message names an incarnation that is over.
    #[error("{field} is {got:#x}, the connection's is {wanted:#x}")]
    Stale {
        /// The field.
        field: &'static str,
        /// The incarnation in it.
        got: u64,
        /// The incarnation of the connection.
        wanted: u64,
    },
    /// The reason in a reject record is none of the nine.
    #[error("reject reason {value} is not 1 to 9")]
    RejectReason {
        /// The reason.
        value: u8,
    },
    /// The peer rejects the connection, and another attempt would end alike.
    #[error("peer rejects the connection: {reason}")]
    Rejected {
        /// Its reason.
        reason: RejectReason,
    },
    /// The interface asked for is not ready yet.
    #[error("{nid} is not ready for connections")]
    NotReady {
        /// The interface.
        nid: Nid,
    },
    /// The source port of a connection proves nothing, and proof is required.
    #[error("source port {port} is above {limit}")]
    Unprivileged {
        /// The source port.
        port: u16,
        /// The highest privileged port.
        limit: u16,
    },
    /// The peer keeps sending the active side back to the start.
    #[error("{nid} has rejected the connection {limit} times in a row")]
    RetriesExhausted {
        /// The peer.
        nid: Nid,
        /// How often is enough.
        limit: u32,
    },
    /// Nothing listens at the peer's address.
    #[error("nothing listens at {nid}")]
    NoListener {
        /// The peer.
        nid: Nid,
    },
}

impl ProtoError {
    /// The errno an LNet user knows: `EPROTO` for nearly everything a peer does wrong, `EIO` for a checksum,
    /// `ECONNRESET` for a connection closed before a byte came, `ESTALE` for another life of a node, `ECONNREFUSED` and
    /// `EHOSTUNREACH` where there is no connection to be had, `ENOBUFS` and `EINVAL` for the rest.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ProtoError::Checksum { .. } => EIO,
            ProtoError::NoMemory { .. } => ENOMEM,
            ProtoError::Closed { length: 0, .. } => ECONNRESET,
            ProtoError::AcksPending { .. } => ENOBUFS,
            ProtoError::Stale { .. } => ESTALE,
            ProtoError::Rejected { .. } | ProtoError::RetriesExhausted { .. } => ECONNREFUSED,
            ProtoError::NoListener { .. } => EHOSTUNREACH,
            ProtoError::LargeNid { .. } | ProtoError::Buffer { .. } | ProtoError::Attempt { .. } => EINVAL,
            _ => EPROTO,
        }
    }
}

/// The first four bytes as the text that they are: "HTTP", "SSH-" and their like say who answers instead.
fn letters(value: u32) -> String {
    let bytes = value.to_le_bytes();
    let printable = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if printable { format!(" ({:?})", String::from_utf8_lossy(&bytes)) } else { String::new() }
}

/// Reads a 64-bit NID off the wire.
pub(crate) fn nid4(field: &'static str, value: u64) -> Result<Nid, ProtoError> {
    Nid::try_from_nid4(value).map_err(|source| ProtoError::Nid { field, source })
}

/// Reads a 20-byte NID off the wire.
pub(crate) fn nid20(field: &'static str, bytes: &[u8; Nid::WIRE_LEN]) -> Result<Nid, ProtoError> {
    Nid::from_wire(bytes).map_err(|source| ProtoError::Nid { field, source })
}

/// The 64-bit form of a NID that is to be sent.
pub(crate) fn to_nid4(field: &'static str, nid: Nid) -> Result<u64, ProtoError> {
    nid.to_nid4().ok_or(ProtoError::LargeNid { field, nid })
}
