//! The folders of status sockets.
//!
//! A user may change anything below their folder at any moment, and root reads the folders of all
//! users. So a folder is opened once, without following a link and without entering another file
//! system, and its owner and mode are read from the descriptor. Everything else uses that
//! descriptor: the list of names, the sockets, their removal. Later changes of the path do not
//! matter.
//!
//! A user who holds the lock of a directory, which reading it is enough for, can delay each of
//! these calls without limit. So a child process (`asker`) makes them for folders of other users.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

/// The mode of a folder that only its owner can access.
const OWN: Mode = Mode::S_IRWXU;

/// The mode bits that give others access.
const OTHERS: Mode = Mode::S_IRWXG.union(Mode::S_IRWXO);

/// The mode bits that let others create and rename files.
const OTHERS_WRITE: Mode = Mode::S_IWGRP.union(Mode::S_IWOTH);

/// The parent of `$XDG_RUNTIME_DIR` under systemd.
const RUNTIME_FOLDERS: &str = "/run/user";

/// The file system that systemd mounts for each user below [`RUNTIME_FOLDERS`]. A user cannot mount
/// one of this type there, but can mount FUSE, whose calls the user can block without limit.
const RUNTIME_FILE_SYSTEM: &str = "tmpfs";

/// The parent of the folders of users without a runtime folder.
const SHARED_FOLDER: &str = "/tmp";

/// `XDG_RUNTIME_DIR` of a service that systemd starts under a separate user.
const SERVICE_FOLDER: &str = "/run/nlx";

/// The name of the folder in `$XDG_RUNTIME_DIR`.
const NAME: &str = "nlx";

/// The maximum number of names read from `/run/user` and from `/tmp`. No host has more users with
/// sessions; reading that number of names takes some 10 ms. A user who puts more names into `/tmp`
/// hides only the folders there from root.
const PARENT_NAMES_MAX: usize = 1 << 16;

/// The maximum number of other users' folders that root visits in `/run/user`, and again in `/tmp`.
/// Each costs a process and a descriptor, of which a process has 1,024 by default.
pub(super) const FOLDERS_MAX: usize = 256;

/// The maximum number of names read from one folder. A node has one socket, and leaves one if it is
/// killed.
const NAMES_MAX: usize = 4096;

/// The maximum number of attempts of `openat2`, which returns EAGAIN after a concurrent rename or
/// mount elsewhere on the host.
const RACES_MAX: usize = 16;

/// An open folder with checked owner and mode.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    /// The path for messages and for [`Folder::shown`]. The folder is not opened by this path.
    path: PathBuf,
    owner: Uid,
}

/// A socket file of a folder: a descriptor of the file itself, which cannot be replaced.
#[derive(Debug)]
pub(super) struct SocketFile {
    fd: OwnedFd,
    stat: FileStat,
}

/// Returns the possible folders for this user's sockets, the best first.
pub(super) fn own() -> Vec<PathBuf> {
    let user = Uid::effective();
    let given = std::env::var_os("XDG_RUNTIME_DIR");
    let runtime = given.and_then(|given| runtime(given, user)).map(|folder| folder.join(NAME));
    runtime.into_iter().chain([Path::new(SHARED_FOLDER).join(format!("nlx-{user}"))]).collect()
}

/// Returns this user's folder for sockets, `$XDG_RUNTIME_DIR/nlx` or `/tmp/nlx-UID`, and creates it if
/// necessary. Only its user can access it: a program may have other sockets there than that of its
/// node, with names that do not end in `.sock`.
///
/// # Errors
/// EACCES if others can access the folder, otherwise the system's error.
pub fn runtime_folder() -> io::Result<PathBuf> {
    let mut refused = Errno::ENOENT;
    for path in own() {
        match Folder::make(&path) {
            Ok(_) => return Ok(path),
            Err(errno) => refused = errno,
        }
    }
    Err(refused.into())
}

/// Opens this user's folders. If children visit the host's folders, skips the one in `/tmp`, which
/// is among those: other users can hold the lock of `/tmp`.
pub(super) fn open_own(is_host_visited: bool) -> Vec<Folder> {
    let (user, mut paths) = (Uid::effective(), own());
    paths.retain(|path| !is_host_visited || *path != FolderPlace::Shared.folder(user.as_raw()));
    let mut all: Vec<Folder> = paths.iter().filter_map(|path| Folder::open(path, user).ok()).collect();
    let mut seen = Vec::with_capacity(all.len());
    all.retain(|folder| {
        let inode = folder.inode();
        let is_new = !seen.contains(&inode);
        seen.push(inode);
        is_new
    });
    all
}

