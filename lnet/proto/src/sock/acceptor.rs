//! The passive side's handshake (lnet-wire 21, 22.5 and 24).

use lnet_nid::{Nid, Pid, ProcessId};

use crate::{ByteOrder, Decoded, ProtoError};

use super::intake::Intake;
use super::{AcceptorRequest, ConnType, Hello, InterfaceAddresses, RequestVerdict, Version, WireBytes};

/// The passive side's interface, as sent in its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalInterface {
    /// The process id, [`Pid::LNET`] in practice.
    pub pid: Pid,
    /// A number that changes when the interface restarts.
    pub incarnation: u64,
}

/// The interfaces of the passive side's node.
pub trait LocalNode {
    /// Returns the interface with exactly this NID, if it is one of the node's and takes TCP
    /// connections.
    fn interface(&self, nid: Nid) -> Option<LocalInterface>;
}

impl<F: Fn(Nid) -> Option<LocalInterface>> LocalNode for F {
    fn interface(&self, nid: Nid) -> Option<LocalInterface> {
        self(nid)
    }
}

/// The passive side of one connection's handshake.
///
/// Feed it the bytes of the socket until it requires a decision or rejects the peer. It consumes
/// the bytes of the handshake and none behind them. The caller must set a deadline for reading the
/// request and for reading the hello (5 s on kernel nodes), and check the source port.
#[derive(Clone, Debug)]
pub struct Acceptor<L> {
    node: L,
    stage: Stage,
    intake: Intake,
    done: Option<AcceptProgress>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Request,
    Hello { nid: Nid, interface: LocalInterface },
}

/// The progress of the passive side's handshake, and the next action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptProgress {
    /// All input is consumed and more is needed.
    NeedMore,
    /// The request is for this NID of the node. Nothing is to be sent; continue feeding.
    RequestOk {
        /// The requested interface.
        nid: Nid,
    },
    /// The peer's hello has been received. The caller decides: [`ConnOffer::accept`] or
    /// [`ConnOffer::refuse`].
    Hello(ConnOffer),
    /// Send `reply`, which may be empty, and close.
    Reject {
        /// The bytes to send before closing.
        reply: WireBytes,
        /// The reason for the rejection.
        reason: ProtoError,
    },
}

/// A peer's valid hello, which the node accepts or refuses: because of a race, other versions or
/// incarnations of the peer, or too many connections of the type (lnet-wire 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnOffer {
    /// The peer's hello.
    pub hello: Hello,
    /// The byte order of the peer's message prefixes.
    pub byte_order: ByteOrder,
    local_nid: Nid,
    interface: LocalInterface,
    refusal: WireBytes,
}

impl<L: LocalNode> Acceptor<L> {
    /// Starts a handshake for `node`.
    pub const fn new(node: L) -> Acceptor<L> {
        Acceptor { node, stage: Stage::Request, intake: Intake::EMPTY, done: None }
    }

    /// Processes `input`: returns the number of bytes consumed, and the progress.
    ///
    /// After [`AcceptProgress::RequestOk`] feed the rest of the input. After
    /// [`AcceptProgress::Hello`] and [`AcceptProgress::Reject`] the handshake is over: no more
    /// bytes are consumed, and the same progress is returned again.
    pub fn feed(&mut self, input: &[u8]) -> (usize, AcceptProgress) {
        if let Some(progress) = &self.done {
            return (0, progress.clone());
        }
        let mut rest = input;
        let progress = match self.stage {
            Stage::Request => self.feed_request(&mut rest),
            Stage::Hello { nid, interface } => self.feed_hello(&mut rest, nid, interface),
        };
        if let AcceptProgress::Hello(_) | AcceptProgress::Reject { .. } = &progress {
            self.done = Some(progress.clone());
        }
        (input.len() - rest.len(), progress)
    }

    /// Returns the error of the handshake if the peer closes the connection at this point.
    pub fn closed(&self) -> ProtoError {
        let object = match self.stage {
            Stage::Request => "connection request",
            Stage::Hello { .. } => "hello",
        };
        ProtoError::Closed { object, length: self.intake.len() }
    }

    fn feed_request(&mut self, input: &mut &[u8]) -> AcceptProgress {
        let pulled = self.intake.pull(input, |bytes| judge(bytes, &self.node));
        match pulled {
            Ok(None) => AcceptProgress::NeedMore,
            Ok(Some((nid, interface))) => {
                self.stage = Stage::Hello { nid, interface };
                AcceptProgress::RequestOk { nid }
            }
            Err(rejection) => *rejection,
        }
    }

    fn feed_hello(&mut self, input: &mut &[u8], nid: Nid, interface: LocalInterface) -> AcceptProgress {
        match self.intake.pull(input, Hello::decode) {
            Ok(None) => AcceptProgress::NeedMore,
            Ok(Some((hello, order))) => match ConnOffer::new(hello, order, nid, interface) {
                Ok(offer) => AcceptProgress::Hello(offer),
                Err(reason) => reject(nid, interface, reason),
            },
            Err(reason) => reject(nid, interface, reason),
        }
    }
}

