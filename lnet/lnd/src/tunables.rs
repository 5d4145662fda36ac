//! Tunables.

use lnet_api::{Errno, LndError};

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
