//! The nodes that answer on this host.
//!
//! A user may put anything into a folder of theirs: sockets of other programs, ones that never answer or never stop, names of
//! processes that are not theirs. Root asks them all the same. So the number of sockets, the bytes of an answer and of all answers
//! together, and their time are bounded, and a socket counts only if the kernel says that the process in its name serves it, as
//! the owner of the folder.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt::PeerCredentials,
};

use super::folder::{self, Folder, SocketFile};

/// The end of a socket's name, after the process's number and a unique part.
pub(super) const SUFFIX: &str = ".sock";

/// The beginning of a socket's name before it listens.
pub(super) const HIDDEN: &str = ".";

/// A socket that does not listen this long after it was made never will.
const STILLBORN: Duration = Duration::from_secs(60);

/// Sockets that are asked, of all folders together: one of each folder in turn, so that a user with many hides no other's. Each
/// takes a descriptor, of which a process has 1,024 by default.
const NODES_MAX: usize = 512;

/// The longest object that is read, in bytes. A node writes less than a tenth of it.
const ANSWER_MAX: usize = 1 << 20;

/// The longest that all answers are together, in bytes: the reader may keep all of them. Folders with nodes have equal shares of
/// it, so that long answers of one user leave others theirs.
pub(super) const ANSWERS_MAX: usize = 16 << 20;

/// Bytes taken with one read.
const PART: usize = 16 << 10;

/// Reads that are made after the deadline, for what has arrived by then: enough for the longest object.
const LATE_READS: usize = ANSWER_MAX / PART + 1;

/// A node that has been asked for its status.
#[derive(Debug)]
pub struct RunningNode {
    pid: u32,
    user: u32,
    answer: Result<UnixStream, Unasked>,
    share: Arc<Share>,
}

/// What all answers from one folder may have together.
#[derive(Debug, Default)]
struct Share {
    bytes: AtomicUsize,
    /// What has been read of them, also of those that failed.
    read: AtomicUsize,
}

/// Why a socket cannot be asked.
#[derive(Debug, thiserror::Error)]
enum Unasked {
    #[error("{}", .0.desc())]
    System(Errno),
    #[error("{}: process {pid} of user {user} serves this socket", .path.display())]
    Another { path: PathBuf, pid: i32, user: u32 },
}

/// The answers from one folder are too long together.
#[derive(Debug, thiserror::Error)]
#[error("it and the other nodes in its folder answer with more than {bytes} bytes together")]
struct BeyondShare {
    bytes: usize,
}

/// Asks all nodes of this user that answer (of root: of all users), ordered by process: 512 at most. Sockets that ended processes
/// of this user have left behind are removed; those of others stay.
#[must_use]
pub fn running_nodes() -> Vec<RunningNode> {
    let folders = folder::visible();
    let mut all = within(&folders);
    all.sort_by_key(|node| node.pid);
    all
}

/// Asks those of these folders.
pub(super) fn within(folders: &[Folder]) -> Vec<RunningNode> {
    let shares: Vec<Arc<Share>> = folders.iter().map(|_| Arc::default()).collect();
    let names = folders.iter().map(|folder| folder.names().into_iter());
    let mut rows: Vec<_> = folders.iter().zip(&shares).zip(names).collect();
    let mut all = Vec::new();
    while !rows.is_empty() && all.len() < NODES_MAX {
        rows.retain_mut(|((folder, share), names)| {
            let room = NODES_MAX - all.len();
            let node = names.filter_map(|name| ask(folder, share, &name)).take(room).next();
            let found = node.is_some();
            all.extend(node);
            found
        });
    }
    let with_nodes = shares.iter().filter(|share| Arc::strong_count(share) > 1).count();
    shares.iter().for_each(|share| share.bytes.store(ANSWERS_MAX / with_nodes.max(1), Relaxed));
    all
}

