//! The tunables of LNDs.

use lnet_api::{Errno, LndError};
use lnet_cpt::PartitionMemory;

use crate::HeldLimits;

/// The tunables of an LND, with the values that all LNDs need.
pub trait Config: Clone + Send + Sync {
    /// The tunables that can be set per NI.
    type NiConfig: Clone + Send + for<'a> From<&'a Self>;

    /// Returns the LND's tunables with the values of an NI in place of the LND's.
    #[must_use]
    fn of(&self, ni: &Self::NiConfig) -> Self;

    /// Checks that every value is valid.
    ///
    /// # Errors
    /// Names the first invalid value.
    fn check(&self) -> Result<(), BadTunable>;

    /// Returns the number of partitions, and the upper limit for shards per partition (`nscheds`; 0
    /// counts as 1).
    fn shards(&self) -> (usize, usize);

    /// Returns the memory of the partitions: a shard allocates from its own partition's memory.
    fn memory(&self) -> &PartitionMemory;

    /// Returns the limits for held messages in memory.
    fn held(&self) -> HeldLimits;

    /// Returns the number of connections of an NI to a peer, mutable, as the LND counts them
    /// (`conns_per_peer`).
    fn conns_per_peer(ni: &mut Self::NiConfig) -> &mut u8;
}

/// A tunable has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}={value}: it must be {rule}")]
pub struct BadTunable {
    /// LNet's name of the tunable.
    pub field: &'static str,
    /// The value that was set, as text.
    pub value: String,
    /// The values that are allowed: "at least 1 s".
    pub rule: String,
}

impl BadTunable {
    /// Creates the error for a field whose value breaks this rule.
    pub fn new(field: &'static str, value: impl ToString, rule: impl ToString) -> BadTunable {
        BadTunable { field, value: value.to_string(), rule: rule.to_string() }
    }
}

impl From<BadTunable> for LndError {
    fn from(error: BadTunable) -> LndError {
        LndError { what: error.to_string(), errno: Errno::EINVAL }
    }
}
