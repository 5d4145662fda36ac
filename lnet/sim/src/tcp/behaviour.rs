use crate::Rng;

/// The number of ports from 512 to 1023.
const PRIVILEGED_PORTS: u16 = 512;

/// The behaviour of a simulated TCP network. Chances are in 10,000, times in nanoseconds of virtual
/// time, sizes in bytes; ranges include both ends.
#[derive(Debug, Clone)]
pub struct TcpBehaviour {
    /// Time from a segment's departure to its arrival, drawn once for each direction between two
    /// hosts.
    pub latency_ns: (u64, u64),
    /// Addition to the latency for each segment. Segments of one connection keep their order.
    pub jitter_ns: (u64, u64),
    /// Length of one segment; the least is 1.
    pub segment: (u64, u64),
    /// Size of a send buffer.
    pub send_buffer: usize,
    /// Size of a receive buffer.
    pub receive_buffer: usize,
    /// Chance that a segment causes a reset of its connection instead of arriving.
    pub resets: u32,
    /// Chance for each call that a poller reports an event though nothing has changed.
    pub spurious: u32,
    /// The number of source ports below 1024 that a host may use, from 1023 downwards.
    pub privileged_ports: u16,
    /// Chance that a connection is gone when it is accepted.
    pub gone: u32,
    /// A fault of the network, to test that the checks find it.
    pub fault: Option<TcpFault>,
}

/// A fault that TCP never has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpFault {
    /// A byte of a segment is lost.
    DropsByte,
    /// A byte of a segment is changed.
    ChangesByte,
    /// A poller does not report that data has arrived.
    LosesReadable,
    /// A poller does not report that there is room again.
    LosesWritable,
    /// A segment arrives twice.
    Repeats,
}

/// The chance of a [`TcpFault`] in 10,000, at each occasion.
pub(super) const FAULT_CHANCE: u32 = 100;

impl TcpBehaviour {
    /// Returns a network without faults.
    #[must_use]
    pub fn reliable() -> TcpBehaviour {
        TcpBehaviour {
            latency_ns: (20_000, 100_000),
            jitter_ns: (0, 20_000),
            segment: (1_448, 65_536),
            send_buffer: 256 << 10,
            receive_buffer: 256 << 10,
            resets: 0,
            spurious: 0,
            privileged_ports: PRIVILEGED_PORTS,
            gone: 0,
            fault: None,
        }
    }

    /// Draws the behaviour of a network.
    pub(super) fn from_rng(rng: &mut Rng) -> TcpBehaviour {
        let buffer = |rng: &mut Rng| rng.pick(&[4 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 4 << 20]);
        TcpBehaviour {
            latency_ns: rng.pick(&[(1_000, 2_000), (20_000, 200_000), (1_000_000, 80_000_000)]),
            jitter_ns: rng.pick(&[(0, 0), (0, 50_000), (0, 20_000_000)]),
            segment: rng.pick(&[(1, 100), (1, 9_000), (1_448, 1_448), (1_448, 65_536), (65_536, 65_536)]),
            send_buffer: buffer(rng),
            receive_buffer: buffer(rng),
            resets: rng.pick(&[0, 0, 0, 5, 50]),
            spurious: rng.pick(&[0, 0, 500, 5_000]),
            privileged_ports: rng.pick(&[PRIVILEGED_PORTS, PRIVILEGED_PORTS, PRIVILEGED_PORTS, 4]),
            gone: rng.pick(&[0, 0, 500]),
            fault: None,
        }
    }

    /// Returns the network without faults.
    #[must_use]
    pub fn without_faults(&self) -> TcpBehaviour {
        TcpBehaviour { resets: 0, gone: 0, privileged_ports: PRIVILEGED_PORTS, ..self.clone() }
    }

    /// Returns whether the fault occurs now.
    pub(super) fn occurs(&self, fault: TcpFault, rng: &mut Rng) -> bool {
        self.fault == Some(fault) && rng.chance(FAULT_CHANCE)
    }
}
