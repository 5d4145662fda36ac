//! Ping, and the explanation of failed pings.

use std::fmt;
use std::time::{Duration, Instant};

use lnet_api::{Errno, LNetError, LndError};
use lnet_nid::{NetType, Nid, Pid};
use lnet_proto::ping::{PingInfo, SINK_LENGTH};
use lnet_socklnd::{Cause, ConnStep, PeerFailure};

use crate::discover::PingRun;
use crate::error::errno_text;
use crate::{DiscoverOptions, Interrupt, Node};

/// A node's answer to a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingAnswer {
    /// The node's NIDs, without `0@lo`; the first is its primary NID.
    pub nids: Vec<Nid>,
    /// The node's PID.
    pub pid: Pid,
    /// The node's feature bits (lnet-wire 16).
    pub features: u32,
    /// The time from the request to the answer, connecting included.
    pub round_trip: Duration,
}

/// The step at which a ping or discovery failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PingStep {
    /// Finding a route; nothing was sent.
    Route,
    /// Over RDMA: resolving the peer's address and route.
    Resolve,
    /// Getting a socket and a source port; over RDMA: queues.
    Bind,
    /// Establishing the connection.
    Connect,
    /// Connection request and hello (lnet-wire 24); over RDMA: the peer's reply to the request
    /// (lnet-wire 34).
    Handshake,
    /// Waiting for the answer on a connection.
    Answer,
    /// Reading the answer.
    Content,
    /// The push (lnet-wire 17).
    Push,
    /// The probe ([`Node::probe_unless`]).
    Probe,
    /// The wait was ended by [`Interrupt::raise`].
    Interrupted,
    /// The node was shut down ([`Node::shutdown`]).
    ShutDown,
}

impl PingStep {
    /// Returns the step as one word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PingStep::Route => "route",
            PingStep::Resolve => "resolve",
            PingStep::Bind => "bind",
            PingStep::Connect => "connect",
            PingStep::Handshake => "handshake",
            PingStep::Answer => "answer",
            PingStep::Content => "content",
            PingStep::Push => "push",
            PingStep::Probe => "probe",
            PingStep::Interrupted => "interrupted",
            PingStep::ShutDown => "shutdown",
        }
    }
}

impl fmt::Display for PingStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The failure of a ping or a discovery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{target}: {reason}; {advice}")]
pub struct PingFailure {
    /// The NID to which the request was sent.
    pub target: Nid,
    /// The step that failed.
    pub step: PingStep,
    /// The errno with which LNet reports the failure.
    pub errno: Errno,
    /// The reason of the failure, as a phrase.
    pub reason: String,
    /// The advice for the user, as a phrase.
    pub advice: String,
}

impl PingFailure {
    pub(crate) fn new(
        target: Nid,
        step: PingStep,
        errno: Errno,
        reason: String,
        advice: &str,
    ) -> PingFailure {
        PingFailure { target, step, errno, reason, advice: advice.to_string() }
    }
}

impl From<&PingFailure> for Errno {
    fn from(failure: &PingFailure) -> Errno {
        failure.errno
    }
}

impl Node {
    /// Pings like [`Node::ping`], but ends early when `interrupt` is raised.
    ///
    /// # Errors
    /// [`PingFailure`], with EINTR if it was interrupted.
    pub fn ping_unless(
        &self,
        interrupt: &Interrupt,
        target: Nid,
        source: Option<Nid>,
        timeout: Duration,
    ) -> Result<PingAnswer, PingFailure> {
        let begun = Instant::now();
        let options = DiscoverOptions { source, timeout, push: false };
        let deadline_ns = self.deadline_ns(timeout);
        let run = PingRun { node: self, interrupt, target, options: &options, deadline_ns };
        let info = run.ask(SINK_LENGTH, &mut Vec::new())?;
        Ok(answer(&info, begun.elapsed()))
    }
}

pub(crate) fn ping(
    node: &Node,
    target: Nid,
    source: Option<Nid>,
    timeout: Duration,
) -> Result<PingAnswer, PingFailure> {
    node.ping_unless(&interrupt(target)?, target, source, timeout)
}

/// Creates an interrupt that is never raised: waiting needs its descriptor.
pub(crate) fn interrupt(target: Nid) -> Result<Interrupt, PingFailure> {
    let advice = "this process has too many open files: see 'ulimit -n'";
    Interrupt::new().map_err(|errno| {
        PingFailure::new(target, PingStep::Route, errno, format!("cannot make an eventfd: {errno}"), advice)
    })
}