/// The places of users' folders. Every call here can be blocked by other users, without limit: a
/// `readdir` whose result goes to memory that never comes holds the lock of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderPlace {
    /// `/run/user/UID/nlx` of each user.
    Sessions,
    /// `/run/nlx/nlx`, of the user to whom systemd has given the service's runtime folder.
    Service,
    /// `/tmp/nlx-UID` of each user.
    Shared,
}

impl FolderPlace {
    pub(super) const ALL: [FolderPlace; 3] =
        [FolderPlace::Sessions, FolderPlace::Service, FolderPlace::Shared];

    pub(super) fn name(self) -> &'static str {
        match self {
            FolderPlace::Sessions => "sessions",
            FolderPlace::Service => "service",
            FolderPlace::Shared => "shared",
        }
    }

    /// Returns the directory with a name for each user; for the service, the parent of its folder.
    pub(super) fn path(self) -> &'static Path {
        Path::new(match self {
            FolderPlace::Sessions => RUNTIME_FOLDERS,
            FolderPlace::Service => SERVICE_FOLDER,
            FolderPlace::Shared => SHARED_FOLDER,
        })
    }

    /// Returns the path of a user's folder; the service has one folder, whose user is unknown until
    /// it is open.
    pub(super) fn folder(self, user: u32) -> PathBuf {
        match self {
            FolderPlace::Sessions => self.path().join(user.to_string()).join(NAME),
            FolderPlace::Service => self.path().join(NAME),
            FolderPlace::Shared => self.path().join(format!("nlx-{user}")),
        }
    }

    /// Returns the users that may have a folder here, at most [`FOLDERS_MAX`].
    pub(super) fn users(self) -> Vec<u32> {
        let Ok(parent) = parent(self.path()) else { return Vec::new() };
        let names = names(&parent, PARENT_NAMES_MAX);
        let users = names.iter().filter_map(|name| {
            let name = name.to_str()?;
            match self {
                FolderPlace::Sessions => {
                    let user = uid(name)?;
                    session(&parent, OsStr::new(name)).ok().map(|_| user)
                }
                FolderPlace::Service => None,
                FolderPlace::Shared => {
                    let user = uid(name.strip_prefix("nlx-")?)?;
                    Folder::open_in(&parent, OsStr::new(name), self.path().join(name), user).ok()?;
                    Some(user)
                }
            }
        });
        users.take(FOLDERS_MAX).map(Uid::as_raw).collect()
    }

    /// Opens the folder of a user; the service's folder belongs to the owner of its directory.
    ///
    /// # Errors
    /// The errors of [`Folder::open`].
    pub(super) fn open(self, user: u32) -> Result<Folder, Errno> {
        let (path, user) = (self.folder(user), Uid::from_raw(user));
        let parent = parent(self.path())?;
        match self {
            FolderPlace::Sessions => {
                let session = session(&parent, OsStr::new(&user.to_string()))?;
                Folder::open_in(&session, OsStr::new(NAME), path, user)
            }
            FolderPlace::Service => {
                let owner = Uid::from_raw(fstat(&parent)?.st_uid);
                Folder::open_in(&parent, OsStr::new(NAME), path, owner)
            }
            FolderPlace::Shared => Folder::open_in(&parent, OsStr::new(&format!("nlx-{user}")), path, user),
        }
    }
}

/// Parses a user id. Each user has one spelling, and so one folder in each place.
fn uid(text: &str) -> Option<Uid> {
    let user: u32 = text.parse().ok()?;
    (user.to_string() == text).then_some(Uid::from_raw(user))
}

/// Returns the folder that the environment names, if it belongs to this user. With `sudo -E` the
/// environment names the folder of another user.
fn runtime(given: OsString, user: Uid) -> Option<PathBuf> {
    let folder = PathBuf::from(given);
    let owner = fstat(parent(&folder).ok()?).ok()?.st_uid;
    (folder.is_absolute() && owner == user.as_raw()).then_some(folder)
}

/// Opens a folder in which other users cannot rename foreign files. Its own path may contain links:
/// it is a constant below folders that only root can write, or comes from this process's
/// environment.
fn parent(path: &Path) -> Result<OwnedFd, Errno> {
    let fd = open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mode = mode(&fstat(&fd)?);
    match mode.intersects(OTHERS_WRITE) && !mode.contains(Mode::S_ISVTX) {
        true => Err(Errno::EACCES),
        false => Ok(fd),
    }
}

