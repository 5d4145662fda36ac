//! Carriers: processes that close descriptors of clients, one batch of one user at a time.
//!
//! A carrier is forked from the porter, which has one thread. A close that blocks blocks only its
//! carrier, which is then abandoned. Two rules keep every other close from blocking:
//!
//! - A new carrier closes the descriptors that it has inherited while the porter waits for it with
//!   all of them open.
//! - A carrier closes the sockets of a batch only after the porter has closed its own descriptors
//!   of them ([`PorterMessage::Go`]).

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lnet_api::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::MsgFlags;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork};

use super::channel::{self, PorterMessage};
use crate::packets::NO_FDS;

/// Idle carriers that are kept.
pub(super) const IDLE_MAX: usize = 2;

/// The way in which batches are closed.
pub(super) enum Carriers {
    /// By the calling thread: for a service whose clients are trusted, as in tests and benches.
    Inline,
    /// By processes.
    Processes(Vec<Carrier>),
}

/// A child of the porter.
pub(super) struct Carrier {
    pid: Pid,
    channel: OwnedFd,
    job: Option<(Job, Instant)>,
    /// Set once the carrier was killed because it was late. It may have finished its job before it
    /// ends, but gets no other.
    killed: bool,
}

impl Carrier {
    /// Returns whether the carrier can be given a job.
    fn is_idle(&self) -> bool {
        self.job.is_none() && !self.killed
    }
}

/// The sockets that a carrier closes for a user. They count for the user until the carrier is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) user: u32,
    /// The clients whose sockets are closed, each with the link to be notified.
    pub(super) clients: Vec<(u64, usize)>,
}

impl Carriers {
    /// Uses processes as carriers. Must be called in a process without other threads.
    ///
    /// # Errors
    /// EBUSY if there are other threads; errors of the system for /proc.
    pub(super) fn processes() -> Result<Carriers, Errno> {
        let tasks = std::fs::read_dir("/proc/self/task").map_err(errno_of)?;
        // No thread is started from here on: the porter's loop calls nothing that starts one.
        if tasks.count() == 1 { Ok(Carriers::Processes(Vec::new())) } else { Err(Errno::EBUSY) }
    }

    /// Starts to close sockets. Returns the job if it is over already.
    ///
    /// # Errors
    /// Errors of the system for a further process; the sockets are returned then.
    pub(super) fn close(
        &mut self,
        job: Job,
        sockets: Vec<OwnedFd>,
    ) -> Result<Option<Job>, (Errno, Vec<OwnedFd>)> {
        let carriers = match self {
            Carriers::Inline => {
                drop(sockets);
                return Ok(Some(job));
            }
            Carriers::Processes(carriers) => carriers,
        };
        let carrier = match idle(carriers) {
            Ok(carrier) => carrier,
            Err(errno) => return Err((errno, sockets)),
        };
        let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        if let Err(errno) = channel::send(carrier.channel.as_fd(), PorterMessage::Close, &fds, NOW) {
            return Err((errno, sockets));
        }
        // Not the last references: the message to the carrier holds others.
        drop(sockets);
        // An error means that the carrier has been killed, which its parent, the porter, detects.
        let _ = channel::send(carrier.channel.as_fd(), PorterMessage::Go, &NO_FDS, NOW);
        carrier.job = Some((job, Instant::now()));
        Ok(None)
    }

    /// Returns the channels to watch.
    pub(super) fn channels(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Carriers::Inline => Vec::new(),
            Carriers::Processes(carriers) => carriers.iter().map(|carrier| carrier.channel.as_fd()).collect(),
        }
    }

    /// Kills the carriers that have had their job for this time. A lingering socket does not keep a
    /// killed process, which closes everything at its end; a file of a FUSE mount does. Returns
    /// whether any has a job.
    pub(super) fn kill_late(&mut self, patience: Duration) -> bool {
        let Carriers::Processes(carriers) = self else { return false };
        let mut any = false;
        for carrier in carriers {
            let Some((_, since)) = &carrier.job else { continue };
            any = true;
            if since.elapsed() >= patience {
                // It is a child that has not been waited for, so its process id is still valid.
                let _ = kill(carrier.pid, Signal::SIGKILL);
                carrier.killed = true;
            }
        }
        any
    }

    /// Returns the jobs of carriers that report that they are done, and of those that have ended.
    pub(super) fn finished(&mut self) -> Vec<Job> {
        let Carriers::Processes(carriers) = self else { return Vec::new() };
        let mut done = Vec::new();
        for carrier in carriers.iter_mut().filter(|carrier| carrier.job.is_some()) {
            // The end of the channel does not prove that all is closed; the end of the process
            // does.
            if let Ok(Some(PorterMessage::Ready)) = channel::receive(carrier.channel.as_fd(), NOW, drop) {
                done.extend(carrier.job.take().map(|(job, _)| job));
            }
        }
        while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
            waitpid(None, Some(WaitPidFlag::WNOHANG))
        {
            if let Some(index) = carriers.iter().position(|carrier| carrier.pid == pid) {
                let job = carriers.swap_remove(index).job;
                done.extend(job.map(|(job, _)| job));
            }
        }
        let mut idle = 0;
        carriers.retain(|carrier| {
            idle += usize::from(carrier.is_idle());
            // The others see the end of their channel, and end. A carrier that was killed after its
            // job has nothing of a client.
            carrier.job.is_some() || carrier.is_idle() && idle <= IDLE_MAX
        });
        done
    }
}

