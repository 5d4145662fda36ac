use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Two threads wake each other in turn, each through an eventfd on which the other sleeps in poll(2): a waiter of nlx
/// sleeps on several descriptors, so a mere blocking read is no comparison. Microseconds one way.
pub(crate) fn pingpong(round: &Round) -> Result<Sample> {
    let (there, back) = (eventfd()?, eventfd()?);
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

fn eventfd() -> Result<EventFd> {
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
