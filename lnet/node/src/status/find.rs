//! Who answers on this host.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Uid;

use super::folder;

/// What the name of a socket ends with, after the process's number and what makes it unique.
pub(super) const SUFFIX: &str = ".sock";

/// What the name begins with before the socket listens.
pub(super) const HIDDEN: &str = ".";

/// A socket that does not listen this long after it was made never will.
const STILLBORN: Duration = Duration::from_secs(60);

/// The most sockets of one folder that are looked at: more than any host has nodes.
const MAX_NODES: usize = 1024;

/// The longest object that is read, in bytes. A node writes less than a tenth of it.
const MAX_BYTES: u64 = 1 << 20;

/// A node that has been asked for its status.
#[derive(Debug)]
pub struct RunningNode {
    pid: u32,
    user: u32,
    answer: Result<UnixStream, Errno>,
}

/// Asks all nodes of this user that answer (of root: of all users), ordered by process. Sockets that ended processes have left
/// behind are removed.
#[must_use]
pub fn running_nodes() -> Vec<RunningNode> {
    let folders = folder::visible().into_iter();
    let mut all: Vec<RunningNode> = folders.flat_map(|(folder, user)| within(&folder, user)).collect();
    all.sort_by_key(|node| node.pid);
    all
}

/// Asks those of a folder, if it belongs to whom it should.
pub(super) fn within(folder: &Path, user: Uid) -> Vec<RunningNode> {
    if folder::check(folder, user).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).take(MAX_NODES);
    entries.filter_map(|entry| ask(entry.path(), user)).collect()
}

fn ask(path: PathBuf, user: Uid) -> Option<RunningNode> {
    let name = path.file_name()?.to_str()?;
    let unfinished = name.starts_with(HIDDEN);
    let named = name.strip_suffix(SUFFIX).filter(|_| !unfinished).and_then(|name| name.split('-').next());
    let pid = named.and_then(|pid| pid.parse().ok());
    if pid.is_none() && !(unfinished && is_old(&path)) {
        return None;
    }
    let answer = connection(&path);
    if answer.as_ref().is_err_and(|errno| matches!(errno, Errno::ECONNREFUSED | Errno::ENOENT)) {
        // Nobody listens, and nobody will. Another may have removed it already.
        let _ = fs::remove_file(&path);
        return None;
    }
    Some(RunningNode { pid: pid?, user: user.as_raw(), answer })
}

fn is_old(path: &Path) -> bool {
    let made = fs::symlink_metadata(path).and_then(|found| found.modified());
    made.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > STILLBORN))
}

/// Connects without waiting: the process may be stopped, with many that ask already.
fn connection(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(|_| Errno::last())?;
    Ok(stream)
}

impl RunningNode {
    /// The process that it runs in.
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

    /// What it says: one JSON object, see [`Node::status`](crate::Node::status). It is not checked.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if the process does not answer until then, as one that is stopped does not;
    /// EFBIG for what no node says.
    pub fn read(self, deadline: Instant) -> io::Result<String> {
        let stream = self.answer.map_err(|errno| match errno {
            // As many ask already as may wait.
            Errno::EAGAIN => io::ErrorKind::TimedOut.into(),
            errno => io::Error::from_raw_os_error(errno as i32),
        })?;
        let mut stream = stream.take(MAX_BYTES + 1);
        let mut bytes = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            // None at all would mean to wait for ever.
            let rest = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
            stream.get_ref().set_read_timeout(Some(rest))?;
            match stream.read(&mut part) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::from_raw_os_error(Errno::EFBIG as i32));
        }
        String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
