//! The results for two sides.

use lnet_o2iblnd::sizes::{
    Adjusted, Agreed, ConnSizes, KernelMapping, KeyMethod, MdPages, Negotiation, PassiveAnswer, Pools,
    Release, SizesError, Try, negotiate, pools, transfer,
};
use serde_json::{Value, json};

use super::barriers::{self, Barrier};
use super::input::SideInput;

/// All results for two sides.
pub(super) struct Calculation {
    pub(super) peers: u32,
    /// `a` and `b`.
    pub(super) nodes: [SideResult; 2],
    /// A connection that `a` opens, and one that `b` opens.
    pub(super) directions: [Negotiation; 2],
    /// Reasons why a connection cannot be opened, whatever its sizes.
    pub(super) barriers: Vec<Barrier>,
    pub(super) buffer: MdPages,
    pub(super) warnings: Vec<String>,
}

/// A side, with its adjusted tunables.
pub(super) struct SideResult {
    pub(super) peer: SideInput,
    pub(super) adjusted: Adjusted,
    pub(super) pools: Pools,
}

/// The resources of a side's connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnLoad {
    pub(super) made: ConnSizes,
    pub(super) connections: u64,
}

impl ConnLoad {
    pub(super) const fn times(&self, of_one: u64) -> u64 {
        self.connections * of_one
    }
}

impl Calculation {
    pub(super) fn of(peers: [SideInput; 2], count: u32, buffer: MdPages) -> Result<Calculation, SizesError> {
        let [a, b] = peers;
        let nodes = [SideResult::of(a)?, SideResult::of(b)?];
        let ends = nodes.each_ref().map(|node| (&node.adjusted, &node.peer.limits));
        let directions = [negotiate(ends[0], ends[1]), negotiate(ends[1], ends[0])];
        let barriers = barriers::between(nodes.each_ref().map(|node| &node.peer));
        let mut all = Calculation { peers: count, nodes, directions, barriers, buffer, warnings: Vec::new() };
        all.warnings = super::warnings::all(&all);
        Ok(all)
    }

    /// Returns the queues of a side if `opener` opens the connections: their number is the
    /// opener's.
    pub(super) fn load(&self, side: usize, opener: usize) -> Option<ConnLoad> {
        let agreed = self.directions[opener].outcome.as_ref().ok()?;
        let made = if side == opener { agreed.active } else { agreed.passive };
        let connections = u64::from(self.peers) * u64::from(self.nodes[opener].adjusted.conns_per_peer);
        Some(ConnLoad { made, connections })
    }

    /// Returns the reasons why this side cannot connect to the other.
    pub(super) fn barred(&self, opener: usize) -> impl Iterator<Item = &Barrier> {
        self.barriers.iter().filter(move |barrier| barrier.bars(opener))
    }

    /// Returns the bytes of a side's NI: all buffers of its connections, and transmit descriptors.
    /// Queues are not counted, for their size is known to the device alone, nor are bounce buffers,
    /// which nlx creates on demand.
    pub(super) fn memory(&self, side: usize, opener: usize) -> Option<u64> {
        let load = self.load(side, opener)?;
        Some(load.times(load.made.bytes()) + self.nodes[side].pools.transmit_bytes())
    }

    /// Computes a transfer whose source is this side.
    pub(super) fn transfer(
        &self,
        source: usize,
    ) -> Option<Result<lnet_o2iblnd::sizes::PossibleTransfer, lnet_o2iblnd::sizes::TransferError>> {
        let agreed = self.directions[0].outcome.as_ref().ok()?;
        let end = |side: usize| (&self.nodes[side].adjusted, self.buffer);
        Some(transfer(end(source), end(1 - source), agreed.fragments))
    }

    pub(super) fn to_json(&self) -> Value {
        let nodes = [0, 1].map(|side| {
            let node = &self.nodes[side];
            let mut value = node.to_json();
            let openers = [0, 1].map(|opener| (self.nodes[opener].peer.name, self.load_json(side, opener)));
            value["when_opened_by"] = Value::Object(openers.into_iter().map(|(name, load)| (name.to_string(), load)).collect());
            value["transfer"] = match self.transfer(side) {
                Some(Ok(made)) => json!({
                    "source": made.source.name(), "source_fragments": made.source_fragments, "sink": made.sink.name(),
                    "sink_fragments": made.sink_fragments, "writes": made.writes, "work_requests": made.work_requests,
                }),
                Some(Err(error)) => json!({ "errno": format!("{:?}", error.errno()), "error": error.to_string() }),
                None => Value::Null,
            };
            (node.peer.name.to_string(), value)
        });
        let directions = [0, 1].map(|opener| {
            let mut value = negotiation(&self.directions[opener]);
            value["barred"] = self.barred(opener).map(|barrier| barrier.text.as_str()).collect();
            (self.nodes[opener].peer.name.to_string(), value)
        });
        json!({
            "peers": self.peers,
            "sides": Value::Object(nodes.into_iter().collect()),
            "opened_by": Value::Object(directions.into_iter().collect()),
            "warnings": self.warnings,
        })
    }

