//! The tunables of LNDs.

use lnet_api::{Errno, LndError};
use lnet_cpt::PartitionMemory;

use crate::HeldLimits;

/// The tunables of an LND.
pub trait Config: Clone + Send + Sync {
    /// Those that an NI may have otherwise.
    type OfNi: Clone + Send + for<'a> From<&'a Self>;

    /// What an NI has that says something of its own.
    #[must_use]
    fn of(&self, ni: &Self::OfNi) -> Self;

    /// Whether every value can be used.
    ///
    /// # Errors
    /// Names the first that cannot.
    fn check(&self) -> Result<(), BadTunable>;

    /// How many partitions there are, and the most shards of each (`nscheds`; 0 counts as 1).
    fn shards(&self) -> (usize, usize);

    /// The memory of the partitions: what a shard has lies near its own.
    fn memory(&self) -> &PartitionMemory;

    /// How much of what the engine holds back is taken into memory.
    fn held(&self) -> HeldLimits;

    /// The connections of an NI to a peer, in the LND's way of counting (`conns_per_peer`).
    fn conns_per_peer(ni: &mut Self::OfNi) -> &mut u8;
}

/// A tunable has a value that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}={value}: it must be {rule}")]
pub struct BadTunable {
    /// LNet's name of the tunable.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed: "at least 1 s".
    pub rule: String,
}

impl BadTunable {
    /// One that breaks this rule.
    pub fn new(field: &'static str, value: impl ToString, rule: impl ToString) -> BadTunable {
        BadTunable { field, value: value.to_string(), rule: rule.to_string() }
    }
}

impl From<BadTunable> for LndError {
    fn from(error: BadTunable) -> LndError {
        LndError { what: error.to_string(), errno: Errno::EINVAL }
    }
}
