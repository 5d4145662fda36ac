//! How a network treats messages.

use lnet_api::NiLimits;

/// The habits of a simulated network. Chances are in 10,000 (500 is 5 %), times in nanoseconds of virtual time, sizes in
/// bytes; ranges include both ends.
#[derive(Debug, Clone)]
pub struct LinkModel {
    /// What the LND tells the engine when an NI starts.
    pub limits: NiLimits,
    /// From leaving to arriving.
    pub latency_ns: (u64, u64),
    /// Messages that take a hundred times as long.
    pub slow: u32,
    /// Bytes per microsecond of one connection; `None`: as many as there are.
    pub bytes_per_us: Option<u64>,
    /// From a header's arrival to the end of its payload.
    pub payload_ns: (u64, u64),
    /// Messages that have left when `send` returns.
    pub sent_now: u32,
    /// From `send` to the upcall that a message has left.
    pub hold_ns: (u64, u64),
    /// Messages whose `send` fails.
    pub send_fails: u32,
    /// Messages that are lost, and their connection with them.
    pub lost: u32,
    /// Payloads that are cut off after their header, and their connection with them.
    pub payload_lost: u32,
    /// How long a connection lives; `None`: as long as both ends.
    pub life_ns: Option<(u64, u64)>,
    /// How long an end needs to notice that a connection is gone.
    pub notice_ns: (u64, u64),
    /// Messages that vanish silently, in a network that is no better.
    pub vanish: u32,
    /// Messages that arrive twice, in a network that is no better.
    pub twice: u32,
    /// Whether messages between two nodes overtake each other.
    pub overtaking: bool,
    /// Whether headers are sent in their large form even where the small one would do.
    pub large_headers: bool,
    /// Whether the network answers GETs by itself, as RDMA does.
    pub direct_gets: bool,
    /// CPU partitions, which are shards of the LND.
    pub shards: usize,
    /// A defect of the LND, to see whether a checker notices it.
    pub defect: Option<Defect>,
}

/// Something that an LND must never do. Each strikes about one message in a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// It forgets to say that a message has left.
    ForgetsFinalisation,
    /// It hands a message over twice.
    Duplicates,
    /// It swaps messages of one connection.
    Reorders,
    /// It changes a byte of a payload.
    Corrupts,
    /// It loses a message and keeps the connection.
    LosesSilently,
}

/// Chances of a [`Defect`], in 10,000.
pub(super) const DEFECT_CHANCE: u32 = 300;

impl LinkModel {
    /// A network on which nothing goes wrong: 10 to 50 µs, in order, immediately sent.
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

    /// The same network on a good day: nothing is lost any more, nothing is slow.
    #[must_use]
    pub fn calmed(&self) -> LinkModel {
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

    /// Whether each message arrives once and in order, as long as its connection lives.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.vanish == 0 && self.twice == 0 && !self.overtaking
    }
}
