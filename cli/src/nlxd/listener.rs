//! The socket and its name in the file system: created, or taken over from a helper that was
//! killed, never from one that runs.
//!
//! Beside the socket is a lock, `.NAME.lock`, which a running `nlxd` holds: the system releases it
//! when the process ends in any way. Only the holder of the lock replaces the name. The new socket
//! gets its owner and mode, then it listens, then it gets the name, by renaming: clients find the
//! old name or a helper, and under neither name a socket that they must not reach.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lnet_api::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, UnixAddr, connect, getsockname, shutdown, socket,
};
use nix::unistd::Uid;
use nlx_driver_proto::SOCKET_PATH;
use nlx_helper::porter::Porter;
use nlx_helper::service::bind_with;

use super::systemd;
use crate::failure::{Context, Failure};

/// Length of the longest path: the system's limit for a socket is 107, and its temporary name is
/// five longer.
pub(super) const PATH_MAX: usize = 107 - "..new".len();

/// Time that the porter of a killed `nlxd` gets to shut the old socket down. It takes milliseconds
/// on an idle host.
const TAKE_OVER_TIME: Duration = Duration::from_secs(2);

/// Interval between two attempts to connect during this time.
const TAKE_OVER_INTERVAL: Duration = Duration::from_millis(5);

/// The path of the socket, its mode and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketConfig {
    /// `None` uses the default path, unless systemd passes a socket.
    pub(crate) path: Option<PathBuf>,
    pub(crate) mode: u32,
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// A listening socket, and its name while this process owns it.
pub(super) struct NamedListener {
    socket: OwnedFd,
    path: PathBuf,
    own: Option<OwnedName>,
}

/// A name that this process has created.
struct OwnedName {
    /// Inode of the socket, to recognise it.
    inode: u64,
    /// Held while the process may use the name.
    _lock: Lock,
}

/// The lock beside the socket, with its file.
struct Lock {
    path: PathBuf,
    _held: Flock<File>,
}

impl NamedListener {
    /// Returns the socket that systemd has passed, or creates one.
    pub(super) fn open(config: &SocketConfig) -> Result<NamedListener, Failure> {
        if let Some(socket) = systemd::listening_socket()? {
            return Ok(NamedListener { path: name_of(&socket), socket, own: None });
        }
        let path = config.path.clone().map_or_else(default_path, Ok)?;
        let path = path.as_path();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make(folder)?;
        let (lock, new) = (beside(path, "lock")?, beside(path, "new")?);
        let lock = Lock::take(lock, path)?;
        refuse_others(path)?;
        // Left by an nlxd that was killed before the socket got its name.
        let _ = fs::remove_file(&new);
        let listening = bind_with(&new, || set_rights(&new, path, config).map_err(Refused::Rights));
        let named = listening.map_err(|refused| refused.at(path)).and_then(|socket| {
            let named = fs::rename(&new, path);
            named.map_err(|error| refuse(path, "cannot name the socket", errno_of(&error)))?;
            Ok(socket)
        });
        let socket = named.inspect_err(|_| drop(fs::remove_file(&new)))?;
        let inode = fs::symlink_metadata(path).context("cannot read the socket's inode")?.ino();
        Ok(NamedListener { socket, path: path.to_path_buf(), own: Some(OwnedName { inode, _lock: lock }) })
    }

    /// Returns the path at which clients find the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another descriptor of the socket.
    pub(super) fn share(&self) -> std::io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Makes the porter accept the socket's clients. A socket of systemd outlives this process,
    /// with the clients that wait in it.
    pub(super) fn give_to(&self, porter: &Porter) -> Result<(), Failure> {
        let given = porter.listen(self.socket.as_fd(), self.own.is_some());
        given.map_err(|errno| refuse(&self.path, "the porter cannot have the socket", errno))
    }

    /// Refuses further connections, also of clients that have looked the path up before: without
    /// that they would wait for ever. The lock stays until the process ends. A socket of systemd
    /// stays open.
    pub(super) fn close(&self) {
        let Some(own) = &self.own else { return };
        // Fails for one that is shut down already.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == own.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for NamedListener {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While the lock is held: a process that has opened the file finds, once it has locked it,
        // that it has no name any more, and creates another.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the default path: in the folder that systemd has created for the service, else root's
/// path, else the user's.
fn default_path() -> Result<PathBuf, Failure> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let Some(folder) = folder("RUNTIME_DIRECTORY") {
        return Ok(folder.join("nlxd.sock"));
    }
    if Uid::effective().is_root() {
        return Ok(SOCKET_PATH.into());
    }
    let none = || {
        Failure::at(
            "listen",
            Errno::ENOENT,
            "there is no default path for the socket: XDG_RUNTIME_DIR is not set",
        )
        .hint("set one with --socket")
    };
    folder("XDG_RUNTIME_DIR").map(|folder| folder.join("nlx/nlxd.sock")).ok_or_else(none)
}

/// Creates the last folder of the path, if it does not exist: accessible for all, as /run/nlx is,
/// but private within a user's own folder.
fn make(folder: &Path) -> Result<(), Failure> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|runtime| folder.starts_with(runtime));
    let mode = if own { 0o700 } else { 0o755 };
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let failure = refuse(folder, "cannot make the folder of the socket", errno_of(&error));
            Err(failure.hint("set another path with --socket, or create the folder first"))
        }
        _ => Ok(()),
    }
}

