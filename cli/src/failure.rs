use std::fmt;

/// Why a command failed, in the words that the user reads.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// Why nothing more is to be said: nobody reads it.
    pub(crate) fn quiet() -> Failure {
        Failure(String::new())
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Adds what was attempted to an error.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
