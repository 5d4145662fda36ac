//! The thread that answers status requests.

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

use super::StatusView;
use super::find::{self, Descriptors, HIDDEN, SUFFIX};
use super::folder::{self, Folder};
use crate::error::printable_path;

/// The pause between two answers: collecting the status takes the node's locks, and constant
/// requests must not slow the node down.
const PAUSE: Duration = Duration::from_millis(10);

/// The time until the next try when the process has no descriptors left.
const WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(500);

/// The socket of a node, removed on drop.
pub(crate) struct StatusServer {
    folder: Folder,
    name: OsString,
    /// The path for messages. The socket is not opened by this path.
    path: PathBuf,
    shared: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
    /// The id of the owner process. A forked child has a copy of this object, but not the thread.
    pid: u32,
}

struct ServerState {
    listener: UnixListener,
    ending: AtomicBool,
}

impl StatusServer {
    /// Starts to answer. The node works without a status: on an error this logs a warning.
    pub(crate) fn start(view: StatusView) -> Option<StatusServer> {
        let mut refused = None;
        for path in folder::own() {
            let started = Folder::make(&path).map_err(io::Error::from);
            match started.and_then(|folder| StatusServer::within(folder, view.clone())) {
                Ok(server) => return Some(server),
                Err(error) => refused = Some((path, error)),
            }
        }
        if let Some((folder, error)) = refused {
            tracing::warn!(folder = %printable_path(&folder), %error, "nlx status will not find this node");
        }
        None
    }

    /// Answers on a socket in this folder.
    pub(super) fn within(folder: Folder, view: StatusView) -> io::Result<StatusServer> {
        // A service that is killed and restarted repeatedly leaves a socket each time: the query
        // removes those.
        drop(find::query_nodes(std::slice::from_ref(&folder), Descriptors::Refused));
        let unused = unused_name();
        let (hidden, name): (OsString, OsString) =
            (format!("{HIDDEN}{unused}").into(), format!("{unused}{SUFFIX}").into());
        // The socket gets its final name once it listens, so that a named socket that refuses
        // connections belongs to an ended process.
        let listener = folder.listen(&hidden)?;
        folder.rename(&hidden, &name).inspect_err(|_| folder.remove(&hidden))?;
        let shared = Arc::new(ServerState { listener, ending: AtomicBool::new(false) });
        let state = shared.clone();
        let thread = std::thread::Builder::new().name("nlx-status".into());
        let thread = thread.spawn(move || state.serve(&view)).inspect_err(|_| folder.remove(&name))?;
        let path = folder.shown(&name);
        Ok(StatusServer { folder, name, path, shared, thread: Some(thread), pid: std::process::id() })
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        self.folder.remove(&self.name);
        self.shared.ending.store(true, Ordering::Relaxed);
        // The thread is in a pause, or in `accept`, which fails from now on.
        let _ = shutdown(self.shared.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread is ignored: the runtime has printed it, and the node is ending
            // anyway.
            let _ = thread.join();
        }
    }
}

impl ServerState {
    fn serve(&self, view: &StatusView) {
        while !self.ending.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((reader, _)) => {
                    // An error is ignored: a reader that has closed, or has shrunk its buffer, gets
                    // an incomplete answer.
                    let _ = answer(&reader, &view.json());
                    drop(reader);
                    park_timeout(PAUSE);
                }
                Err(_) => park_timeout(WITHOUT_DESCRIPTORS),
            }
        }
    }
}

/// Writes the text into the socket buffer, which has room for all of it. Never waits for a reader.
fn answer(mut reader: &UnixStream, text: &str) -> io::Result<usize> {
    reader.set_nonblocking(true)?;
    reader.write(text.as_bytes())
}

/// Returns a name that no socket had before, so that a stale socket can be removed even while
/// another node starts.
fn unused_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{now_ns:x}-{count}", std::process::id())
}
