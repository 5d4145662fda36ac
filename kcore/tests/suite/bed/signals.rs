//! Real signals for a thread that sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, gettid};
use nlx_testkit::until;
use parking_lot::{Mutex, MutexGuard};

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Signals that interrupt system calls; one test at a time uses them.
pub(crate) struct Signals {
    _alone: MutexGuard<'static, ()>,
}

/// The identity of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    tid: Pid,
    thread: libc::pthread_t,
}

impl Signals {
    pub(crate) fn new() -> Signals {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock();
        // Without SA_RESTART, so that system calls fail with EINTR.
        let action = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler adds to an atomic, which is async-signal-safe, and no other code uses
        // this signal.
        unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
        Signals { _alone: alone }
    }

    /// Interrupts a thread once it sleeps, and checks that the signal was handled. Returns false if
    /// the thread has ended before.
    pub(crate) fn interrupt<T>(&self, thread: &ScopedJoinHandle<'_, T>, target: Target) -> bool {
        until("it sleeps", || target.sleeps() || thread.is_finished());
        let before = HANDLED.load(Ordering::SeqCst);
        let handled = || HANDLED.load(Ordering::SeqCst) > before;
        // SAFETY: the thread still runs, or has ended, which the call may then report; it has not
        // been joined: its handle is here.
        let sent = unsafe { libc::pthread_kill(target.thread, libc::SIGUSR2) };
        until("it handles the signal", || handled() || thread.is_finished());
        assert!(sent == 0 || thread.is_finished());
        handled()
    }
}

impl Target {
    /// Returns the calling thread.
    fn this() -> Target {
        // SAFETY: it has no preconditions.
        let thread = unsafe { libc::pthread_self() };
        Target { tid: gettid(), thread }
    }

    /// Returns whether it sleeps in a system call.
    pub(crate) fn sleeps(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.tid));
        stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S")))
    }
}

/// Starts a thread that waits; it sleeps when this returns, or has ended.
pub(crate) fn asleep<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    wait: impl FnOnce() -> T + Send + 'scope,
) -> (ScopedJoinHandle<'scope, T>, Target) {
    let (sender, receiver) = channel();
    let waiter = scope.spawn(move || {
        sender.send(Target::this()).unwrap();
        wait()
    });
    let target: Target = receiver.recv().unwrap();
    until("it sleeps", || target.sleeps() || waiter.is_finished());
    (waiter, target)
}
