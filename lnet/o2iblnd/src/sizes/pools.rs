//! The resources of an NI for all its connections (lnet-semantics 13, 33 and 34).

use lnet_proto::ib::MESSAGE_MAX;

use super::{Adjusted, KeyMethod, Release};

/// The least number of transmit descriptors, and of registrations, in a pool (lnet-semantics 33).
pub const POOL_MIN: u32 = 256;

/// The least trigger of a flush (lnet-semantics 33).
pub const FLUSH_TRIGGER_MIN: u32 = 192;

/// Bounce buffers of an NI of nlx, half of them for outgoing and half for incoming payloads; fewer
/// if the device refuses the memory. Further payloads wait. Each half is allocated when the first
/// of it is needed.
pub const BOUNCES: u32 = 16;

/// Bytes of a bounce buffer: LNet's largest payload.
pub const BOUNCE_BYTES: u32 = lnet_proto::MAX_PAYLOAD;

/// The least number of peers whose `peer_credits` each partition's share of the NI's credits must
/// cover (lnet-semantics 13).
const PEERS_PER_PARTITION: u32 = 8;

/// The pools of an NI. Those of kernel nodes grow; these are the initial ones. nlx has neither
/// transmit descriptors nor registrations per NI: each connection has message buffers, and memory
/// is registered once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pools {
    /// CPU partitions that the NI uses, each with one pool of each kind.
    pub partitions: u32,
    /// Transmit descriptors of one pool; 0 for nlx.
    pub transmits: u32,
    /// Registrations of one pool; 0 if memory is registered once.
    pub registrations: u32,
    /// The number of used registrations at which a pool is flushed; only for fast memory regions.
    pub flush_trigger: Option<u32>,
    /// Pages of a registration.
    pub registration_pages: u32,
    /// Credits of one partition.
    pub credits: u32,
    /// The memory of one transmit descriptor.
    pub transmit: Transmit,
    /// Bounce buffers of the NI, of [`BOUNCE_BYTES`] each, allocated once memory that cannot be
    /// registered has to be copied. 0 for kernel nodes.
    pub bounces: u32,
}

/// The memory of one transmit descriptor in bytes, by part. The first three are exact; the others
/// depend on the kernel's own structures, whose sizes vary with its version by about a fifth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The message buffer.
    pub message: u64,
    /// The RDMA descriptor: key, count, and 12 bytes for each fragment.
    pub descriptor: u64,
    /// The list of page addresses.
    pub pages: u64,
    /// The scatter list.
    pub scatter: u64,
    /// The work requests of the writes.
    pub writes: u64,
    /// The pieces of the work requests.
    pub pieces: u64,
    /// The kernel's bookkeeping.
    pub own: u64,
}

impl Transmit {
    const NONE: Transmit =
        Transmit { message: 0, descriptor: 0, pages: 0, scatter: 0, writes: 0, pieces: 0, own: 0 };

    /// Returns the sum of all parts.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.message + self.descriptor + self.pages + self.scatter + self.writes + self.pieces + self.own
    }

    fn of(adjusted: &Adjusted) -> Transmit {
        if adjusted.release == Release::Nlx {
            return Transmit::NONE;
        }
        let fragments = u64::from(adjusted.release.fragments_max());
        Transmit {
            message: MESSAGE_MAX as u64,
            descriptor: 8 + 12 * fragments,
            pages: 8 * 256,
            scatter: 32 * fragments,
            writes: 56 * fragments,
            pieces: 16 * (fragments * u64::from(adjusted.pieces) + 1),
            own: 200,
        }
    }
}

/// Returns the pools of an NI on this number of CPU partitions; 0 counts as 1.
#[must_use]
pub fn pools(adjusted: &Adjusted, partitions: u32) -> Pools {
    let partitions = partitions.max(1);
    let share = |whole: u32, least: u32| (whole / partitions).max(least);
    let mapping = match adjusted.registration {
        KeyMethod::Once => None,
        KeyMethod::Mapped(mapping) | KeyMethod::Global { mapping, .. } => Some(mapping),
    };
    let credits = adjusted.credits;
    let own = adjusted.release == Release::Nlx;
    let per_partition = PEERS_PER_PARTITION * u32::from(adjusted.peer_credits);
    Pools {
        partitions,
        transmits: if own { 0 } else { share(adjusted.ntx, POOL_MIN) },
        registrations: mapping.map_or(0, |_| share(adjusted.fmr_pool_size, POOL_MIN)),
        flush_trigger: mapping
            .filter(|mapping| *mapping == super::KernelMapping::Fmr)
            .map(|_| share(adjusted.fmr_flush_trigger, FLUSH_TRIGGER_MIN)),
        registration_pages: adjusted.release.fragments_max().into(),
        credits: if partitions == 1 { credits } else { credits.min(share(credits, per_partition)) },
        transmit: Transmit::of(adjusted),
        bounces: if own { BOUNCES } else { 0 },
    }
}

impl Pools {
    /// Returns the number of transmit descriptors in all pools.
    #[must_use]
    pub const fn all_transmits(&self) -> u64 {
        self.partitions as u64 * self.transmits as u64
    }

    /// Returns the number of registrations in all pools.
    #[must_use]
    pub const fn all_registrations(&self) -> u64 {
        self.partitions as u64 * self.registrations as u64
    }

    /// Returns the credits of all partitions, which tools show as the NI's.
    #[must_use]
    pub const fn all_credits(&self) -> u64 {
        self.partitions as u64 * self.credits as u64
    }

    /// Returns the bytes of all transmit descriptors.
    #[must_use]
    pub const fn transmit_bytes(&self) -> u64 {
        self.all_transmits() * self.transmit.total()
    }

    /// Returns the bytes of all bounce buffers.
    #[must_use]
    pub const fn bounce_bytes(&self) -> u64 {
        self.bounces as u64 * BOUNCE_BYTES as u64
    }
}