/// Sends never block: a carrier without work has an empty channel.
const NOW: MsgFlags = MsgFlags::MSG_DONTWAIT;

/// Returns an idle carrier, a new one if need be. A carrier that was killed gets no job: its
/// process may end before it has carried it out, or before the porter has closed its own
/// descriptors; that close would be the last one, and could block the porter.
fn idle(carriers: &mut Vec<Carrier>) -> Result<&mut Carrier, Errno> {
    let index = match carriers.iter().position(Carrier::is_idle) {
        Some(index) => index,
        None => {
            carriers.push(start()?);
            carriers.len() - 1
        }
    };
    Ok(&mut carriers[index])
}

/// Forks a carrier, and waits until it has closed what it has inherited.
fn start() -> Result<Carrier, Errno> {
    let (ours, theirs) = channel::pair()?;
    // SAFETY: this process has one thread (`Carriers::processes`), so the child finds no lock held
    // by another.
    match unsafe { fork() }? {
        ForkResult::Child => become_carrier(theirs),
        ForkResult::Parent { child } => {
            drop(theirs);
            match channel::receive(ours.as_fd(), MsgFlags::empty(), drop)? {
                Some(PorterMessage::Ready) => {
                    Ok(Carrier { pid: child, channel: ours, job: None, killed: false })
                }
                _ => Err(Errno::ECHILD),
            }
        }
    }
}

/// Runs a carrier until its channel ends.
fn become_carrier(channel: OwnedFd) -> ! {
    let _ = prctl::set_name(c"nlx-carrier");
    // The next porter has no record of this carrier, and could not kill it when it is late.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let inherited = dup2_stdin(&channel);
    // Its descriptor is closed with all others.
    mem::forget(channel);
    if inherited.is_ok() {
        close_from(3);
        let channel = io::stdin();
        if channel::send(channel.as_fd(), PorterMessage::Ready, &NO_FDS, MsgFlags::empty()).is_ok() {
            serve(channel.as_fd());
        }
    }
    // SAFETY: it ends the process; the parent's exit handlers do not run.
    unsafe { libc::_exit(0) }
}

fn serve(channel: BorrowedFd<'_>) {
    loop {
        let mut fds = Vec::new();
        let Ok(Some(message)) = channel::receive(channel, MsgFlags::empty(), |fd| fds.push(fd)) else {
            return;
        };
        match message {
            PorterMessage::Close => match channel::receive(channel, MsgFlags::empty(), drop) {
                Ok(Some(PorterMessage::Go)) => drop(fds),
                _ => return,
            },
            _ => return,
        }
        if channel::send(channel, PorterMessage::Ready, &NO_FDS, MsgFlags::empty()).is_err() {
            return;
        }
    }
}

/// Takes the channel from standard input, and closes all other inherited descriptors: the porter
/// holds neither files nor pipes of the process that has started it.
pub(super) fn detach() -> Result<OwnedFd, Errno> {
    close_from(3);
    let channel = io::stdin().as_fd().try_clone_to_owned().map_err(errno_of)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(errno_of)?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(channel)
}

/// Closes all descriptors from this number on. Nothing of this process may use them afterwards.
fn close_from(first: u32) {
    // SAFETY: the callers own no descriptor above: one has just been started, the other has
    // forgotten its own.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
    if closed == 0 {
        return;
    }
    // A kernel before 5.9.
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(1 << 16, |(soft, _)| soft);
    for number in first..u32::try_from(most).unwrap_or(1 << 20) {
        // SAFETY: as above.
        unsafe { libc::close(number.cast_signed()) };
    }
}

fn errno_of(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// A killed process ends after some time, and may have reported before that it is done.
    #[test]
    fn a_carrier_that_was_killed_gets_no_further_job() {
        let job = Job { user: 1000, clients: vec![(1, 0)] };
        for (patience, stays) in [(Duration::ZERO, false), (Duration::MAX, true)] {
            let (channel, carrier_end) = channel::pair().unwrap();
            // No process has this id: killing it does nothing yet.
            let pid = Pid::from_raw(i32::MAX);
            let work = Some((job.clone(), Instant::now()));
            let mut carriers = Carriers::Processes(vec![Carrier { pid, channel, job: work, killed: false }]);
            assert!(carriers.kill_late(patience));
            assert_eq!(carriers.finished(), [], "it has said nothing yet");
            channel::send(carrier_end.as_fd(), PorterMessage::Ready, &NO_FDS, NOW).unwrap();
            assert_eq!(carriers.finished(), std::slice::from_ref(&job), "its job is done");
            let Carriers::Processes(carriers) = carriers else { unreachable!() };
            assert_eq!(carriers.iter().any(|carrier| carrier.job.is_none()), stays);
        }
    }
}
