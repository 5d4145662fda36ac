//! Where the sockets are. A folder that others can write to could be made to lead anywhere: it must be the user's alone.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

/// The mode of a folder that is its owner's alone.
const OWN: u32 = 0o700;

/// The bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// What is behind `$XDG_RUNTIME_DIR` where systemd makes it.
const RUNTIME_FOLDERS: &str = "/run/user";

/// Where users without such a folder have one.
const SHARED_FOLDER: &str = "/tmp";

/// Where a service has one that systemd starts as a user of its own: its `XDG_RUNTIME_DIR` is then `/run/nlx`.
const SERVICE_FOLDER: &str = "/run/nlx/nlx";

/// The folders in which this user's nodes may put their sockets, the best first.
pub(super) fn own() -> Vec<PathBuf> {
    let user = Uid::effective();
    let given = std::env::var_os("XDG_RUNTIME_DIR");
    let runtime = given.and_then(|given| runtime(given, user)).map(|folder| folder.join("nlx"));
    runtime.into_iter().chain([shared(user)]).collect()
}

/// The folders of all users whose nodes this one may look at: root's are everybody's.
pub(super) fn visible() -> Vec<(PathBuf, Uid)> {
    let user = Uid::effective();
    let mut all: Vec<(PathBuf, Uid)> = own().into_iter().map(|folder| (folder, user)).collect();
    if user.is_root() {
        let uid = |name: &str| name.parse().ok().map(Uid::from_raw);
        let runtime = below(RUNTIME_FOLDERS, uid).into_iter();
        all.extend(runtime.map(|(folder, user)| (folder.join("nlx"), user)));
        all.extend(below(SHARED_FOLDER, |name| uid(name.strip_prefix("nlx-")?)));
        // Whoever has it: root may look at everybody's.
        let service = fs::symlink_metadata(SERVICE_FOLDER);
        all.extend(service.map(|found| (SERVICE_FOLDER.into(), Uid::from_raw(found.uid()))).ok());
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all.dedup_by(|(one, _), (other, _)| one == other);
    all
}

/// What stands in a folder under the name of a user.
fn below(folder: &str, user: impl Fn(&str) -> Option<Uid>) -> Vec<(PathBuf, Uid)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.path(), user(entry.file_name().to_str()?)?))).collect()
}

/// What the environment names, if it is what it should be: the user's own. `sudo -E` hands over that of another.
fn runtime(given: OsString, user: Uid) -> Option<PathBuf> {
    let folder = PathBuf::from(given);
    let owner = fs::metadata(&folder).ok().filter(fs::Metadata::is_dir)?.uid();
    (folder.is_absolute() && owner == user.as_raw()).then_some(folder)
}

fn shared(user: Uid) -> PathBuf {
    Path::new(SHARED_FOLDER).join(format!("nlx-{user}"))
}

/// Makes the folder, if need be, and checks that it is the user's alone.
///
/// # Errors
/// EACCES for one that others can get at; what the system says to one that cannot be made.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(OWN).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(folder, Uid::effective())
}

/// Whether the folder is this user's alone. A link is none: it may lead elsewhere a moment later.
pub(super) fn check(folder: &Path, user: Uid) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    match found.is_dir() && found.uid() == user.as_raw() && found.mode() & OTHERS == 0 {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(nix::errno::Errno::EACCES as i32)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_is_made_for_its_owner_alone_and_one_that_others_can_enter_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("nlx");
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, OWN);
        make(&folder).unwrap();
        let stranger = Uid::from_raw(Uid::effective().as_raw() + 1);
        assert!(check(&folder, stranger).is_err(), "it is not that user's");
        for open in [0o710, 0o701, 0o777] {
            fs::set_permissions(&folder, Permissions::from_mode(open)).unwrap();
            assert_eq!(make(&folder).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        fs::set_permissions(&folder, Permissions::from_mode(OWN)).unwrap();
        let link = home.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(make(&link).is_err() && make(&home.path().join("no/where")).is_err());
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
}
