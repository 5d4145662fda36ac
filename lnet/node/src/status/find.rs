//! The nodes that answer on this host.
//!
//! A user may put anything into their folder: sockets of other programs, sockets that never answer
//! or never stop, names of other users' processes. Root queries them all the same. So the number of
//! sockets, the bytes of an answer and of all answers together, and their time are bounded, and a
//! socket counts only if the kernel confirms that the process in its name serves it, as the owner
//! of the folder. A child process (`asker`) does all of this for a folder of another user: listing
//! it, connecting, and closing descriptors that come with an answer can take as long as that user
//! wants.

use std::ffi::OsString;
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
use nix::unistd::Uid;
use nix::{setsockopt_impl, sockopt_impl};

use super::asker::Asker;
use super::folder::{self, Folder, SocketFile};
use super::visits::{UnreadFolder, Visits};

/// The suffix of a socket's name, after the process id and a unique part.
pub(super) const SUFFIX: &str = ".sock";

/// The prefix of a socket's name until the socket listens.
pub(super) const HIDDEN: &str = ".";

/// The age from which a socket that does not listen counts as dead.
const STILLBORN: Duration = Duration::from_secs(60);

/// The maximum number of queried sockets in all folders together. They are chosen from the folders
/// in turn, so that a user with many sockets does not hide those of others. Each needs a
/// descriptor, of which a process has 1,024 by default.
pub(super) const NODES_MAX: usize = 512;

/// The maximum length of an object, in bytes. A node writes less than a tenth of it.
pub(super) const ANSWER_MAX: usize = 1 << 20;

/// The maximum length of all answers together, in bytes: the reader may keep all of them. Folders
/// with nodes have equal shares of it, so that long answers of one user do not reduce those of
/// others.
pub(super) const ANSWERS_MAX: usize = 16 << 20;

/// Bytes per read.
pub(super) const PART: usize = 16 << 10;

/// The maximum number of reads after the deadline, for data that arrived before it: enough for the
/// longest object.
const LATE_READS: usize = ANSWER_MAX / PART + 1;

/// Socket option that permits descriptors to be sent to a Unix socket, since Linux 6.16; without
/// the permission, `sendmsg` returns EPERM. libc does not define it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

sockopt_impl!(
    /// The socket option [`SO_PASSRIGHTS`], for nix.
    PassRights,
    SetOnly,
    libc::SOL_SOCKET,
    SO_PASSRIGHTS,
    bool
);

/// A node whose status has been requested.
#[derive(Debug)]
pub struct RunningNode {
    pid: u32,
    user: u32,
    answer: Answer,
    share: Arc<AnswerShare>,
}

/// The nodes of this host, and the folders that were not visited.
#[derive(Debug)]
pub struct HostNodes {
    /// The nodes found, ordered by process.
    pub nodes: Vec<RunningNode>,
    /// The folders that may have further nodes.
    pub unread: Vec<UnreadFolder>,
}

/// The state of a node's answer.
#[derive(Debug)]
enum Answer {
    /// The answer is still to be read from this non-blocking socket.
    Pending(UnixStream),
    Refused(QueryError),
    /// A child of an [`Asker`] has read the answer.
    Read(io::Result<String>),
}

/// The treatment of descriptors that a node sends with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptors {
    /// Descriptors are refused where the kernel can do so, since Linux 6.16.
    Refused,
    Accepted,
}

/// The limit on all answers from one folder.
#[derive(Debug, Default)]
struct AnswerShare {
    bytes: AtomicUsize,
    /// Bytes read so far, including those of failed answers.
    read: AtomicUsize,
}

/// The reason why a socket was not queried.
#[derive(Debug, thiserror::Error)]
enum QueryError {
    #[error("{}", .0.desc())]
    System(Errno),
    #[error("{}: process {pid} of user {user} serves this socket", .path.display())]
    Another { path: PathBuf, pid: i32, user: u32 },
}

