use crate::Rng;

/// The behaviour of a simulated RDMA network. Chances are in 10,000, times in nanoseconds of
/// virtual time; ranges include both ends.
#[derive(Debug, Clone)]
pub struct IbBehaviour {
    /// Time from a work request's departure to its arrival, drawn once for each direction between
    /// two hosts.
    pub latency_ns: (u64, u64),
    /// Addition to the latency for each work request, and for each message of the connection
    /// manager. Work requests of one connection keep their order.
    pub jitter_ns: (u64, u64),
    /// Transfer time in nanoseconds for each KiB.
    pub kib_ns: u64,
    /// Time from a completion to the channel's event, like that of an interrupt. The completion can
    /// be polled before the event.
    pub interrupt_ns: (u64, u64),
    /// Chance that the connection breaks at a work request.
    pub breaks: u32,
    /// Chance that a registration is refused for lack of memory.
    pub refused_memory: u32,
    /// The limits of devices, drawn for each host.
    pub devices: Vec<IbDevice>,
    /// The fault that the network has, to test whether the checks detect it.
    pub fault: Option<IbFault>,
}

/// The limits of a device, as far as devices differ in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IbDevice {
    /// Work requests per queue.
    pub queue_entries: u32,
    /// Fragments of memory per work request.
    pub pieces: u32,
    /// Bytes of inline data of a send.
    pub inline: u32,
    /// Bytes of one registration.
    pub memory_bytes: u64,
}

/// A fault that no RDMA device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IbFault {
    /// A byte of a write is changed.
    ChangesByte,
    /// A write is not carried out, and completes with success.
    DropsWrite,
    /// A completion is not reported by the channel.
    LosesReady,
    /// A completion is lost.
    LosesCompletion,
    /// Ringing a channel's bell wakes no thread.
    LosesRing,
}

/// The chance of an [`IbFault`] in 10,000, at each occasion.
const FAULT_CHANCE: u32 = 100;

impl IbDevice {
    /// The limits of a usual device.
    pub const LARGE: IbDevice =
        IbDevice { queue_entries: 16_384, pieces: 30, inline: 220, memory_bytes: u64::MAX };

    /// The limits of a small device: no queue of usual depth, and little memory at a time.
    pub const SMALL: IbDevice = IbDevice { queue_entries: 600, pieces: 1, inline: 0, memory_bytes: 2 << 20 };
}

impl IbBehaviour {
    /// Returns the behaviour of a network without faults.
    #[must_use]
    pub fn reliable() -> IbBehaviour {
        IbBehaviour {
            latency_ns: (1_000, 5_000),
            jitter_ns: (0, 1_000),
            kib_ns: 80,
            interrupt_ns: (0, 2_000),
            breaks: 0,
            refused_memory: 0,
            devices: vec![IbDevice::LARGE],
            fault: None,
        }
    }

    /// Draws the behaviour of a network from random numbers.
    #[must_use]
    pub fn from_rng(rng: &mut Rng) -> IbBehaviour {
        let (large, small) = (IbDevice::LARGE, IbDevice::SMALL);
        let devices = match rng.below(4) {
            0 => vec![large, small],
            1 => vec![large, IbDevice { pieces: 2, inline: 0, ..large }],
            _ => vec![large],
        };
        IbBehaviour {
            latency_ns: rng.pick(&[(1_000, 2_000), (5_000, 50_000), (1_000_000, 20_000_000)]),
            jitter_ns: rng.pick(&[(0, 0), (0, 5_000), (0, 2_000_000)]),
            kib_ns: rng.pick(&[0, 80, 10_000]),
            interrupt_ns: rng.pick(&[(0, 0), (500, 5_000), (0, 5_000_000)]),
            breaks: rng.pick(&[0, 0, 5, 50]),
            refused_memory: rng.pick(&[0, 0, 500, 5_000]),
            devices,
            fault: None,
        }
    }

    /// Returns these behaviour without the faults.
    #[must_use]
    pub fn without_faults(&self) -> IbBehaviour {
        IbBehaviour { breaks: 0, refused_memory: 0, ..self.clone() }
    }

    /// Returns whether the fault occurs now.
    pub(super) fn occurs(&self, fault: IbFault, rng: &mut Rng) -> bool {
        self.fault == Some(fault) && rng.chance(FAULT_CHANCE)
    }
}
