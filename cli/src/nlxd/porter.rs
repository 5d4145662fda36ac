//! The porter's process: another process of this program ([`nlx_helper::porter`]).

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use lnet_api::Errno;
use nlx_helper::porter::{self, Porter};

use super::systemd;

/// Starts the porter, and another one if it ends. It is never forked from this process, which later
/// has threads and locks.
pub(super) fn start() -> Result<Porter, Errno> {
    let children: Mutex<Vec<Child>> = Mutex::default();
    Porter::start(move || {
        let (ours, theirs) = porter::pair()?;
        let mut children = children.lock().unwrap_or_else(PoisonError::into_inner);
        // Killed porters that cannot end yet are not waited for.
        children.retain_mut(|child| {
            let _ = child.kill();
            matches!(child.try_wait(), Ok(None))
        });
        children.push(command(theirs).spawn().map_err(errno_of)?);
        Ok(ours)
    })
}

fn command(channel: OwnedFd) -> Command {
    // The same program, even if its file has been replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("nlx-porter").args(["--porter", &std::process::id().to_string()]);
    // No files or pipes of this process: a process that waits for their end waits for the end of
    // nlxd.
    command.stdin(channel).stdout(Stdio::null()).stderr(Stdio::null());
    for name in systemd::VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Runs the porter, until `nlxd` ends.
pub(super) fn run(nlxd: i32) -> ExitCode {
    match porter::main(nlxd) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
