use std::path::PathBuf;

use nix::errno::Errno;

/// What can go wrong with CPU partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CptError {
    /// A table must have between one and [`MAX_PARTITIONS`](crate::MAX_PARTITIONS) partitions.
    #[error("{wanted} CPU partitions: there must be between 1 and {max}")]
    PartitionCount {
        /// The partitions asked for.
        wanted: usize,
        /// The most there can be.
        max: usize,
    },
    /// Every partition needs a CPU of its own.
    #[error("{wanted} CPU partitions cannot share {cpus} CPUs: each needs one of its own")]
    MoreThanCpus {
        /// The partitions asked for.
        wanted: usize,
        /// The CPUs there are.
        cpus: usize,
    },
    /// The table has no partition of this number.
    #[error("there is no CPU partition {cpt}: the table has {partitions}")]
    NoSuchPartition {
        /// The partition asked for.
        cpt: usize,
        /// How many the table has.
        partitions: usize,
    },
    /// A CPU, node or core number above the limit.
    #[error("{what} {number}: the highest number is {max}")]
    Number {
        /// "CPU", "node" or "core".
        what: &'static str,
        /// The number found.
        number: usize,
        /// The highest allowed.
        max: usize,
    },
    /// The process may not use this CPU, or it is offline or absent.
    #[error("CPU {cpu} is offline, absent or forbidden to this process")]
    NoSuchCpu {
        /// Its number.
        cpu: usize,
    },
    /// None of the CPUs of the node may be used, or there is no such node.
    #[error("NUMA node {node} is absent or has no CPU that this process may use")]
    NoSuchNode {
        /// Its number.
        node: usize,
    },
    /// Two partitions want one CPU.
    #[error("CPU {cpu} cannot join partition {cpt}: it belongs to partition {other}")]
    Overlap {
        /// The CPU.
        cpu: usize,
        /// The partition it should join.
        cpt: usize,
        /// The partition that has it.
        other: usize,
    },
    /// A partition without any usable CPU.
    #[error("CPU partition {cpt} is empty: its CPUs are excluded, offline or forbidden to this process")]
    Empty {
        /// Its number.
        cpt: usize,
    },
    /// No CPU at all: the sets of online and of allowed CPUs share none.
    #[error("there is no CPU that is online and that this process may use")]
    NoCpus,
    /// Text that breaks the grammar of lists or patterns.
    #[error("{what}, byte {position}: {reason}")]
    Syntax {
        /// "list" or "cpu_pattern".
        what: &'static str,
        /// Where, in bytes from the start.
        position: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A text longer than any sensible one.
    #[error("{what} of {bytes} bytes: at most {max} are read")]
    TextLength {
        /// "list", "cpu_pattern" or "tunables".
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The indices of a pattern must be 0…n−1.
    #[error("cpu_pattern, byte {position}: partition {index} of a pattern with {groups} groups")]
    GroupIndex {
        /// Where the index stands.
        position: usize,
        /// The index.
        index: usize,
        /// The number of groups.
        groups: usize,
    },
    /// An index stands twice in a pattern.
    #[error("cpu_pattern, byte {position}: partition {index} is described twice")]
    GroupTwice {
        /// Where it stands for the second time.
        position: usize,
        /// The index.
        index: usize,
    },
    /// `cpu_npartitions` and `cpu_pattern` disagree, and [`Conflict::Refused`](crate::Conflict) was chosen.
    #[error("cpu_npartitions={npartitions}, but cpu_pattern has {groups} groups")]
    GroupCount {
        /// Groups of the pattern.
        groups: usize,
        /// The tunable's value.
        npartitions: usize,
    },
    /// A tunable that does not exist here.
    #[error("there is no tunable {name:?}")]
    UnknownTunable {
        /// The name found.
        name: String,
    },
    /// A tunable's value cannot be read.
    #[error("{name}={value}: {reason}")]
    TunableValue {
        /// The tunable.
        name: &'static str,
        /// The text found.
        value: String,
        /// What would be right.
        reason: &'static str,
    },
    /// A file that describes the machine holds something else than it should.
    #[error("{}: {reason}", path.display())]
    Machine {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that describes the machine exists but cannot be read.
    #[error("{}: {errno}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        errno: Errno,
    },
    /// The system refused a call.
    #[error("{call}: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// The system's reason.
        errno: Errno,
    },
    /// A thread may not run on some CPUs it should be bound to: the container's set of CPUs has become smaller.
    #[error("the thread may not run on CPUs {cpus}: the process's (container's) set of CPUs excludes them")]
    Forbidden {
        /// The CPUs it may not use.
        cpus: crate::CpuSet,
    },
    /// Memory of this length cannot be made.
    #[error("memory of {bytes} bytes: the length must be between 1 and {max}")]
    Length {
        /// The bytes asked for.
        bytes: usize,
        /// The most allowed.
        max: usize,
    },
}

impl CptError {
    /// The errno that an LNet user knows: `ENODEV` where CPUs or nodes are missing, `EINVAL` for bad arguments
    /// (lnet-semantics 21), and the system's own where the system refused.
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
