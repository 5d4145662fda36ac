//! A FUSE file system without libfuse (fuse(4)): one directory with one file, whose reads and
//! closes are never answered. When it is mapped, a system call that accesses its pages never
//! returns.
//!
//! An ordinary user mounts it in new user and mount namespaces. When the process that serves it
//! ends, every call that waits for an answer ends too. That process must not have the file open,
//! since it would then wait for its own answer and could not be killed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

/// The name of the file.
const NAME: &[u8] = b"f\0";
/// The node number of the file; the directory is 1.
const FILE_NODE: u64 = 2;
/// The size of a request's header in bytes.
const REQUEST_HEADER: usize = 40;
/// Buffer for a request: at least 8 KiB, and the maximum of a write.
const REQUEST_MAX: usize = (128 << 10) + 4096;

/// Request codes (fuse(4)).
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// Moves this process, which must have one thread, into new user and mount namespaces, as root
/// there.
///
/// # Errors
///
/// The errno, if the system does not allow ordinary users to create namespaces.
pub fn enter_namespaces() -> io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Mounts the file system at a folder through this device node, in the namespaces of
/// [`enter_namespaces`], and serves it in a thread. Once its file has been opened, `fstat` of it is
/// not answered either.
///
/// # Errors
/// The system's error.
pub fn mount_at(folder: &Path, device: &Path) -> io::Result<()> {
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(device)?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("nlx-attacker"), folder, Some("fuse"), flags, Some(options.as_str()))?;
    std::thread::spawn(move || serve(device));
    Ok(())
}

/// Opens the file; to be called in another process than [`mount_at`].
///
/// # Errors
/// The system's error.
pub fn open_in(folder: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(folder.join("f"))
}

fn serve(mut device: File) {
    let (mut request, mut is_open) = (vec![0; REQUEST_MAX], false);
    // ENODEV once it is unmounted.
    while let Ok(length) = device.read(&mut request) {
        let Some((status, body)) = answer(&request[..length], &mut is_open) else { continue };
        let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend((-status).to_ne_bytes());
        bytes.extend(&request[8..16]);
        bytes.extend(body);
        // An interrupted request accepts no answer.
        let _ = device.write(&bytes);
    }
}

/// Returns the errno and the body of the answer to a request; `None` for a request without an
/// answer.
fn answer(request: &[u8], is_open: &mut bool) -> Option<(i32, Vec<u8>)> {
    let u32_at =
        |at: usize| u32::from_ne_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]]);
    // The upper half of a node's number is 0 here.
    let node = u64::from(u32_at(16));
    match u32_at(4) {
        opcode::INIT => {
            // Version 7.19: no flags; 24 bytes.
            let (versions, most) = ([7u32, 19], 64u32 << 10);
            let words = [versions[0], versions[1], most, 0, 0, most];
            Some((0, words.into_iter().flat_map(u32::to_ne_bytes).collect()))
        }
        opcode::LOOKUP if &request[REQUEST_HEADER..] == NAME => {
            // The node, its generation and validity, then its attributes.
            let head = [FILE_NODE, 0, 0, 0, 0];
            let head = head.into_iter().flat_map(u64::to_ne_bytes);
            Some((0, head.chain(attributes(FILE_NODE)).collect()))
        }
        opcode::LOOKUP => Some((libc::ENOENT, Vec::new())),
        opcode::GETATTR if *is_open => None,
        opcode::GETATTR => Some((0, [0; 16].into_iter().chain(attributes(node)).collect())),
        opcode::OPEN => {
            *is_open = true;
            Some((0, vec![0; 16]))
        }
        opcode::FLUSH | opcode::READ | opcode::RELEASE => None,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => None,
        _ => Some((libc::ENOSYS, Vec::new())),
    }
}

/// Returns a node's attributes: 88 bytes.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == FILE_NODE { (0o100_666, 4096) } else { (0o40_755, 0) };
    let longs = [node, size, 0, 0, 0, 0].into_iter().flat_map(u64::to_ne_bytes);
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].into_iter().flat_map(u32::to_ne_bytes);
    longs.chain(words).collect()
}