/// Opens `/run/user/UID`, which is a separate file system; fails if it is not one that systemd
/// mounts.
fn session(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open_beneath(parent, name, OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_NO_XDEV) {
        Err(Errno::EXDEV) => {}
        opened => return opened,
    }
    let fd = open_beneath(parent, name, OFlag::O_DIRECTORY, ResolveFlag::empty())?;
    match file_system(&fd).as_deref() {
        Some(RUNTIME_FILE_SYSTEM) => Ok(fd),
        _ => Err(Errno::EXDEV),
    }
}

/// Returns the type of a descriptor's file system. The type is read from the kernel's lists,
/// because `fstatfs` calls the file system itself, and a FUSE file system may not answer.
fn file_system(fd: &OwnedFd) -> Option<String> {
    let mount = mount_of(fd)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount))?;
    // Optional fields end with a dash; the type is the next one.
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next().map(str::to_string)
}

/// Returns the mount id of a descriptor.
fn mount_of(fd: &OwnedFd) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some(mount.trim().to_string())
}

/// Opens a name in a folder as a reference (`O_PATH`), without following links or leaving the
/// folder.
fn open_beneath(
    folder: &OwnedFd,
    name: &OsStr,
    flags: OFlag,
    resolve: ResolveFlag,
) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | flags)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | resolve);
    let mut opened = Err(Errno::EAGAIN);
    for _ in 0..RACES_MAX {
        opened = openat2(folder, name, how);
        if !matches!(opened, Err(Errno::EAGAIN)) {
            break;
        }
    }
    match opened {
        Err(Errno::ENOSYS) => open_one_name(folder, name, flags, resolve),
        opened => opened,
    }
}

/// Does the work of [`open_beneath`] without `openat2`: systemd denies that call to services with
/// `RestrictSUIDSGID=`, whose filter cannot check its arguments. For a single name, `openat`
/// without following a link resolves the same way.
fn open_one_name(
    folder: &OwnedFd,
    name: &OsStr,
    flags: OFlag,
    resolve: ResolveFlag,
) -> Result<OwnedFd, Errno> {
    if name.is_empty() || name == "." || name == ".." || name.as_bytes().contains(&b'/') {
        return Err(Errno::EXDEV);
    }
    let fd =
        openat(folder, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | flags, Mode::empty())?;
    let is_elsewhere = || match (mount_of(folder), mount_of(&fd)) {
        (Some(one), Some(other)) => one != other,
        _ => true,
    };
    if resolve.contains(ResolveFlag::RESOLVE_NO_XDEV) && is_elsewhere() { Err(Errno::EXDEV) } else { Ok(fd) }
}

/// Returns the names in a folder, at most this number.
fn names(folder: &OwnedFd, max: usize) -> Vec<OsString> {
    let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(mut dir) = Dir::openat(folder, ".", how, Mode::empty()) else { return Vec::new() };
    let entries = dir.iter().take(max).map_while(Result::ok);
    entries.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec())).collect()
}

fn mode(stat: &FileStat) -> Mode {
    Mode::from_bits_truncate(stat.st_mode)
}

impl Folder {
    /// Opens a folder that only this user can access.
    ///
    /// # Errors
    /// EACCES for a folder of another user and for one that others can enter, ELOOP for a link,
    /// EXDEV for a file system mounted there; otherwise the system's error.
    pub(super) fn open(path: &Path, owner: Uid) -> Result<Folder, Errno> {
        let (above, name) = split(path)?;
        Folder::open_in(&parent(above)?, name, path.to_path_buf(), owner)
    }

    fn open_in(parent: &OwnedFd, name: &OsStr, path: PathBuf, owner: Uid) -> Result<Folder, Errno> {
        let fd = open_beneath(parent, name, OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_NO_XDEV)?;
        let found = fstat(&fd)?;
        match found.st_uid == owner.as_raw() && !mode(&found).intersects(OTHERS) {
            true => Ok(Folder { fd, path, owner }),
            false => Err(Errno::EACCES),
        }
    }

