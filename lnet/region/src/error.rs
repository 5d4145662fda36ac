//! The error type of operations on memory.

use nix::errno::Errno;

/// An error of an operation on memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A region or fragment cannot have this length.
    #[error("{bytes} bytes of memory are requested: the length must be 1 to {max}")]
    Length {
        /// The requested number of bytes.
        bytes: usize,
        /// The maximum number of bytes.
        max: usize,
    },
    /// The range does not lie within the memory.
    #[error("bytes {start}..{end} are outside of the memory of {length} bytes")]
    OutOfBounds {
        /// First byte of the range.
        start: usize,
        /// One past the last byte of the range.
        end: usize,
        /// Length of the region, fragment or vector.
        length: usize,
    },
    /// A buffer has no fragments, or more than LNet allows.
    #[error("the buffer has {fragments} fragments: it must have 1 to {max}")]
    Fragments {
        /// The number of fragments.
        fragments: usize,
        /// The maximum number of fragments.
        max: usize,
    },
    /// Another lease conflicts on an overlapping range.
    #[error("bytes {start}..{end} are in use: a message there is in flight or still held")]
    InUse {
        /// First byte of the range within its region.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// Too many ranges of one region are leased.
    #[error("cannot lease another range of the region: {max} are in use")]
    TooManyLeases {
        /// The limit: 4,096, or fewer if there is no memory for further entries.
        max: usize,
    },
    /// The memory has no descriptor that could be shared: it is on the heap, or part of an arena.
    #[error("cannot share memory of {bytes} bytes: it is on the heap or part of an arena")]
    NotShareable {
        /// Length of the region in bytes.
        bytes: usize,
    },
    /// The descriptor does not name the memory of a region.
    #[error("the descriptor is not a memfd of fixed size, because of {what} ({errno})")]
    NotRegion {
        /// The property of the descriptor that is wrong.
        what: &'static str,
        /// The errno that the system returned.
        errno: Errno,
    },
    /// This is a forked child of the process that owns the memory.
    #[error("the memory belongs to process {process}, of which this is a forked child")]
    Forked {
        /// The id of the process that owns the memory.
        process: u32,
    },
    /// The system refuses the memory.
    #[error("cannot get {bytes} bytes of memory: {errno}")]
    System {
        /// The requested number of bytes.
        bytes: usize,
        /// The errno that the system returned.
        errno: Errno,
    },
}

impl RegionError {
    /// Returns the errno that Motr and LNet use for this error.
    pub fn errno(&self) -> Errno {
        match self {
            RegionError::Length { .. } | RegionError::OutOfBounds { .. } => Errno::EINVAL,
            RegionError::Fragments { .. } => Errno::EFBIG,
            RegionError::InUse { .. } => Errno::EBUSY,
            RegionError::TooManyLeases { .. } => Errno::ENOBUFS,
            RegionError::NotShareable { .. } => Errno::EOPNOTSUPP,
            RegionError::Forked { .. } => Errno::ESTALE,
            RegionError::System { errno, .. } | RegionError::NotRegion { errno, .. } => *errno,
        }
    }
}

impl From<nlx_fallible::NoMemory> for RegionError {
    fn from(_: nlx_fallible::NoMemory) -> RegionError {
        RegionError::System { bytes: 0, errno: Errno::ENOMEM }
    }
}