fn ask(folder: &Folder, share: &Arc<Share>, name: &OsString) -> Option<RunningNode> {
    let text = name.to_str()?;
    let unfinished = text.starts_with(HIDDEN);
    let named = text.strip_suffix(SUFFIX).filter(|_| !unfinished).and_then(|text| text.split('-').next());
    let pid: Option<u32> = named.and_then(|pid| pid.parse().ok());
    if pid.is_none() && !unfinished {
        return None;
    }
    let file = folder.socket(name)?;
    if unfinished && !is_old(&file) {
        return None;
    }
    let answer = connection(&file.path());
    if answer.as_ref().is_err_and(|errno| *errno == Errno::ECONNREFUSED) {
        // Its process has ended.
        folder.remove_dead(name, &file);
        return None;
    }
    let pid = pid?;
    let answer = answer.map_err(Unasked::System).and_then(|stream| {
        let served = getsockopt(&stream, PeerCredentials).map_err(Unasked::System)?;
        let is_named = u32::try_from(served.pid()).is_ok_and(|served| served == pid);
        match is_named && served.uid() == folder.owner().as_raw() {
            true => Ok(stream),
            false => {
                Err(Unasked::Another { path: folder.shown(name), pid: served.pid(), user: served.uid() })
            }
        }
    });
    Some(RunningNode { pid, user: folder.owner().as_raw(), answer, share: share.clone() })
}

fn is_old(file: &SocketFile) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_secs(file.made_s())) > STILLBORN
}

/// Connects without waiting: the process may be stopped, and its queue of connections full.
fn connection(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

impl Share {
    /// So many bytes more have been read.
    fn take(&self, count: usize) -> Result<(), BeyondShare> {
        let bytes = self.bytes.load(Relaxed);
        match self.read.fetch_add(count, Relaxed) + count <= bytes {
            true => Ok(()),
            false => Err(BeyondShare { bytes }),
        }
    }
}

impl RunningNode {
    /// The process that it runs in: the kernel says so too.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The user whose process it is.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Whether it cannot even be asked.
    #[cfg(test)]
    pub(super) fn is_refused(&self) -> bool {
        self.answer.is_err()
    }

    /// What it says: one JSON object, see [`Node::status`](crate::Node::status). It is not checked. What has arrived by the
    /// deadline is read after it too, so that several nodes can be read one after the other with one deadline.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if the process has not answered by then, as one that is stopped does not, or has
    /// not finished, however often it writes;
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if another process or user serves the socket than its name and
    /// folder say; [`FileTooLarge`](io::ErrorKind::FileTooLarge) for an answer beyond 1 MiB, and once the answers from its
    /// folder have more than their share of 16 MiB together, which is divided evenly by the folders that have nodes.
    pub fn read(self, deadline: Instant) -> io::Result<String> {
        let mut stream = self.answer.map_err(|unasked| match unasked {
            // Its queue of connections is full.
            Unasked::System(Errno::EAGAIN) => io::ErrorKind::TimedOut.into(),
            Unasked::System(errno) => io::Error::from_raw_os_error(errno as i32),
            another @ Unasked::Another { .. } => io::Error::new(io::ErrorKind::PermissionDenied, another),
        })?;
        let mut bytes = Vec::new();
        let mut part = vec![0; PART];
        let mut late_reads = LATE_READS;
        stream.set_nonblocking(false)?;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                late_reads = late_reads.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
                stream.set_nonblocking(true)?;
            } else {
                stream.set_read_timeout(Some(rest))?;
            }
            match stream.read(&mut part) {
                Ok(0) => break,
                Ok(count) => {
                    let taken = self.share.take(count);
                    taken.map_err(|why| io::Error::new(io::ErrorKind::FileTooLarge, why))?;
                    bytes.extend_from_slice(&part[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
            if bytes.len() > ANSWER_MAX {
                return Err(io::Error::from_raw_os_error(Errno::EFBIG as i32));
            }
        }
        bytes.shrink_to_fit();
        String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