    /// Opens this user's folder, and creates it if necessary.
    ///
    /// # Errors
    /// The errors of [`Folder::open`]; the system's error if it cannot be created.
    pub(super) fn make(path: &Path) -> Result<Folder, Errno> {
        let (above, name) = split(path)?;
        let parent = parent(above)?;
        match mkdirat(&parent, name, OWN) {
            Ok(()) | Err(Errno::EEXIST) => {
                Folder::open_in(&parent, name, path.to_path_buf(), Uid::effective())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Returns the owner of the folder.
    pub(super) fn owner(&self) -> Uid {
        self.owner
    }

    /// Returns whether this process's user owns the folder, and so its contents.
    pub(super) fn is_own(&self) -> bool {
        self.owner == Uid::effective()
    }

    /// Returns the file system and the inode of the folder.
    pub(super) fn inode(&self) -> Option<(u64, u64)> {
        fstat(&self.fd).map(|found| (found.st_dev, found.st_ino)).ok()
    }

    /// Returns the path of a name in the folder, for messages.
    pub(super) fn shown(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the names in the folder, at most [`NAMES_MAX`].
    pub(super) fn names(&self) -> Vec<OsString> {
        names(&self.fd, NAMES_MAX)
    }

    /// Returns the socket file of this name, if it is one and belongs to the folder's owner.
    pub(super) fn socket(&self, name: &OsStr) -> Option<SocketFile> {
        let fd = open_beneath(&self.fd, name, OFlag::empty(), ResolveFlag::RESOLVE_NO_XDEV).ok()?;
        let stat = fstat(&fd).ok()?;
        let is_socket = SFlag::S_IFMT.bits() & stat.st_mode == SFlag::S_IFSOCK.bits();
        (is_socket && stat.st_uid == self.owner.as_raw()).then_some(SocketFile { fd, stat })
    }

    /// Creates a listening socket with this name.
    pub(super) fn listen(&self, name: &OsStr) -> io::Result<UnixListener> {
        UnixListener::bind(self.through(name))
    }

    /// Renames a file within the folder.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        renameat(&self.fd, from, &self.fd, to)
    }

    /// Removes the name of a socket of this process.
    pub(super) fn remove(&self, name: &OsStr) {
        // An error is ignored: another searching process may have removed the name already.
        let _ = unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Removes a dead socket if the name still refers to it, and if the folder is this user's own:
    /// root removes nothing from the folders of others.
    pub(super) fn remove_dead(&self, name: &OsStr, socket: &SocketFile) {
        if !self.is_own() {
            return;
        }
        let found = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        let inode = |stat: &FileStat| (stat.st_dev, stat.st_ino);
        if found.is_ok_and(|found| inode(&found) == inode(&socket.stat)) {
            self.remove(name);
        }
    }

    /// Returns a path through the descriptor, for calls that accept no folder descriptor.
    fn through(&self, name: &OsStr) -> PathBuf {
        reference(&self.fd).join(name)
    }
}

impl SocketFile {
    /// Returns a path that always leads to this file, for `connect`.
    pub(super) fn path(&self) -> PathBuf {
        reference(&self.fd)
    }

    /// Returns the modification time, which for a socket is that of its creation, in seconds since
    /// 1970.
    pub(super) fn made_s(&self) -> u64 {
        self.stat.st_mtime.try_into().unwrap_or(0)
    }
}

fn reference(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Splits a path into the parent folder and the last name.
fn split(path: &Path) -> Result<(&Path, &OsStr), Errno> {
    let name = path.file_name().filter(|name| !name.as_bytes().contains(&0));
    path.parent().zip(name).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_is_made_for_its_owner_alone_and_one_that_others_can_enter_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("nlx");
        let folder = Folder::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWN.bits());
        assert!(Folder::make(&path).is_ok() && folder.is_own());
        let stranger = Uid::from_raw(Uid::effective().as_raw() + 1);
        assert_eq!(Folder::open(&path, stranger).unwrap_err(), Errno::EACCES, "it is not that user's");
        for open in [0o710, 0o701, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
            assert_eq!(Folder::make(&path).unwrap_err(), Errno::EACCES);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let link = home.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Folder::make(&link).is_err(), "what it leads to may change");
        assert_eq!(Folder::make(&home.path().join("no/where")).unwrap_err(), Errno::ENOENT);
        assert_eq!(Folder::open(Path::new("/"), Uid::effective()).unwrap_err(), Errno::EINVAL);
    }

    /// A folder whose parent lets other users rename files may be replaced at any moment, so it is
    /// refused.
    #[test]
    fn a_folder_below_one_that_others_can_write_to_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let above = home.path().join("above");
        fs::create_dir(&above).unwrap();
        let path = above.join("nlx");
        for (mode, expected) in [(0o777, Err(Errno::EACCES)), (0o1777, Ok(())), (0o755, Ok(()))] {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Folder::make(&path).map(drop), expected, "{mode:o}");
        }
    }

    #[test]
    fn an_environment_that_is_not_the_users_is_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let user = Uid::effective();
        assert_eq!(runtime(home.path().into(), user).as_deref(), Some(home.path()));
        assert_eq!(runtime(home.path().into(), Uid::from_raw(user.as_raw() + 1)), None);
        assert_eq!(runtime("relative".into(), user), None);
        assert_eq!(runtime(home.path().join("absent").into(), user), None);
    }

