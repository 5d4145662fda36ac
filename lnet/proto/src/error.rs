//! The crate's error type: bytes from a peer, or a value of the caller, break the protocol.

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

/// The reason why bytes are not valid in the protocol, or why a value cannot be encoded.
///
/// [`ProtoError::LargeNid`], [`ProtoError::Buffer`] and [`ProtoError::Attempt`] are errors of the
/// caller. All other variants are errors of the peer, and the connection on which it made them must
/// be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtoError {
    /// The first four bytes are not the object's magic number in either byte order.
    #[error("{object} starts with {value:#010x}{}, not {expected:#010x}", letters(*value))]
    Magic {
        /// The object that was being read.
        object: &'static str,
        /// The four bytes as a little-endian number.
        value: u32,
        /// The magic number.
        expected: u32,
    },
    /// The object's version is not supported here.
    #[error("{object} has version {value}, not {min} to {max}")]
    Version {
        /// The object that was being read.
        object: &'static str,
        /// The version found.
        value: u32,
        /// The oldest supported version.
        min: u32,
        /// The newest supported version.
        max: u32,
    },
    /// A field does not contain a valid NID.
    #[error("{field}: {source}")]
    Nid {
        /// The name of the field.
        field: &'static str,
        /// The underlying error, which names the invalid part.
        source: NidError,
    },
    /// A field that must name one interface contains the wildcard or loopback NID.
    #[error("{field} is {nid}, which names no interface of a peer")]
    NotInterface {
        /// The name of the field.
        field: &'static str,
        /// The NID in the field.
        nid: Nid,
    },
    /// A NID with a 16-byte address where only 4 bytes of address fit.
    #[error("{field} {nid} has no 64-bit form")]
    LargeNid {
        /// The name of the field.
        field: &'static str,
        /// The NID that does not fit.
        nid: Nid,
    },
    /// An unknown type of LNet message (lnet-wire 9, row 3).
    #[error("message type {value} is not 0 (ACK), 1 (PUT), 2 (GET) or 3 (REPLY)")]
    MessageType {
        /// The value of the type field.
        value: u32,
    },
    /// More payload than the type of message may carry (lnet-wire 9, rows 1 and 2).
    #[error("payload length {value} of a {message} is above {limit}")]
    PayloadLength {
        /// ACK, PUT, GET or REPLY.
        message: MessageType,
        /// The payload length in bytes.
        value: u32,
        /// The maximum for this type, in bytes.
        limit: u32,
    },
    /// An unknown type of message prefix (lnet-wire 25.2).
    #[error("prefix type {value:#x} is not {noop:#x} (NOOP) or {lnet:#x} (LNET)", noop = 0xc0, lnet = 0xc1)]
    PrefixType {
        /// The value of the type field.
        value: u32,
    },
    /// The connection type in a hello is not one of the five.
    #[error("connection type {value} is not -1 to 3")]
    ConnType {
        /// The value of the type field.
        value: i32,
    },
    /// An active side opens a connection of type NONE, which is a refusal.
    #[error("hello of the active side has connection type NONE")]
    ConnTypeNone,
    /// The passive side's hello does not have the inverse of the requested type (lnet-wire 23).
    #[error("hello answers connection type {got}, not {wanted}")]
    ConnTypeMismatch {
        /// The type in the answer.
        got: ConnType,
        /// The inverse of the requested type.
        wanted: ConnType,
    },
    /// Too many interface addresses in a hello.
    #[error("hello lists {value} interface addresses, at most {limit} allowed")]
    AddressCount {
        /// The number of addresses.
        value: u32,
        /// The limit for a hello.
        limit: u32,
    },
    /// An interface address in a hello is zero.
    #[error("interface address {index} in hello is 0.0.0.0")]
    ZeroAddress {
        /// The index of the address, from 0.
        index: usize,
    },
    /// The connection request names a NID that is not this node's.
    #[error("connection request is for {nid}, which is not a NID of this node")]
    NotMine {
        /// The requested NID.
        nid: Nid,
    },
    /// The passive side does not support the version of the connection request, and named its own.
    #[error("peer refuses the connection request and speaks version {version} of it")]
    RequestRefused {
        /// The version of the request that it supports.
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
    /// The connection cannot be requested.
    #[error("{field} {value} cannot be asked for in a connection request")]
    Attempt {
        /// The field of the attempt.
        field: &'static str,
        /// The value found.
        value: String,
    },
    /// A checksum does not match the bytes (lnet-wire 25.3 and 32).
    #[error("checksum of a {object} is {value:#010x}, its bytes have {expected:#010x}")]
    Checksum {
        /// The object with the checksum.
        object: &'static str,
        /// The checksum that the message carries.
        value: u32,
        /// The checksum computed from the bytes.
        expected: u32,
    },
    /// The object needs more bytes than there are, and no more will arrive.
    #[error("{object} has {length} bytes and needs {needed}")]
    Truncated {
        /// The object that was being read.
        object: &'static str,
        /// The number of bytes present.
        length: usize,
        /// The number of bytes that the object claims to have.
        needed: usize,
    },
    /// There is no memory for the object that was being read.
    #[error("no memory for a {object} of {length} bytes")]
    NoMemory {
        /// The object that was being read.
        object: &'static str,
        /// The length of the object in bytes.
        length: usize,
    },
    /// The peer closed the connection during the handshake.
    #[error("connection closed {length} bytes into the {object}")]
    Closed {
        /// The object that was being read.
        object: &'static str,
        /// The number of bytes of the object that had arrived.
        length: usize,
    },
    /// A ping info lacks a mandatory feature, or claims one that its content contradicts.
    #[error("ping info has features {value:#x}: {problem}")]
    PingFeatures {
        /// The feature bits found.
        value: u32,
        /// The contradiction, as a phrase.
        problem: &'static str,
    },
    /// An invalid number of interfaces in a ping info.
    #[error("ping info lists {value} interfaces, not {min} to {limit}")]
    PingCount {
        /// The number of interfaces.
        value: usize,
        /// The lower limit.
        min: usize,
        /// The upper limit.
        limit: usize,
    },
    /// The first entry of a ping info is not the loopback NID.
    #[error("first entry of the ping info is {nid}, not 0@lo")]
    PingFirst {
        /// The NID in the first entry.
        nid: Nid,
    },
    /// The total size in a ping info does not fit its content.
    #[error("ping info claims a total size of {value} bytes, its entries end at {expected}")]
    PingSize {
        /// The total size that the ping info claims, in bytes.
        value: usize,
        /// The end of an entry, in bytes.
        expected: usize,
    },
    /// A NID with a 4-byte address among the large entries of a ping info.
    #[error("large entry of the ping info holds the small NID {nid}")]
    PingSmallNid {
        /// The NID in the entry.
        nid: Nid,
    },
    /// The caller's buffer is too small for the encoded object.
    #[error("{object} needs {needed} bytes, the buffer has {length}")]
    Buffer {
        /// The object to be encoded.
        object: &'static str,
        /// The buffer's length in bytes.
        length: usize,
        /// The number of bytes needed.
        needed: usize,
    },
    /// A peer makes more zero-copy requests than can be stored until they are acknowledged.
    #[error("{limit} separate runs of zero-copy acks are pending, cookie {cookie} has no room")]
    AcksPending {
        /// The cookie that could not be stored.
        cookie: u64,
        /// The maximum number of runs that can be stored.
        limit: usize,
    },
    /// An unknown type of an RDMA driver's message (lnet-wire 32).
    #[error("o2iblnd message type {value:#x} is none of the ten")]
    MessageKind {
        /// The value of the type field.
        value: u8,
    },
    /// An RDMA driver's message is shorter than its type needs, or longer than a receive buffer.
    #[error("{kind} has {value} bytes, needs {min} and may have {limit}")]
    MessageLength {
        /// The type of message.
        kind: MessageKind,
        /// The length of the message in bytes.
        value: usize,
        /// The shortest message of this type with this content, in bytes.
        min: usize,
        /// The longest message, in bytes.
        limit: usize,
    },
    /// An RDMA driver's message of a type that is not valid at this point.
    #[error("{kind} received where a {wanted} is expected")]
    WrongKind {
        /// The type of message.
        kind: MessageKind,
        /// The type that is valid here.
        wanted: MessageKind,
    },
    /// An RDMA driver's message contains an LNet message of a type that it must not contain.
    #[error("{kind} contains a {message}, which is not allowed in it")]
    Embedded {
        /// The RDMA driver's message.
        kind: MessageKind,
        /// The LNet message in it.
        message: MessageType,
    },
    /// An invalid number of fragments in an RDMA descriptor.
    #[error("RDMA descriptor has {value} fragments, not 1 to {limit}")]
    Fragments {
        /// The number of fragments.
        value: usize,
        /// The maximum number of fragments.
        limit: usize,
    },
    /// A parameter of a connection is not acceptable.
    #[error("{field} is {value}, not {min} to {limit}")]
    Parameter {
        /// The name of the parameter.
        field: &'static str,
        /// The value found.
        value: u32,
        /// The lower limit.
        min: u32,
        /// The upper limit.
        limit: u32,
    },
    /// A message names other interfaces than those of the connection on which it came.
    #[error("{field} is {got}, the connection's is {wanted}")]
    WrongEnd {
        /// The name of the field.
        field: &'static str,
        /// The NID in the field.
        got: Nid,
        /// The NID of the connection.
        wanted: Nid,
    },
    /// A message names an incarnation that is no longer valid.
    #[error("{field} is {got:#x}, the connection's is {wanted:#x}")]
    Stale {
        /// The name of the field.
        field: &'static str,
        /// The incarnation in the field.
        got: u64,
        /// The incarnation of the connection.
        wanted: u64,
    },
    /// The reason in a reject record is not one of the nine.
    #[error("reject reason {value} is not 1 to 9")]
    RejectReason {
        /// The value of the reason field.
        value: u8,
    },
    /// The peer rejects the connection, and another attempt would have the same result.
    #[error("peer rejects the connection: {reason}")]
    Rejected {
        /// The reason in the peer's record.
        reason: RejectReason,
    },
    /// The requested interface is not ready yet.
    #[error("{nid} is not ready for connections")]
    NotReady {
        /// The NID of the interface.
        nid: Nid,
    },
    /// The source port of a connection is not privileged, and the node requires that.
    #[error("source port {port} is not privileged: it must be at most {limit}")]
    Unprivileged {
        /// The source port.
        port: u16,
        /// The highest privileged port.
        limit: u16,
    },
    /// The peer has rejected each retry of the connection, up to the limit.
    #[error("{nid} has rejected the connection {limit} times in a row")]
    RetriesExhausted {
        /// The NID of the peer.
        nid: Nid,
        /// The number of rejections after which the attempt fails.
        limit: u32,
    },
    /// A self-test message came to another service than its type belongs to, or is a request where
    /// a reply is expected (lst 4).
    #[error("lst message has type {value}, not {wanted}")]
    LstType {
        /// The type.
        value: u32,
        /// The type that the service has.
        wanted: u32,
    },
    /// Nothing listens at the peer's address.
    #[error("nothing listens at {nid}")]
    NoListener {
        /// The NID of the peer.
        nid: Nid,
    },
}

