//! MT-230: tests that signals which interrupt system calls end no sleep, and do not move its
//! deadline.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, gettid};
use nlx_sync::{Wake, Waker};

use crate::layout::SleepSide;
use crate::tests::wake::BELLS;
use crate::{Heap, QueueMemory, QueueWord};

/// The number of signals handled.
static HANDLED: AtomicU32 = AtomicU32::new(0);

/// Held by the one test that uses the signal handler.
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn count(_signal: libc::c_int) {
    HANDLED.fetch_add(1, Relaxed);
}

/// Makes `SIGUSR1` interrupt system calls: `SA_RESTART` is not among the flags.
fn count_signals() {
    let action = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only adds to an atomic, which is allowed in a handler.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
}

/// Waits until the thread sleeps in the kernel after it has announced sleep in `memory`. Returns
/// `false` if the thread has ended.
fn sleeps<T>(thread: &JoinHandle<T>, tid: Pid, memory: &Heap) -> bool {
    while !thread.is_finished() {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        // In the file, the state follows the name, which is in parentheses.
        let asleep = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'));
        let announced = |side: SleepSide| asleep && memory.header().word(side).is_announced();
        // Either of the two words may be used with the bell.
        if announced(SleepSide::Thread) || announced(SleepSide::Loop) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Interrupts the sleeping thread and waits until it has handled the signal.
fn interrupt<T>(thread: &JoinHandle<T>) {
    let before = HANDLED.load(Relaxed);
    // SAFETY: the thread has not been joined, so its identity is valid; if it has ended, the call
    // returns an error.
    let sent = unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
    while sent == 0 && HANDLED.load(Relaxed) == before && !thread.is_finished() {
        std::thread::yield_now();
    }
}

/// Starts a thread that sleeps, and returns it with its thread id.
fn sleeping_thread(
    bells: usize,
    memory: &Heap,
    deadline: Option<Instant>,
) -> (JoinHandle<Wake>, Pid, Waker<QueueWord<Heap>>) {
    let (waker, sleeper) = BELLS[bells](memory);
    let (tell, hear) = channel();
    let thread = std::thread::spawn(move || {
        tell.send(gettid()).unwrap();
        sleeper.sleep(deadline, || false).unwrap()
    });
    (thread, hear.recv().unwrap(), waker)
}

// Covers: MT-230
#[test]
fn a_signal_does_not_end_sleep() {
    let _turn = TURN.lock().unwrap();
    count_signals();
    for bells in 0..BELLS.len() {
        let memory = Heap::new(8).unwrap();
        let (thread, tid, waker) = sleeping_thread(bells, &memory, None);
        for _ in 0..10 {
            assert!(sleeps(&thread, tid, &memory));
            interrupt(&thread);
        }
        assert!(sleeps(&thread, tid, &memory));
        // During its check once a second the thread is awake, and a wake-up has no effect.
        while !waker.wake().unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(thread.join().unwrap(), Wake::Signalled);
    }
}

// Covers: MT-230
#[test]
fn a_signal_does_not_move_the_deadline() {
    let _turn = TURN.lock().unwrap();
    count_signals();
    for bells in 0..BELLS.len() {
        let memory = Heap::new(8).unwrap();
        let before = HANDLED.load(Relaxed);
        // On a busy machine the deadline may pass before the thread is found asleep.
        while HANDLED.load(Relaxed) == before {
            let deadline = Instant::now() + Duration::from_millis(50);
            let (thread, tid, _waker) = sleeping_thread(bells, &memory, Some(deadline));
            while sleeps(&thread, tid, &memory) {
                interrupt(&thread);
            }
            assert_eq!(thread.join().unwrap(), Wake::TimedOut);
            assert!(Instant::now() >= deadline);
        }
    }
}
