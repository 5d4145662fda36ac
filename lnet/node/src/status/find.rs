//! The nodes that answer on this host.
//!
//! A user may put anything into a folder of theirs: sockets of other programs, ones that never answer or never stop, names of
//! processes that are not theirs. Root asks them all the same. So the number of sockets, the bytes of an answer and of all answers
//! together, and their time are bounded, and a socket counts only if the kernel says that the process in its name serves it, as
//! the owner of the folder. Descriptors that come with an answer would be closed here, for as long as the user likes: the kernel
//! refuses them, or another process reads the answer (`asker`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket,
    sockopt::PeerCredentials,
};
use nix::{setsockopt_impl, sockopt_impl};

use super::asker::{Asker, AskerProcess, NotAsked};
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
pub(super) const ANSWER_MAX: usize = 1 << 20;

/// The longest that all answers are together, in bytes: the reader may keep all of them. Folders with nodes have equal shares of
/// it, so that long answers of one user leave others theirs.
pub(super) const ANSWERS_MAX: usize = 16 << 20;

/// Bytes taken with one read.
pub(super) const PART: usize = 16 << 10;

/// Reads that are made after the deadline, for what has arrived by then: enough for the longest object.
const LATE_READS: usize = ANSWER_MAX / PART + 1;

/// Processes that ask nodes of other users at a time, one of each folder in turn. One that was killed may stay, for as long as a
/// hostile user likes.
const ASKERS_MAX: usize = 64;

/// Whether descriptors may be sent to a Unix socket, since Linux 6.16; where they may not, `sendmsg` gives EPERM. libc does not
/// know it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

sockopt_impl!(
    /// [`SO_PASSRIGHTS`].
    PassRights,
    SetOnly,
    libc::SOL_SOCKET,
    SO_PASSRIGHTS,
    bool
);

/// A node that has been asked for its status.
#[derive(Debug)]
pub struct RunningNode {
    pid: u32,
    user: u32,
    answer: Result<Answer, Unasked>,
    share: Arc<Share>,
}

/// Where an answer comes from.
#[derive(Debug)]
struct Answer {
    /// A socket, or the pipe of an asker. It does not block.
    stream: File,
    _asker: Option<AskerProcess>,
}

/// Who asks, and how many processes of the asker there are.
struct Visit<'a> {
    asker: Option<&'a Asker>,
    processes: usize,
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
    #[error(
        "a node of another user can send descriptors with its answer on this kernel: 'nlx status' can ask it"
    )]
    NeedsAsker,
    #[error(
        "{ASKERS_MAX} nodes of other users are asked at a time on this kernel: 'nlx status' as their user asks them all"
    )]
    TooMany,
    #[error("the process that asks it: {0}")]
    Asker(io::Error),
    #[error("{}: process {pid} of user {user} serves this socket", .path.display())]
    Another { path: PathBuf, pid: i32, user: u32 },
}

/// Why a socket that is connected to cannot be asked, or cannot be connected to.
#[derive(Debug)]
pub(super) enum Refusal {
    System(Errno),
    /// This process of this user serves it.
    Another {
        pid: i32,
        user: u32,
    },
}

/// The answers from one folder are too long together.
#[derive(Debug, thiserror::Error)]
#[error("it and the other nodes in its folder answer with more than {bytes} bytes together")]
struct BeyondShare {
    bytes: usize,
}

/// Asks all nodes of this user that answer (of root: of all users), ordered by process: 512 at most. Sockets that ended processes
/// of this user have left behind are removed; those of others stay.
///
/// Before Linux 6.16 nodes of other users are asked by [`running_nodes_with`] alone; here they are listed, and reading them fails.
#[must_use]
pub fn running_nodes() -> Vec<RunningNode> {
    visited(None)
}

/// As [`running_nodes`]; before Linux 6.16 processes of a program ask the nodes of other users, 64 at most.
#[must_use]
pub fn running_nodes_with(asker: &Asker) -> Vec<RunningNode> {
    visited(Some(asker))
}

fn visited(asker: Option<&Asker>) -> Vec<RunningNode> {
    let folders = folder::visible();
    let mut all = within(&folders, asker);
    all.sort_by_key(|node| node.pid);
    all
}

/// Asks those of these folders.
pub(super) fn within(folders: &[Folder], asker: Option<&Asker>) -> Vec<RunningNode> {
    let mut visit = Visit { asker, processes: 0 };
    let shares: Vec<Arc<Share>> = folders.iter().map(|_| Arc::default()).collect();
    let names = folders.iter().map(|folder| folder.names().into_iter());
    let mut rows: Vec<_> = folders.iter().zip(&shares).zip(names).collect();
    let mut all = Vec::new();
    while !rows.is_empty() && all.len() < NODES_MAX {
        rows.retain_mut(|((folder, share), names)| {
            let room = NODES_MAX - all.len();
            let node = names.filter_map(|name| visit.ask(folder, share, &name)).take(room).next();
            let found = node.is_some();
            all.extend(node);
            found
        });
    }
    let with_nodes = shares.iter().filter(|share| Arc::strong_count(share) > 1).count();
    shares.iter().for_each(|share| share.bytes.store(ANSWERS_MAX / with_nodes.max(1), Relaxed));
    all
}