    /// Under systemd's `RestrictSUIDSGID=`, where `openat2` is denied, a name leads to the same
    /// file.
    #[test]
    fn without_openat2_a_name_leads_to_the_same_file() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("folder")).unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        symlink("folder", home.path().join("link")).unwrap();
        let (home, root) = (parent(home.path()).unwrap(), parent(Path::new("/")).unwrap());
        let names = ["folder", "file", "link", "none", "..", ".", "", "folder/..", "/", "proc"];
        for (folder, name) in [&home, &root].into_iter().flat_map(|folder| names.map(|name| (folder, name))) {
            for flags in [OFlag::empty(), OFlag::O_DIRECTORY] {
                let inode = |opened: Result<OwnedFd, Errno>| {
                    opened.and_then(|fd| fstat(&fd)).map(|found| (found.st_dev, found.st_ino)).ok()
                };
                let (name, resolve) = (OsStr::new(name), ResolveFlag::RESOLVE_NO_XDEV);
                let without = inode(open_one_name(folder, name, flags, resolve));
                let with = inode(open_beneath(folder, name, flags, resolve));
                // Only plain names are opened in this way, so others may give another result.
                let is_plain = !matches!(name.to_str(), Some("." | "folder/.."));
                assert_eq!(without, with.filter(|_| is_plain), "{name:?} with {flags:?}");
            }
        }
        let mounted = open_one_name(&root, OsStr::new("proc"), OFlag::empty(), ResolveFlag::RESOLVE_NO_XDEV);
        assert_eq!(mounted.unwrap_err(), Errno::EXDEV);
    }

    /// After the folder's path changes, the descriptor still leads to the folder.
    #[test]
    fn what_a_folder_is_does_not_change_with_its_path() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("nlx");
        let folder = Folder::make(&path).unwrap();
        let _listener = folder.listen(OsStr::new("1-2-3.sock")).unwrap();
        let socket = folder.socket(OsStr::new("1-2-3.sock")).unwrap();
        let private = home.path().join("private");
        fs::rename(&path, home.path().join("moved")).unwrap();
        fs::create_dir(&private).unwrap();
        fs::write(private.join("1-2-3.sock"), "precious").unwrap();
        symlink(&private, &path).unwrap();
        assert!(folder.names().iter().any(|name| name == "1-2-3.sock"));
        folder.remove_dead(OsStr::new("1-2-3.sock"), &socket);
        assert!(private.join("1-2-3.sock").exists() && !home.path().join("moved/1-2-3.sock").exists());
    }

    /// If the name refers to another file by now, that file is not removed.
    #[test]
    fn only_the_file_that_was_looked_at_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::make(&home.path().join("nlx")).unwrap();
        let name = OsStr::new("1-2-3.sock");
        drop(folder.listen(name).unwrap());
        let dead = folder.socket(name).unwrap();
        fs::rename(folder.shown(name), folder.shown(OsStr::new("kept"))).unwrap();
        drop(folder.listen(name).unwrap());
        folder.remove_dead(name, &dead);
        assert!(folder.shown(name).exists());
        let found = folder.socket(name).unwrap();
        folder.remove_dead(name, &found);
        assert!(!folder.shown(name).exists());
    }

    #[test]
    fn a_user_has_one_name() {
        assert_eq!(uid("7"), Some(Uid::from_raw(7)));
        for other in ["07", "+7", "", "7 ", "-7", "4294967296"] {
            assert_eq!(uid(other), None, "{other}");
        }
    }

    #[test]
    fn only_sockets_are_sockets() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::make(&home.path().join("nlx")).unwrap();
        let _listener = folder.listen(OsStr::new("socket")).unwrap();
        fs::write(folder.shown(OsStr::new("file")), "").unwrap();
        fs::create_dir(folder.shown(OsStr::new("folder"))).unwrap();
        symlink("socket", folder.shown(OsStr::new("link"))).unwrap();
        for (name, is_socket) in [("socket", true), ("file", false), ("folder", false), ("link", false)] {
            assert_eq!(folder.socket(OsStr::new(name)).is_some(), is_socket, "{name}");
        }
        assert!(folder.socket(OsStr::new("../nlx/socket")).is_none());
    }

    #[test]
    fn the_file_system_of_a_descriptor_is_known_without_asking_it() {
        let proc = open("/proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(file_system(&proc).as_deref(), Some("proc"));
    }
}
