//! The active side's handshake (lnet-wire 24).

use lnet_nid::{Nid, Pid, ProcessId};

use crate::{ByteOrder, Decoded, ProtoError};

use super::intake::Intake;
use super::request::MAGIC_ACCEPTOR;
use super::{AcceptorRequest, ConnType, Hello, InterfaceAddresses, Version, WireBytes};

/// The requested connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The connecting process.
    pub local: ProcessId,
    /// The local interface's incarnation, the same in all its hellos between two restarts.
    pub incarnation: u64,
    /// The peer; the process id is [`Pid::LNET`] in practice.
    pub peer: ProcessId,
    /// The type of the connection in the local view.
    pub conn_type: ConnType,
    /// The protocol version: that of the peer's other connections, or the one that the peer
    /// requested, otherwise [`Version::preferred_for`] its NID.
    pub version: Version,
    /// The peer's incarnation on its other live connections, if there are any.
    pub live_incarnation: Option<u64>,
}

/// The active side of one connection's handshake.
///
/// Send [`Connector::output`] as soon as the socket is connected, then feed the connector the bytes
/// of the socket. It consumes the bytes of the handshake and none behind them. The caller must set
/// a deadline for the read (50 s on kernel nodes).
#[derive(Clone, Debug)]
pub struct Connector {
    attempt: Attempt,
    output: WireBytes,
    intake: Intake,
    done: Option<ConnectProgress>,
}

/// The progress of the active side's handshake, and the next action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectProgress {
    /// All input is consumed and more is needed.
    NeedMore,
    /// The connection is usable.
    Established(Established),
    /// The peer requests another attempt. Close this connection.
    Retry(Retry),
    /// The attempt fails. Close this connection.
    Failed(ProtoError),
}

/// The result of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// The peer's hello.
    pub hello: Hello,
    /// The byte order of the peer's message prefixes.
    pub byte_order: ByteOrder,
    /// The NID by which the peer identifies this side. It differs from the NID sent if the source
    /// port was unprivileged (lnet-wire 27).
    pub known_as_nid: Nid,
    /// The process id by which the peer identifies this side, if the peer sent it; kernel nodes do
    /// not.
    pub known_as_pid: Option<Pid>,
}

/// The reason to try again, and what to change (lnet-wire 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The peer is connecting to this node, or has enough connections of the type: retry after the
    /// shortest back-off (1 s), at most three times in a row.
    Race,
    /// The peer supports this version: remember it and retry at once.
    Version {
        /// The peer's version.
        version: Version,
        /// The peer's incarnation.
        incarnation: u64,
    },
    /// The peer has restarted: close all connections to it, then retry.
    Stale {
        /// The peer's version.
        version: Version,
        /// The peer's incarnation.
        incarnation: u64,
    },
}

impl Connector {
    /// Starts a handshake.
    ///
    /// # Errors
    /// [`ProtoError::Attempt`] for a connection of type NONE or to an address that is not one
    /// interface, [`ProtoError::LargeNid`] if the version cannot encode a NID.
    pub fn new(attempt: Attempt) -> Result<Connector, ProtoError> {
        if attempt.conn_type == ConnType::None {
            return Err(refused("connection type", attempt.conn_type));
        }
        if attempt.peer.nid.is_any() || attempt.peer.nid.is_loopback() {
            return Err(refused("peer", attempt.peer.nid));
        }
        if attempt.local.nid.is_any() || attempt.local.nid.is_loopback() {
            return Err(refused("local NID", attempt.local.nid));
        }
        let mut output = WireBytes::EMPTY;
        let mut request = [0; AcceptorRequest::LARGE_LEN];
        let length = AcceptorRequest::new(attempt.peer.nid).emit(&mut request)?;
        output.push(&request[..length]);
        output.push(&attempt.hello().to_bytes()?);
        Ok(Connector { attempt, output, intake: Intake::EMPTY, done: None })
    }

