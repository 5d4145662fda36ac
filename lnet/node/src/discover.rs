//! Discovery: a node's identity and features, and this node's push (lnet-wire 15 to 18).

use std::time::{Duration, Instant};

use lnet_api::{Clock, Errno, LNetError};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::ping::{Features, PingInfo, PingInterface, SINK_LENGTH_MIN};

use crate::ping::{self, error_text, explain, refused, unanswered};
use crate::{Interrupt, Node, PingFailure, PingStep};

/// The maximum number of requests for a longer answer. Each request has the length from the last
/// answer, so that the second is enough unless the node gets more NIs in between.
const ATTEMPTS_MAX: usize = 4;

/// The options of a discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoverOptions {
    /// The local NID to send from; `None` lets LNet choose.
    pub source: Option<Nid>,
    /// Time limit for all steps together.
    pub timeout: Duration,
    /// True to push this node's NIs to the node as well, and wait for the acknowledgement, as
    /// `lnetctl discover --force` does.
    pub push: bool,
}

impl Default for DiscoverOptions {
    /// Creates the default options: any local NID, 10 s, no push.
    fn default() -> DiscoverOptions {
        DiscoverOptions { source: None, timeout: Duration::from_secs(10), push: false }
    }
}

/// The result of the push that followed a discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// No push was requested.
    NotAsked,
    /// No push was sent: the node does not take part in discovery, and ignores pushes.
    NotCapable,
    /// The node has acknowledged this number of bytes of this node's list.
    Acknowledged {
        /// The number of bytes.
        bytes: u32,
    },
}

/// A node's answer to a discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// The NID to which the request was sent.
    pub target: Nid,
    /// The NID that names the node: the first of its list if all of them are one peer, otherwise
    /// the target.
    pub primary: Nid,
    /// The node's interfaces, without `0@lo`.
    pub nis: Vec<PingInterface>,
    /// The node's PID.
    pub pid: Pid,
    /// The node's features.
    pub features: Features,
    /// The sequence number of the node's list of interfaces.
    pub sequence: u32,
    /// The bytes requested by each attempt; the last was enough.
    pub asked_bytes: Vec<usize>,
    /// The result of the push.
    pub pushed: Pushed,
    /// The time of all steps together, connecting included.
    pub took: Duration,
}

impl Discovery {
    /// Returns whether all NIDs of the node are one peer (Multi-Rail).
    #[must_use]
    pub fn is_multi_rail(&self) -> bool {
        self.features.contains(Features::MULTI_RAIL)
    }

    /// Returns whether the node takes part in discovery, and so acknowledges pushes.
    #[must_use]
    pub fn is_discoverable(&self) -> bool {
        self.features.contains(Features::MULTI_RAIL | Features::DISCOVERY)
    }
}

impl Node {
    /// Requests a node's identity, as the kernel does: first with 272 bytes, enough for 16
    /// interfaces, then with the length in its answer. The node may ping this one before it
    /// answers; this node replies while it waits.
    ///
    /// # Errors
    /// [`PingFailure`] has the failed step, and advice.
    pub fn discover(&self, target: Nid, options: &DiscoverOptions) -> Result<Discovery, PingFailure> {
        self.discover_unless(&ping::interrupt(target)?, target, options)
    }

    /// Discovers like [`Node::discover`], but ends early when `interrupt` is raised.
    ///
    /// # Errors
    /// The errors of [`Node::discover`], with EINTR if it was interrupted.
    pub fn discover_unless(
        &self,
        interrupt: &Interrupt,
        target: Nid,
        options: &DiscoverOptions,
    ) -> Result<Discovery, PingFailure> {
        let begun = Instant::now();
        let deadline_ns = self.deadline_ns(options.timeout);
        let run = PingRun { node: self, interrupt, target, options, deadline_ns };
        let mut asked_bytes = Vec::new();
        let info = run.ask(SINK_LENGTH_MIN, &mut asked_bytes)?;
        let features = info.features;
        let primary = info.primary().filter(|_| features.contains(Features::MULTI_RAIL)).unwrap_or(target);
        let mut discovery = Discovery {
            target,
            primary,
            nis: info.nis,
            pid: info.pid,
            features,
            sequence: info.sequence,
            asked_bytes,
            pushed: Pushed::NotAsked,
            took: Duration::ZERO,
        };
        if options.push {
            let capable = discovery.is_discoverable();
            discovery.pushed = if capable { run.push()? } else { Pushed::NotCapable };
        }
        discovery.took = begun.elapsed();
        Ok(discovery)
    }
}

