//! How a client reaches the helper, and what it wants of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lnet_region::Pages;
use nlx_sync::DEFAULT_SPIN;

/// Names the helper's socket where it is not the usual one.
const PATH_VARIABLE: &str = "NLX_HELPER";

/// How long a request may take: far longer than a busy helper needs, or than it makes a client wait that asks too often; short
/// enough that a program whose helper is stopped says so before its operator gives up.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an arena: sixteen of the largest buffers. A client that needs little takes no more memory than it touches.
const ARENA_BYTES: usize = 16 << 20;

/// How a client reaches the helper, and what it wants of it.
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
    /// The helper at `$NLX_HELPER`, or else at its usual place, [`nlx_driver_proto::SOCKET_PATH`].
    #[must_use]
    pub fn new() -> HelperOptions {
        let path = std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty());
        HelperOptions::at(path.map_or_else(|| nlx_driver_proto::SOCKET_PATH.into(), PathBuf::from))
    }

    /// The helper that listens here.
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

    /// What the helper's operator sees this client as; the program's name by default. 32 bytes of it count.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> HelperOptions {
        self.name = name.into();
        self
    }

    /// The pages of the memory for buffers: huge ones are taken if the helper has them.
    #[must_use]
    pub fn pages(mut self, pages: Pages) -> HelperOptions {
        self.pages = pages;
        self
    }

    /// Bytes of the pieces of memory that the helper is asked for, and out of which buffers are allocated; 16 MiB by default.
    /// What is longer gets a piece of its own.
    #[must_use]
    pub fn arena_bytes(mut self, bytes: usize) -> HelperOptions {
        self.arena_bytes = bytes.max(1);
        self
    }

    /// Whether the domain connects again by itself when the helper is gone, and registers its buffers anew. Their bytes are copied
    /// for each operation from then on, for the next helper does not reach the memory that this one made; memory that is
    /// allocated then is not copied. Buffers that it refuses, as for want of room, are offered to it again when they are used, and the
    /// operation fails with its reason if it still refuses. Transfer machines have to be started anew in any case.
    #[must_use]
    pub fn reconnect(mut self, reconnect: bool) -> HelperOptions {
        self.reconnect = reconnect;
        self
    }

    /// How long the helper may take to answer a request, 10 s by default. One that takes longer counts as gone.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> HelperOptions {
        self.timeout = timeout;
        self
    }

    /// The spin limit of waits: they poll for up to that long before they sleep, while that pays. 50 µs by default, 10 ms at most; zero
    /// turns spinning off. A transfer machine may have its own ([`nlx_core::TmOptions::spin`]).
    #[must_use]
    pub fn spin(mut self, time: Duration) -> HelperOptions {
        self.spin = time;
        self
    }

    /// Where the helper listens.
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
