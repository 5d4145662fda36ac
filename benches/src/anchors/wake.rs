//! Wake-ups of a sleeping thread, by plain system calls.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Turn number that ends the other thread; no real turn has it.
const END: u64 = u64::MAX;

/// Two threads wake each other alternately, each through an eventfd on which the other sleeps in
/// poll(2): a waiter of nlx sleeps on several descriptors, so a plain blocking read would be no
/// comparison. Microseconds one way.
pub(crate) fn eventfds(round: &Round) -> Result<Sample> {
    let (there, back) = (new_eventfd()?, new_eventfd()?);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            cores::pin(round.cores.server)?;
            while !ended.load(Ordering::Acquire) {
                sleep(&there)?;
                wake(&back)?;
            }
            Ok(())
        });
        let timed = Timed::warm(round.time, || {
            wake(&there)?;
            sleep(&back)?;
            Ok(1)
        });
        ended.store(true, Ordering::Release);
        wake(&there)?;
        echo.join().expect("the echo does not panic")?;
        Ok(Sample::of(timed?.microseconds_per_step() / 2.0))
    })
}

/// Two threads wake each other alternately by parking, which on Linux is a plain futex.
/// Microseconds one way.
pub(crate) fn futexes(round: &Round) -> Result<Sample> {
    let (there, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let client = std::thread::current();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            cores::pin(round.cores.server)?;
            for turn in 1.. {
                if park_until(&there, turn) == END {
                    break;
                }
                back.store(turn, Ordering::Release);
                client.unpark();
            }
            Ok(())
        });
        let mut turn = 0;
        let timed = Timed::warm(round.time, || {
            turn += 1;
            there.store(turn, Ordering::Release);
            echo.thread().unpark();
            park_until(&back, turn);
            Ok(1)
        });
        there.store(END, Ordering::Release);
        echo.thread().unpark();
        echo.join().expect("the echo does not panic")?;
        Ok(Sample::of(timed?.microseconds_per_step() / 2.0))
    })
}

/// Parks until this turn, or a later one, and returns it.
fn park_until(turns: &AtomicU64, turn: u64) -> u64 {
    loop {
        match turns.load(Ordering::Acquire) {
            now if now >= turn => return now,
            _ => std::thread::park(),
        }
    }
}

fn new_eventfd() -> Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK).map_err(BenchError::system("make an eventfd"))
}

fn wake(eventfd: &EventFd) -> Result<()> {
    eventfd.write(1).map(drop).map_err(BenchError::system("write to an eventfd"))
}

fn sleep(eventfd: &EventFd) -> Result<()> {
    let mut set = [PollFd::new(eventfd.as_fd(), PollFlags::POLLIN)];
    ppoll(&mut set, None, None).map_err(BenchError::system("sleep on an eventfd"))?;
    eventfd.read().map(drop).map_err(BenchError::system("read from an eventfd"))
}
