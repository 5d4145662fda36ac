//! The active side: the node that the judge connects to, and the handshake of one connection.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::dial::{accept, dial};
use super::wire::{self, BadHello, Hello, Nid, Order, PID, PRIVILEGED_MAX, USERSPACE, kind};

/// The default time limit for an expected answer. A node that takes longer has hung.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The connections that the node under test accepts (lnet-wire 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Connections from privileged ports.
    Secure,
    /// Connections from all ports; a peer at an unprivileged port is named after the port.
    All,
    /// Connections from all ports, and the hello is trusted. No kernel node has this policy.
    Hello,
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text {
            "secure" => Ok(Policy::Secure),
            "all" => Ok(Policy::All),
            "hello" => Ok(Policy::Hello),
            _ => Err(format!("'{text}' is not a policy: secure, all or hello")),
        }
    }
}

/// The node under test, and the parameters of the test.
#[derive(Debug, Clone)]
pub struct Target {
    /// The address at which the node listens.
    pub to: SocketAddr,
    /// The node's NID.
    pub nid: Nid,
    /// The judge's NID.
    pub own: Nid,
    /// The address that the judge connects from: that of its NID, unless the host lacks that
    /// address.
    pub from: IpAddr,
    /// Set if the judge connects from privileged ports.
    pub privileged: bool,
    /// The node's policy.
    pub policy: Policy,
    /// Portal and match bits of a buffer of 1 MiB that the node has posted for PUT and GET, with
    /// offsets managed remotely and no limit of operations.
    pub buffer: Option<(u32, u64)>,
    /// The time limit for expected answers.
    pub patience: Duration,
}

impl Target {
    /// Creates a node with the policy `secure`, judged from privileged ports.
    pub fn new(to: SocketAddr, nid: Nid, own: Nid) -> Target {
        let (from, policy) = (own.address(), Policy::Secure);
        Target { to, nid, own, from, privileged: true, policy, buffer: None, patience: TIME_LIMIT }
    }

    /// Returns the hello version that peers use first with an address of the node's family
    /// (lnet-wire 22.4).
    pub fn version(&self) -> u32 {
        self.nid.version()
    }

    /// Returns whether the node trusts the judge's hellos.
    pub fn believes(&self) -> bool {
        self.privileged || self.policy == Policy::Hello
    }

    /// Connects without a handshake.
    pub fn dial(&self) -> Result<TcpStream, String> {
        dial(self.from, self.to, self.privileged, self.patience)
            .map_err(|error| format!("cannot connect to {} from {}: {error}", self.to, self.from))
    }

    /// Listens at the address at which the node connects to the judge.
    pub fn listen(&self) -> Result<Incoming, String> {
        let at = SocketAddr::new(self.own.address(), self.to.port());
        let listener =
            TcpListener::bind(at).map_err(|error| format!("the judge cannot listen on {at}: {error}"))?;
        Ok(Incoming { listener, patience: self.patience })
    }

    /// Connects and sends these bytes.
    pub fn say(&self, bytes: &[u8]) -> Result<TcpStream, String> {
        let mut stream = self.dial()?;
        // A node may close before it has read everything.
        let _ = stream.write_all(bytes);
        Ok(stream)
    }

    /// Builds the hello of a kernel node.
    pub fn hello(&self, version: u32, kind: u32, incarnation: u64) -> Hello {
        Hello {
            version,
            src: self.own,
            dst: self.nid,
            src_pid: PID,
            dst_pid: 0,
            src_incarnation: incarnation,
            dst_incarnation: 0,
            kind,
            addresses: Vec::new(),
        }
    }

    /// Sends request and hello as a kernel node does, and returns the checked answer.
    pub fn offer(&self, hello: &Hello) -> Result<Answer, String> {
        self.offer_bytes(
            hello,
            &[wire::request(self.nid, Order::Little), hello.bytes(Order::Little)].concat(),
        )
    }

