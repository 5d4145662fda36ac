//! Probes: PUTs of any size that an nlx node accepts, acknowledges and discards. They detect a path
//! that silently drops long packets, which small messages cannot.

use std::time::{Duration, Instant};

use lnet_api::{Errno, LNet, LNetError, Md, MdOptions, MeSpec, Threshold, Unlink};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::MAX_PAYLOAD;
use lnet_region::{IoVec, Region};
use lnet_socklnd::{ConnInfo, Connections};

use crate::ping::{explain, refused, unanswered, wait};
use crate::{Interrupt, Node, PingFailure, PingStep};

/// The length of the longest probe in bytes: LNet's longest payload.
pub const PROBE_BYTES_MAX: usize = MAX_PAYLOAD as usize;

/// Advice for a path that drops long packets.
const BLACK_HOLE: &str = "something on the way drops long packets without a word: compare the MTU of both interfaces ('ip link') \
     and of all switches between, find what passes with 'ping -M do -s BYTES ADDRESS'; 'sysctl net.ipv4.tcp_mtu_probing=1' \
     works around it";

/// Advice if the bytes arrive and no node answers.
const NO_ENTRY: &str = "only 'nlx serve', 'nlx selftest --server' and 'nlxd' take such PUTs: is it one of them, and not a kernel \
     node?";

impl Node {
    /// Adds the entry that accepts probes ([`Portal::PROBE`]), until the node ends. All probes are
    /// received into the same [`PROBE_BYTES_MAX`] bytes, which are never read. The system allocates
    /// their memory when the first probe arrives.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn offer_probes(&self) -> Result<(), LNetError> {
        let engine = self.engine();
        let me = engine
            .me_attach(&MeSpec { unlink: Unlink::Retain, ..MeSpec::new(Portal::PROBE, MatchBits::PROBE) })?;
        let md = Md {
            memory: zeros(PROBE_BYTES_MAX)?,
            threshold: Threshold::Infinite,
            max_size: 0,
            options: MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE,
            user_ptr: 0,
            eq: None,
        };
        engine.md_attach(me, md, Unlink::Retain).map(drop)
    }

    /// Sends a probe of `bytes` bytes, at most [`PROBE_BYTES_MAX`], and drives the network until it
    /// is acknowledged; returns the time that took. Use it only for nodes with an entry for probes
    /// ([`Node::offer_probes`]): a kernel node drops the probe, and logs that.
    ///
    /// # Errors
    /// [`PingFailure`]; with [`PingStep::Probe`] if the bytes do not get through,
    /// [`PingStep::Answer`] if no entry takes them.
    pub fn probe_unless(
        &self,
        interrupt: &Interrupt,
        target: Nid,
        source: Option<Nid>,
        bytes: usize,
        timeout: Duration,
    ) -> Result<Duration, PingFailure> {
        let begun = Instant::now();
        let not_sent = |error: LNetError| refused(self, target, &error);
        let content = zeros(bytes.clamp(1, PROBE_BYTES_MAX)).map_err(not_sent)?;
        let (id, place) = (ProcessId::lnet(target), (Portal::PROBE, MatchBits::PROBE));
        let put = self.engine().put_acknowledged(source, id, interrupt.sleeper.clone(), place, content);
        let mut put = put.map_err(not_sent)?;
        match wait(self, interrupt, self.deadline_ns(timeout), || put.poll()) {
            Some(Ok(_)) => Ok(begun.elapsed()),
            Some(Err(error)) => Err(explain(self, target, &error)),
            None => match unanswered(self, interrupt, target, timeout) {
                PingFailure { step: PingStep::Answer, .. } => {
                    Err(unacknowledged(target, bytes, timeout, self.stuck_connection(target)))
                }
                failure => Err(failure),
            },
        }
    }

    /// Returns the connection to a node on which TCP retransmits without an answer, if there is
    /// one.
    pub fn stuck_connection(&self, target: Nid) -> Option<ConnInfo> {
        self.tcp().connections(|nid| nid == target).into_iter().find(|conn| conn.tcp.is_stuck())
    }
}

