//! The loading of the libraries.

use std::error::Error;
use std::sync::OnceLock;

use libloading::Library;

use crate::Functions;

const LIBIBVERBS: &str = "libibverbs.so.1";
const LIBRDMACM: &str = "librdmacm.so.1";

/// Loads the libraries once; later calls return the same result.
///
/// # Errors
/// The library that is missing or unfit, and what to install.
pub fn load() -> Result<(), String> {
    functions().as_ref().map(drop).map_err(String::clone)
}

/// Returns the functions of both libraries, which are never unloaded.
pub(crate) fn functions() -> &'static Result<Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| find(LIBIBVERBS, LIBRDMACM))
}

fn find(verbs: &str, cm: &str) -> Result<Functions, String> {
    // The second library needs the first, and so provides the functions of both. Loading the first
    // separately reports its absence by name.
    // SAFETY: loading runs the library's initialisers. They are trusted as a linked library's would
    // be: the name is of a system library, found where the system's loader looks.
    let first = unsafe { Library::new(verbs) }.map_err(|error| explain(verbs, &error))?;
    // SAFETY: as above.
    let both = unsafe { Library::new(cm) }.map_err(|error| explain(cm, &error))?;
    drop(first);
    // SAFETY: each function is declared as in the libraries' headers, from which the bindings are
    // generated; within a library's major version, which is in its name, these do not change.
    unsafe { Functions::from_library(both) }.map_err(|error| explain(cm, &error))
}

fn explain(library: &str, error: &libloading::Error) -> String {
    let remedy = "Debian: apt install libibverbs1 ibverbs-providers librdmacm1";
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    match error {
        libloading::Error::DlOpen { .. } if why.contains("No such file") => {
            format!("{library} is not installed ({remedy})")
        }
        libloading::Error::DlSym { .. } => format!("{library} is too old, rdma-core 32 is needed: {why}"),
        _ => format!("{library} cannot be loaded: {why} ({remedy})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_packages() {
        let why = find("libnobody-has-this.so.7", LIBRDMACM).err().unwrap();
        assert!(why.starts_with("libnobody-has-this.so.7 is not installed"), "{why}");
        assert!(why.contains("apt install libibverbs1 ibverbs-providers librdmacm1"), "{why}");
    }

    /// The C library exists on every machine, and has no verbs.
    #[test]
    fn a_library_without_the_functions_is_refused() {
        let why = find("libc.so.6", "libc.so.6").err().unwrap();
        assert!(why.starts_with("libc.so.6 is too old") && why.contains("ibv_"), "{why}");
    }
}
