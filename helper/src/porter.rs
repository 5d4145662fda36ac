//! The porter: a process beside `nlxd` that holds the descriptors that `nlxd` must not have.
//!
//! Closing a descriptor can take as long as its owner likes: a program of the client flushes a file
//! of its FUSE mount, a TCP socket with a linger time waits for its peer. A client can pass such a
//! descriptor to `nlxd` by sending it. Sent descriptors are closed by the process that closes the
//! *last* reference to the socket in whose queue they wait, also when that process is killed. So:
//!
//! - **`nlxd` never receives a descriptor of a client.** It detects that a packet has some
//!   (`MSG_PEEK` without room for them), and cuts the client off.
//! - **`nlxd` never has the last reference to a client's socket**, nor to the listening socket. The
//!   porter accepts clients and keeps a reference to each until `nlxd` has closed its own.
//! - **Nor to a descriptor that a client has as well** (`shared_fds.rs`), whose last close waits for
//!   its watchers.
//!
//! ```text
//!   nlxd                          porter                             carriers, forked when needed
//!   ─ Accept ───────────────────▶ accept                             one batch of one user at a time;
//!   ◀── Accepted, the socket ──── keeps the socket                   a close that blocks blocks one of them
//!   ─ Drop, the socket ─────────▶ shutdown
//!   close; ─ Closed ────────────▶ nothing in its queue: close
//!                                 else ─ Close, the socket ────────▶ close
//!   ◀── Gone ────────────────────
//!   ─ Keep, a shared one ───────▶ keeps it, before the client gets it
//!   ─ Drop, it; close ─ Closed ─▶ ─ Close, it ─────────────────────▶ close
//! ```
//!
//! So the porter itself does not close what a client has sent, either. A carrier that does not
//! finish within [`CARRIER_TIMEOUT`] is killed, which ends a TCP socket's lingering, and is
//! abandoned if that does not end it. It counts for its user until its process has ended: a user
//! has [`CARRIERS_PER_USER`] at most, and never more than are free. A descriptor for which no
//! carrier is free waits in the porter, and the client keeps its place among the clients until
//! `PorterMessage::Gone`.
//!
//! # Ends
//!
//! When `nlxd` ends or is killed, the porter shuts all clients' sockets down, so that clients see
//! their end at once, waits until the process has closed its descriptors, and ends. The porter
//! holds neither the node's ports nor its locks.
//!
//! When the porter dies, or does not answer for [`SILENCE_MAX`], `nlxd` starts another one, passes
//! all sockets to it, and continues. In between `nlxd` closes no socket of a client.
//!
//! | module | holds |
//! | --- | --- |
//! | `channel` | messages with descriptors |
//! | `link` | `nlxd`'s end of a channel |
//! | `keeper` | the porter's loop |
//! | `carrier` | the processes that close |

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lnet_api::Errno;
use nix::sys::prctl;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;
use parking_lot::Mutex;

use carrier::Carriers;
use keeper::Keeper;

#[allow(unsafe_code, reason = "processes are forked, and leave without the parent's exit")]
mod carrier;
mod channel;
#[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
mod keeper;
mod link;

pub(crate) use channel::PorterMessage;
#[cfg(test)]
pub(crate) use channel::{receive_one, send};
pub(crate) use link::PorterLink;

/// Carriers that one user's descriptors may occupy. More than one, so that a slow close does not
/// delay the user's next request; each costs a process.
pub const CARRIERS_PER_USER: usize = 16;

/// Maximum number of carriers beyond each user's first one, root's reserve included. A user has no
/// more than are still free, so that other users find some.
pub const CARRIERS_MAX: usize = 256;

/// Maximum number of users' first carriers, in addition to [`CARRIERS_MAX`]: a user without a
/// carrier still gets one when all of those are taken.
pub const CARRIERS_FIRST: usize = 512;

/// The part of [`CARRIERS_MAX`] that is reserved for root, and root's limit.
pub const CARRIERS_ROOT: usize = 16;

/// Sockets that one carrier closes at most; one message can carry 253.
pub const BATCH_MAX: usize = 128;

/// Messages of one service thread before the next one's turn.
pub const MESSAGES_BUDGET: usize = 64;

/// Time after which a carrier with a job is killed. That ends a close that a signal can interrupt,
/// but not those of files on FUSE and network file systems.
pub const CARRIER_TIMEOUT: Duration = Duration::from_secs(5);

