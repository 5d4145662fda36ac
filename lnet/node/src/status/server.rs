//! The thread that answers.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{Shutdown, shutdown};

use super::View;
use super::find::{self, Descriptors, HIDDEN, SUFFIX};
use super::folder::{self, Folder};
use crate::error::shown;

/// The time from one answer to the next: to count takes the node's locks, and whoever asks without end must not slow it down.
const PAUSE: Duration = Duration::from_millis(10);

/// The time until the next try when the process has no descriptors left.
const WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(500);

/// A node's socket, which is removed on drop.
pub(crate) struct Server {
    folder: Folder,
    name: OsString,
    /// For messages: nothing is opened by it.
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that it belongs to: a forked child has a copy, but not the thread.
    pid: u32,
}

struct Shared {
    listener: UnixListener,
    ending: AtomicBool,
}

impl Server {
    /// Begins to answer. What a node is for does not hang on being looked at: where that cannot be, a warning says so.
    pub(crate) fn start(view: View) -> Option<Server> {
        let mut refused = None;
        for path in folder::own() {
            let started = Folder::make(&path).map_err(io::Error::from);
            match started.and_then(|folder| Server::within(folder, view.clone())) {
                Ok(server) => return Some(server),
                Err(error) => refused = Some((path, error)),
            }
        }
        if let Some((folder, error)) = refused {
            tracing::warn!(folder = %shown(&folder), %error, "nlx status will not find this node");
        }
        None
    }

    /// Answers on a socket in this folder.
    pub(super) fn within(folder: Folder, view: View) -> io::Result<Server> {
        // A service that is killed and started again and again leaves a socket each time.
        drop(find::within(std::slice::from_ref(&folder), Descriptors::Refused));
        let unused = unused_name();
        let (hidden, name): (OsString, OsString) =
            (format!("{HIDDEN}{unused}").into(), format!("{unused}{SUFFIX}").into());
        // It gets its name once it listens: a socket that refuses is one whose process has ended.
        let listener = folder.listen(&hidden)?;
        folder.rename(&hidden, &name).inspect_err(|_| folder.remove(&hidden))?;
        let shared = Arc::new(Shared { listener, ending: AtomicBool::new(false) });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("nlx-status".into());
        let thread = thread.spawn(move || own.serve(&view)).inspect_err(|_| folder.remove(&name))?;
        let path = folder.shown(&name);
        Ok(Server { folder, name, path, shared, thread: Some(thread), pid: std::process::id() })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        self.folder.remove(&self.name);
        self.shared.ending.store(true, Ordering::Relaxed);
        // The thread is in `accept`, which fails from now on, or it pauses.
        let _ = shutdown(self.shared.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of it has been printed by the runtime; the node is ending anyway.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, view: &View) {
        while !self.ending.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((reader, _)) => {
                    // A reader that has gone away, or that has made its room too small, gets what it gets.
                    let _ = answer(&reader, &view.json());
                    drop(reader);
                    park_timeout(PAUSE);
                }
                Err(_) => park_timeout(WITHOUT_DESCRIPTORS),
            }
        }
    }
}

/// Writes in one go what fits into the socket, and that is all of it. Never waits for a reader.
fn answer(mut reader: &UnixStream, text: &str) -> io::Result<usize> {
    reader.set_nonblocking(true)?;
    reader.write(text.as_bytes())
}

/// A name that no socket had before: so that one which is found to be stale can be removed, whoever starts meanwhile.
fn unused_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{now_ns:x}-{count}", std::process::id())
}
