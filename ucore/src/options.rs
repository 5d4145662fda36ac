//! Options of a client's connection to the helper.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lnet_region::Pages;
use nlx_sync::DEFAULT_SPIN;

/// Environment variable with the path of the helper's socket, if it is not the default.
const PATH_VARIABLE: &str = "NLX_HELPER";

/// Default timeout of a request. It is far longer than a busy helper needs, or than it delays a
/// client that sends too many requests, and short enough that a program whose helper is stopped
/// reports this before its operator gives up.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Default length of an arena: sixteen of the largest buffers. Memory is used only when it is
/// touched.
const ARENA_BYTES: usize = 16 << 20;

/// Options of a client's connection to the helper.
///
/// ```
/// use std::time::Duration;
///
/// use nlx_ucore::{HelperOptions, Pages};
///
/// let options = HelperOptions::at("/run/site/nlxd.sock").name("archive").pages(Pages::Huge).reconnect(true);
/// assert_eq!(options.path().to_str(), Some("/run/site/nlxd.sock"));
/// assert_eq!(options.timeout(Duration::from_secs(1)).path(), options_path());
/// # fn options_path() -> &'static std::path::Path { std::path::Path::new("/run/site/nlxd.sock") }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperOptions {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) pages: Pages,
    pub(crate) arena_bytes: usize,
    pub(crate) reconnect: bool,
    pub(crate) timeout: Duration,
    pub(crate) spin: Duration,
}

impl HelperOptions {
    /// Returns options for the helper at `$NLX_HELPER`, or else at the default path,
    /// [`nlx_driver_proto::SOCKET_PATH`].
    #[must_use]
    pub fn new() -> HelperOptions {
        let path = std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty());
        HelperOptions::at(path.map_or_else(|| nlx_driver_proto::SOCKET_PATH.into(), PathBuf::from))
    }

    /// Returns options for the helper that listens at this path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> HelperOptions {
        HelperOptions {
            path: path.into(),
            name: program(),
            pages: Pages::default(),
            arena_bytes: ARENA_BYTES,
            reconnect: false,
            timeout: TIMEOUT,
            spin: DEFAULT_SPIN,
        }
    }

    /// Sets the name under which the helper's operator sees this client; by default the program's
    /// name. It is truncated to 32 bytes.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> HelperOptions {
        self.name = name.into();
        self
    }

    /// Sets the pages of the memory for buffers: huge ones are used if the helper has them.
    #[must_use]
    pub fn pages(mut self, pages: Pages) -> HelperOptions {
        self.pages = pages;
        self
    }

    /// Sets the length of the pieces of memory that are requested from the helper, and from which
    /// buffers are allocated; 16 MiB by default. A longer buffer gets a separate piece.
    #[must_use]
    pub fn arena_bytes(mut self, bytes: usize) -> HelperOptions {
        self.arena_bytes = bytes.max(1);
        self
    }

    /// Sets whether the domain reconnects after the helper is gone, and registers its buffers
    /// again. From then on their bytes are copied for each operation, because the next helper
    /// cannot access the memory that this one made; memory that is allocated later is not copied.
    /// Buffers that the new helper refuses, for instance for want of room, are offered again when
    /// they are used, and the operation fails with the helper's reason if it still refuses.
    /// Transfer machines have to be started again in any case.
    #[must_use]
    pub fn reconnect(mut self, reconnect: bool) -> HelperOptions {
        self.reconnect = reconnect;
        self
    }

    /// Sets the timeout of a request, 10 s by default. If the helper takes longer, the connection
    /// counts as lost.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> HelperOptions {
        self.timeout = timeout;
        self
    }

    /// Sets the spin limit of waits: they poll for up to that time before they sleep, while that
    /// pays. 50 µs by default, 10 ms at most; zero turns spinning off. A transfer machine may have
    /// a different one ([`nlx_core::TmOptions::spin`]).
    #[must_use]
    pub fn spin(mut self, time: Duration) -> HelperOptions {
        self.spin = time;
        self
    }

    /// Returns the path of the helper's socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Default for HelperOptions {
    fn default() -> HelperOptions {
        HelperOptions::new()
    }
}

fn program() -> String {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default()
}