/// Drives the node until there is an outcome; `None` on timeout, or if the interrupt is raised.
pub(crate) fn wait<T>(
    node: &Node,
    interrupt: &Interrupt,
    deadline_ns: u64,
    mut poll: impl FnMut() -> Option<T>,
) -> Option<T> {
    let mut outcome = None;
    node.driver().wait(&interrupt.sleeper, Some(deadline_ns), || {
        outcome = outcome.take().or_else(&mut poll);
        outcome.is_some() || interrupt.is_raised()
    });
    outcome
}

fn answer(info: &PingInfo, round_trip: Duration) -> PingAnswer {
    let nids = info.nis.iter().map(|ni| ni.nid).filter(|nid| !nid.is_loopback()).collect();
    PingAnswer { nids, pid: info.pid, features: info.features.0, round_trip }
}

/// Returns the failure of a ping on a node that has been shut down.
fn shut_down(target: Nid) -> PingFailure {
    let reason = format!("this node has been shut down: {}", errno_text(Errno::ESHUTDOWN));
    PingFailure::new(target, PingStep::ShutDown, Errno::ESHUTDOWN, reason, "ask from a node that runs")
}

/// Returns the failure of a ping that LNet refused to start.
pub(crate) fn refused(node: &Node, target: Nid, error: &LNetError) -> PingFailure {
    if node.is_ending() {
        return shut_down(target);
    }
    let advice = match error {
        LNetError::NoRoute { .. } => "this node has no NI on that network: routers are not supported",
        LNetError::NotLocal { .. } => "ask from one of this node's own NIDs",
        _ => "try again",
    };
    PingFailure::new(target, PingStep::Route, error.errno(), error.to_string(), advice)
}

/// Returns the failure of a ping from LNet's error: the LND has the failed step, LNet only the
/// errno.
pub(crate) fn explain(node: &Node, target: Nid, error: &LNetError) -> PingFailure {
    let errno = error.errno();
    // The NI that sent the ping may have been removed from a node that continues.
    if errno == Errno::ESHUTDOWN && node.is_ending() {
        return shut_down(target);
    }
    match last_failure(node, target) {
        // During the back-off after a failure LNet returns EHOSTUNREACH, and the failure has the
        // reason.
        Some(failure) if failure.errno == errno || errno == Errno::EHOSTUNREACH => failure,
        _ if errno == Errno::EPROTO => {
            let advice = "the node answers with what is no list of NIDs: which release of LNet does it run?";
            PingFailure::new(target, PingStep::Content, errno, error_text(target, error), advice)
        }
        _ => {
            let reason = format!("{}: {}", error_text(target, error), errno_text(errno));
            let advice = match errno {
                Errno::ECONNRESET => {
                    "the node went down or restarted, or dropped this node's connections: ask again"
                }
                _ => "try again",
            };
            PingFailure::new(target, PingStep::Answer, errno, reason, advice)
        }
    }
}

/// Returns LNet's error text of a ping, without the target and the errno, which a [`PingFailure`]
/// adds itself.
pub(crate) fn error_text(target: Nid, error: &LNetError) -> String {
    let LNetError::Lnd(LndError { what, .. }) = error else { return error.to_string() };
    what.strip_prefix(&format!("ping of {target}: ")).unwrap_or(what).to_string()
}

/// Returns the last failed connection to the node, if any.
fn last_failure(node: &Node, target: Nid) -> Option<PingFailure> {
    let failure = match node.o2ib().filter(|_| over_rdma(target)) {
        Some(lnd) => lnd.last_failure(target),
        None => node.tcp().last_failure(target),
    };
    failure.map(|failure| from_lnd(target, &failure))
}

fn over_rdma(target: Nid) -> bool {
    target.net().net_type() == NetType::O2IB
}

fn from_lnd(target: Nid, failure: &PeerFailure) -> PingFailure {
    let PeerFailure { address, errno, detail, advice, .. } = failure;
    let refused = over_rdma(target) && failure.cause != Cause::Errno;
    let (step, what) = match failure.step {
        ConnStep::Resolve => (PingStep::Resolve, format!("no way over RDMA to {address}")),
        ConnStep::Bind => (PingStep::Bind, format!("cannot prepare a connection to {address}")),
        ConnStep::Queues => (PingStep::Bind, format!("cannot make queues for a connection to {address}")),
        ConnStep::Connect if refused => (PingStep::Handshake, format!("{address} refuses the connection")),
        ConnStep::Connect => (PingStep::Connect, format!("cannot connect to {address}")),
        ConnStep::Handshake => {
            (PingStep::Handshake, format!("connected to {address}, but the handshake failed"))
        }
        ConnStep::Established => (PingStep::Answer, format!("the connection with {address} broke")),
    };
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    PingFailure::new(target, step, *errno, format!("{what}: {}{detail}", errno_text(*errno)), advice)
}