    /// Returns all that the active side sends: the connection request and its hello.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Processes `input`: returns the number of bytes consumed, and the progress.
    ///
    /// After any result but [`ConnectProgress::NeedMore`] the handshake is over: no more bytes are
    /// consumed, and the same progress is returned again.
    pub fn feed(&mut self, input: &[u8]) -> (usize, ConnectProgress) {
        if let Some(progress) = &self.done {
            return (0, progress.clone());
        }
        let mut rest = input;
        let progress = match self.intake.pull(&mut rest, decode_answer) {
            Ok(None) => ConnectProgress::NeedMore,
            Ok(Some((hello, order))) => self.attempt.judge(&hello, order),
            Err(reason) => ConnectProgress::Failed(reason),
        };
        if progress != ConnectProgress::NeedMore {
            self.done = Some(progress.clone());
        }
        (input.len() - rest.len(), progress)
    }

    /// Returns the error of the handshake if the peer closes the connection at this point. Before
    /// the first byte it usually means that the peer has no such NID, or takes no connection from
    /// this source port.
    #[must_use]
    pub fn closed(&self) -> ProtoError {
        ProtoError::Closed { object: "hello", length: self.intake.len() }
    }
}

impl Attempt {
    fn hello(&self) -> Hello {
        Hello {
            version: self.version,
            src_nid: self.local.nid,
            dst_nid: self.peer.nid,
            src_pid: self.local.pid,
            dst_pid: Pid(0),
            src_incarnation: self.incarnation,
            dst_incarnation: 0,
            conn_type: self.conn_type,
            addresses: InterfaceAddresses::NONE,
        }
    }

    /// Makes the active side's checks of the answer, in their order.
    fn judge(&self, hello: &Hello, byte_order: ByteOrder) -> ConnectProgress {
        if let Err(reason) = self.check_sender(hello) {
            return ConnectProgress::Failed(reason);
        }
        let (version, incarnation) = (hello.version, hello.src_incarnation);
        if hello.conn_type == ConnType::None {
            return ConnectProgress::Retry(match version {
                same if same == self.version => Retry::Race,
                version => Retry::Version { version, incarnation },
            });
        }
        if version != self.version || self.live_incarnation.is_some_and(|live| live != incarnation) {
            return ConnectProgress::Retry(Retry::Stale { version, incarnation });
        }
        let (got, wanted) = (hello.conn_type, self.conn_type.inverse());
        if got != wanted {
            return ConnectProgress::Failed(ProtoError::ConnTypeMismatch { got, wanted });
        }
        ConnectProgress::Established(Established {
            hello: *hello,
            byte_order,
            known_as_nid: hello.dst_nid,
            known_as_pid: (hello.dst_pid != Pid(0)).then_some(hello.dst_pid),
        })
    }

    fn check_sender(&self, hello: &Hello) -> Result<(), ProtoError> {
        let peer = self.peer;
        if hello.src_nid != peer.nid {
            return Err(ProtoError::WrongNid { got: hello.src_nid, wanted: peer.nid });
        }
        if hello.src_pid != peer.pid {
            return Err(ProtoError::WrongPid { got: hello.src_pid, wanted: peer.pid });
        }
        Ok(())
    }
}

/// Decodes the passive side's hello, or its answer to a request that it does not support.
fn decode_answer(bytes: &[u8]) -> Result<Decoded<(Hello, ByteOrder)>, ProtoError> {
    let is_request =
        bytes.first_chunk().is_some_and(|magic| ByteOrder::of_magic(*magic, MAGIC_ACCEPTOR).is_some());
    if !is_request {
        return Hello::decode(bytes);
    }
    match AcceptorRequest::decode(bytes)? {
        Decoded::Need(total) => Ok(Decoded::Need(total)),
        Decoded::Done(_, request) => Err(ProtoError::RequestRefused { version: request.version as u32 }),
    }
}

fn refused(field: &'static str, value: impl ToString) -> ProtoError {
    ProtoError::Attempt { field, value: value.to_string() }
}