/// The answers from one folder are too long together.
#[derive(Debug, thiserror::Error)]
#[error("it and the other nodes in its folder answer with more than {bytes} bytes together")]
pub(super) struct BeyondShare {
    pub(super) bytes: usize,
}

/// Queries all nodes of this user, and returns those that answer, ordered by process: 512 at most.
/// Removes sockets that ended processes of this user have left behind.
#[must_use]
pub fn running_nodes() -> Vec<RunningNode> {
    let mut all = query_nodes(&folder::open_own(false), Descriptors::Refused);
    all.sort_by_key(|node| node.pid);
    all
}

/// Returns the nodes of [`running_nodes`]; for root also those of all other users, whose folders
/// the asker's children visit. Their answers are read before this returns, by the deadline. With a
/// wanted process, this returns once the node of that process is found.
#[must_use]
pub fn running_nodes_with(asker: &Asker, deadline: Instant, wanted: Option<u32>) -> HostNodes {
    let is_root = Uid::effective().is_root();
    let folders = folder::open_own(is_root);
    let own_nodes = query_nodes(&folders, Descriptors::Refused);
    let mut unread = Vec::new();
    let mut rows = vec![own_nodes.into_iter()];
    let is_found = wanted.is_some_and(|pid| rows[0].as_slice().iter().any(|node| node.pid == pid));
    if is_root && !is_found {
        let seen = folders.iter().filter_map(Folder::inode).collect();
        let mut shares: Vec<Arc<AnswerShare>> = Vec::new();
        for node in rows[0].as_slice() {
            if !shares.iter().any(|share| Arc::ptr_eq(share, &node.share)) {
                shares.push(node.share.clone());
            }
        }
        let mut visits = Visits::new(asker, deadline, wanted, seen, shares.len());
        visits.run();
        shares.iter().for_each(|share| share.bytes.store(visits.share(), Relaxed));
        let (nodes, failed) = visits.end();
        rows.extend(nodes.into_iter().map(Vec::into_iter));
        unread = failed;
    }
    let mut nodes = Vec::new();
    while !rows.is_empty() && nodes.len() < NODES_MAX {
        rows.retain_mut(|row| {
            let node = row.next().filter(|_| nodes.len() < NODES_MAX);
            let found = node.is_some();
            nodes.extend(node);
            found
        });
    }
    nodes.sort_by_key(|node| node.pid);
    HostNodes { nodes, unread }
}

/// Queries the nodes of these folders.
pub(super) fn query_nodes(folders: &[Folder], descriptors: Descriptors) -> Vec<RunningNode> {
    let shares: Vec<Arc<AnswerShare>> = folders.iter().map(|_| Arc::default()).collect();
    let names = folders.iter().map(|folder| folder.names().into_iter());
    let mut rows: Vec<_> = folders.iter().zip(&shares).zip(names).collect();
    let mut all = Vec::new();
    while !rows.is_empty() && all.len() < NODES_MAX {
        rows.retain_mut(|((folder, share), names)| {
            let room = NODES_MAX - all.len();
            let node =
                names.filter_map(|name| query_node(folder, share, &name, descriptors)).take(room).next();
            let found = node.is_some();
            all.extend(node);
            found
        });
    }
    let with_nodes = shares.iter().filter(|share| Arc::strong_count(share) > 1).count();
    shares.iter().for_each(|share| share.bytes.store(ANSWERS_MAX / with_nodes.max(1), Relaxed));
    all
}