    fn load_json(&self, side: usize, opener: usize) -> Value {
        let Some(load) = self.load(side, opener) else { return Value::Null };
        let ConnSizes {
            depth,
            sends,
            receives,
            completions,
            completions_least,
            pieces,
            receive_bytes,
            transmit_bytes,
            bookkeeping_bytes,
            high_water,
            ..
        } = load.made;
        json!({
            "depth": depth, "send_work_requests": sends, "receive_work_requests": receives, "completions": completions,
            "completions_least": completions_least, "pieces": pieces, "receive_bytes": receive_bytes,
            "transmit_bytes": transmit_bytes, "bookkeeping_bytes": bookkeeping_bytes, "high_water": high_water, "connections": load.connections,
            "queue_bytes_least": load.made.queue_bytes_least(), "all_queue_bytes_least": load.times(load.made.queue_bytes_least()),
            "all_send_work_requests": load.times(sends.into()), "all_completions": load.times(completions.into()),
            "all_receive_bytes": load.times(receive_bytes), "all_bytes": self.memory(side, opener),
        })
    }
}

impl SideResult {
    fn of(peer: SideInput) -> Result<SideResult, SizesError> {
        let adjusted = peer.side.adjust()?;
        let pools = pools(&adjusted, peer.cpts);
        Ok(SideResult { peer, adjusted, pools })
    }

    /// Describes the registration of memory on this side: its kind, and the number of fragments
    /// where that decides.
    pub(super) fn registration(&self) -> String {
        let name = |mapping| if mapping == KernelMapping::Fmr { "FMR" } else { "fast registration" };
        match self.adjusted.registration {
            KeyMethod::Once => "once".into(),
            KeyMethod::Mapped(mapping) => name(mapping).into(),
            KeyMethod::Global { up_to: None, .. } => "global region".into(),
            KeyMethod::Global { up_to: Some(most), mapping } => {
                format!("global region up to {most} fragments, {} beyond", name(mapping))
            }
        }
    }

    fn to_json(&self) -> Value {
        let SideResult { peer, adjusted, pools } = self;
        let changes = adjusted.changes.iter().filter(|change| !change.rule.fills_in()).map(|change| {
            json!({
                "tunable": change.tunable, "from": change.from, "to": change.to,
                "why": change.rule.why(), "source": change.rule.source(),
            })
        });
        json!({
            "release": adjusted.release.name(), "registration": self.registration(), "cpts": peer.cpts,
            "peer_credits": adjusted.peer_credits, "peer_credits_hiw": adjusted.high_water, "credits": adjusted.credits,
            "concurrent_sends": adjusted.concurrent_sends, "fragments": adjusted.fragments,
            "conns_per_peer": adjusted.conns_per_peer, "changes": changes.collect::<Vec<_>>(),
            "pools": {
                "transmits": pools.all_transmits(), "transmit_bytes_each": pools.transmit.total(),
                "transmit_bytes": pools.transmit_bytes(), "registrations": pools.all_registrations(),
                "bounce_bytes_most": pools.bounce_bytes(), "flush_trigger": pools.flush_trigger, "credits_per_cpt": pools.credits, "credits": pools.all_credits(),
            },
        })
    }
}

fn negotiation(course: &Negotiation) -> Value {
    let tries = course.tries.iter().map(|Try { depth, fragments, answer, .. }| {
        let answer = match answer {
            PassiveAnswer::Accepted { depth, fragments } => json!({ "accepted": { "depth": depth, "fragments": fragments } }),
            PassiveAnswer::Rejected { reason, depth, fragments } => {
                json!({ "rejected": reason_name(*reason), "offered": { "depth": depth, "fragments": fragments } })
            }
            PassiveAnswer::Failed => json!({ "rejected": "NO_RESOURCES" }),
        };
        json!({ "asked": { "depth": depth, "fragments": fragments }, "answer": answer })
    });
    let tries: Vec<Value> = tries.collect();
    match &course.outcome {
        Ok(Agreed { depth, fragments, .. }) => {
            json!({ "tries": tries, "depth": depth, "fragments": fragments })
        }
        Err(error) => json!({ "tries": tries, "error": error.to_string() }),
    }
}

/// Returns the protocol's name of a reason.
pub(super) fn reason_name(reason: lnet_proto::ib::RejectReason) -> &'static str {
    use lnet_proto::ib::RejectReason;
    match reason {
        RejectReason::RdmaFrags => "RDMA_FRAGS",
        RejectReason::MsgQueueSize => "MSG_QUEUE_SIZE",
        _ => "another reason",
    }
}

/// Returns whether a release is a kernel's.
pub(super) fn is_kernel(release: Release) -> bool {
    release != Release::Nlx
}