/// The outcome of one ping: the node's answer, or the error.
type PingOutcome = Result<PingInfo, LNetError>;

/// One ping or discovery under way.
pub(crate) struct PingRun<'a> {
    pub(crate) node: &'a Node,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) target: Nid,
    pub(crate) options: &'a DiscoverOptions,
    pub(crate) deadline_ns: u64,
}

impl PingRun<'_> {
    /// Requests the node's ping info with a sink of `first` bytes, then of the length in its
    /// answer. The lengths requested are added to `asked`.
    pub(crate) fn ask(&self, first: u32, asked: &mut Vec<usize>) -> Result<PingInfo, PingFailure> {
        let mut sink = first as usize;
        loop {
            asked.push(sink);
            let (outcome, needs) = self.ask_for(sink)?;
            match (outcome, needs) {
                (Ok(info), _) => return Ok(info),
                (Err(_), Some(needed)) if needed > sink && asked.len() < ATTEMPTS_MAX => sink = needed,
                (Err(error), Some(_)) => return Err(self.still_truncated(&error, asked.len())),
                (Err(error), None) => return Err(explain(self.node, self.target, &error)),
            }
        }
    }

    /// Sends one ping; returns its outcome, and the full length of the answer if it was truncated.
    fn ask_for(&self, sink: usize) -> Result<(PingOutcome, Option<usize>), PingFailure> {
        let (engine, sleeper) = (self.node.engine(), self.interrupt.sleeper.clone());
        let ping = engine.ping_asking(self.options.source, self.id(), sleeper, sink);
        let mut ping = ping.map_err(|error| refused(self.node, self.target, &error))?;
        let outcome = self.wait(|| ping.poll())?;
        Ok((outcome, ping.needs()))
    }

    fn still_truncated(&self, error: &LNetError, attempts: usize) -> PingFailure {
        let reason =
            format!("{}, which {attempts} attempts did not get whole", error_text(self.target, error));
        let advice =
            "the node's list grows faster than it can be read, or its length is wrong: which release is it?";
        PingFailure::new(self.target, PingStep::Content, Errno::EPROTO, reason, advice)
    }

    fn push(&self) -> Result<Pushed, PingFailure> {
        let pushing = |failure: PingFailure| match failure.step {
            PingStep::Interrupted | PingStep::ShutDown => failure,
            _ => PingFailure { step: PingStep::Push, ..failure },
        };
        let (engine, sleeper) = (self.node.engine(), self.interrupt.sleeper.clone());
        // The wait for the peer's own push starts at the engine's present time.
        engine.advance(self.node.driver().now_ns());
        let push = engine.push(self.options.source, self.id(), sleeper);
        let mut push = push.map_err(|error| pushing(refused(self.node, self.target, &error)))?;
        let outcome = self.wait(|| push.poll()).map_err(|mut failure| {
            if failure.step == PingStep::Answer {
                failure.reason = "the node answers pings, but does not acknowledge the push".to_string();
                failure.advice = "it says that it takes part in discovery: restart LNet there".to_string();
            }
            pushing(failure)
        })?;
        let bytes = outcome.map_err(|error| pushing(explain(self.node, self.target, &error)))?;
        Ok(Pushed::Acknowledged { bytes })
    }

    fn wait<T>(&self, poll: impl FnMut() -> Option<T>) -> Result<T, PingFailure> {
        ping::wait(self.node, self.interrupt, self.deadline_ns, poll)
            .ok_or_else(|| unanswered(self.node, self.interrupt, self.target, self.options.timeout))
    }

    fn id(&self) -> ProcessId {
        ProcessId { nid: self.target, pid: Pid::LNET }
    }
}
