//! The releases of the kernel's driver, and nlx, by their arithmetic.

use std::fmt;
use std::str::FromStr;

use lnet_proto::ib::RDMA_FRAGMENTS_MAX;

use super::SizesError;

/// The first kernel build without global memory regions: RHEL 7.4's (S-508).
pub const GLOBAL_REGION_PIVOT: u32 = 693;

/// The maximum number of fragments before 2.15: the pages of the largest payload (lnet-wire 34).
pub const FRAGMENTS_BEFORE_2_15: u16 = 256;

/// A release of the kernel's driver, or nlx, by its arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// The releases 2.8 and 2.9.
    V2_8,
    /// The releases 2.10 and 2.11.
    V2_10,
    /// The releases 2.12 and 2.13.
    V2_12,
    /// The release 2.14: queues as today, but 256 fragments.
    V2_14,
    /// The releases from 2.15 on.
    V2_15,
    /// nlx.
    Nlx,
}

impl Release {
    /// All releases, the oldest first.
    pub const ALL: [Release; 6] =
        [Release::V2_8, Release::V2_10, Release::V2_12, Release::V2_14, Release::V2_15, Release::Nlx];

    /// Returns the release's name, which [`Release::from_str`] parses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Release::V2_8 => "2.8",
            Release::V2_10 => "2.10",
            Release::V2_12 => "2.12",
            Release::V2_14 => "2.14",
            Release::V2_15 => "2.15",
            Release::Nlx => "nlx",
        }
    }

    /// Returns the maximum number of fragments that the release requests and grants without tuning
    /// (lnet-wire 34).
    #[must_use]
    pub const fn fragments_max(self) -> u16 {
        match self {
            Release::V2_8 | Release::V2_10 | Release::V2_12 | Release::V2_14 => FRAGMENTS_BEFORE_2_15,
            Release::V2_15 | Release::Nlx => RDMA_FRAGMENTS_MAX,
        }
    }

    /// Returns whether `map_on_demand` is the maximum number of fragments (lnet-semantics 29,
    /// S-502).
    #[must_use]
    pub const fn map_on_demand_is_fragments(self) -> bool {
        matches!(self, Release::V2_8 | Release::V2_10)
    }

    /// Returns whether work requests have several pieces (`wrq_sge`).
    #[must_use]
    pub const fn has_pieces(self) -> bool {
        matches!(self, Release::V2_14 | Release::V2_15 | Release::Nlx)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Release {
    type Err = SizesError;

    /// Parses `nlx` or a version: `2.12`, `2.15.3`. A version between two releases counts as the
    /// older.
    fn from_str(text: &str) -> Result<Release, SizesError> {
        if text == "nlx" {
            return Ok(Release::Nlx);
        }
        let refused = || SizesError::Release { text: text.to_string() };
        let mut numbers = text.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return Err(refused());
        };
        if numbers.any(|number| number.is_err()) {
            return Err(refused());
        }
        match (major, minor) {
            (2, 8..=9) => Ok(Release::V2_8),
            (2, 10..=11) => Ok(Release::V2_10),
            (2, 12..=13) => Ok(Release::V2_12),
            (2, 14) => Ok(Release::V2_14),
            (2, 15..) => Ok(Release::V2_15),
            _ => Err(refused()),
        }
    }
}

/// The mapping of memory on a kernel node that has no global region, or does not use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KernelMapping {
    /// Fast registration, with two more work requests, to map and to invalidate. All current
    /// hardware.
    #[default]
    FastReg,
    /// Fast memory regions, of older hardware: mapped by a call, without a work request.
    Fmr,
}

impl KernelMapping {
    /// Returns the mapping's name, which [`KernelMapping::from_str`] parses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KernelMapping::FastReg => "fastreg",
            KernelMapping::Fmr => "fmr",
        }
    }
}

impl fmt::Display for KernelMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KernelMapping {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<KernelMapping, SizesError> {
        [KernelMapping::FastReg, KernelMapping::Fmr]
            .into_iter()
            .find(|mapping| mapping.name() == text)
            .ok_or_else(|| SizesError::Mapping { text: text.to_string() })
    }
}
