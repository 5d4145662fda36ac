use std::sync::Arc;
use std::time::{Duration, Instant};

use lnet_api::{Clock, Errno, EventFd, LNetError, Sleeper, wait_until};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_socklnd::Step;

use crate::Node;

/// What a node answered to a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingAnswer {
    /// Its NIDs, without `0@lo`; the first is its primary NID.
    pub nids: Vec<Nid>,
    /// Its PID.
    pub pid: Pid,
    /// Its feature bits (lnet-wire 16).
    pub features: u32,
    /// From asking to the answer, connecting included.
    pub round_trip: Duration,
}

/// Why a ping had no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ping {target}: {reason}")]
pub struct PingFailure {
    /// Who was asked.
    pub target: Nid,
    /// The errno that LNet users know.
    pub errno: Errno,
    /// The step that failed, and what to try.
    pub reason: String,
}

pub(crate) fn ping(
    node: &Node,
    target: Nid,
    source: Option<Nid>,
    timeout: Duration,
) -> Result<PingAnswer, PingFailure> {
    let fail = |errno, reason: String| PingFailure { target, errno, reason };
    let refused = |error: LNetError| fail(error.errno(), error.to_string());
    let sleeper = EventFd::new().map_err(|errno| fail(errno, format!("cannot make an eventfd: {errno}")))?;
    let sleeper: Arc<dyn Sleeper> = Arc::new(sleeper);
    let begun = Instant::now();
    let id = ProcessId { nid: target, pid: Pid::LNET };
    let mut ping = node.engine().ping(source, id, sleeper.clone()).map_err(refused)?;
    let drive = node.driver();
    let deadline_ns = drive.now_ns().saturating_add(timeout.as_nanos() as u64);
    let mut answer = None;
    wait_until(drive, &sleeper, Some(deadline_ns), || {
        answer = answer.take().or_else(|| ping.poll());
        answer.is_some()
    });
    match answer {
        Some(Ok(info)) => Ok(PingAnswer {
            nids: info.nis.iter().map(|ni| ni.nid).filter(|nid| !nid.is_loopback()).collect(),
            pid: info.pid,
            features: info.features.0,
            round_trip: begun.elapsed(),
        }),
        Some(Err(error)) => Err(fail(error.errno(), explain(node, target, &error))),
        None => {
            let waited = format!("no answer within {} s", timeout.as_secs_f64());
            let why = so_far(node, target);
            Err(fail(Errno::ETIMEDOUT, format!("{waited}{why}")))
        }
    }
}

/// The network driver knows the step that failed; LNet only the errno.
fn explain(node: &Node, target: Nid, error: &LNetError) -> String {
    match node.tcp().last_failure(target) {
        Some(failure) if failure.errno == error.errno() => failure.to_string(),
        _ => error.to_string(),
    }
}

/// What is known of a node that has not answered yet: the step under way, else the last failure.
fn so_far(node: &Node, target: Nid) -> String {
    match node.tcp().progress(target) {
        Some(Step::Handshake) => {
            ": connected, but the other side has not answered the handshake: is it an LNet node?".to_string()
        }
        Some(_) => {
            ": still connecting: is the host up, the address right, and the port open in its firewall?"
                .to_string()
        }
        None => node.tcp().last_failure(target).map(|failure| format!("; {failure}")).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{NodeConfig, NodeError};

    const PORT: u16 = 21_943;

    #[test]
    fn a_tunable_that_cannot_be_is_named() {
        let config = NodeConfig::new().net("tcp(127.43.0.1)").unwrap().accept_port(0);
        let error: NodeError = Node::start(&config).unwrap_err();
        assert!(error.to_string().contains("accept_port is 0"), "{error}");
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
        assert!(failure.reason.contains("connected, but"), "{failure}");
        drop(silent);
    }
}
