use crate::Rng;

/// The habits of a simulated RDMA network. Chances are in 10,000, times in nanoseconds of virtual time; ranges include both
/// ends.
#[derive(Debug, Clone)]
pub struct IbHabits {
    /// From a work request's leaving to its arriving, drawn once for each direction between two hosts.
    pub latency_ns: (u64, u64),
    /// What is added to it for each work request, and for each message of the connection manager. Work requests of one
    /// connection keep their order.
    pub jitter_ns: (u64, u64),
    /// Nanoseconds for each KiB.
    pub kib_ns: u64,
    /// From a completion to the channel's telling of it, as an interrupt takes its time. Meanwhile it can be polled.
    pub interrupt_ns: (u64, u64),
    /// Work requests at which the connection breaks.
    pub breaks: u32,
    /// Registrations that are refused for want of memory.
    pub refused_memory: u32,
    /// What devices can do, drawn for each host.
    pub devices: Vec<IbDevice>,
    /// A wrong network, to see whether anybody notices.
    pub fault: Option<IbFault>,
}

/// What a device can do, as far as it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IbDevice {
    /// Work requests per queue.
    pub queue_entries: u32,
    /// Pieces of memory per work request.
    pub pieces: u32,
    /// Bytes that a send carries in itself.
    pub inline: u32,
    /// Bytes of one registration.
    pub memory_bytes: u64,
}

/// Something that no RDMA device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IbFault {
    /// A byte of a write is another one.
    ChangesByte,
    /// A write is not carried out, and completes well.
    DropsWrite,
    /// A completion is not reported by the channel.
    LosesReady,
    /// A completion is not there.
    LosesCompletion,
    /// Whoever rings a channel's bell wakes nobody.
    LosesRing,
}

/// Chances of an [`IbFault`] in 10,000, whenever it could strike.
const FAULT_CHANCE: u32 = 100;

impl IbDevice {
    /// One as they are.
    pub const LARGE: IbDevice =
        IbDevice { queue_entries: 16_384, pieces: 30, inline: 220, memory_bytes: u64::MAX };

    /// One that can do little: no queue of usual depth, and little memory at a time.
    pub const SMALL: IbDevice = IbDevice { queue_entries: 600, pieces: 1, inline: 0, memory_bytes: 2 << 20 };
}

impl IbHabits {
    /// A network on which nothing goes wrong.
    #[must_use]
    pub fn reliable() -> IbHabits {
        IbHabits {
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

    /// A network as these random numbers have it.
    #[must_use]
    pub fn from_rng(rng: &mut Rng) -> IbHabits {
        let (large, small) = (IbDevice::LARGE, IbDevice::SMALL);
        let devices = match rng.below(4) {
            0 => vec![large, small],
            1 => vec![large, IbDevice { pieces: 2, inline: 0, ..large }],
            _ => vec![large],
        };
        IbHabits {
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

    /// The same network on a good day.
    #[must_use]
    pub fn calmed(&self) -> IbHabits {
        IbHabits { breaks: 0, refused_memory: 0, ..self.clone() }
    }

    /// The fault, if it strikes now.
    pub(super) fn strikes(&self, fault: IbFault, rng: &mut Rng) -> bool {
        self.fault == Some(fault) && rng.chance(FAULT_CHANCE)
    }
}
