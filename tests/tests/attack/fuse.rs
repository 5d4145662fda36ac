//! The device and mount point of the attackers' FUSE file systems.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, makedev, mknod};

use crate::people::User;

/// The number of the device `/dev/fuse`.
const DEVICE: u64 = makedev(10, 229);

/// A device node that every user can open, as distributions have it, and a folder to mount at.
pub(crate) struct Fuse {
    device: PathBuf,
    mount: PathBuf,
}

impl Fuse {
    /// Creates the device node and the mount folder in this folder.
    ///
    /// # Errors
    ///
    /// The reason why ordinary users cannot mount here.
    pub(crate) fn within(folder: &Path) -> Result<Fuse, String> {
        let fuse = Fuse { device: folder.join("fuse"), mount: folder.join("mount") };
        fs::create_dir(&fuse.mount).unwrap();
        let open = Mode::from_bits_truncate(0o666);
        mknod(&fuse.device, SFlag::S_IFCHR, open, DEVICE)
            .map_err(|errno| format!("no device node can be made: {errno}"))?;
        fchmodat(AT_FDCWD, &fuse.device, open, FchmodatFlags::FollowSymlink).unwrap();
        let given = File::options().read(true).write(true).open(&fuse.device);
        given.map_err(|error| format!("/dev/fuse: {error}"))?;
        let mut test = User::Attacker(0).command(Path::new("unshare"));
        let output = test.args(["-U", "true"]).output().map_err(|error| format!("unshare: {error}"))?;
        match output.status.success() {
            true => Ok(fuse),
            false => Err("ordinary users get no user namespaces".into()),
        }
    }

    /// Returns the arguments of an attack that uses it.
    pub(crate) fn args<'a>(&'a self, attack: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[attack, self.device.to_str().unwrap(), self.mount.to_str().unwrap()], more].concat()
    }
}