/// Returns `.NAME.SUFFIX` in the same folder.
fn beside(path: &Path, suffix: &str) -> Result<PathBuf, Failure> {
    let name = path.file_name().ok_or_else(|| refuse(path, "not the path of a socket", Errno::EINVAL))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".");
    hidden.push(suffix);
    Ok(path.with_file_name(hidden))
}

impl Lock {
    /// Takes the lock, and writes this process's id into it.
    fn take(lock_path: PathBuf, path: &Path) -> Result<Lock, Failure> {
        // Each iteration means that another nlxd ended, and removed the file, in between.
        for _ in 0..16 {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&lock_path);
            let file = file.map_err(|error| refuse(&lock_path, "cannot open the lock", errno_of(&error)))?;
            let mut held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => held,
                Err((mut file, Errno::EAGAIN)) => return Err(held_by(&mut file, path)),
                Err((_, errno)) => return Err(refuse(&lock_path, "cannot be locked", errno)),
            };
            let own = held.metadata().context("cannot read the lock's inode")?.ino();
            if fs::symlink_metadata(&lock_path).is_ok_and(|found| found.ino() == own) {
                let written =
                    held.set_len(0).and_then(|()| held.write_all(std::process::id().to_string().as_bytes()));
                written.map_err(|error| refuse(&lock_path, "cannot be written", errno_of(&error)))?;
                return Ok(Lock { path: lock_path, _held: held });
            }
        }
        Err(refuse(&lock_path, "the lock file is removed and created repeatedly", Errno::EBUSY))
    }
}

fn held_by(file: &mut File, path: &Path) -> Failure {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut text));
    let owner = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    let owner = owner.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    let message = format!("{}: another nlxd{owner} serves this socket", path.display());
    Failure::at("listen", Errno::EADDRINUSE, message)
        .hint("stop it, or set another socket and other NIDs for this one")
}

/// Checks that only the socket of a killed helper is replaced.
fn refuse_others(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(refuse(path, "exists already, and is not a socket", Errno::EEXIST));
    }
    let address = UnixAddr::new(path).map_err(|errno| refuse(path, "cannot be a socket's name", errno))?;
    let begun = Instant::now();
    loop {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let probe =
            socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).context("cannot make a socket")?;
        match connect(std::os::fd::AsRawFd::as_raw_fd(&probe), &address) {
            // No process listens.
            Err(Errno::ECONNREFUSED | Errno::ENOENT) => return Ok(()),
            _ if begun.elapsed() < TAKE_OVER_TIME => std::thread::sleep(TAKE_OVER_INTERVAL),
            _ => return Err(refuse(path, "another program listens there", Errno::EADDRINUSE)),
        }
    }
}

/// The reason why a socket cannot listen.
enum Refused {
    System(Errno),
    Rights(Failure),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused::System(errno)
    }
}

impl Refused {
    fn at(self, path: &Path) -> Failure {
        match self {
            Refused::System(errno) => refuse(path, "cannot listen", errno),
            Refused::Rights(failure) => failure,
        }
    }
}

fn set_rights(new: &Path, path: &Path, config: &SocketConfig) -> Result<(), Failure> {
    if config.owner.is_some() || config.group.is_some() {
        std::os::unix::fs::chown(new, config.owner, config.group).map_err(|error| {
            refuse(path, "cannot be given to that owner and group", errno_of(&error))
                .hint("only root gives a socket to another user, or to a group that it is not in")
        })?;
    }
    let mode = fs::Permissions::from_mode(config.mode);
    fs::set_permissions(new, mode).map_err(|error| refuse(path, "cannot have that mode", errno_of(&error)))
}

fn name_of(socket: &OwnedFd) -> PathBuf {
    let address = getsockname::<UnixAddr>(std::os::fd::AsRawFd::as_raw_fd(socket)).ok();
    address.and_then(|address| address.path().map(Path::to_path_buf)).unwrap_or_default()
}

fn refuse(path: &Path, problem: &str, errno: Errno) -> Failure {
    let reason = errno.desc().to_lowercase();
    Failure::at("listen", errno, format!("{}: {problem}: {reason} ({errno:?})", path.display()))
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
