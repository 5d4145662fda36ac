//! The errors of this crate.

use std::path::PathBuf;

use nix::errno::Errno;

/// Errors of CPU partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CptError {
    /// A table must have between one and [`MAX_PARTITIONS`](crate::MAX_PARTITIONS) partitions.
    #[error("{wanted} CPU partitions are requested: the number must be 1 to {max}")]
    PartitionCount {
        /// The requested number of partitions.
        wanted: usize,
        /// Maximum number of partitions.
        max: usize,
    },
    /// Every partition needs at least one CPU that no other has.
    #[error("{wanted} CPU partitions are requested, but there are {cpus} CPUs: each partition needs one")]
    MoreThanCpus {
        /// The requested number of partitions.
        wanted: usize,
        /// The number of CPUs.
        cpus: usize,
    },
    /// The table has no partition with this number.
    #[error("there is no CPU partition {cpt}: the table has {partitions}")]
    NoSuchPartition {
        /// The requested partition.
        cpt: usize,
        /// The table's number of partitions.
        partitions: usize,
    },
    /// A CPU, node or core number above the limit.
    #[error("{what} {number} is too large: the highest number is {max}")]
    Number {
        /// "CPU", "node" or "core".
        what: &'static str,
        /// The number that is too high.
        number: usize,
        /// The highest valid number.
        max: usize,
    },
    /// The process may not use this CPU, or it is offline or absent.
    #[error("CPU {cpu} is offline, absent or forbidden to this process")]
    NoSuchCpu {
        /// The number of the CPU.
        cpu: usize,
    },
    /// None of the node's CPUs is usable, or the node does not exist.
    #[error("NUMA node {node} is absent or has no CPU that this process may use")]
    NoSuchNode {
        /// The number of the node.
        node: usize,
    },
    /// A CPU of another partition.
    #[error("CPU {cpu} cannot join partition {cpt}: it belongs to partition {other}")]
    Overlap {
        /// The number of the CPU.
        cpu: usize,
        /// The partition that it should join.
        cpt: usize,
        /// The partition to which it belongs.
        other: usize,
    },
    /// A partition without any usable CPU.
    #[error("CPU partition {cpt} is empty: its CPUs are excluded, offline or forbidden to this process")]
    Empty {
        /// The number of the partition.
        cpt: usize,
    },
    /// No usable CPU: the sets of online and of allowed CPUs are disjoint.
    #[error("there is no CPU that is online and that this process may use")]
    NoCpus,
    /// Text that violates the grammar of lists or patterns.
    #[error("{what}, byte {position}: {reason}")]
    Syntax {
        /// "list" or "cpu_pattern".
        what: &'static str,
        /// The position, in bytes from the start.
        position: usize,
        /// The error at this position.
        reason: &'static str,
    },
    /// The text is too long.
    #[error("{what} has {bytes} bytes: at most {max} are read")]
    TextLength {
        /// "list", "cpu_pattern" or "tunables".
        what: &'static str,
        /// The length of the text in bytes.
        bytes: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The indices of a pattern must be 0…n−1.
    #[error(
        "cpu_pattern, byte {position}: there is no partition {index}, as the pattern has {groups} groups"
    )]
    GroupIndex {
        /// The position of the index, in bytes.
        position: usize,
        /// The index that is out of range.
        index: usize,
        /// The number of groups.
        groups: usize,
    },
    /// A pattern has an index twice.
    #[error("cpu_pattern, byte {position}: partition {index} is described twice")]
    GroupTwice {
        /// The position of the second one, in bytes.
        position: usize,
        /// The index that occurs twice.
        index: usize,
    },
    /// `cpu_npartitions` and `cpu_pattern` disagree, and [`Conflict::Refused`](crate::Conflict) was
    /// chosen.
    #[error("cpu_npartitions={npartitions}, but cpu_pattern has {groups} groups")]
    GroupCount {
        /// The number of groups in the pattern.
        groups: usize,
        /// The value of `cpu_npartitions`.
        npartitions: usize,
    },
    /// No tunable of CPU partitions has this name.
    #[error("there is no tunable {name:?}")]
    UnknownTunable {
        /// The name that was given.
        name: String,
    },
    /// A tunable has an invalid value.
    #[error("{name}={value}: {reason}")]
    TunableValue {
        /// The name of the tunable.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The description of a valid value.
        reason: &'static str,
    },
    /// A file that describes the machine has invalid content.
    #[error("{}: {reason}", path.display())]
    Machine {
        /// The path of the file.
        path: PathBuf,
        /// The error in the content.
        reason: String,
    },
    /// A file that describes the machine exists but cannot be read.
    #[error("{}: {errno}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The errno that the system returned.
        errno: Errno,
    },
    /// The system refused a call.
    #[error("{call}: {errno}")]
    System {
        /// The name of the call.
        call: &'static str,
        /// The errno that the system returned.
        errno: Errno,
    },
    /// A thread may not run on some of its partition's CPUs: the container's set of CPUs has become
    /// smaller.
    #[error("the thread may not run on CPUs {cpus}: the process's (container's) set of CPUs excludes them")]
    Forbidden {
        /// The CPUs that the thread may not use.
        cpus: crate::CpuSet,
    },
    /// The length of memory is out of range.
    #[error("{bytes} bytes of memory are requested: the length must be 1 to {max}")]
    Length {
        /// The requested number of bytes.
        bytes: usize,
        /// The maximum number of bytes.
        max: usize,
    },
}

impl CptError {
    /// Returns the errno with which LNet reports the error: `ENODEV` if CPUs or nodes are missing,
    /// `EINVAL` for invalid arguments (lnet-semantics 21), and for an error of the system its
    /// errno.
    pub fn errno(&self) -> Errno {
        match self {
            CptError::NoSuchCpu { .. }
            | CptError::NoSuchNode { .. }
            | CptError::Empty { .. }
            | CptError::NoCpus => Errno::ENODEV,
            CptError::Forbidden { .. } => Errno::EPERM,
            CptError::Read { errno, .. } | CptError::System { errno, .. } => *errno,
            _ => Errno::EINVAL,
        }
    }
}