impl ConnOffer {
    fn new(
        hello: Hello,
        byte_order: ByteOrder,
        local_nid: Nid,
        interface: LocalInterface,
    ) -> Result<ConnOffer, ProtoError> {
        if hello.conn_type == ConnType::None {
            return Err(ProtoError::ConnTypeNone);
        }
        if !hello.version.holds(local_nid) {
            let preferred = Version::preferred_for(local_nid) as u32;
            let value = hello.version as u32;
            return Err(ProtoError::Version { object: "hello", value, min: preferred, max: preferred });
        }
        let refusal = own_hello(hello.version, local_nid, interface, hello.src_nid).to_bytes()?;
        Ok(ConnOffer { hello, byte_order, local_nid, interface, refusal })
    }

    /// Returns the interface that the peer requested.
    #[must_use]
    pub const fn local_nid(&self) -> Nid {
        self.local_nid
    }

    /// Returns the identity that the peer claims. The source port decides whether the node accepts
    /// it (lnet-wire 27).
    #[must_use]
    pub const fn claimed(&self) -> ProcessId {
        ProcessId::new(self.hello.src_nid, self.hello.src_pid)
    }

    /// Returns the connection's type in this node's view.
    #[must_use]
    pub const fn conn_type(&self) -> ConnType {
        self.hello.conn_type.inverse()
    }

    /// Returns the hello that accepts a connection from a privileged port, as kernel nodes write
    /// it: the receiver's PID stays 0. `peer` is the identity that this node gives the peer. The
    /// connection is usable once these bytes are sent.
    ///
    /// # Errors
    /// [`ProtoError::LargeNid`] if `peer` cannot be encoded in the protocol version of the peer.
    pub fn accept(&self, peer: ProcessId) -> Result<WireBytes, ProtoError> {
        self.acceptance(peer.nid, Pid(0))
    }

    /// Accepts like [`ConnOffer::accept`], for a connection from any other port: the hello contains the
    /// PID by which this node identifies the peer. Without it the peer must treat this node as a
    /// userspace node, which has one connection only (lnet-wire 27).
    ///
    /// # Errors
    /// The errors of [`ConnOffer::accept`].
    pub fn accept_unprivileged(&self, peer: ProcessId) -> Result<WireBytes, ProtoError> {
        self.acceptance(peer.nid, peer.pid)
    }

    fn acceptance(&self, peer: Nid, dst_pid: Pid) -> Result<WireBytes, ProtoError> {
        let hello = own_hello(self.hello.version, self.local_nid, self.interface, peer);
        Hello { dst_pid, conn_type: self.conn_type(), ..hello }.to_bytes()
    }

    /// Returns the hello that refuses the connection. The caller then closes the connection; the
    /// peer retries.
    #[must_use]
    pub const fn refuse(&self) -> WireBytes {
        self.refusal
    }
}

/// Applies [`AcceptorRequest::judge`] to a request, in the form that the intake needs.
fn judge(bytes: &[u8], node: &impl LocalNode) -> Result<Decoded<(Nid, LocalInterface)>, Box<AcceptProgress>> {
    let (reply, reason) = match AcceptorRequest::judge(bytes, |nid| node.interface(nid)) {
        RequestVerdict::NeedMore { total } => return Ok(Decoded::Need(total)),
        RequestVerdict::Accept { length, request, interface } => {
            return Ok(Decoded::Done(length, (request.nid, interface)));
        }
        RequestVerdict::ReplyAndClose { reply, reason } => {
            let mut bytes = WireBytes::EMPTY;
            bytes.push(&reply);
            (bytes, reason)
        }
        RequestVerdict::Close { reason } => (WireBytes::EMPTY, reason),
    };
    Err(Box::new(AcceptProgress::Reject { reply, reason }))
}

/// Rejects a hello: a wrong version is answered with the version supported here, anything else
/// without a byte (lnet-wire 22.5).
fn reject(nid: Nid, interface: LocalInterface, reason: ProtoError) -> AcceptProgress {
    let reply = match reason {
        ProtoError::Version { .. } => {
            let version = Version::preferred_for(nid);
            own_hello(version, nid, interface, Nid::ANY).to_bytes().unwrap_or(WireBytes::EMPTY)
        }
        _ => WireBytes::EMPTY,
    };
    AcceptProgress::Reject { reply, reason }
}

/// Creates the hello that refuses a connection; one that accepts differs in type and receiver.
fn own_hello(version: Version, nid: Nid, interface: LocalInterface, peer: Nid) -> Hello {
    Hello {
        version,
        src_nid: nid,
        dst_nid: peer,
        src_pid: interface.pid,
        dst_pid: Pid(0),
        src_incarnation: interface.incarnation,
        dst_incarnation: 0,
        conn_type: ConnType::None,
        addresses: InterfaceAddresses::NONE,
    }
}
