//! Blocks its user's folder for status sockets: `fuse-folder DEVICE FOLDER`, with the folder to
//! block in the place of the helper's socket. It starts `fuse-folder-file FOLDER` as the process
//! that maps the file. One of that process's threads lists the folder into a page of a FUSE file
//! system, whose read is never answered, and so holds the folder's lock; another thread waits to
//! create a file there. Every later listing of the folder, and every lookup in it, waits behind
//! them.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use nix::libc::{SYS_getdents64, SYS_openat};
use nix::unistd::gettid;
use nlx_tests::attack::fuse::open_in;
use nlx_tests::client::memory::Memory;

use crate::bell::{PAGE, sleeps_in};
use crate::{Target, fuse, hold};

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [device, folder] = *args else { return Err("DEVICE FOLDER are missing".into()) };
    fuse::serve_for(target, "fuse-folder-file", [device, folder], &[])
}

pub(crate) fn list_into_file(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [mount] = *args else { return Err("FOLDER is missing".into()) };
    let file = open_in(Path::new(mount)).map_err(|error| format!("cannot open: {error}"))?;
    let page = Memory::map_beginning(&file, PAGE).map_err(|errno| format!("cannot map: {errno}"))?;
    let failed = |error: std::io::Error| format!("no folder: {error}");
    let path = target.socket.clone();
    fs::create_dir(&path).map_err(failed)?;
    fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(failed)?;
    let name = format!("{}-1-1.sock", std::process::id());
    let _listener = UnixListener::bind(path.join(name)).map_err(failed)?;
    let folder = File::open(&path).map_err(failed)?;
    let _reader = until_in(SYS_getdents64, move || page.list(folder.as_fd()).map_err(Into::into))?;
    let _writer = until_in(SYS_openat, move || File::create(path.join("new")).map(|_| 0))?;
    hold("a folder that cannot be listed")
}

/// Runs `work` in a thread, and returns once the thread sleeps in this system call.
fn until_in(
    call: i64,
    work: impl FnOnce() -> std::io::Result<usize> + Send + 'static,
) -> Result<JoinHandle<std::io::Result<usize>>, String> {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        let _ = tell.send(gettid());
        work()
    });
    let id = told.recv().map_err(|error| error.to_string())?;
    while !sleeps_in(id, call) {
        if thread.is_finished() {
            return Err(format!("it did not wait: {:?}", thread.join()));
        }
        std::thread::yield_now();
    }
    Ok(thread)
}
