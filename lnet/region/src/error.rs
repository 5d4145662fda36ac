use nix::errno::Errno;

/// What can go wrong with memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A region or fragment of this many bytes cannot be made.
    #[error("memory of {bytes} bytes: the length must be between 1 and {max}")]
    Length {
        /// The bytes asked for.
        bytes: usize,
        /// The most bytes allowed.
        max: usize,
    },
    /// The range does not lie within the memory.
    #[error("bytes {start}..{end} lie outside of the {length} bytes there are")]
    OutOfBounds {
        /// First byte of the range.
        start: usize,
        /// One past the last byte of the range.
        end: usize,
        /// Length of the region, fragment or vector.
        length: usize,
    },
    /// A buffer has no fragments, or more than LNet allows.
    #[error("a buffer of {fragments} fragments: there must be between 1 and {max}")]
    Fragments {
        /// The number of fragments.
        fragments: usize,
        /// The most fragments allowed.
        max: usize,
    },
    /// Somebody else uses an overlapping range in a way that leaves no room for this.
    #[error("bytes {start}..{end} are in use: a message there is in flight or still held")]
    InUse {
        /// First byte of the range within its region.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// Too many ranges of one region are leased.
    #[error("{max} ranges of the region are in use already, and there is no room for another")]
    TooManyLeases {
        /// The limit: 4,096, or fewer if there is no memory to take note of more.
        max: usize,
    },
    /// Memory on the heap has no descriptor that could be given away, and that of an arena none of its own.
    #[error("memory of {bytes} bytes on the heap or of an arena cannot be shared")]
    NotShareable {
        /// Length of the region.
        bytes: usize,
    },
    /// What a descriptor names is not the memory of a region.
    #[error("the descriptor names no memory of fixed size: {what} ({errno})")]
    NotRegion {
        /// What is wrong with it.
        what: &'static str,
        /// The system's reason.
        errno: Errno,
    },
    /// This is a forked child of the process whose memory it is.
    #[error("the memory belongs to process {process}, of which this is a forked child")]
    Forked {
        /// The id of that process.
        process: u32,
    },
    /// The system would not give the memory.
    #[error("cannot get {bytes} bytes of memory: {errno}")]
    System {
        /// The bytes asked for.
        bytes: usize,
        /// The system's reason.
        errno: Errno,
    },
}

impl RegionError {
    /// The errno that a Motr or LNet user knows for this error.
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