fn zeros(bytes: usize) -> Result<IoVec, LNetError> {
    let no_memory = |_| LNetError::TooMany { objects: "bytes of probes", limit: PROBE_BYTES_MAX };
    Ok(IoVec::whole(Region::heap(bytes).map_err(no_memory)?))
}

/// Returns the failure of a probe that was not acknowledged despite a connection.
fn unacknowledged(target: Nid, bytes: usize, timeout: Duration, stuck: Option<ConnInfo>) -> PingFailure {
    let (step, state, advice) = match stuck {
        Some(ConnInfo { conn_type, tcp, .. }) => (
            PingStep::Probe,
            format!(
                ": the {conn_type} connection has {} unacknowledged bytes in segments of {} bytes (path MTU {}), sent again {} \
                 times in vain",
                tcp.unacked_bytes, tcp.mss, tcp.path_mtu, tcp.unanswered
            ),
            BLACK_HOLE,
        ),
        None => (PingStep::Answer, ", though its TCP has taken all of it".to_string(), NO_ENTRY),
    };
    let seconds = timeout.as_secs_f64();
    let reason = format!("a PUT of {bytes} bytes was not acknowledged within {seconds} s (ETIMEDOUT){state}");
    PingFailure::new(target, step, Errno::ETIMEDOUT, reason, advice)
}

#[cfg(test)]
mod tests {
    use lnet_proto::sock::ConnType;
    use lnet_socklnd::sys::TcpFacts;

    use super::*;
    use crate::NodeConfig;

    const SOON: Duration = Duration::from_secs(60);

    fn node(address: u8) -> Node {
        let config = NodeConfig::new().net(&format!("tcp(127.43.1.{address})")).unwrap();
        Node::start(&config.accept_port(21_944)).unwrap()
    }

    #[test]
    fn probes_of_every_size_are_acknowledged_once_they_are_offered() {
        let (asking, offering) = (node(1), node(2));
        let (interrupt, target) = (Interrupt::new().unwrap(), offering.nids()[0]);
        let probe = |bytes, time| asking.probe_unless(&interrupt, target, None, bytes, time);
        asking.ping(target, None, SOON).unwrap();
        let failure = probe(100, Duration::from_secs(1)).unwrap_err();
        assert_eq!((failure.step, failure.errno), (PingStep::Answer, Errno::ETIMEDOUT), "{failure}");
        assert!(failure.reason.contains("TCP has taken all of it"), "{failure}");
        offering.offer_probes().unwrap();
        for bytes in [1, 4096, 5000, PROBE_BYTES_MAX] {
            probe(bytes, SOON).unwrap();
        }
        let counters = offering.counters();
        assert_eq!((counters.drop_count, counters.drop_length), (1, 100));
        assert_eq!(asking.stuck_connection(target), None);
        let connections = asking.tcp().connections(|nid| nid == target);
        assert!(connections.iter().all(|conn| conn.nid == target && conn.tcp.mss > 500), "{connections:?}");
        assert!(!connections.is_empty() && asking.tcp().connections(|_| false).is_empty());
    }

    #[test]
    fn a_connection_that_is_stuck_is_described() {
        let tcp =
            TcpFacts { mss: 1448, path_mtu: 1500, unanswered: 3, unacked_bytes: 8688, ..TcpFacts::default() };
        let target = "10.0.0.1@tcp".parse().unwrap();
        let conn = ConnInfo { nid: target, conn_type: ConnType::BulkOut, tcp };
        let failure = unacknowledged(target, 8192, Duration::from_secs(2), Some(conn));
        let (step, text) = (failure.step, failure.to_string());
        assert_eq!(step, PingStep::Probe);
        let said = [
            "8192 bytes",
            "within 2 s",
            "BULK_OUT",
            "8688 unacknowledged",
            "segments of 1448",
            "again 3 times",
            "MTU",
        ];
        for words in said {
            assert!(text.contains(words), "{text}");
        }
    }
}
