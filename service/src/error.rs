//! The error of the service layer.

use nix::errno::Errno;

/// What failed in the service layer, on which object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// An option is outside its range.
    #[error("the option {name} = {value} of a service is invalid: {rule}")]
    Option {
        /// The name of the option, as of its field.
        name: &'static str,
        /// The value that was given.
        value: u64,
        /// The rule that the value breaks.
        rule: &'static str,
    },
    /// The transport or the system refuses something.
    #[error("{what}: {errno}")]
    System {
        /// The step that failed, with its object.
        what: String,
        /// The errno of the transport or the system.
        errno: Errno,
    },
}

impl ServiceError {
    /// Returns the matching errno.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            ServiceError::Option { .. } => Errno::EINVAL,
            ServiceError::System { errno, .. } => *errno,
        }
    }

    pub(crate) fn system(what: impl Into<String>, errno: Errno) -> ServiceError {
        ServiceError::System { what: what.into(), errno }
    }
}