fn query_node(
    folder: &Folder,
    share: &Arc<AnswerShare>,
    name: &OsString,
    descriptors: Descriptors,
) -> Option<RunningNode> {
    let text = name.to_str()?;
    let unfinished = text.starts_with(HIDDEN);
    let named = text.strip_suffix(SUFFIX).filter(|_| !unfinished).and_then(|text| text.split('-').next());
    let pid: Option<u32> = named.and_then(|pid| pid.parse().ok());
    if pid.is_none() && !unfinished {
        return None;
    }
    let file = folder.socket(name)?;
    let Some(pid) = pid else {
        // Another user's files are never removed.
        if folder.is_own() && is_old(&file) && is_dead(&file) {
            folder.remove_dead(name, &file);
        }
        return None;
    };
    let answer = match connected(folder, name, &file, pid, descriptors) {
        Ok(stream) => Answer::Pending(stream),
        Err(QueryError::System(Errno::ECONNREFUSED)) => {
            // The socket's process has ended.
            folder.remove_dead(name, &file);
            return None;
        }
        Err(error) => Answer::Refused(error),
    };
    Some(RunningNode { pid, user: folder.owner().as_raw(), answer, share: share.clone() })
}

fn is_old(file: &SocketFile) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_secs(file.made_s())) > STILLBORN
}

/// Returns whether the process that served the socket has ended.
fn is_dead(file: &SocketFile) -> bool {
    unconnected().and_then(|socket| connect_to(&socket, &file.path())) == Err(Errno::ECONNREFUSED)
}

/// Creates a non-blocking socket.
pub(super) fn unconnected() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

/// Refuses descriptors sent to the socket from now on; returns whether the kernel supports that.
pub(super) fn refuse_descriptors(socket: &OwnedFd) -> bool {
    setsockopt(socket, PassRights, &false).is_ok()
}

/// Connects without waiting: the process may be stopped, and its listen queue full.
fn connect_to(socket: &OwnedFd, path: &Path) -> Result<(), Errno> {
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)
}

/// Connects to a socket. Fails if any process but `pid`, of the folder's owner, serves it.
fn connected(
    folder: &Folder,
    name: &OsString,
    file: &SocketFile,
    pid: u32,
    descriptors: Descriptors,
) -> Result<UnixStream, QueryError> {
    let socket = unconnected().map_err(QueryError::System)?;
    if descriptors == Descriptors::Refused {
        refuse_descriptors(&socket);
    }
    connect_to(&socket, &file.path()).map_err(QueryError::System)?;
    let served = getsockopt(&socket, PeerCredentials).map_err(QueryError::System)?;
    let is_named = u32::try_from(served.pid()).is_ok_and(|served| served == pid);
    match is_named && served.uid() == folder.owner().as_raw() {
        true => Ok(UnixStream::from(socket)),
        false => Err(QueryError::Another { path: folder.shown(name), pid: served.pid(), user: served.uid() }),
    }
}

impl From<QueryError> for io::Error {
    fn from(error: QueryError) -> io::Error {
        match error {
            // The listen queue of the node is full.
            QueryError::System(Errno::EAGAIN) => io::ErrorKind::TimedOut.into(),
            QueryError::System(errno) => io::Error::from_raw_os_error(errno as i32),
            another @ QueryError::Another { .. } => io::Error::new(io::ErrorKind::PermissionDenied, another),
        }
    }
}

impl AnswerShare {
    /// Counts `count` further bytes; an error if they exceed the share.
    fn take(&self, count: usize) -> Result<(), BeyondShare> {
        let bytes = self.bytes.load(Relaxed);
        match self.read.fetch_add(count, Relaxed) + count <= bytes {
            true => Ok(()),
            false => Err(BeyondShare { bytes }),
        }
    }
}

impl RunningNode {
    /// Returns a node that a child of an [`Asker`] has queried.
    pub(super) fn read_by_process(pid: u32, user: u32, answer: io::Result<String>) -> RunningNode {
        RunningNode { pid, user, answer: Answer::Read(answer), share: Arc::default() }
    }