/// Numbers from here on are not those of clients, but of descriptors that a client has as well: the
/// porter only keeps them, and a carrier closes them.
pub(crate) const SHARED: u64 = 1 << 63;

/// Interval of the checks for late carriers, while any has a job.
const LATE_LOOK_MS: u16 = 500;

/// Delay before a retry after a failure for want of processes, memory or descriptors in flight.
const RETRY_MS: u16 = 100;

/// Minimum time between two starts of a porter: one that cannot run must not occupy `nlxd`.
pub const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A porter that does not answer for this time is replaced: it may have ended while a descriptor
/// whose close blocks keeps its process, and the ends of its channels.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);

/// `nlxd`'s connection to its porter.
pub struct Porter {
    /// Kills the previous porter, if any, starts one, and returns the end of its channel.
    start: Box<dyn Fn() -> Result<OwnedFd, Errno> + Send + Sync>,
    /// Set if the porter is a separate process, which never blocks.
    is_process: bool,
    state: Mutex<PorterState>,
}

struct PorterState {
    main: OwnedFd,
    generation: u64,
    started: Instant,
    /// The listening socket, for the next porter, and whether no other process has it.
    listener: Option<(OwnedFd, bool)>,
    /// Set once this porter has been sent the listening socket.
    listening: bool,
}

impl PorterState {
    /// Sends the listening socket to the porter, unless it has it. Without it the porter accepts no
    /// client.
    fn send_listener(&mut self) -> Result<(), Errno> {
        let Some((listener, own)) = self.listener.as_ref().filter(|_| !self.listening) else { return Ok(()) };
        let message = PorterMessage::Listener { own: *own };
        channel::send(self.main.as_fd(), message, &[listener.as_fd()], MsgFlags::empty())?;
        self.listening = true;
        Ok(())
    }
}

impl Porter {
    /// Starts a porter by `start`, which is called again if the porter ends or does not answer for
    /// [`SILENCE_MAX`]; it kills the previous one first. It returns one end of a [`channel`](pair),
    /// the other end of which is the standard input of [`main`] or of a process that calls it.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn start(
        start: impl Fn() -> Result<OwnedFd, Errno> + Send + Sync + 'static,
    ) -> Result<Porter, Errno> {
        Porter::new(start, true)
    }

    fn new(
        start: impl Fn() -> Result<OwnedFd, Errno> + Send + Sync + 'static,
        is_process: bool,
    ) -> Result<Porter, Errno> {
        let main = start()?;
        let started = Instant::now();
        let state = PorterState { main, generation: 1, started, listener: None, listening: false };
        Ok(Porter { start: Box::new(start), is_process, state: Mutex::new(state) })
    }

    /// Starts a porter that is a thread of this process, and closes descriptors itself. For trusted
    /// clients: it protects from nothing.
    ///
    /// # Errors
    /// Errors of the system for a further thread or descriptor.
    pub fn in_process() -> Result<Porter, Errno> {
        let start = || {
            let (ours, theirs) = pair()?;
            let thread = std::thread::Builder::new().name("nlx-porter".into());
            let run = move || Keeper::new(theirs, Carriers::Inline, None).run(None);
            thread.spawn(run).map_err(errno_of)?;
            Ok(ours)
        };
        Porter::new(start, false)
    }

    /// Has the porter accept the clients of this listening socket. With `own`, the connections that
    /// are not accepted when this process ends are closed; without it, another process has the
    /// socket, too, and accepts them.
    ///
    /// # Errors
    /// EPIPE if the porter is gone; errors of the system.
    pub fn listen(&self, listener: BorrowedFd<'_>, own: bool) -> Result<(), Errno> {
        let mut state = self.state.lock();
        channel::send(state.main.as_fd(), PorterMessage::Listener { own }, &[listener], MsgFlags::empty())?;
        state.listener = Some((listener.try_clone_to_owned().map_err(errno_of)?, own));
        state.listening = true;
        Ok(())
    }

    /// Opens a channel for a service thread, to a new porter if the current one is gone. The porter
    /// has the listening socket before it has the channel.
    ///
    /// # Errors
    /// EAGAIN if the last porter was started a moment ago; errors of the system.
    pub(crate) fn link(&self) -> Result<PorterLink, Errno> {
        let (ours, theirs) = pair()?;
        let mut state = self.state.lock();
        let add = |state: &mut PorterState| {
            state.send_listener()?;
            channel::send(state.main.as_fd(), PorterMessage::Channel, &[theirs.as_fd()], MsgFlags::empty())
        };
        match add(&mut state) {
            Err(Errno::EPIPE | Errno::ECONNRESET) => {}
            sent => return sent.map(|()| PorterLink::new(ours, state.generation)),
        }
        self.start_next(&mut state)?;
        add(&mut state)?;
        Ok(PorterLink::new(ours, state.generation))
    }

    /// Replaces the porter of this generation, which does not answer, unless that has been done
    /// already or the porter is a thread.
    ///
    /// # Errors
    /// Those of [`link`](Porter::link).
    pub(crate) fn replace(&self, generation: u64) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if self.is_process && state.generation == generation {
            self.start_next(&mut state)?;
        }
        state.send_listener()
    }

    /// Returns the generation of the porter: each has a different number.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    /// Returns whether the porter is a process, which must answer at once.
    pub(crate) fn is_process(&self) -> bool {
        self.is_process
    }

    /// Starts another porter, which has no listening socket yet.
    fn start_next(&self, state: &mut PorterState) -> Result<(), Errno> {
        if state.started.elapsed() < RESTART_PAUSE {
            return Err(Errno::EAGAIN);
        }
        state.started = Instant::now();
        tracing::warn!("the porter process has ended: starting another");
        state.main = (self.start)()?;
        state.generation += 1;
        state.listening = false;
        Ok(())
    }
}