/// Returns the failure of a wait that timed out or was interrupted. Reports the step under way,
/// otherwise the last failure.
pub(crate) fn unanswered(node: &Node, interrupt: &Interrupt, target: Nid, timeout: Duration) -> PingFailure {
    if interrupt.is_raised() {
        let (step, errno) = (PingStep::Interrupted, Errno::EINTR);
        return PingFailure::new(target, step, errno, "interrupted".to_string(), "ask again");
    }
    if node.is_ending() {
        return shut_down(target);
    }
    let waited = format!("no answer within {} s (ETIMEDOUT)", timeout.as_secs_f64());
    let progress = match node.o2ib().filter(|_| over_rdma(target)) {
        Some(lnd) => lnd.progress(target),
        None => node.tcp().progress(target),
    };
    let (step, state, advice) = match progress {
        Some(ConnStep::Resolve | ConnStep::Queues) => (
            PingStep::Resolve,
            ": still looking for the way",
            "is the host up, the address right, and its RDMA port up? see 'rdma link' on both",
        ),
        Some(ConnStep::Handshake) => (
            PingStep::Handshake,
            ": connected, but the other side says no hello",
            "is it an LNet node? something accepts connections there and stays silent, or a firewall between lets TCP connect and \
             drops what follows",
        ),
        Some(ConnStep::Established) => (
            PingStep::Answer,
            ": connected, but the ping is not answered",
            "the node is stuck or overloaded, or it answers over another connection that does not get through",
        ),
        Some(_) => (
            PingStep::Connect,
            ": still connecting",
            "is the host up, the address right, and the port open in its firewall?",
        ),
        None => match last_failure(node, target) {
            Some(failure) => return failure,
            None => (
                PingStep::Handshake,
                ": the node refuses the connection for now",
                "both nodes connect to each other at once, or the node has connections of this one's that are broken, as it \
                 will find out; wait longer, or try again",
            ),
        },
    };
    PingFailure::new(target, step, Errno::ETIMEDOUT, format!("{waited}{state}"), advice)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::{NodeConfig, NodeError};

    const PORT: u16 = 21_943;

    #[test]
    fn a_tunable_that_cannot_be_is_named() {
        let config = NodeConfig::new().net("tcp(127.43.0.1)").unwrap().accept_port(0);
        let error: NodeError = Node::start(&config).unwrap_err();
        assert!(error.to_string().contains("accept_port=0"), "{error}");
        assert_eq!(error.errno(), Errno::EINVAL);
    }

    #[test]
    fn a_ping_that_has_no_answer_tells_the_step() {
        let config = NodeConfig::new().net("tcp(127.43.0.2)").unwrap().accept_port(PORT);
        let node = Node::start(&config).unwrap();
        let silent = TcpListener::bind(("127.43.0.3", PORT)).unwrap();
        let target = "127.43.0.3@tcp".parse().unwrap();
        let failure = node.ping(target, None, Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.errno, Errno::ETIMEDOUT);
        assert_eq!(failure.step, PingStep::Handshake, "{failure}");
        assert!(failure.reason.contains("connected, but"), "{failure}");
        drop(silent);
    }

    /// A node that answers each hello with NONE (lnet-wire 24) is retried for longer than the ping
    /// waits: no connection exists at the end, and the failure does not claim one.
    #[test]
    fn a_node_that_refuses_connections_is_not_called_connected() {
        let config = NodeConfig::new().net("tcp(127.43.0.4)").unwrap().accept_port(PORT);
        let node = Node::start(&config).unwrap();
        let listener = TcpListener::bind(("127.43.0.5", PORT)).unwrap();
        let refuser = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut greeting = [0; 72];
            stream.read_exact(&mut greeting).unwrap();
            let mut none = greeting[16..].to_vec();
            none[8..16].copy_from_slice(&greeting[32..40]);
            none[16..24].copy_from_slice(&greeting[24..32]);
            none[48..52].fill(0xff);
            stream.write_all(&none).unwrap();
            listener
        });
        let target = "127.43.0.5@tcp".parse().unwrap();
        let failure = node.ping(target, None, Duration::from_millis(500)).unwrap_err();
        assert_eq!((failure.errno, failure.step), (Errno::ETIMEDOUT, PingStep::Handshake), "{failure}");
        assert!(failure.reason.contains("refuses the connection"), "{failure}");
        drop(refuser.join().unwrap());
    }
}
