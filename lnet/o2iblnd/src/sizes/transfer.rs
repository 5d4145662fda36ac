//! What one transfer needs (S-504 to S-506, lnet-wire 37).

use lnet_api::Errno;

use super::{Adjusted, Mapping, Registration, Release};

/// Memory of one side: pages of an MD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Its fragments before it is mapped, each at most a page.
    pub fragments: u16,
    /// Whether one but the first starts, or one but the last ends, inside a page.
    pub gaps: bool,
}

/// How a buffer gets its key, and what its descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// It is registered already.
    Registered,
    /// By the global memory region.
    Global,
    /// As a fast memory region.
    Fmr,
    /// By fast registration.
    FastReg,
}

impl Means {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Means::Registered => "registered once",
            Means::Global => "global region",
            Means::Fmr => "FMR",
            Means::FastReg => "fast registration",
        }
    }

    /// Work requests beside the writes: to map and to invalidate.
    #[must_use]
    pub const fn beside_writes(self) -> u32 {
        match self {
            Means::FastReg => 2,
            Means::Registered | Means::Global | Means::Fmr => 0,
        }
    }
}

/// A transfer that can be: what the source of the data posts, the DONE behind it not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// How the source's memory has its key.
    pub source: Means,
    /// Fragments of the source.
    pub source_fragments: u16,
    /// How the sink's memory has its key.
    pub sink: Means,
    /// Fragments of the descriptor that the sink sends.
    pub sink_fragments: u16,
    /// RDMA writes.
    pub writes: u32,
    /// Writes, and what maps the source's memory: 1 with FMR, 3 with fast registration, one for each fragment with a global
    /// region (S-506).
    pub work_requests: u32,
}

/// Why a transfer fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// More writes than the connection has room for (S-504).
    #[error(
        "{writes} writes for {source_fragments} fragments into {sink_fragments}; the connection has {limit}: raise \
         map_on_demand to 256 where it is lower, or send smaller or contiguous buffers (EMSGSIZE)"
    )]
    Fragments {
        /// Writes needed.
        writes: u32,
        /// Of the source.
        source_fragments: u16,
        /// Of the sink.
        sink_fragments: u16,
        /// Fragments agreed on.
        limit: u16,
    },
    /// A buffer with gaps, where mapping cannot express them.
    #[error(
        "the {side}'s buffer has gaps, which {means} cannot express: set use_fastreg_gaps=1 if its device can, or start and \
         end fragments on page boundaries (EPROTONOSUPPORT)"
    )]
    Gaps {
        /// `source` or `sink`.
        side: &'static str,
        /// How it is mapped.
        means: &'static str,
    },
    /// 2.8 takes a mapped buffer for one without gaps: bytes are written to the wrong place (seed 004).
    #[error(
        "the {side}'s buffer has gaps, of which 2.8 knows nothing when it maps memory: not all data are written where they \
         should be"
    )]
    SilentGaps {
        /// `source` or `sink`.
        side: &'static str,
    },
    /// An empty buffer, or one longer than any message.
    #[error("the {side}'s buffer has {fragments} fragments: it must have from 1 to {most}")]
    Buffer {
        /// `source` or `sink`.
        side: &'static str,
        /// Its fragments.
        fragments: u16,
        /// The most.
        most: u16,
    },
}

impl TransferError {
    /// The errno; EINVAL for what the nodes do not notice.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            TransferError::Fragments { .. } => Errno::EMSGSIZE,
            TransferError::Gaps { .. } => Errno::EPROTONOSUPPORT,
            TransferError::SilentGaps { .. } | TransferError::Buffer { .. } => Errno::EINVAL,
        }
    }
}

/// What it takes to write a source's buffer into a sink's of the same length, on a connection of so many fragments. Both
/// start at the same place in a page: if they do not, there may be one write more for each fragment of the shorter list.
///
/// # Errors
/// [`TransferError`]: what would happen, and what to change.
pub fn transfer(
    (source, from): (&Adjusted, Buffer),
    (sink, to): (&Adjusted, Buffer),
    fragments: u16,
) -> Result<Transfer, TransferError> {
    let (means, source_fragments) = mapped(source, from, "source")?;
    let (sink_means, sink_fragments) = mapped(sink, to, "sink")?;
    let (pieces, runs) = (u32::from(source_fragments), u32::from(sink_fragments));
    // A write goes to one run of memory, out of several pieces.
    let writes = if runs == 1 { pieces.div_ceil(source.pieces) } else { pieces.max(runs) };
    if writes > u32::from(fragments) {
        return Err(TransferError::Fragments { writes, source_fragments, sink_fragments, limit: fragments });
    }
    Ok(Transfer {
        source: means,
        source_fragments,
        sink: sink_means,
        sink_fragments,
        writes,
        work_requests: writes + means.beside_writes(),
    })
}

/// How a side's buffer gets its key, and how many fragments are left.
fn mapped(side: &Adjusted, buffer: Buffer, which: &'static str) -> Result<(Means, u16), TransferError> {
    let Buffer { fragments, gaps } = buffer;
    let most = side.release.fragments_max();
    if !(1..=most).contains(&fragments) {
        return Err(TransferError::Buffer { side: which, fragments, most });
    }
    let mapping = match side.registration {
        // One registration holds the whole: what has no gaps is one fragment (S-505).
        Registration::Once => return Ok((Means::Registered, if gaps { fragments } else { 1 })),
        Registration::Global { up_to, .. } if up_to.is_none_or(|most| fragments <= most) => {
            return Ok((Means::Global, fragments));
        }
        Registration::Global { mapping, .. } | Registration::Mapped(mapping) => mapping,
    };
    let means = match mapping {
        Mapping::FastReg => Means::FastReg,
        Mapping::Fmr => Means::Fmr,
    };
    match side.release {
        _ if !gaps => Ok((means, 1)),
        Release::V2_8 => Err(TransferError::SilentGaps { side: which }),
        Release::V2_10 | Release::V2_12 => Ok((means, fragments)),
        _ if side.gaps && mapping == Mapping::FastReg => Ok((means, 1)),
        _ => Err(TransferError::Gaps { side: which, means: means.name() }),
    }
}