impl Visit<'_> {
    fn ask(&mut self, folder: &Folder, share: &Arc<Share>, name: &OsString) -> Option<RunningNode> {
        let text = name.to_str()?;
        let unfinished = text.starts_with(HIDDEN);
        let named = text.strip_suffix(SUFFIX).filter(|_| !unfinished).and_then(|text| text.split('-').next());
        let pid: Option<u32> = named.and_then(|pid| pid.parse().ok());
        if pid.is_none() && !unfinished {
            return None;
        }
        let file = folder.socket(name)?;
        let user = folder.owner().as_raw();
        let Some(pid) = pid else {
            // Of others nothing is removed.
            if folder.is_own() && is_old(&file) && is_dead(&file) {
                folder.remove_dead(name, &file);
            }
            return None;
        };
        let answer = self.answer(folder, name, &file, pid);
        if matches!(answer, Err(Unasked::System(Errno::ECONNREFUSED))) {
            // Its process has ended.
            folder.remove_dead(name, &file);
            return None;
        }
        Some(RunningNode { pid, user, answer, share: share.clone() })
    }

    /// Asks in this process if nothing that the node sends can hold it up, or if the node is the user's own.
    fn answer(
        &mut self,
        folder: &Folder,
        name: &OsString,
        file: &SocketFile,
        pid: u32,
    ) -> Result<Answer, Unasked> {
        let socket = unconnected().map_err(Unasked::System)?;
        let is_safe = refuse_descriptors(&socket) || folder.is_own();
        match self.asker {
            Some(asker) if !is_safe || asker.is_always() && !folder.is_own() => {
                self.ask_by_process(asker, folder, name, file, pid)
            }
            None if !is_safe => Err(Unasked::NeedsAsker),
            _ => connected(socket, &file.path(), pid, folder.owner().as_raw())
                .map(|stream| Answer { stream: File::from(OwnedFd::from(stream)), _asker: None })
                .map_err(|refusal| refusal.at(folder, name)),
        }
    }

    fn ask_by_process(
        &mut self,
        asker: &Asker,
        folder: &Folder,
        name: &OsString,
        file: &SocketFile,
        pid: u32,
    ) -> Result<Answer, Unasked> {
        if self.processes == ASKERS_MAX {
            return Err(Unasked::TooMany);
        }
        let (stream, process) =
            asker.ask(file, pid, folder.owner().as_raw()).map_err(|not_asked| match not_asked {
                NotAsked::Failed(error) => Unasked::Asker(error),
                NotAsked::Refused(refusal) => refusal.at(folder, name),
            })?;
        self.processes += 1;
        Ok(Answer { stream, _asker: Some(process) })
    }
}

fn is_old(file: &SocketFile) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_secs(file.made_s())) > STILLBORN
}

/// Whether its process has ended.
fn is_dead(file: &SocketFile) -> bool {
    unconnected().and_then(|socket| connect_to(&socket, &file.path())) == Err(Errno::ECONNREFUSED)
}

/// A socket that does not block.
pub(super) fn unconnected() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

/// From now on nobody can send descriptors to the socket: whether the kernel knows how.
pub(super) fn refuse_descriptors(socket: &OwnedFd) -> bool {
    setsockopt(socket, PassRights, &false).is_ok()
}

/// Connects without waiting: the process may be stopped, and its queue of connections full.
fn connect_to(socket: &OwnedFd, path: &Path) -> Result<(), Errno> {
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)
}

/// Connects, if this process of this user serves the socket at the path.
pub(super) fn connected(socket: OwnedFd, path: &Path, pid: u32, user: u32) -> Result<UnixStream, Refusal> {
    connect_to(&socket, path).map_err(Refusal::System)?;
    let served = getsockopt(&socket, PeerCredentials).map_err(Refusal::System)?;
    let is_named = u32::try_from(served.pid()).is_ok_and(|served| served == pid);
    match is_named && served.uid() == user {
        true => Ok(UnixStream::from(socket)),
        false => Err(Refusal::Another { pid: served.pid(), user: served.uid() }),
    }
}

impl Refusal {
    /// The same of a socket in a folder.
    fn at(self, folder: &Folder, name: &OsString) -> Unasked {
        match self {
            Refusal::System(errno) => Unasked::System(errno),
            Refusal::Another { pid, user } => Unasked::Another { path: folder.shown(name), pid, user },
        }
    }
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
        let mut answer = self.answer.map_err(|unasked| match unasked {
            // Its queue of connections is full.
            Unasked::System(Errno::EAGAIN) => io::ErrorKind::TimedOut.into(),
            Unasked::System(errno) => io::Error::from_raw_os_error(errno as i32),
            another @ Unasked::Another { .. } => io::Error::new(io::ErrorKind::PermissionDenied, another),
            unasked @ Unasked::NeedsAsker => io::Error::new(io::ErrorKind::Unsupported, unasked),
            unasked @ (Unasked::TooMany | Unasked::Asker(_)) => io::Error::other(unasked),
        })?;
        let mut bytes = Vec::new();
        let mut part = vec![0; PART];
        let mut late_reads = LATE_READS;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                late_reads = late_reads.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
            }
            match answer.stream.read(&mut part) {
                Ok(0) => break,
                Ok(count) => {
                    let taken = self.share.take(count);
                    taken.map_err(|why| io::Error::new(io::ErrorKind::FileTooLarge, why))?;
                    bytes.extend_from_slice(&part[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && rest.is_zero() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => answer.wait(rest)?,
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

impl Answer {
    /// Waits until there is something to read, so long at most and a millisecond.
    fn wait(&self, rest: Duration) -> io::Result<()> {
        let rest_ms = i32::try_from(rest.as_millis()).unwrap_or(i32::MAX - 1).min(i32::MAX - 1) + 1;
        let timeout = PollTimeout::try_from(rest_ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
