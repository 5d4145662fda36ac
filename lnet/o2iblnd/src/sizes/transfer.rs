//! The work requests of one transfer (S-504 to S-506, lnet-wire 37).

use lnet_api::Errno;

use super::{Adjusted, KernelMapping, KeyMethod, Release};

/// The memory of one side: pages of an MD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MdPages {
    /// Number of fragments before mapping, each at most a page.
    pub fragments: u16,
    /// True if a fragment other than the first starts, or one other than the last ends, inside a
    /// page.
    pub gaps: bool,
}

/// The way in which a buffer gets its key, which determines its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The buffer is registered already.
    Registered,
    /// The key of the global memory region.
    Global,
    /// A mapping as a fast memory region.
    Fmr,
    /// A fast registration.
    FastReg,
}

impl Means {
    /// Returns the name for output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Means::Registered => "registered once",
            Means::Global => "global region",
            Means::Fmr => "FMR",
            Means::FastReg => "fast registration",
        }
    }

    /// Returns the number of work requests in addition to the writes: to map and to invalidate.
    #[must_use]
    pub const fn beside_writes(self) -> u32 {
        match self {
            Means::FastReg => 2,
            Means::Registered | Means::Global | Means::Fmr => 0,
        }
    }
}

/// A possible transfer: the work requests that the source posts, without the DONE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PossibleTransfer {
    /// The means by which the source gets its key.
    pub source: Means,
    /// Number of fragments of the source.
    pub source_fragments: u16,
    /// The means by which the sink gets its key.
    pub sink: Means,
    /// Number of fragments in the descriptor that the sink sends.
    pub sink_fragments: u16,
    /// Number of RDMA writes.
    pub writes: u32,
    /// Writes and mappings of the source's memory: 1 with FMR, 3 with fast registration, one for
    /// each fragment with a global region (S-506).
    pub work_requests: u32,
}

/// The reason why a transfer fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The transfer needs more writes than the connection allows (S-504).
    #[error(
        "{writes} writes for {source_fragments} fragments into {sink_fragments}; the connection has {limit}: raise \
         map_on_demand to 256 where it is lower, or send smaller or contiguous buffers (EMSGSIZE)"
    )]
    Fragments {
        /// Number of writes needed.
        writes: u32,
        /// Number of fragments of the source.
        source_fragments: u16,
        /// Number of fragments of the sink.
        sink_fragments: u16,
        /// The negotiated number of fragments, which limits the writes.
        limit: u16,
    },
    /// A buffer has gaps, which its mapping cannot express.
    #[error(
        "the {side}'s buffer has gaps, which {means} cannot express: set use_fastreg_gaps=1 if its device can, or start and \
         end fragments on page boundaries (EPROTONOSUPPORT)"
    )]
    Gaps {
        /// The side whose buffer has gaps: `source` or `sink`.
        side: &'static str,
        /// The name of the mapping.
        means: &'static str,
    },
    /// 2.8 ignores the gaps of a mapped buffer: bytes are written to wrong addresses (seed 004).
    #[error(
        "the {side}'s buffer has gaps, which 2.8 ignores when it maps memory: some data are written to wrong addresses"
    )]
    SilentGaps {
        /// The side whose buffer has gaps: `source` or `sink`.
        side: &'static str,
    },
    /// The number of a buffer's fragments is out of range.
    #[error("the {side}'s buffer has {fragments} fragments: it must have from 1 to {most}")]
    Buffer {
        /// The side of the buffer: `source` or `sink`.
        side: &'static str,
        /// Number of fragments of the buffer.
        fragments: u16,
        /// The maximum number of fragments.
        most: u16,
    },
}

impl TransferError {
    /// Returns the errno; EINVAL for errors that the nodes do not detect.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            TransferError::Fragments { .. } => Errno::EMSGSIZE,
            TransferError::Gaps { .. } => Errno::EPROTONOSUPPORT,
            TransferError::SilentGaps { .. } | TransferError::Buffer { .. } => Errno::EINVAL,
        }
    }
}

/// Computes a transfer of a source's buffer into a sink's of the same length, on a connection with
/// this number of fragments. Both start at the same offset in a page; otherwise there may be one
/// write more for each fragment of the shorter list.
///
/// # Errors
/// [`TransferError`], which names the failure and the tunable to change.
pub fn transfer(
    (source, from): (&Adjusted, MdPages),
    (sink, to): (&Adjusted, MdPages),
    fragments: u16,
) -> Result<PossibleTransfer, TransferError> {
    let (means, source_fragments) = mapped(source, from, "source")?;
    let (sink_means, sink_fragments) = mapped(sink, to, "sink")?;
    let (pieces, runs) = (u32::from(source_fragments), u32::from(sink_fragments));
    // A write goes to one contiguous range, from several pieces.
    let writes = if runs == 1 { pieces.div_ceil(source.pieces) } else { pieces.max(runs) };
    if writes > u32::from(fragments) {
        return Err(TransferError::Fragments { writes, source_fragments, sink_fragments, limit: fragments });
    }
    Ok(PossibleTransfer {
        source: means,
        source_fragments,
        sink: sink_means,
        sink_fragments,
        writes,
        work_requests: writes + means.beside_writes(),
    })
}

/// Returns the means by which a side gets its key, and the number of fragments after mapping.
fn mapped(side: &Adjusted, buffer: MdPages, which: &'static str) -> Result<(Means, u16), TransferError> {
    let MdPages { fragments, gaps } = buffer;
    let most = side.release.fragments_max();
    if !(1..=most).contains(&fragments) {
        return Err(TransferError::Buffer { side: which, fragments, most });
    }
    let mapping = match side.registration {
        // One registration covers the whole buffer: without gaps it is one fragment (S-505).
        KeyMethod::Once => return Ok((Means::Registered, if gaps { fragments } else { 1 })),
        KeyMethod::Global { up_to, .. } if up_to.is_none_or(|most| fragments <= most) => {
            return Ok((Means::Global, fragments));
        }
        KeyMethod::Global { mapping, .. } | KeyMethod::Mapped(mapping) => mapping,
    };
    let means = match mapping {
        KernelMapping::FastReg => Means::FastReg,
        KernelMapping::Fmr => Means::Fmr,
    };
    match side.release {
        _ if !gaps => Ok((means, 1)),
        Release::V2_8 => Err(TransferError::SilentGaps { side: which }),
        Release::V2_10 | Release::V2_12 => Ok((means, fragments)),
        _ if side.gaps && mapping == KernelMapping::FastReg => Ok((means, 1)),
        _ => Err(TransferError::Gaps { side: which, means: means.name() }),
    }
}