    /// Sends arbitrary bytes instead of the usual encoding of `hello`, and returns the checked
    /// answer.
    pub fn offer_bytes(&self, hello: &Hello, bytes: &[u8]) -> Result<Answer, String> {
        let mut stream = self.say(bytes)?;
        let (reply, order) = match Hello::read(&mut stream) {
            Ok(read) => read,
            Err(BadHello::Ended(_)) => return Ok(Answer::Closed),
            Err(bad) => return Err(format!("it answered {bad}")),
        };
        self.judge_reply(&stream, hello, &reply, order)?;
        if reply.kind == kind::NONE {
            expect_end(&mut stream)?;
            return Ok(Answer::Refused(reply));
        }
        Ok(Answer::Accepted(stream, reply))
    }

    /// Returns the NID and PID by which the node knows the judge on a connection.
    pub fn identity(&self, stream: &TcpStream, claimed: (Nid, u32)) -> Result<(Nid, u32), String> {
        let local = stream.local_addr().map_err(|error| error.to_string())?;
        if self.policy != Policy::All || local.port() <= PRIVILEGED_MAX {
            return Ok(claimed);
        }
        Ok((self.nid.with_address(self.from), USERSPACE | u32::from(local.port())))
    }

    /// Checks the reply to a hello (lnet-wire 22 and 24).
    fn judge_reply(
        &self,
        stream: &TcpStream,
        hello: &Hello,
        reply: &Hello,
        order: Order,
    ) -> Result<(), String> {
        let (nid, pid) = self.identity(stream, (hello.src, hello.src_pid))?;
        let refused = reply.kind == kind::NONE;
        let accepted_kind = kind::inverse(hello.kind);
        let faults = [
            (order == Order::Little, format!("byte order {order:?}")),
            (reply.version == hello.version, format!("version {}, not {}", reply.version, hello.version)),
            (reply.src == self.nid, format!("source NID {}, not {}", reply.src, self.nid)),
            (reply.src_pid == PID, format!("source PID {}, not {PID}", reply.src_pid)),
            (refused || reply.dst == nid, format!("destination NID {}, not {nid}", reply.dst)),
            (reply.dst_pid == 0 || reply.dst_pid == pid, format!("destination PID {}", reply.dst_pid)),
            (reply.src_incarnation != 0, "no incarnation".to_string()),
            (
                [0, hello.src_incarnation].contains(&reply.dst_incarnation),
                format!("destination incarnation {:#x}", reply.dst_incarnation),
            ),
            (reply.addresses.is_empty(), format!("addresses {:x?}", reply.addresses)),
            (
                refused || reply.kind == accepted_kind,
                format!("type {}, not {}", kind::name(reply.kind), kind::name(accepted_kind)),
            ),
        ];
        match faults.into_iter().find(|(good, _)| !good) {
            Some((_, fault)) => Err(format!("its hello has {fault}")),
            None => Ok(()),
        }
    }
}

/// The judge's listener for connections from the node.
pub struct Incoming {
    listener: TcpListener,
    patience: Duration,
}

impl Incoming {
    /// Accepts the next connection from the node.
    pub fn accept(&self) -> Result<TcpStream, String> {
        accept(&self.listener, self.patience).map_err(|error| format!("it does not connect: {error}"))
    }

    /// Returns whether no connection from the node is waiting.
    pub fn none(&self) -> bool {
        accept(&self.listener, Duration::ZERO).is_err()
    }
}

/// The node's answer to an offered connection.
pub enum Answer {
    /// The connection is established.
    Accepted(TcpStream, Hello),
    /// A hello of type NONE, then the end of the connection.
    Refused(Hello),
    /// The end of the connection, without a byte.
    Closed,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Answer::Accepted(..) => "accepted",
            Answer::Refused(_) => "answered NONE",
            Answer::Closed => "closed without a byte",
        })
    }
}

/// Checks that the node closes the connection without further bytes.
pub fn expect_end(stream: &mut TcpStream) -> Result<(), String> {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("{:#04x} where the connection was to end", byte[0])),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(format!("the connection did not end: {error}")),
    }
}

/// Returns an incarnation that the judge has not used before: wall-clock nanoseconds, as a
/// kernel's.
pub fn new_incarnation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let before = LAST.fetch_max(now, Ordering::Relaxed);
    if before < now { now } else { LAST.fetch_add(1, Ordering::Relaxed) + 1 }
}