impl std::fmt::Debug for Porter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Porter").field("generation", &self.state.lock().generation).finish_non_exhaustive()
    }
}

/// Creates the two ends of a porter's channel.
///
/// # Errors
/// EMFILE or ENFILE without descriptors.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    channel::pair()
}

/// Runs the porter's process: returns when `nlxd`, its parent with this process id, has ended.
/// Standard input is the channel; all other descriptors are closed. No thread may have been
/// started.
///
/// # Errors
/// EINVAL if standard input is no channel; EBUSY if there are other threads; errors of the system.
pub fn main(nlxd: i32) -> Result<(), Errno> {
    // The porter ends with nlxd: signals to all processes of the service are handled by nlxd.
    SigSet::all().thread_block()?;
    let _ = prctl::set_name(c"nlx-porter");
    let channel = carrier::detach()?;
    let ended = SigSet::from_iter([nix::sys::signal::Signal::SIGCHLD]);
    let signals = SignalFd::with_flags(&ended, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    Keeper::new(channel, Carriers::processes()?, Some(signals)).run(Some(Pid::from_raw(nlxd)));
    Ok(())
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    fn unconnected() -> OwnedFd {
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap()
    }

    /// Without the listening socket the porter refuses every `Accept`: no client could connect.
    #[test]
    fn a_porter_that_could_not_be_sent_the_listener_is_sent_it_later() {
        for replaces in [false, true] {
            let (first, first_end) = pair().unwrap();
            let mains = Mutex::new(vec![unconnected(), first]);
            let porter = Porter::start(move || mains.lock().pop().ok_or(Errno::EMFILE)).unwrap();
            porter.listen(unconnected().as_fd(), true).unwrap();
            drop(first_end);
            std::thread::sleep(RESTART_PAUSE);
            // As with a system without memory: the send fails, and may succeed later.
            assert_eq!(porter.replace(1), Err(Errno::ENOTCONN));
            assert_eq!(porter.generation(), 2);
            let (next, end) = pair().unwrap();
            porter.state.lock().main = next;
            let next_message = || {
                let received = channel::receive_one(end.as_fd(), MsgFlags::MSG_DONTWAIT).unwrap();
                received.map(|(message, fd)| (message, fd.is_some())).unwrap()
            };
            let listener = (PorterMessage::Listener { own: true }, true);
            if replaces {
                porter.replace(1).unwrap();
                assert_eq!(next_message(), listener);
            }
            assert_eq!(porter.link().unwrap().generation, 2);
            if !replaces {
                assert_eq!(next_message(), listener);
            }
            assert_eq!(next_message(), (PorterMessage::Channel, true));
            drop(porter.link().unwrap());
            assert_eq!(next_message(), (PorterMessage::Channel, true), "it has the listener already");
        }
    }
}
