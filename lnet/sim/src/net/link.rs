//! The behaviour of a simulated network.

use lnet_api::NiLimits;

/// The behaviour of a simulated network. Chances are in 10,000 (500 is 5 %), times in nanoseconds
/// of virtual time, sizes in bytes; ranges include both ends.
#[derive(Debug, Clone)]
pub struct LinkModel {
    /// The limits that the LND reports when an NI starts.
    pub limits: NiLimits,
    /// Time from departure to arrival.
    pub latency_ns: (u64, u64),
    /// Chance that a message takes a hundred times as long.
    pub slow: u32,
    /// Bytes per microsecond of one connection; `None` for no limit.
    pub bytes_per_us: Option<u64>,
    /// Time from a header's arrival to the end of its payload.
    pub payload_ns: (u64, u64),
    /// Chance that a message has left when `send` returns.
    pub sent_now: u32,
    /// Time from `send` to the upcall that a message has left.
    pub hold_ns: (u64, u64),
    /// Chance that `send` fails.
    pub send_fails: u32,
    /// Chance that a message is lost, which also breaks its connection.
    pub lost: u32,
    /// Chance that a payload is cut off after its header, which also breaks its connection.
    pub payload_lost: u32,
    /// The lifetime of a connection; `None`: it lives until an end is gone.
    pub life_ns: Option<(u64, u64)>,
    /// The delay until an end detects that its connection is gone.
    pub notice_ns: (u64, u64),
    /// Chance that a message is lost silently, in a network without reliability.
    pub vanish: u32,
    /// Chance that a message arrives twice, in a network without reliability.
    pub twice: u32,
    /// True if messages between two nodes overtake each other.
    pub overtaking: bool,
    /// True if headers are sent in their large form even where the small one would do.
    pub large_headers: bool,
    /// True if the network answers GETs without the engine, as RDMA does.
    pub direct_gets: bool,
    /// CPU partitions, each with a shard of the LND.
    pub shards: usize,
    /// The defect of the LND, to test whether the checks detect it.
    pub defect: Option<Defect>,
}

/// A fault that an LND must never have. Each occurs for about three messages in a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// The LND does not report that a message has left.
    ForgetsFinalisation,
    /// The LND delivers a message twice.
    Duplicates,
    /// The LND swaps messages of one connection.
    Reorders,
    /// The LND changes a byte of a payload.
    Corrupts,
    /// The LND loses a message and keeps the connection.
    LosesSilently,
}

/// Chance of a [`Defect`], in 10,000.
pub(super) const DEFECT_CHANCE: u32 = 300;

impl LinkModel {
    /// Returns the model of a network without faults: latencies of 10 to 50 µs, messages in order
    /// and sent at once.
    #[must_use]
    pub fn reliable() -> LinkModel {
        LinkModel {
            limits: NiLimits { credits: 256, peer_credits: 8, timeout_ns: 50_000_000_000 },
            latency_ns: (10_000, 50_000),
            slow: 0,
            bytes_per_us: None,
            payload_ns: (0, 10_000),
            sent_now: 5_000,
            hold_ns: (0, 20_000),
            send_fails: 0,
            lost: 0,
            payload_lost: 0,
            life_ns: None,
            notice_ns: (0, 1_000_000),
            vanish: 0,
            twice: 0,
            overtaking: false,
            large_headers: false,
            direct_gets: false,
            shards: 1,
            defect: None,
        }
    }

    /// Returns the same model without faults and delays.
    #[must_use]
    pub fn without_faults(&self) -> LinkModel {
        LinkModel {
            slow: 0,
            send_fails: 0,
            lost: 0,
            payload_lost: 0,
            life_ns: None,
            vanish: 0,
            twice: 0,
            ..self.clone()
        }
    }

    /// Returns whether each message arrives once and in order while its connection lives.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.vanish == 0 && self.twice == 0 && !self.overtaking
    }
}