impl ProtoError {
    /// Returns the errno that users of LNet get: `EPROTO` for nearly all errors of a peer, `EIO`
    /// for a checksum, `ECONNRESET` for a connection closed before a byte came, `ESTALE` for
    /// another incarnation of a node, `ECONNREFUSED` and `EHOSTUNREACH` where no connection is
    /// possible, `ENOBUFS` and `EINVAL` for the rest.
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

/// Returns the first four bytes as text if they are printable: for instance "HTTP" or "SSH-", which
/// shows that another service answers.
fn letters(value: u32) -> String {
    let bytes = value.to_le_bytes();
    let printable = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if printable { format!(" ({:?})", String::from_utf8_lossy(&bytes)) } else { String::new() }
}

/// Parses a 64-bit NID from the wire.
pub(crate) fn nid4(field: &'static str, value: u64) -> Result<Nid, ProtoError> {
    Nid::try_from_nid4(value).map_err(|source| ProtoError::Nid { field, source })
}

/// Parses a 20-byte NID from the wire.
pub(crate) fn nid20(field: &'static str, bytes: &[u8; Nid::WIRE_LEN]) -> Result<Nid, ProtoError> {
    Nid::from_wire(bytes).map_err(|source| ProtoError::Nid { field, source })
}

/// Returns the 64-bit form of a NID for the wire.
pub(crate) fn to_nid4(field: &'static str, nid: Nid) -> Result<u64, ProtoError> {
    nid.to_nid4().ok_or(ProtoError::LargeNid { field, nid })
}