    /// Returns the node's process, as confirmed by the kernel.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the user of the process.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Returns whether the node could not be queried.
    #[cfg(test)]
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.answer, Answer::Refused(_))
    }

    /// Returns the node's answer: one JSON object, see [`Node::status`](crate::Node::status),
    /// unchecked. Data that arrived by the deadline is also read after it, so that several nodes
    /// can be read one after the other with one deadline.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if the process has not answered by then, for example
    /// because it is stopped, or has not finished, however often it writes;
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if another process or user serves the
    /// socket than its name and folder indicate; [`FileTooLarge`](io::ErrorKind::FileTooLarge) for
    /// an answer beyond 1 MiB, and once the answers from its folder have more than their share of
    /// 16 MiB together, which is divided evenly among the folders with nodes.
    pub fn read(self, deadline: Instant) -> io::Result<String> {
        let mut reader = match self.answer {
            Answer::Pending(stream) => AnswerReader { stream, share: self.share, bytes: Vec::new() },
            Answer::Refused(error) => return Err(error.into()),
            Answer::Read(answer) => return answer,
        };
        let mut part = vec![0; PART];
        let mut late_reads = LATE_READS;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                late_reads = late_reads.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
            }
            match reader.advance(&mut part) {
                Progress::Done(answer) => return answer,
                Progress::Some => {}
                Progress::None if rest.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                Progress::None => wait(&mut [PollFd::new(reader.stream.as_fd(), PollFlags::POLLIN)], rest)?,
            }
        }
    }
}

/// Reads all answers until the deadline, in the order of their arrival. Passes the index of each
/// node that has answered, and its answer.
pub(super) fn read_all(
    nodes: Vec<RunningNode>,
    deadline: Instant,
    mut pass: impl FnMut(usize, io::Result<String>) -> io::Result<()>,
) -> io::Result<()> {
    let mut readers = Vec::new();
    for (index, node) in nodes.into_iter().enumerate() {
        match node.answer {
            Answer::Pending(stream) => {
                readers.push((index, AnswerReader { stream, share: node.share, bytes: Vec::new() }));
            }
            Answer::Refused(error) => pass(index, Err(error.into()))?,
            Answer::Read(answer) => pass(index, answer)?,
        }
    }
    let mut part = vec![0; PART];
    while !readers.is_empty() {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        let fds = readers.iter().map(|(_, reader)| PollFd::new(reader.stream.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        wait(&mut fds, rest)?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut kept = Vec::with_capacity(readers.len());
        for ((index, mut reader), is_ready) in readers.into_iter().zip(ready) {
            match if is_ready { reader.advance(&mut part) } else { Progress::None } {
                Progress::Done(answer) => pass(index, answer)?,
                Progress::Some | Progress::None => kept.push((index, reader)),
            }
        }
        readers = kept;
    }
    Ok(())
}

/// An answer that is being read.
struct AnswerReader {
    stream: UnixStream,
    share: Arc<AnswerShare>,
    bytes: Vec<u8>,
}

/// The result of one read of an answer.
enum Progress {
    Done(io::Result<String>),
    Some,
    None,
}

impl AnswerReader {
    /// Reads once, without waiting.
    fn advance(&mut self, part: &mut [u8]) -> Progress {
        match self.stream.read(part) {
            Ok(0) => {
                let mut bytes = std::mem::take(&mut self.bytes);
                bytes.shrink_to_fit();
                Progress::Done(String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into()))
            }
            Ok(count) => {
                if let Err(beyond) = self.share.take(count) {
                    return Progress::Done(Err(io::Error::new(io::ErrorKind::FileTooLarge, beyond)));
                }
                self.bytes.extend_from_slice(&part[..count]);
                match self.bytes.len() > ANSWER_MAX {
                    true => Progress::Done(Err(io::Error::from_raw_os_error(Errno::EFBIG as i32))),
                    false => Progress::Some,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Progress::Some,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Progress::None,
            Err(error) => Progress::Done(Err(error)),
        }
    }
}

/// Waits until one of these is readable, for at most `rest` plus a millisecond.
pub(super) fn wait(fds: &mut [PollFd<'_>], rest: Duration) -> io::Result<()> {
    let rest_ms = i32::try_from(rest.as_millis()).unwrap_or(i32::MAX - 1).min(i32::MAX - 1) + 1;
    let timeout = PollTimeout::try_from(rest_ms).unwrap_or(PollTimeout::MAX);
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
